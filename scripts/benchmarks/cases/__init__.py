"""What is measured: each module says what its options are, and what it runs.

``options(parser)`` adds options. ``run(options)`` measures, shows tables, and returns the
figures for ``--json``; what it lists as ``missed`` is printed, and makes the exit status 1. A case
that measures several systems in turn has ``worker(system, options)``, which returns a round's
``measure(number)``, or a function ``in_subprocess`` calls in a process of its own.
"""
