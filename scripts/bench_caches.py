"""What caches reach, and what planning them takes; no run is trained.

    python scripts/bench_caches.py hits         hit rates of every policy on three machines
    python scripts/bench_caches.py figures      Legion's figures 2, 3 and 9
    python scripts/bench_caches.py belady       look-ahead against caches whose rows stay
    python scripts/bench_caches.py model        Legion's cost model against counts
    python scripts/bench_caches.py foretold     hits and transactions of plans against counts
    python scripts/bench_caches.py planning     seconds and memory for 100 M vertices
    python scripts/bench_caches.py presampling  an epoch of it against an epoch of sampling
    python scripts/bench_caches.py lookup       reading rows through a cache and without one
    python scripts/bench_caches.py traffic      what crosses the links in an epoch

Mini-batches are drawn again as the run would draw them. Graphs are R-MAT products, or those that
``--store`` names.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarking import save
from caches.figures import figures
from caches.foretold import foretold
from caches.hits import MACHINES, hits
from caches.look_ahead import belady
from caches.model import model
from caches.planning import planning, worker
from caches.speed import lookup, presampling
from caches.traffic import traffic

WORK = {
    **{"hits": hits, "figures": figures, "belady": belady, "model": model},
    **{
        "planning": planning,
        "presampling": presampling,
        "foretold": foretold,
        "lookup": lookup,
        "traffic": traffic,
    },
}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("what", choices=WORK)
    arguments.add_argument("--store", nargs="*", type=Path, default=[], help="graph stores")
    arguments.add_argument("--machines", nargs="*", choices=MACHINES, default=list(MACHINES))
    arguments.add_argument("--devices", type=int, default=8, help="GPUs")
    arguments.add_argument("--epochs", type=int, help="epochs of a run")
    arguments.add_argument("--ratios", nargs="*", type=float, help="rows of a cache, of all rows")
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--rounds", type=int, default=5, help="of what is timed")
    arguments.add_argument("--vertices", type=int, default=100_000_000, help="of planning")
    arguments.add_argument("--clique", type=int, default=2, help="devices of planning")
    arguments.add_argument("--worker", help=argparse.SUPPRESS)
    arguments.add_argument("--json", type=Path, help="also write the figures to this file")
    options = arguments.parse_args()
    if options.worker:
        worker(options)
        return
    found = WORK[options.what](options)
    save(options.json, found)
    for line in found.get("missed", []):
        print(f"missed: {line}", file=sys.stderr)


if __name__ == "__main__":
    main()
