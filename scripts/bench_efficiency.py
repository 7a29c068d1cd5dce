"""Parts of a processor's peak rates that training reaches: what published platforms are scaled by.

    python scripts/bench_efficiency.py [--rounds 5]

One thread trains on mini-batches of the widths of MAG240M (homo), HyScale-GNN's Table III, beside
what stands for the peak here: the fastest of large square products, and the fastest of sums over an
array far larger than the cache. Both are timed in turn, in the thread's own processor time, so that
other programs meet both. An efficiency is what equations 10 to 12 say with these peaks over
what was measured.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from benchmarking import show

from gnnscale.model import GCN, GraphSAGE
from gnnscale.plan.calibration.probes import StepProbe, probe_graph, time_steps
from gnnscale.plan.perf.equations import trainer_seconds
from gnnscale.plan.perf.work import propagation_work

#: Rows of a square product, and float64 values of an array that no cache holds.
_ROWS = 2048
_VALUES = 1 << 26
_VERTICES, _EDGES = 1 << 17, 1 << 20
_WIDTHS = (756, 256, 153)
_SEEDS = 256


def fastest(work: Callable[[], object], repeats: int = 3) -> float:
    """Return the least processor seconds of this thread in ``work``."""
    times = []
    for _ in range(repeats):
        start = time.thread_time()
        work()
        times.append(time.thread_time() - start)
    return min(times)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rounds", type=int, default=5)
    options = arguments.parse_args()
    torch.set_num_threads(1)
    graph = probe_graph(_VERTICES, _EDGES)
    square, values = torch.rand(_ROWS, _ROWS), np.ones(_VALUES)
    found: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        macs_per_s = _ROWS**3 / fastest(lambda: square @ square)
        bandwidth = 8 * _VALUES / fastest(values.sum)
        for model in (GCN, GraphSAGE):
            probe = StepProbe(
                model=model(hidden=_WIDTHS[1], num_layers=2),
                num_features=_WIDTHS[0],
                num_classes=_WIDTHS[2],
                fanouts=(25, 10),
                num_seeds=_SEEDS,
                host_aggregates=False,
            )
            step = time_steps(probe, graph, threads=1, repeats=3, clock=time.thread_time)
            at_peak = trainer_seconds(
                propagation_work(step.workload, step.size),
                memory_bandwidth=bandwidth,
                macs_per_s=macs_per_s,
                pipelined=False,
            )
            found.setdefault(model.__name__, []).append(at_peak / step.propagate_s)
    show(
        "Propagation: part of the peak, one thread",
        ["model", "median", "least", "most"],
        [
            [name, *(f"{figure(each):.2f}" for figure in (statistics.median, min, max))]
            for name, each in found.items()
        ],
    )


if __name__ == "__main__":
    main()
