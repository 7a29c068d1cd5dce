"""Entry point of ``python -m gnnscale``."""

import sys

from gnnscale.cli import main

if __name__ == "__main__":
    sys.exit(main())
