"""What the host does in a step, of a device that costs nothing.

A device that owns its steps takes a call a step; for another one the host does every stage.
``cuda`` is the host's part of recorded steps of the GPU's own backend. Figures are medians between
two reports of steps, with 1,024 seeds of a million training vertices.
"""

import argparse
import io
import statistics
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.runner import composed, in_subprocess, show, take

#: Microseconds.
TARGET = 60.0
_MODES = {
    "owned": ("owned_nothing", "auto"),
    "cuda": ("recorded_nothing", "auto"),
    "none": ("nothing", "none"),
    "one_stage": ("nothing", "one_stage"),
    "two_stage": ("nothing", "two_stage"),
}
_GRAPH = ("dataset.num_vertices=2000000", "dataset.num_edges=4000000", "dataset.train_fraction=0.5")
_RUN = ("epochs=1", "runtime.eval_every=2", "runtime.inference=sampled", "runtime.checkpoint=false")
_WARM_UP = 50


def options(parser: argparse.ArgumentParser) -> None:
    take(parser, rounds=5)


def step_seconds(mode: str) -> float:
    """Return the median seconds of a step of one run."""
    from rich.console import Console

    from benchmarks.null_device import plan
    from gnnscale.report.terminal import RunReport
    from gnnscale.training.setup import open_run
    from gnnscale.training.train import train

    ends: list[float] = []

    class Ends(RunReport):
        def stepped(self, record: Any) -> None:
            super().stepped(record)
            ends.append(time.perf_counter())

    kind, prefetch = _MODES[mode]
    chosen = (plan(kind), f"runtime.prefetch={prefetch}", "num_threads=1", "sampler.fanouts=[2,2]")
    config, values = composed(*_GRAPH, *_RUN, *chosen)
    values |= {"resume": None}
    with tempfile.TemporaryDirectory() as folder:
        report = Ends(Path(folder), epochs=1, options=values, console=Console(file=io.StringIO()))
        train(open_run(config, Path(folder), values), report)
    return statistics.median(end - begin for begin, end in pairwise(ends[_WARM_UP:]))


def run(options: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, list[float]] = {mode: [] for mode in _MODES}
    for _ in range(options.rounds):
        for mode, seconds in found.items():
            seconds.append(1e6 * in_subprocess(step_seconds, mode))
    figures = {mode: statistics.median(each) for mode, each in found.items()}
    rows = [[mode, f"{each:.0f}"] for mode, each in figures.items()]
    title = "The host's work of a step, a device that costs nothing"
    show(title, ["prefetch", "microseconds"], rows)
    missed = [
        f"{mode}: {figures[mode]:.0f} us, not {TARGET:.0f}"
        for mode in ("owned", "cuda")
        if figures[mode] > TARGET
    ]
    return {"microseconds": figures, "missed": missed}
