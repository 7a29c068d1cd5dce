"""Break training runs in every way a machine can, and check what is left of them.

Each run has to end within 5 s, to name the cause in its last line, and to leave no process, shared
memory, listening port or temporary file. Then it is resumed, and has to end with the weights of a
run that nobody disturbed, bit for bit.
"""
