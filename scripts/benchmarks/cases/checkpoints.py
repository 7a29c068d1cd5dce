"""Checkpoints every second: what a kill costs then, and what they cost who is not killed.

``kills``: runs of every plan get kill -9 at random moments, and are resumed. They have to have the
weights and the losses of a run that nobody disturbed, bit for bit.

``cost``: CPU time of the checkpoints of a small run, one in every second of a long epoch.
"""

import argparse
import os
import random
import statistics
import tempfile
import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from fault_injection.inside_epochs import PLANS, Killed, compare, kill, measure_loss, plan_of
from fault_injection.plan import prepare_home

from benchmarks.runner import composed, show, tell

#: A small model on a small graph, in an epoch of so many steps that it does not end.
SMALL = (
    *("dataset.num_vertices=200000", "dataset.num_edges=2000000", "dataset.train_fraction=0.7"),
    *("model.hidden=32", "sampler.fanouts=[10,5]", "batch_size=4", "num_threads=1", "epochs=1"),
    *("runtime.prefetch=one_stage", "runtime.drm=false"),
)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", nargs="?", choices=("kills", "cost"), default="cost")
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plans", default=",".join(PLANS))
    parser.add_argument("--every-s", type=float, default=1.0)
    parser.add_argument("--checkpoints", type=int, default=60, help="of cost")


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
    with tempfile.TemporaryDirectory(prefix="gnnscale-cost-") as temporary:
        prepare_home(Path(temporary))
        os.environ["GNNSCALE_HOME"] = temporary
        found = measured(Path(temporary) / "run", options.checkpoints, options.every_s)
    own = {name: 1000 * statistics.mean(each) for name, each in found.items()}
    rows = [[name, f"{each:.2f}"] for name, each in own.items()]
    show(
        "CPU time of a checkpoint", ["in the thread that trains, and in the background", "ms"], rows
    )
    return {"own_ms": own}


def measured(directory: Path, count: int, every_s: float) -> dict[str, list[float]]:
    """Train in this process until so many checkpoints are written; return their CPU seconds."""
    from gnnscale import Observer
    from gnnscale.run.checkpoint.writer import RunCheckpoint
    from gnnscale.training import checkpointing
    from gnnscale.training.setup import open_run
    from gnnscale.training.train import train

    own: dict[str, list[float]] = {"copied": [], "written": []}

    def timed(what: str, function: Any) -> Any:
        def call(*arguments: Any) -> Any:
            begin = time.thread_time()
            try:
                return function(*arguments)
            finally:
                own[what].append(time.thread_time() - begin)

        return call

    class UntilWritten(Observer):
        def stepped(self, record: Any) -> None:
            if len(own["written"]) >= count:
                raise _EnoughError

    patched: Any = RunCheckpoint
    patched._write = timed("written", RunCheckpoint._write)
    saving: Any = checkpointing
    saving.save_inside_epoch = timed("copied", checkpointing.save_inside_epoch)
    config, plain = composed(*SMALL, f"runtime.checkpoint_every_s={every_s}")
    with suppress(_EnoughError):
        train(open_run(config, directory, plain | {"resume": None}), UntilWritten())
    return own


class _EnoughError(Exception):
    """The checkpoints that are wanted are written."""
