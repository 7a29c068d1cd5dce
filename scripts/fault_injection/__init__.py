"""Break training runs in every way a machine can, and check what is left of them.

Runs of ``gnnscale train`` on several devices get kill -9 of a random worker at a random time, kill
-9 in each stage of training, SIGINT, SIGTERM, a worker whose memory runs out, one that is stopped
and stays so, and kill -9 of the process that started them. Each has to end within 5 s (of the
limit, for one that is stopped), to name the cause in its last line, and to leave no process, shared
memory, listening port or temporary file. Then it is resumed, and has to end with the weights of a
run that nobody disturbed, bit for bit.
"""
