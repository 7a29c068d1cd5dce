"""Runs that are killed inside epochs: what a kill undoes, and what they end with once resumed."""

import json
import os
import random
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from fault_injection.plan import ACCELERATOR, Plan
from fault_injection.processes import elapsed

#: A few long epochs: what is lost without a checkpoint inside them is seconds.
GRAPH = ("dataset.num_vertices=20000", "dataset.num_edges=200000", "dataset.train_fraction=0.7")
RUN = (
    *("sampler.fanouts=[10,5]", "model.hidden=32", "model.dropout=0.5", "model.norm=batch"),
    *("batch_size=64", "num_threads=2", "epochs=3", "runtime.deterministic=true"),
)
_HYBRID = (f"device_plan.devices=[cpu,{ACCELERATOR},{ACCELERATOR}]", "batch_size=96")
PLANS = {
    "cpu": (("device_plan=cpu",), ("cpu:0",)),
    "cpu_x2": (("device_plan=cpu_x2",), ("cpu:0", "cpu:1")),
    "hybrid": (_HYBRID, ("cpu:0", "emulated:1", "emulated:2")),
    "p3": (("algorithm=p3", "device_plan=cpu_x2"), ("cpu:0", "cpu:1")),
}


@dataclass(kw_only=True)
class Killed:
    """What came of kills of one run."""

    plan: str
    lost_s: list[float] = field(default_factory=list)  #: seconds of training that a kill has undone
    step_s: list[float] = field(default_factory=list)  #: the longest step of them
    inside: list[bool] = field(default_factory=list)  #: whether a checkpoint was inside an epoch
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
        for writer in run.workers()[:1]:
            plan.watched.kill_in(writer.pid, "checkpoint")
            for seconds in elapsed():
                if not writer.alive or run.process.poll() is not None or seconds > 5.0:
                    break
            found.writing += not writer.alive
    elif chance.random() < 0.5:
        run.process.kill()
    else:
        with suppress(ProcessLookupError):
            os.kill(worker.pid, signal.SIGKILL)
    run.wait_until_gone()
    killed = run.process.returncode != 0
    if killed:
        found.wrong += [f"left: {e}" for e in run.left_behind() if "checkpoints" not in e]
    run.end()
    return killed


def measure_loss(directory: Path, found: Killed) -> None:
    """Note how much was trained after the checkpoint, by the lines of steps."""
    from gnnscale.run.checkpoint import LAST
    from gnnscale.run.checkpoint.file import load_checkpoint

    saved = load_checkpoint(directory / LAST) if (directory / LAST).exists() else None
    step = 0 if saved is None else saved["step"]
    lines = (directory / "steps.jsonl").read_text().splitlines()
    lost, before = [0.0], {"epoch": 0, "seconds": 0.0}
    for each in map(json.loads, lines[:-1]):
        begin = before["seconds"] if before["epoch"] == each["epoch"] else 0.0
        if each["global_step"] >= step:
            lost.append(each["seconds"] - begin)
        before = each
    found.lost_s.append(sum(lost))
    found.step_s.append(max(lost))
    found.inside.append(saved is not None and saved["sums"] is not None)


def compare(plan: Plan, directory: Path, found: Killed) -> None:
    import torch

    from gnnscale.run.checkpoint import BEST, LAST
    from gnnscale.run.checkpoint.file import load_checkpoint

    for file in (LAST, BEST):
        left, right = (load_checkpoint(each / file)["model"] for each in (plan.whole, directory))
        different = [key for key in left if not torch.equal(left[key], right[key])]
        if different or left.keys() != right.keys():
            found.wrong.append(f"{file.name} differs: {different[:3]}")
    files = [each / "metrics.jsonl" for each in (plan.whole, directory)]
    epochs = [[json.loads(line) for line in file.read_text().splitlines()] for file in files]
    for name in ("epoch", "train_loss", "valid_metric", "num_edges", "num_vertices", "lr"):
        if [each[name] for each in epochs[0]] != [each[name] for each in epochs[1]]:
            found.wrong.append(f"{name} of epochs differs")
    for name in ("traffic", "batch_share"):
        figures = [[[d[name] for d in each["devices"]] for each in run] for run in epochs]
        if figures[0] != figures[1]:
            found.wrong.append(f"{name} of devices differs")
    if hidden := list(directory.glob("checkpoints/.*")):
        found.wrong.append(f"left: {hidden}")


def _last_line(directory: Path) -> int:
    file = directory / "steps.jsonl"
    return file.stat().st_size if file.exists() else 0
