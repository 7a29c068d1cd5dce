"""What a design of the FPGA kernels takes of a die of an Alveo U250, process by process.

A model: no design was ever placed. ``python fpga/rtl`` holds parts of it against Yosys.
"""

import argparse
from typing import Any

from gnnscale.fpga_design.resources import DesignSize, fit
from gnnscale.planner.fpga_board import NAMES, Resources, board


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--n", type=int, default=2, help="scatter-gather PEs")
    parser.add_argument("--m", type=int, default=256, help="multiply-accumulate units")


def _row(name: str, taken: Resources) -> str:
    return f"| {name} | " + " | ".join(f"{getattr(taken, each):,.0f}" for each in NAMES) + " |"


def run(options: argparse.Namespace) -> Any:
    die = board("u250").dies[0]
    found = fit(DesignSize(n=options.n, m=options.m), die)
    print("| process | " + " | ".join(NAMES) + " |")
    print("|---" * (1 + len(NAMES)) + "|")
    for name, taken in found.resources.items():
        print(_row(name, taken))
    print(_row("shell", die.shell))
    print(_row("a die has", die.has))
    print("| taken | " + " | ".join(f"{found.shares[name]:.1%}" for name in NAMES) + " |")
    print("it fits" if found.fits else f"it does not fit: {found.limit}")
    return {"n": options.n, "m": options.m, "shares": found.shares}
