"""How the options of a run are composed: the same for a command and a program."""
