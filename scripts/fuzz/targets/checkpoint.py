"""Checkpoints: a run goes on from damaged ones, in this process; seldom as a command does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from gnnscale.core.errors import ConfigError
from gnnscale.plan import DevicePlan
from gnnscale.runtime.saving import kept_management, resume
from gnnscale.runtime.state.learning import Learning
from gnnscale.runtime.state.train_state import Progress
from gnnscale.runtime.sync.group import ALONE
from gnnscale.runtime.telemetry.records import EpochRecord, RunLayout

from ..case import Input, case_rng
from ..structured import packed_value
from ..verdict import WrongResultError
from .artefact import Artefact, Valid
from .commands import PROGRESS
from .stored import files_of
from .tiny_run import EPOCHS, TinyRun

__all__ = ["Checkpoints"]

_LAST = "checkpoints/last.safetensors"


class Checkpoints(Artefact):
    """What ``resume=DIR`` reads beside the options: the last checkpoint, and the epochs before."""

    name = "checkpoint"
    place = "run"
    #: A command takes seconds.
    kinds = (*("load",) * 600, "command")
    limit_s = 90.0
    leaves = frozenset({"home", "outputs"})
    writes = True

    def valid(self, folder: Path) -> list[Valid]:
        """Write runs that stopped behind an epoch, inside one, and under resource management."""
        plain = TinyRun.of()
        norms = TinyRun.of(model__norm="batch")
        shared = TinyRun.of(device_plan="cpu_x2", runtime__drm=True)
        found = []
        for number, (run, options) in enumerate(
            ((plain, {}), (norms, {"inside": True}), (shared, {"manages": True}))
        ):
            directory = folder / str(number)
            run.write(directory, **options)
            found.append(Valid(files_of(directory), run))
        self._home = {
            name: content
            for name, content in files_of(folder).items()
            if name.startswith("graphs/")
        }
        return found

    def spoiled(
        self, files: Mapping[str, bytes], key: str, number: int, keep: frozenset[int] | None
    ) -> tuple[dict[str, bytes], list[str]]:
        """Damage the last checkpoint or the epochs; half of the time, values in the checkpoint."""
        rng = case_rng(key, number, "kind")
        own = {name: files[name] for name in (_LAST, "metrics.jsonl")}
        if rng.random() < 0.5:
            return {**files, _LAST: packed_value(files[_LAST], rng)}, []
        changed, edits = super().spoiled(own, key, number, keep)
        rest = {name: content for name, content in files.items() if name not in own}
        return {**rest, **changed}, edits

    def use(self, path: Path, valid: Valid, made: Input) -> None:
        """Go on from the checkpoint, for a step; or to the end, as a command."""
        if made.kind == "command":
            _command(path)
            return
        run: TinyRun = valid.made_for
        model, optimizer = run.build()
        state: Any = SimpleNamespace(
            config=run.config,
            group=ALONE,
            learning=Learning(model=model, trained=model, optimizer=optimizer),
            checkpoint=run.checkpoint(path),
            progress=Progress(steps_per_epoch=run.steps_per_epoch),
            metric=run.graph.metric,
            step=SimpleNamespace(rows={}),
            layout=RunLayout(plan=run.plan),
        )
        saved = resume(state)
        if saved is None:
            return
        kept = saved.plan_under(state.checkpoint.options)
        if kept is not None:
            plan = DevicePlan.from_values(run.config.device_plan.parsed(), kept)
            state.layout = RunLayout(plan=plan)
        kept_management(state, saved)
        if not all(isinstance(each, EpochRecord) for each in state.progress.history):
            raise WrongResultError("something else in place of an epoch")
        history = state.progress.history
        if [each.epoch for each in history] != list(range(1, len(history) + 1)):
            raise WrongResultError("epochs do not follow each other")
        run.step(model, optimizer)


def _command(path: Path) -> None:
    """Resume as a user does.

    Raises:
        ConfigError: it is refused, with what the command says.
        WrongResultError: it ends otherwise.
    """
    command = [sys.executable, "-m", "gnnscale", "train", f"resume={path}", f"epochs={EPOCHS + 1}"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, errors="replace")
    if "Traceback" in ended.stderr or ended.returncode not in (0, 1):
        raise WrongResultError(f"status {ended.returncode}: {ended.stderr[-1500:]}")
    if ended.returncode:
        lines = [line for line in ended.stderr.splitlines() if not line.startswith(PROGRESS)]
        raise ConfigError("\n".join(lines))
