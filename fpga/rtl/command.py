"""The parts of the FPGA kernels as RTL, beside their C simulation and the model of resources.

``python fpga/rtl`` prints what ``docs/fpga.md`` has. It proves the rules of C simulation and the
arithmetic of memories, and nothing of what Vitis HLS makes of the kernels.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    description = "The parts of the FPGA kernels as RTL, beside C simulation and the model."
    parser = argparse.ArgumentParser(prog="python fpga/rtl", description=description)
    parser.add_argument("--streams", type=int, default=24, help="random streams for each part")
    parser.add_argument("--steps", type=int, default=12, help="steps of the small engine")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all checks; return 1 if one fails or a tool is missing."""
    options = _parse(arguments)
    try:
        from rtl import checks
        from rtl.build import ToolError
    except ImportError as error:
        print(f"{error.name} is not installed: pip install -e .[rtl]")
        return 1

    from rtl.report import print_engine, print_resources, print_streams

    with tempfile.TemporaryDirectory(prefix="gnnscale-rtl-") as name:
        folder = Path(name)
        try:
            tile, small = checks.tile_and_small(folder)
            fine = print_streams(checks.streams(folder, checks.TILE, tile, options.streams))
            fine &= print_engine(checks.small_engine(folder, small, options.steps))
            fine &= print_resources(checks.resources(folder))
        except ToolError as error:
            print(error)
            return 1
    return 0 if fine else 1
