"""The papers' tables and figures beside what the simulator predicts: one HTML page with plots.

python scripts/benchmarks/paper_tables                    writes outputs/reproduced.html
python scripts/benchmarks/paper_tables --docs             writes docs/paper-results.md as well
python scripts/benchmarks/paper_tables --locality         measures what DistDGL's parts share
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[2])
    from benchmarks.paper_tables.main import main

    sys.exit(main(sys.argv[1:]))
