"""Command line of the benchmarks: python scripts/benchmarks sampler --rounds 7."""

import sys
from pathlib import Path

if __name__ == "__main__":
    # The package is this folder; what else lies beside it is of no use here.
    sys.path[0] = str(Path(__file__).parents[1])
    from benchmarks.runner import main

    sys.exit(main(sys.argv[1:]))
