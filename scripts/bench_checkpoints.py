"""Checkpoints every second: what a kill costs then, and what they cost who is not killed.

    python scripts/bench_checkpoints.py kills [--kills 40] [--seed 0] [--plans cpu,hybrid]
    python scripts/bench_checkpoints.py cost [--rounds 60] [--json FILE]

``kills``: runs of every plan get kill -9 at random moments, of a worker or of the command, one in
four while rank 0 writes a checkpoint. The work that is lost is told: the seconds from the step that
the checkpoint is behind to the last step before the kill, as ``steps.jsonl`` has them; where the
command is killed, it lacks up to a second of them. Each run is killed twice, then resumed to its
end, and has to have the weights of a run that nobody disturbed, bit for bit, and the same losses of
epochs.

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
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from faults.inside_epochs import PLANS, Killed, Runs, compare, kill, measure_loss
from faults.plan import prepare_home

#: A small model on a small graph, in an epoch of so many steps that it does not end.
SMALL = (
    *("dataset.num_vertices=200000", "dataset.num_edges=2000000", "dataset.train_fraction=0.7"),
    *("model.hidden=32", "sampler.fanouts=[10,5]", "batch_size=4", "num_threads=1", "epochs=1"),
    *("runtime.prefetch=one_stage", "runtime.drm=false"),
)
TARGET_S, TARGET = 1.0, 0.03


def kills(arguments: argparse.Namespace) -> int:
    """Kill and resume runs of every plan; the exit status is 1 where a check failed."""
    chance = random.Random(arguments.seed)
    names = arguments.plans.split(",")
    results: list[Killed] = []
    print(f"Checkpoints every {arguments.every_s:g} s:\n")
    print("| plan | kills | inside an epoch | at a write | work lost, median and most | weights |")
    print("|---|---|---|---|---|---|", flush=True)
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
            print(_row(found), flush=True)
    late = [
        seconds
        for each in results
        for seconds, step in zip(each.lost_s, each.step_s, strict=True)
        if seconds > arguments.every_s + step
    ]
    print(f"\n{len(late)} kills lost more than the interval and a step")
    return 1 if any(each.wrong for each in results) else 0


def _row(found: Killed) -> str:
    lost = f"{statistics.median(found.lost_s):.2f} s, {max(found.lost_s):.2f} s"
    return (
        f"| {found.plan} | {len(found.lost_s)} | {sum(found.inside)} | {found.writing} "
        f"| {lost} (longest step {max(found.step_s):.2f} s) "
        f"| {'; '.join(found.wrong) or 'equal, bit for bit'} |"
    )


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
    from gnnscale.core.hardware import usable_cores
    from gnnscale.options.config import typed
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
