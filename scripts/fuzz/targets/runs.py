"""Run directories and checkpoints from somebody else: gone on with, evaluated, reported."""

import io
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import yaml
from omegaconf import OmegaConf

from gnnscale.api import results
from gnnscale.core.errors import ConfigError
from gnnscale.core.stages import SPAN
from gnnscale.plan import DevicePlan
from gnnscale.report.export import predict, weights
from gnnscale.report.files.steps import STEPS_FILE, read_steps
from gnnscale.report.files.summary import summarise
from gnnscale.report.page.page import render
from gnnscale.report.sweep import SweepReport
from gnnscale.runtime.command_options import EvaluateConfig
from gnnscale.runtime.evaluation.evaluate import evaluate
from gnnscale.runtime.saving import kept_management, resume
from gnnscale.runtime.state.learning import Learning
from gnnscale.runtime.state.train_state import Progress
from gnnscale.runtime.sync.group import ALONE
from gnnscale.runtime.telemetry.records import EpochRecord, RunLayout

from ..case import Edited, Files, Input, Keep, WrongResultError, case_rng
from ..formats import damaged, packed_value
from .commands import PROGRESS
from .folders import Artefact, Valid, files_of, home_of, odd_values
from .hostile import hostile_yaml
from .tiny_run import EPOCHS, TinyRun

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
        norms, shared = {"model__norm": "batch"}, {"device_plan": "cpu_x2", "runtime__drm": True}
        asked = (({}, {}), (norms, {"inside": True}), (shared, {"manages": True}))
        found, runs = [], [(TinyRun.of(**chosen), options) for chosen, options in asked]
        for number, (run, options) in enumerate(runs):
            directory = folder / str(number)
            run.write(directory, **options)
            found.append(Valid(files_of(directory), run))
        self._home = home_of(folder)
        return found

    def spoiled(self, files: Files, key: str, number: int, keep: Keep) -> Edited:
        rng = case_rng(key, number, "kind")
        own = {name: files[name] for name in (_LAST, "metrics.jsonl")}
        if rng.random() < 0.5:
            return {**files, _LAST: packed_value(files[_LAST], rng)}, []
        changed, edits = super().spoiled(own, key, number, keep)
        rest = {name: content for name, content in files.items() if name not in own}
        return {**rest, **changed}, edits

    def use(self, path: Path, valid: Valid, made: Input) -> None:
        if made.kind == "command":
            _command(path)
            return
        run: TinyRun = valid.made_for
        model, optimizer = run.build()
        learning = Learning(model=model, trained=model, optimizer=optimizer)
        progress, layout = Progress(steps_per_epoch=run.steps_per_epoch), RunLayout(plan=run.plan)
        state: Any = SimpleNamespace(
            **{"config": run.config, "group": ALONE, "learning": learning, "progress": progress},
            **{"checkpoint": run.checkpoint(path), "metric": run.graph.metric, "layout": layout},
            step=SimpleNamespace(rows={}),
        )
        saved = resume(state)
        if saved is None:
            return
        if (kept := saved.plan_under(state.checkpoint.options)) is not None:
            plan = DevicePlan.from_values(run.config.device_plan.parsed(), kept)
            state.layout = RunLayout(plan=plan)
        kept_management(state, saved)
        history = state.progress.history
        if not all(isinstance(each, EpochRecord) for each in history):
            raise WrongResultError("something else in place of an epoch")
        _check_epochs(history)
        run.step(model, optimizer)


def _command(path: Path) -> None:
    command = [sys.executable, "-m", "gnnscale", "train", f"resume={path}", f"epochs={EPOCHS + 1}"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, errors="replace")
    if "Traceback" in ended.stderr or ended.returncode not in (0, 1):
        raise WrongResultError(f"status {ended.returncode}: {ended.stderr[-1500:]}")
    if ended.returncode:
        lines = [line for line in ended.stderr.splitlines() if not line.startswith(PROGRESS)]
        raise ConfigError("\n".join(lines))


_CONFIG, _BEST = "config.yaml", "checkpoints/best.safetensors"
_JOB = {".hydra/hydra.yaml": b"hydra:\n  job:\n    num: 0\n"}
_JOB |= {".hydra/overrides.yaml": b"- seed=0\n- epochs=3\n"}
_VERTICES = "vertices.npy"


