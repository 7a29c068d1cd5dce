"""Parts of a processor's peak rates that training reaches: what published platforms are scaled by.

One thread trains on mini-batches of the widths of MAG240M (homo), HyScale-GNN's Table III. An
efficiency is what equations 10 to 12 say with the fastest products and sums over what was measured.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.runner import show, take
from gnnscale.nn import GCN, GraphSAGE
from gnnscale.planner.calibration.probes import StepProbe, probe_graph, time_steps
from gnnscale.planner.cost_model.equations import trainer_seconds
from gnnscale.planner.cost_model.stage_work import propagation_work

#: Rows of a square product, and float64 values of an array that no cache holds.
_ROWS, _VALUES = 2048, 1 << 26
_VERTICES, _EDGES = 1 << 17, 1 << 20
_WIDTHS = (756, 256, 153)
_SEEDS = 256


def options(parser: argparse.ArgumentParser) -> None:
    take(parser, rounds=5)


def fastest(work: Callable[[], object], repeats: int = 3) -> float:
    times = []
    for _ in range(repeats):
        start = time.thread_time()
        work()
        times.append(time.thread_time() - start)
    return min(times)


def run(options: argparse.Namespace) -> Any:
    torch.set_num_threads(1)
    graph = probe_graph(_VERTICES, _EDGES)
    square, values = torch.rand(_ROWS, _ROWS), np.ones(_VALUES)
    found: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        macs_per_s = _ROWS**3 / fastest(lambda: square @ square)
        bandwidth = 8 * _VALUES / fastest(values.sum)
        for model in (GCN, GraphSAGE):
            probe = StepProbe(model, _WIDTHS, (25, 10), _SEEDS, host_aggregates=False)
            step = time_steps(probe, graph, threads=1, repeats=3, clock=time.thread_time)
            work = propagation_work(step.workload, step.size)
            rates = {"memory_bandwidth": bandwidth, "macs_per_s": macs_per_s, "pipelined": False}
            efficiency = trainer_seconds(work, **rates) / step.propagate_s
            found.setdefault(model.__name__, []).append(efficiency)
    rows = [
        [name, *(f"{figure(each):.2f}" for figure in (statistics.median, min, max))]
        for name, each in found.items()
    ]
    show("Propagation: part of the peak, one thread", ["model", "median", "min", "max"], rows)
    return found
