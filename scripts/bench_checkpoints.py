"""Checkpoints every second: what a kill costs then, and what they cost who is not killed.

    python scripts/bench_checkpoints.py kills [--kills 40] [--seed 0] [--plans cpu,hybrid]
    python scripts/bench_checkpoints.py cost [--rounds 60] [--json FILE]

``kills``: runs of every plan get kill -9 at random moments, of a worker or of the command, one in
four while rank 0 writes a checkpoint. The work that is lost is told: the seconds from the step that
the checkpoint is behind to the last step before the kill, as ``steps.jsonl`` has them. Each run is
killed twice, then resumed to its end, and has to have the weights of a run that nobody disturbed,
bit for bit, and the same losses of epochs.

``cost``: a run of a small model on a small graph has a checkpoint in every other second of one long
epoch, and none in between. CPU time and wall-clock time of each stretch are held against the mean
of the two around it, so that what else the machine does meets both; and the CPU time of checkpoints
themselves is told.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from faults.plan import ACCELERATOR, prepare_home
from faults.training import Training, start
from faults.watched import Watched

#: A few long epochs: what is lost without a checkpoint inside them is seconds.
GRAPH = ("dataset.num_vertices=20000", "dataset.num_edges=200000", "dataset.train_fraction=0.7")
RUN = (
    *("sampler.fanouts=[10,5]", "model.hidden=32", "model.dropout=0.5", "model.norm=batch"),
    *("batch_size=32", "num_threads=2", "epochs=3", "runtime.deterministic=true"),
)
#: A small model on a small graph, in an epoch of so many steps that it does not end.
SMALL = (
    *("dataset.num_vertices=200000", "dataset.num_edges=2000000", "dataset.train_fraction=0.7"),
    *("model.hidden=32", "sampler.fanouts=[10,5]", "batch_size=4", "num_threads=1", "epochs=1"),
    *("runtime.prefetch=one_stage", "runtime.drm=false"),
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
TARGET_S, TARGET = 1.0, 0.03


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


class Runs:
    """Runs of one plan, below a folder of their own."""

    def __init__(self, folder: Path, name: str, every_s: float) -> None:
        self.folder, self.name = folder / name, name
        for each in ("home", "watched"):
            (self.folder / each).mkdir(parents=True)
        prepare_home(self.folder / "home")
        devices, self.devices = PLANS[name]
        options = dict(each.split("=", 1) for each in (*GRAPH, *RUN, *devices))
        self._options = [f"{key}={value}" for key, value in options.items()]
        self._options.append(f"runtime.checkpoint_every_s={every_s}")
        home = {"GNNSCALE_HOME": str(self.folder / "home")}
        self.watched = Watched(self.folder / "watched", os.environ | home)
        self.whole = self.folder / "whole"
        begin = time.monotonic()
        self.finish(self.whole, *self._options)
        self.seconds = time.monotonic() - begin

    def start(self, directory: Path) -> Training:
        """Begin a run, or go on with it."""
        options = ["resume"] if (directory / "config.yaml").exists() else self._options
        return start(directory, *options, devices=self.devices, watched=self.watched)

    def finish(self, directory: Path, *options: str) -> None:
        run = start(directory, *options, devices=self.devices, watched=self.watched)
        run.wait_until_gone()
        run.end()
        if run.process.returncode:
            raise RuntimeError(run.errors.read_text())


def kill(runs: Runs, directory: Path, chance: random.Random, found: Killed) -> bool:
    """Kill a run at a random moment; False where it was done before."""
    run = runs.start(directory)
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
            runs.watched.kill_in(writer[0].pid, "checkpoint")
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
        found.wrong += [f"left behind: {each}" for each in left]
    run.end()
    return killed


def measure_loss(directory: Path, found: Killed) -> None:
    """Tell how much was trained behind the checkpoint, by the lines of steps."""
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


def compare(runs: Runs, directory: Path, found: Killed) -> None:
    """Hold a run that was killed and resumed against the one that was not."""
    import torch

    from gnnscale.runtime.checkpoint.file import BEST, LAST, load_checkpoint

    for file in (LAST, BEST):
        left, right = (load_checkpoint(each / file)["model"] for each in (runs.whole, directory))
        different = [key for key in left if not torch.equal(left[key], right[key])]
        if different or left.keys() != right.keys():
            found.wrong.append(f"{file.name} differs: {different[:3]}")
    epochs = [
        [json.loads(line) for line in (each / "metrics.jsonl").read_text().splitlines()]
        for each in (runs.whole, directory)
    ]
    for name in ("epoch", "train_loss", "valid_metric", "num_edges", "num_vertices", "lr"):
        if [each[name] for each in epochs[0]] != [each[name] for each in epochs[1]]:
            found.wrong.append(f"{name} of epochs differs")
    for name in ("traffic", "batch_share"):
        told = [[[d[name] for d in each["devices"]] for each in run] for run in epochs]
        if told[0] != told[1]:
            found.wrong.append(f"{name} of devices differs")
    hidden = list(directory.glob("checkpoints/.*"))
    if hidden:
        found.wrong.append(f"left behind: {hidden}")


def kills(arguments: argparse.Namespace) -> int:
    """Kill and resume runs of every plan; the exit status is 1 where a check failed."""
    chance = random.Random(arguments.seed)
    names = arguments.plans.split(",")
    results: list[Killed] = []
    with tempfile.TemporaryDirectory(prefix="gnnscale-kills-") as temporary:
        for name in names:
            runs = Runs(Path(temporary), name, arguments.every_s)
            _tell(f"{name}: undisturbed {runs.seconds:.1f} s")
            found = Killed(plan=name)
            results.append(found)
            number = 0
            while len(found.lost_s) < arguments.kills // len(names):
                directory = runs.folder / f"run-{number}"
                number += 1
                for _ in range(2):
                    if not kill(runs, directory, chance, found):
                        break
                    measure_loss(directory, found)
                runs.finish(directory, "resume")
                compare(runs, directory, found)
                _tell(
                    f"{name}: {len(found.lost_s)} kills; {'; '.join(found.wrong) or 'as it should'}"
                )
    print(f"Checkpoints every {arguments.every_s:g} s:\n")
    print("| plan | kills | inside an epoch | at a write | work lost, median and most | weights |")
    print("|---|---|---|---|---|---|")
    for each in results:
        lost = f"{statistics.median(each.lost_s):.2f} s, {max(each.lost_s):.2f} s"
        verdict = "; ".join(each.wrong) or "equal, bit for bit"
        print(
            f"| {each.plan} | {len(each.lost_s)} | {sum(each.inside)} | {each.writing} "
            f"| {lost} (longest step {max(each.step_s):.2f} s) | {verdict} |"
        )
    late = [
        seconds
        for each in results
        for seconds, step in zip(each.lost_s, each.step_s, strict=True)
        if seconds > arguments.every_s + step
    ]
    print(f"\n{len(late)} kills lost more than the interval and a step")
    return 1 if any(each.wrong for each in results) else 0


def cost(arguments: argparse.Namespace) -> int:
    """Compare stretches of one epoch with a checkpoint in each and with none, in alternation."""
    with tempfile.TemporaryDirectory(prefix="gnnscale-cost-") as temporary:
        prepare_home(Path(temporary))
        os.environ["GNNSCALE_HOME"] = temporary
        meter = measured(Path(temporary) / "run", arguments.rounds)
    ratios = {
        what: [on[what] / off[what] for on, off in meter.pairs()] for what in ("cpu_s", "wall_s")
    }
    for name, chosen in (("without", meter.windows[::2]), ("every second", meter.windows[1::2])):
        told = [statistics.median(each[what] for each in chosen) for what in ratios]
        print(f"{name}: {told[0]:.3f} s of CPU time, {told[1]:.3f} s by the clock")
    for what, values in ratios.items():
        low, middle, high = (100 * (each - 1) for each in statistics.quantiles(values, n=4))
        print(f"{what}: {middle:+.2f} % (quartiles {low:+.2f} %, {high:+.2f} %)")
    own = {name: 1000 * statistics.mean(each) for name, each in meter.own.items()}
    print(
        f"CPU time of a checkpoint: {own['copied']:.2f} ms in the thread that trains, "
        f"{own['written']:.2f} ms in the background; {sum(own.values()) / 10:.2f} % of a second"
    )
    if arguments.json is not None:
        figures = {"windows": meter.windows, "ratios": ratios, "own_ms": own}
        arguments.json.write_text(json.dumps(figures, indent=1))
    return 1 if statistics.median(ratios["cpu_s"]) > 1 + TARGET else 0


class Meter:
    """An observer that cuts a run into stretches of about a second, and says when to save.

    Every stretch has the same number of steps. In each second one a checkpoint is due at the
    beginning, and is written by its end.

    Attributes:
        windows: figures of each stretch.
        own: CPU seconds of checkpoints, in the thread that trains and in the background.
    """

    WARM_UP = 500

    def __init__(self, num_pairs: int) -> None:
        self.windows: list[dict[str, float]] = []
        self.own: dict[str, list[float]] = {"copied": [], "written": []}
        self.due = False
        self._num_windows = 2 * num_pairs
        self._length = 0
        self._begin = self._now()

    def pairs(self) -> list[tuple[dict[str, float], dict[str, float]]]:
        """Return each stretch with a checkpoint, and the mean of the two around it."""
        without = self.windows[::2]
        means = [
            {what: (left[what] + right[what]) / 2 for what in left}
            for left, right in pairwise(without)
        ]
        return list(zip(self.windows[1::2], means, strict=False))

    def started(self, run: Any) -> None: ...

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

    def traced(self, spans: Any) -> None: ...

    def trained(self) -> None: ...

    def finished_epoch(self, record: Any) -> None: ...

    def is_due(self) -> bool:
        """Whether a checkpoint is due, once."""
        due, self.due = self.due, False
        return due

    def timed(self, what: str, function: Any) -> Any:
        """Return ``function``, with its CPU time noted."""

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
    from hydra import compose, initialize_config_module
    from omegaconf import OmegaConf

    import gnnscale.runtime.train as training
    from gnnscale.config import typed
    from gnnscale.hardware import usable_cores
    from gnnscale.runtime.checkpoint.run_checkpoint import RunCheckpoint
    from gnnscale.runtime.settings import TrainConfig

    OmegaConf.register_new_resolver("usable_cores", usable_cores)
    with initialize_config_module("gnnscale.configs", version_base="1.3"):
        node = compose("train", [*SMALL, f"runtime.checkpoint_every_s={TARGET_S}"])
    plain: Any = OmegaConf.to_container(node, resolve=True)
    meter: Any = Meter(num_pairs)
    patched: Any = RunCheckpoint
    patched.is_due = property(lambda self: meter.is_due())
    patched._write = meter.timed("written", RunCheckpoint._write)
    training.save_inside_epoch = meter.timed("copied", training.save_inside_epoch)  # type: ignore[attr-defined]
    with suppress(_EnoughError):
        config = typed(node, TrainConfig)
        training.train(config, directory, meter, options=plain | {"resume": None})
    found: Meter = meter
    return found


class _EnoughError(Exception):
    """The stretches that are wanted are measured."""


def _last_line(directory: Path) -> int:
    """Return how long ``steps.jsonl`` is."""
    file = directory / "steps.jsonl"
    return file.stat().st_size if file.exists() else 0


def _wait(condition: Any, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(arguments: Sequence[str]) -> int:
    description, _, rest = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=description, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=("kills", "cost"), default="cost")
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plans", default=",".join(PLANS))
    parser.add_argument("--every-s", type=float, default=TARGET_S)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    return kills(options) if options.what == "kills" else cost(options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
