"""Checkpoints every second: what a kill costs then, and what they cost who is not killed.

``kills``: runs of every plan get kill -9 at random moments, and are resumed. They have to have the
weights and the losses of a run that nobody disturbed, bit for bit.

``cost``: a small run has a checkpoint in every other second of one long epoch. Times of each
stretch are held against the mean of the two around it.
"""

import argparse
import os
import random
import resource
import statistics
import tempfile
import time
from contextlib import suppress
from itertools import count, pairwise
from pathlib import Path
from typing import Any

from fault_injection.inside_epochs import PLANS, Killed, compare, kill, measure_loss, plan_of
from fault_injection.plan import prepare_home

from benchmarks.runner import composed, show, take, tell

#: A small model on a small graph, in an epoch of so many steps that it does not end.
SMALL = (
    *("dataset.num_vertices=200000", "dataset.num_edges=2000000", "dataset.train_fraction=0.7"),
    *("model.hidden=32", "sampler.fanouts=[10,5]", "batch_size=4", "num_threads=1", "epochs=1"),
    *("runtime.prefetch=one_stage", "runtime.drm=false"),
)
TARGET_S, TARGET = 1.0, 0.03


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", nargs="?", choices=("kills", "cost"), default="cost")
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plans", default=",".join(PLANS))
    parser.add_argument("--every-s", type=float, default=TARGET_S)
    take(parser, rounds=60)


def run(options: argparse.Namespace) -> Any:
    return kills(options) if options.what == "kills" else cost(options)


def kills(options: argparse.Namespace) -> dict[str, Any]:
    chance = random.Random(options.seed)
    names = options.plans.split(",")
    results: list[Killed] = []
    with tempfile.TemporaryDirectory(prefix="gnnscale-kills-") as temporary:
        for name in names:
            plan = plan_of(Path(temporary), name, options.every_s)
            found = Killed(plan=name)
            results.append(found)
            numbers = count()
            while len(found.lost_s) < options.kills // len(names):
                directory = plan.folder / f"run-{next(numbers)}"
                for _ in range(2):
                    if not kill(plan, directory, chance, found):
                        break
                    measure_loss(directory, found)
                plan.finish(directory)
                compare(plan, directory, found)
                wrong = "; ".join(found.wrong) or "as it should"
                tell(f"{name}: {len(found.lost_s)} kills; {wrong}")
    columns = ["plan", "kills", "inside an epoch", "at a write", "work lost, median and most"]
    title = f"Checkpoints every {options.every_s:g} s"
    show(title, [*columns, "longest step", "weights"], [_row(found) for found in results])
    times = [pair for each in results for pair in zip(each.lost_s, each.step_s, strict=True)]
    late = sum(seconds > options.every_s + step for seconds, step in times)
    print(f"\n{late} kills lost more than the interval and a step")
    missed = [wrong for each in results for wrong in each.wrong]
    return {"figures": [vars(each) for each in results], "missed": missed}


def _row(found: Killed) -> list[str]:
    counts = map(str, (len(found.lost_s), sum(found.inside), found.writing))
    lost = f"{statistics.median(found.lost_s):.2f} s, {max(found.lost_s):.2f} s"
    wrong = "; ".join(found.wrong) or "equal, bit for bit"
    return [found.plan, *counts, lost, f"{max(found.step_s):.2f} s", wrong]


