"""Command line of the parts as RTL: python fpga/rtl."""

import sys
from pathlib import Path

if __name__ == "__main__":
    # The package is this folder; what else lies beside it is of no use here.
    sys.path[0] = str(Path(__file__).parents[1])
    from rtl.command import main

    sys.exit(main())
