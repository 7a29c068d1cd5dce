"""Command line of the fuzzer: python scripts/fuzzing readers --cases 10000 --jobs 2."""

import sys
from pathlib import Path

if __name__ == "__main__":
    # The package is this folder; what else lies beside it is of no use here.
    sys.path[0] = str(Path(__file__).parents[1])
    from fuzzing.cli import main

    sys.exit(main(sys.argv[1:]))