def cost(options: argparse.Namespace) -> dict[str, Any]:
    """Compare stretches of one epoch with a checkpoint in each and with none, in alternation."""
    with tempfile.TemporaryDirectory(prefix="gnnscale-cost-") as temporary:
        prepare_home(Path(temporary))
        os.environ["GNNSCALE_HOME"] = temporary
        meter = measured(Path(temporary) / "run", options.rounds)
    what = ("cpu_s", "wall_s")
    ratios = {each: [on[each] / off[each] for on, off in meter.pairs()] for each in what}
    for name, chosen in (("without", meter.windows[::2]), ("every second", meter.windows[1::2])):
        cpu, wall = (statistics.median(each[what] for each in chosen) for what in ratios)
        print(f"{name}: {cpu:.3f} s of CPU time, {wall:.3f} s by the clock")
    for what, values in ratios.items():
        low, middle, high = (100 * (each - 1) for each in statistics.quantiles(values, n=4))
        print(f"{what}: {middle:+.2f} % (quartiles {low:+.2f} %, {high:+.2f} %)")
    own = {name: 1000 * statistics.mean(each) for name, each in meter.own.items()}
    copied, written = (f"{own[each]:.2f} ms" for each in ("copied", "written"))
    print(f"CPU time of a checkpoint: {copied} in the thread that trains, {written} in the")
    print(f"background; {sum(own.values()) / 10:.2f} % of a second")
    found: dict[str, Any] = {"windows": meter.windows, "ratios": ratios, "own_ms": own}
    if statistics.median(ratios["cpu_s"]) > 1 + TARGET:
        found["missed"] = [f"CPU time grows by more than {TARGET:.0%}"]
    return found


class Meter:
    """An observer that cuts a run into stretches of about a second, all of as many steps.

    At the beginning of each second one a checkpoint is due. ``own`` has CPU seconds of checkpoints,
    in the thread that trains and in the background.
    """

    WARM_UP = 500

    def __init__(self, num_pairs: int) -> None:
        self.windows: list[dict[str, float]] = []
        self.own: dict[str, list[float]] = {"copied": [], "written": []}
        self.due = False
        self.started = self.traced = self.finished_epoch = lambda _: None
        self.trained = lambda: None
        self._num_windows, self._length, self._begin = 2 * num_pairs, 0, self._now()

    def pairs(self) -> list[tuple[dict[str, float], dict[str, float]]]:
        """Return each stretch with a checkpoint, and the mean of the two around it."""
        means = [
            {what: (left[what] + right[what]) / 2 for what in left}
            for left, right in pairwise(self.windows[::2])
        ]
        return list(zip(self.windows[1::2], means, strict=False))

    def stepped(self, record: Any) -> None:
        step = record.global_step
        if step == self.WARM_UP // 2:
            self._begin = self._now()
        if step == self.WARM_UP:
            wall_s, _ = self._passed()
            self._length = max(1, round(TARGET_S * (step - self.WARM_UP // 2) / wall_s))
        if step <= self.WARM_UP or (step - self.WARM_UP) % self._length:
            return
        wall_s, cpu_s = self._passed()
        self.windows.append({"wall_s": wall_s, "cpu_s": cpu_s})
        self.due = len(self.windows) % 2 == 1
        if len(self.windows) > self._num_windows:
            raise _EnoughError

    def is_due(self) -> bool:
        due, self.due = self.due, False
        return due

    def timed(self, what: str, function: Any) -> Any:
        def call(*arguments: Any) -> Any:
            begin = time.thread_time()
            try:
                return function(*arguments)
            finally:
                self.own[what].append(time.thread_time() - begin)

        return call

    def _passed(self) -> tuple[float, float]:
        now = self._now()
        begin, self._begin = self._begin, now
        return now[0] - begin[0], now[1] - begin[1]

    def _now(self) -> tuple[float, float]:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return time.perf_counter(), used.ru_utime + used.ru_stime


def measured(directory: Path, num_pairs: int) -> Meter:
    """Train in this process until so many stretches of each kind are measured."""
    from gnnscale.run.checkpoint.writer import RunCheckpoint
    from gnnscale.training import checkpointing
    from gnnscale.training.setup import open_run
    from gnnscale.training.train import train

    config, plain = composed(*SMALL, f"runtime.checkpoint_every_s={TARGET_S}")
    meter: Any = Meter(num_pairs)
    patched: Any = RunCheckpoint
    patched.is_due = property(lambda self: meter.is_due())
    patched._write = meter.timed("written", RunCheckpoint._write)
    saving: Any = checkpointing
    saving.save_inside_epoch = meter.timed("copied", checkpointing.save_inside_epoch)
    with suppress(_EnoughError):
        train(open_run(config, directory, plain | {"resume": None}), meter)
    return meter


class _EnoughError(Exception):
    """The stretches that are wanted are measured."""
