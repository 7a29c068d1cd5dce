"""The papers' tables and figures beside what the simulator predicts: one HTML page with plots.

python scripts/reproduce_tables.py                    writes outputs/reproduced.html
python scripts/reproduce_tables.py --docs             writes docs/reproduced.md as well
python scripts/reproduce_tables.py --locality         measures what DistDGL's parts share
"""

import sys

from reproduce.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