class RunDirectories(Artefact):
    """``run=DIR`` of every command that reads one, and what a sweep and a report read."""

    name = place = "run"
    #: A graph that is generated may be larger than this machine takes.
    names = ("dataset.",)
    leaves = frozenset(
        {"home", "rows.npy", "rows.ids.npy", "rows.parquet", "model.safetensors"}
        | {f"results.{kind}" for kind in ("json", "csv", "svg")}
    )
    writes = True

    def __init__(self) -> None:
        super().__init__()
        self.kinds = tuple(_USES)  # type: ignore[misc]

    def valid(self, folder: Path) -> list[Valid]:
        import pyarrow.parquet  # noqa: F401

        runs = (TinyRun.of(), TinyRun.of(model="gat", model__norm="layer"))
        found = []
        for number, run in enumerate(runs):
            run.write(folder / str(number))
            np.save(folder / str(number) / _VERTICES, np.arange(0, run.graph.num_vertices, 7))
            found.append(Valid({**files_of(folder / str(number)), **_JOB}, run))
        self._home = home_of(folder)
        return found

    def spoiled(self, files: Files, key: str, number: int, keep: Keep) -> Edited:
        rng = case_rng(key, number, "kind")
        kind = rng.random()
        if kind < 0.25:
            return {**files, _CONFIG: hostile_yaml(rng, files[_CONFIG])}, []
        if kind < 0.5:
            values, edits = odd_values(yaml.safe_load(files[_CONFIG]), _CONFIG, key, number, keep)
            return {**files, _CONFIG: yaml.safe_dump(values).encode()}, edits
        if kind < 0.7:
            return {**files, _BEST: packed_value(files[_BEST], rng)}, []
        return damaged(files, key, number, rng.choice((1, 1, 2, 3)), keep)

    def use(self, path: Path, valid: Valid, made: Input) -> None:
        torch.set_num_threads(1)
        _USES[made.kind](path, valid.made_for)


def _evaluate(path: Path, run: TinyRun) -> None:
    found = evaluate(EvaluateConfig(run=path, num_threads=1))
    shares = [value or 0 for each in found.metrics.values() for value in each.values()]
    if not all(0 <= share <= 1 for share in shares):
        raise WrongResultError("a share below 0 or above 1")


def _predict(path: Path, run: TinyRun, suffix: str, *, some: bool = False) -> None:
    """Predict all vertices, or those of a file, which lies in the directory to be damaged, too."""
    chosen = {"vertices": str(path / _VERTICES)} if some else {}
    out = path.parent / f"rows{suffix}"
    predict.predict(predict.PredictConfig(run=path, out=out, num_threads=1, **chosen))


def _export(path: Path, run: TinyRun, names: str) -> None:
    out = path.parent / "model.safetensors"
    weights.export(weights.ExportConfig(run=path, out=out, format=names))


def _check_epochs(history: Any) -> None:
    if [each.epoch for each in history] != list(range(1, len(history) + 1)):
        raise WrongResultError("epochs do not follow each other")


def _load(path: Path, run: TinyRun) -> None:
    found = results.load(path)
    _check_epochs(found.history)
    if len(found.predict("test")) != len(found.graph.test_idx):
        raise WrongResultError("a vertex is not predicted")


def _report(path: Path, run: TinyRun) -> None:
    """Draw the page of a run that goes on here; its options have been read before."""
    results.load(path)
    run.go_on(path)
    steps, result = read_steps(path / STEPS_FILE, num_devices=1), run.result()
    summary = summarise(result, status="completed")
    page = render(result, summary, steps, np.empty(0, SPAN), run.options)
    if "\x1b" in page:
        raise WrongResultError("control characters are drawn")


def _sweep(path: Path, run: TinyRun) -> None:
    config = OmegaConf.create({"hydra": {"sweep": {"dir": str(path.parent)}}})
    out = io.StringIO()
    try:
        with redirect_stdout(out), redirect_stderr(out):
            SweepReport().on_multirun_end(config)
    except SystemExit as end:
        if end.code != 1:
            raise WrongResultError(f"status {end.code}") from None
    if "\x1b" in out.getvalue():
        raise WrongResultError("control characters are shown")


_USES: dict[str, Callable[[Path, TinyRun], None]] = {
    "evaluate": _evaluate,
    "predict npy": partial(_predict, suffix=".npy"),
    "predict parquet": partial(_predict, suffix=".parquet"),
    "predict some": partial(_predict, suffix=".npy", some=True),
    "export": partial(_export, names="safetensors"),
    "export pyg": partial(_export, names="pyg"),
    "load": _load,
    "report": _report,
    "sweep": _sweep,
}
