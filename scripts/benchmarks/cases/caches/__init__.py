"""What caches reach, and what planning them takes; no run is trained.

    hits, traffic       hit rates of every policy; what crosses the links in an epoch
    figures             Legion's figure 9
    model, foretold     Legion's cost model, and what plans foretell, against counts
    planning            seconds and memory for 100 M vertices
    presampling         an epoch of it against an epoch of sampling
    lookup              reading rows through a cache and without one

Mini-batches are drawn again as the run would draw them. Graphs are R-MAT products, or those that
``--store`` names.
"""

import argparse
from pathlib import Path
from typing import Any

from benchmarks.cases.caches.hits import figures, hits, traffic
from benchmarks.cases.caches.model import foretold, model
from benchmarks.cases.caches.runs import MACHINES
from benchmarks.cases.caches.speed import lookup, planning, presampling
from benchmarks.runner import take

_ALL = (hits, figures, model, foretold, planning, presampling, lookup, traffic)
WORK = {each.__name__: each for each in _ALL}


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("what", choices=WORK)
    add("--store", nargs="*", type=Path, default=[], help="graph stores")
    add("--machines", nargs="*", choices=MACHINES, default=list(MACHINES))
    add("--devices", type=int, default=8, help="GPUs")
    add("--epochs", type=int, help="epochs of a run")
    add("--ratios", nargs="*", type=float, help="rows of a cache, of all rows")
    add("--vertices", type=int, default=100_000_000, help="of planning")
    add("--clique", type=int, default=2, help="devices of planning")
    take(parser, threads=2, rounds=5)


def run(options: argparse.Namespace) -> Any:
    return WORK[options.what](options)
