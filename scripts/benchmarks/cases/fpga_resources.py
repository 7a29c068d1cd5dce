"""What a design of the FPGA kernels takes of a die of an Alveo U250, process by process.

A model: no design was ever placed. ``python fpga/rtl`` holds parts of it against Yosys.
"""

import argparse
from typing import Any

from benchmarks.runner import show
from gnnscale.fpga_design.resources import DesignSize, fit
from gnnscale.planner.fpga_board import NAMES, board


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--n", type=int, default=2, help="scatter-gather PEs")
    parser.add_argument("--m", type=int, default=256, help="multiply-accumulate units")


def run(options: argparse.Namespace) -> Any:
    die = board("u250").dies[0]
    found = fit(DesignSize(n=options.n, m=options.m), die)
    taken = {**found.resources, "shell": die.shell, "a die has": die.has}
    rows = [
        [process, *(f"{getattr(each, name):,.0f}" for name in NAMES)]
        for process, each in taken.items()
    ]
    rows.append(["taken", *(f"{found.shares[name]:.1%}" for name in NAMES)])
    show("Of a die of an Alveo U250", ["process", *NAMES], rows)
    print("it fits" if found.fits else f"it does not fit: {found.limit}")
    return {"n": options.n, "m": options.m, "shares": found.shares}
