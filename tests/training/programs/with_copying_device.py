"""``gnnscale``, and a kind of device that it does not know: see tests/fakes/copying_device.py."""

import sys
from pathlib import Path

from gnnscale.cli import main

sys.path.insert(0, str(Path(__file__).parents[2] / "fakes"))

import copying_device  # noqa: F401

if __name__ == "__main__":
    sys.exit(main())
