"""Sums over the workers of one machine: in shared memory, and by gloo over loopback.

``sums`` times an all-reduce of float32 values, of processes that do nothing else; no process is
pinned to a core. ``training`` times steps of ``device_plan=cpu_x2`` on the default graph, whose
gradients are summed in both ways in turn.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.runner import composed, show, take, together

WAYS = ("shared memory", "gloo")
#: float32 values; 75,000 are the gradients of a small model.
COUNTS = (1, 1_000, 75_000, 500_000, 2_000_000)
#: Sums one after the other, of each number of values, in a round.
_REPEATS = 50
#: Training steps in a row whose gradients are summed in one way.
_BLOCK = 6


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=("sums", "training"))
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 4], help="of sums")
    parser.add_argument("--options", nargs="*", default=[], help="of training")
    take(parser, rounds=5)


def groups(rank: int, size: int, meeting: str) -> Iterator[dict[str, Any]]:
    """Yield this process among the others, by the way in which they sum."""
    from gnnscale.distributed.process_group import join

    with join(rank, size, Path(meeting), backend="gloo") as group:
        assert group.sums is not None, "the processes share no memory"
        yield dict(zip(WAYS, (group, replace(group, sums=None)), strict=True))


def time_sums(rank: int, size: int, meeting: str, rounds: int) -> dict[str, Any]:
    """Seconds of each sum, by way and number of values: medians of those of rank 0."""
    import torch

    torch.set_num_threads(1)
    found: dict[str, dict[int, list[float]]] = {way: {n: [] for n in COUNTS} for way in WAYS}
    for ways in groups(rank, size, meeting):
        for _ in range(rounds):
            for count in COUNTS:
                values = torch.ones(count)
                for way, group in ways.items():
                    group.sum(values)
                    for _ in range(_REPEATS):
                        values.fill_(rank + 1)
                        group.barrier()
                        start = time.perf_counter()
                        group.sum(values)
                        found[way][count].append(time.perf_counter() - start)
                        assert values[-1] == size * (size + 1) // 2
    return {way: {n: statistics.median(t) for n, t in each.items()} for way, each in found.items()}


def time_training(
    rank: int, size: int, meeting: str, rounds: int, overrides: list[str]
) -> dict[str, Any]:
    """Seconds of a training step by way, one for each run: medians over its steps.

    A run sums the gradients of some steps in one way, those of the next ones in the other.
    """
    from gnnscale import Observer
    from gnnscale.training.setup import open_run
    from gnnscale.training.train import train

    config, plain = composed(*overrides)
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    for ways in groups(rank, size, meeting):
        for number in range(rounds + 1):  # the first is to warm up
            group = alternating(ways)
            with tempfile.TemporaryDirectory() as folder:
                more = plain | {"resume": None}
                train(open_run(config, Path(folder), more, group), Observer(), group)
            if rank == 0 and number:
                for way, seconds in step_seconds(group.ends).items():
                    found[way].append(seconds)
    return found


def alternating(ways: dict[str, Any]) -> Any:
    """Return a group that sums a few times in one way, then in the next, and notes the times."""
    every = list(ways.values())

    class Alternating(type(every[0])):  # type: ignore[misc]
        ends: ClassVar[list[float]] = []

        def sum(self, values: Any) -> None:
            every[len(self.ends) // _BLOCK % len(every)].sum(values)
            self.ends.append(time.perf_counter())

    group = every[0]
    return Alternating(**{each.name: getattr(group, each.name) for each in fields(group)})


def step_seconds(ends: list[float]) -> dict[str, float]:
    """Return the median seconds from one sum to the next by the way of the latter."""
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    for number, (before, end) in enumerate(pairwise(ends), 1):
        if number % _BLOCK:
            found[WAYS[number // _BLOCK % len(WAYS)]].append(end - before)
    return {way: statistics.median(seconds) for way, seconds in found.items()}


def sums(options: argparse.Namespace) -> dict[str, Any]:
    found = {}
    for size in options.workers:
        seconds = together(time_sums, size, options.rounds)
        found[f"{size} workers"] = seconds
        rows = []
        for count in map(str, COUNTS):
            shared, gloo = (seconds[way][count] for way in WAYS)
            cells = (f"{1e3 * each:.3f}" for each in (shared, gloo))
            rows.append([f"{4 * int(count):,}", *cells, f"{gloo / shared:.1f}"])
        show(f"All-reduce of {size} processes, ms", ["bytes", *WAYS, "gloo / shared"], rows)
    return found


def training(options: argparse.Namespace) -> dict[str, Any]:
    batch = composed(*options.options)[0].batch_size
    split = f"device_plan.split=[{batch - batch // 2},{batch // 2}]"
    overrides = ["device_plan=cpu_x2", split, "epochs=4", "runtime.eval_every=4"]
    overrides += ["runtime.drm=false", "runtime.checkpoint=false", *options.options]
    seconds = together(time_training, 2, options.rounds, overrides)
    pairs = list(zip(*(seconds[way] for way in WAYS), strict=True))
    ratios = [gloo / shared for shared, gloo in pairs]
    found = {way: statistics.median(seconds[way]) for way in WAYS}
    found["gloo / shared memory"] = statistics.median(ratios)
    cells = [*(f"{1e3 * found[way]:.2f}" for way in WAYS), f"{found['gloo / shared memory']:.3f}"]
    columns = [*WAYS, "gloo / shared, of pairs", "of all rounds"]
    spread = f"{min(ratios):.3f} to {max(ratios):.3f}"
    show(f"A step of {' '.join(overrides)}, ms", columns, [[*cells, spread]])
    return found


WORK = {"sums": sums, "training": training}


def run(options: argparse.Namespace) -> Any:
    os.environ |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}  # of its processes
    return WORK[options.what](options)
