"""The phases of sampling with relabelling at once, for 1 to 16 threads.

    python scripts/bench_relabel.py [--rounds 20] [--json FILE]

Batches of R-MAT products. ``sampler`` is a batch as it is sampled: in turn by few threads, of
which one at a time relabels what all of them pick. ``at once`` is what many threads do, in phases
that all of them share; what is left to one thread ``alone`` is what no number of threads makes
faster. It is stated as a fraction of a batch of one thread. Where there are fewer cores than
threads, the phases take what they take on these cores, while that fraction is the same.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

from benchmarking import FANOUTS, open_graph, parser, save, seeds_of, show

from gnnscale.core.hardware import usable_cores
from gnnscale.ops import NativeSampler

THREADS = [1, 2, 4, 8, 16]
#: Of all shared work; the rest is ``alone``.
PHASES = ["lists", "offsets", "pick", "count", "number"]


def measure(sampler: Any, seeds: Any, step: int, threads: int) -> dict[str, float]:
    """Sample a batch in turn and at once: seconds of both, and of the phases of the latter."""
    start = time.perf_counter()
    sampler.sample_neighbors(seeds, FANOUTS, replace=False, seed=0, step=step, num_threads=threads)
    in_turn = time.perf_counter() - start
    phases = sampler.time_relabelling(seeds, FANOUTS, seed=0, step=step, num_threads=threads)
    return {"sampler": in_turn, "at once": sum(phases.values()), **phases}


def main() -> None:
    options = parser(__doc__.splitlines()[0]).parse_args()
    graph = open_graph(options.store)
    sampler = NativeSampler(graph)
    rounds: dict[int, list[dict[str, float]]] = {threads: [] for threads in THREADS}
    for number in range(options.rounds + 2):
        seeds = seeds_of(graph, number)
        for threads in THREADS:
            rounds[threads].append(measure(sampler, seeds, number, threads))
    results = {
        threads: {key: statistics.median(each[key] for each in found[2:]) for key in found[0]}
        for threads, found in rounds.items()
    }
    one = results[1]["sampler"]
    columns = ["threads", "sampler", "at once", *PHASES, "alone", "alone / one thread"]
    rows = [
        [
            str(threads),
            *(f"{seconds[key] * 1e3:.2f}" for key in columns[1:-1]),
            f"{seconds['alone'] / one:.1%}",
        ]
        for threads, seconds in results.items()
    ]
    show(f"Milliseconds of a batch, {usable_cores()} cores", columns, rows)
    save(options.json, {"cores": usable_cores(), "threads": results})


if __name__ == "__main__":
    main()
