"""Runs one command line, and names the heavy modules that this process has then imported."""

import sys

from gnnscale.cli.command import main

HEAVY = ("torch", "scipy", "pyarrow")

if __name__ == "__main__":
    status: object = 0
    try:
        status = main()
    except SystemExit as leave:
        status = leave.code
    print("imported:", *(name for name in HEAVY if name in sys.modules))
    sys.exit(status if isinstance(status, int) else 0)
