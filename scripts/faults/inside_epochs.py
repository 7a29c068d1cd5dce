"""Runs that are killed inside epochs: what a kill undoes, and what they end with once resumed."""

import json
import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from faults.plan import ACCELERATOR, Plan

#: A few long epochs: what is lost without a checkpoint inside them is seconds.
GRAPH = ("dataset.num_vertices=20000", "dataset.num_edges=200000", "dataset.train_fraction=0.7")
RUN = (
    *("sampler.fanouts=[10,5]", "model.hidden=32", "model.dropout=0.5", "model.norm=batch"),
    *("batch_size=64", "num_threads=2", "epochs=3", "runtime.deterministic=true"),
)
PLANS = {
    "cpu": (("device_plan=cpu",), ("cpu:0",)),
    "cpu_x2": (("device_plan=cpu_x2",), ("cpu:0", "cpu:1")),
    "hybrid": (
        (f"device_plan.devices=[cpu,{ACCELERATOR},{ACCELERATOR}]", "batch_size=96"),
        ("cpu:0", "emulated:1", "emulated:2"),
    ),
    "p3": (("algorithm=p3", "device_plan=cpu_x2"), ("cpu:0", "cpu:1")),
}


@dataclass(kw_only=True)
class Killed:
    """What came of kills of one run.

    Attributes:
        lost_s: seconds of training that each kill has undone.
        step_s: the longest step of them, which may come on top of the interval.
        inside: whether the checkpoint that it went on from was inside an epoch.
        wrong: what is not as it should be.
    """

    plan: str
    lost_s: list[float] = field(default_factory=list)
    step_s: list[float] = field(default_factory=list)
    inside: list[bool] = field(default_factory=list)
    writing: int = 0
    wrong: list[str] = field(default_factory=list)


def plan_of(folder: Path, name: str, every_s: float) -> Plan:
    """Return a plan whose runs have checkpoints inside epochs, with its undisturbed run."""
    devices, names = PLANS[name]
    options = dict(each.split("=", 1) for each in (*GRAPH, *RUN, *devices))
    options["runtime.checkpoint_every_s"] = str(every_s)
    plan = Plan(folder, name, tuple(f"{key}={value}" for key, value in options.items()), names)
    plan.finish(plan.whole)
    return plan


def kill(plan: Plan, directory: Path, chance: random.Random, found: Killed) -> bool:
    """Kill a run at a random moment; False if it was done before."""
    run = plan.start(directory)
    try:
        run.wait_for(run.has_all_workers)
        worker = chance.choice(run.workers())
        at_write = chance.random() < 0.25
        before = _last_line(directory)
        run.wait_for(lambda: _last_line(directory) != before)
        time.sleep(chance.random() * 2.5)
    except (RuntimeError, IndexError):
        return False
    run.watch()
    if at_write:
        writer = run.workers()[:1]
        if writer:
            plan.watched.kill_in(writer[0].pid, "checkpoint")
            _wait(lambda: not writer[0].alive or run.process.poll() is not None, 5.0)
            found.writing += not writer[0].alive
    elif chance.random() < 0.5:
        run.process.kill()
    else:
        with suppress(ProcessLookupError):
            os.kill(worker.pid, signal.SIGKILL)
    run.wait_until_gone()
    left = [each for each in run.left_behind() if "checkpoints" not in each]
    killed = run.process.returncode != 0
    if killed:
        found.wrong += [f"left: {each}" for each in left]
    run.end()
    return killed


def measure_loss(directory: Path, found: Killed) -> None:
    """Note how much was trained after the checkpoint, by the lines of steps."""
    from gnnscale.runtime.checkpoint.file import LAST, load_checkpoint

    saved = load_checkpoint(directory / LAST) if (directory / LAST).exists() else None
    step = 0 if saved is None else saved["step"]
    lines = (directory / "steps.jsonl").read_text().splitlines()
    steps = [json.loads(line) for line in lines[:-1]]
    lost, longest, before = 0.0, 0.0, None
    for each in steps:
        same = before is not None and before["epoch"] == each["epoch"]
        seconds = each["seconds"] - (before["seconds"] if before is not None and same else 0.0)
        if each["global_step"] >= step:
            lost += seconds
            longest = max(longest, seconds)
        before = each
    found.lost_s.append(lost)
    found.step_s.append(longest)
    found.inside.append(saved is not None and saved["sums"] is not None)


def compare(plan: Plan, directory: Path, found: Killed) -> None:
    """Hold a run that was killed and resumed against the one that was not."""
    import torch

    from gnnscale.runtime.checkpoint.file import BEST, LAST, load_checkpoint

    for file in (LAST, BEST):
        left, right = (load_checkpoint(each / file)["model"] for each in (plan.whole, directory))
        different = [key for key in left if not torch.equal(left[key], right[key])]
        if different or left.keys() != right.keys():
            found.wrong.append(f"{file.name} differs: {different[:3]}")
    epochs = [
        [json.loads(line) for line in (each / "metrics.jsonl").read_text().splitlines()]
        for each in (plan.whole, directory)
    ]
    for name in ("epoch", "train_loss", "valid_metric", "num_edges", "num_vertices", "lr"):
        if [each[name] for each in epochs[0]] != [each[name] for each in epochs[1]]:
            found.wrong.append(f"{name} of epochs differs")
    for name in ("traffic", "batch_share"):
        figures = [[[d[name] for d in each["devices"]] for each in run] for run in epochs]
        if figures[0] != figures[1]:
            found.wrong.append(f"{name} of devices differs")
    hidden = list(directory.glob("checkpoints/.*"))
    if hidden:
        found.wrong.append(f"left: {hidden}")


def _last_line(directory: Path) -> int:
    """Return how long ``steps.jsonl`` is."""
    file = directory / "steps.jsonl"
    return file.stat().st_size if file.exists() else 0


def _wait(condition: Callable[[], object], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)
