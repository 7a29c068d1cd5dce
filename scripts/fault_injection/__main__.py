"""Command line of the faults: python scripts/fault_injection [--kills 20] [--seed 0]."""

import sys
from pathlib import Path

if __name__ == "__main__":
    # The package is this folder; what else lies beside it is of no use here.
    sys.path[0] = str(Path(__file__).parents[1])
    from fault_injection.cli import main

    sys.exit(main(sys.argv[1:]))
