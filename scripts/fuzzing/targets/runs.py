"""Run directories and checkpoints from somebody else: gone on with, evaluated, reported."""

import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import yaml
from omegaconf import OmegaConf

from gnnscale.api import run as results
from gnnscale.api.hitgnn.design import compose_run
from gnnscale.core.config.run_directory import CONFIG_FILE, STEPS_FILE, SUMMARY_FILE
from gnnscale.core.config.typed import typed
from gnnscale.core.errors import ConfigError
from gnnscale.core.stages import SPAN, STAGES, Access, StageTimes, Traffic
from gnnscale.distributed.process_group import SINGLE_PROCESS
from gnnscale.graph import Graph, Origin
from gnnscale.inference.evaluate import evaluate
from gnnscale.inference.export import predict, weights
from gnnscale.nn import TrainableModel
from gnnscale.nn.optim.update_rules import optimizer_state
from gnnscale.planner import DevicePlan, DeviceShare, Threads
from gnnscale.report.page.page import render
from gnnscale.report.steps import StepLog, read_steps
from gnnscale.report.summary import summarize, write_json, write_metrics
from gnnscale.report.sweep import SweepReport
from gnnscale.run import records
from gnnscale.run.checkpoint.reader import WorkerPart
from gnnscale.run.checkpoint.resume import RunIdentity
from gnnscale.run.checkpoint.writer import RunCheckpoint
from gnnscale.run.commands import EvaluateConfig
from gnnscale.run.config import RunConfig
from gnnscale.run.records import DeviceTotals, EpochSums, RunLayout
from gnnscale.training.checkpointing import restore_management, resume
from gnnscale.training.drm.balance import BalanceInput
from gnnscale.training.drm.rebalancer import RebalancerState
from gnnscale.training.worker.model_state import ModelState
from gnnscale.training.worker.train_state import Progress

from ..case import Edited, Files, Input, Keep, WrongResultError, case_rng
from ..formats import damaged, packed_value
from .commands import PROGRESS
from .folders import Artefact, Valid, files_of, home_of, odd_values, train_on
from .hostile import hostile_yaml
from .words import TINY

#: Epochs that are trained; the run has one more, so that it can go on.
EPOCHS = 2
_THREADS = Threads(sample=1, load=1, propagate=1)
_TIMES = StageTimes(sample=0.5, load=0.25)
_TRAFFIC = Traffic(rows=Access(host_bytes=1000), lists=Access(host_bytes=10))


@dataclass(kw_only=True)
class TinyRun:
    """A run on the graph of ``TINY``, trained a step: its options, also as plain values."""

    config: RunConfig
    options: Mapping[str, Any]
    graph: Graph

    @classmethod
    def of(cls, **asked: Any) -> "TinyRun":
        """Choose options beside ``TINY``, double underscores for dots; make the graph's store."""
        torch.set_num_threads(1)  # children would lack the others, and wait for them
        given = dict(each.split("=") for each in TINY)
        known = {name: yaml.safe_load(value) for name, value in given.items()}
        asked = {name.replace("__", "."): value for name, value in asked.items()}
        node, _ = compose_run((), known | {"epochs": EPOCHS + 1} | asked)
        config = typed(node, RunConfig)
        options: Any = OmegaConf.to_container(node, resolve=True)
        return cls(config=config, options=options, graph=config.dataset.open())

    @property
    def steps_per_epoch(self) -> int:
        return -(-len(self.graph.train_idx) // self.config.batch_size)

    @property
    def plan(self) -> DevicePlan:
        devices = self.config.device_plan.parsed()
        same = {"num_seeds": self.config.batch_size // len(devices), "threads": _THREADS}
        shares = (DeviceShare(device=each, prefetch="none", **same) for each in devices)
        return DevicePlan(shares=tuple(shares))

    @property
    def history(self) -> list[records.EpochRecord]:
        return [_epoch(number, self.plan) for number in range(1, EPOCHS + 1)]

    def build(self) -> tuple[TrainableModel, torch.optim.Optimizer]:
        torch.manual_seed(0)
        sizes = {"num_features": self.graph.num_features, "num_classes": self.graph.num_classes}
        model = self.config.model.build(**sizes)
        return model, self.config.optimizer.build(model)

    def checkpoint(self, directory: Path) -> RunCheckpoint:
        named = ("optimizer", "device_plan", "batch_size")
        same: Any = {name: getattr(self.config, name) for name in named}
        run = RunIdentity(options={**self.options, "resume": None}, graph=self.graph, **same)
        parts: Any = {each: getattr(self.config, each) for each in ("runtime", "task", "epochs")}
        return RunCheckpoint(directory=directory, run=run, **parts)

    def write(self, directory: Path, *, inside: bool = False, manages: bool = False) -> None:
        """Write the directory; it stopped ``inside`` an epoch, or resource management decided."""
        directory.mkdir()
        options = {**self.options, "resume": None}
        (directory / CONFIG_FILE).write_text(yaml.safe_dump(options, sort_keys=False))
        self._write_checkpoints(directory, inside=inside, manages=manages)
        write_metrics(directory, self.history)
        self.log(directory, range(EPOCHS * self.steps_per_epoch))
        write_json(directory / SUMMARY_FILE, summarize(self.result(), status="completed"))

    def _write_checkpoints(self, directory: Path, *, inside: bool, manages: bool) -> None:
        model, optimizer = self.build()
        for parameter in model.parameters():
            parameter.grad = torch.randn_like(parameter)
        optimizer.step()
        best = {name: each.clone() for name, each in model.state_dict().items()}
        history, num_devices, trained = self.history, len(self.plan.shares), None
        if not inside:
            trained = replace(history.pop(), valid_metric=None, eval_time_s=None)
        buffers = {name: each.clone() for name, each in model.named_buffers()}
        part = WorkerPart(buffers=buffers, rows={0: 7, 1: 5}, counters={"late_s": 0.5})
        checkpoint, step = self.checkpoint(directory), EPOCHS * self.steps_per_epoch + inside
        state = {"model": model, "optimizer": optimizer_state(optimizer), "best_weights": best}
        checkpoint.save(
            **{"step": step, "history": history, "trained": trained, "plan": self.plan, **state},
            management=self._management() if manages else None,
            sums=_sums(num_devices) if inside else None,
            workers=[part.packed()] * num_devices if inside else (),
            best=EPOCHS if inside else None,
        )
        checkpoint.wait()
        checkpoint.save_best(EPOCHS, best)
        checkpoint.close()

    def _management(self) -> dict[str, Any]:
        num_devices, step = len(self.plan.shares), EPOCHS * self.steps_per_epoch
        damping = RebalancerState().damping.observe(self.plan, [0.5] * num_devices)
        window = (BalanceInput(step=step, stages=(_TIMES,) * num_devices),)
        pending = ((step + 2, self.plan),)
        state = RebalancerState(applies_from=step, window=window, damping=damping, pending=pending)
        return state.to_values()

    def result(self) -> records.TrainResult:
        metric, steps = self.graph.metric, self.steps_per_epoch
        names: Any = {"dataset": self.graph.name, "model": self.config.model.name, "seed": 0}
        measured: Any = {"measures": (metric,), "test_metrics": {metric: 0.5}, "ceiling": None}
        done = {"steps_per_epoch": steps, "steps_done": EPOCHS * steps}
        layout, history = RunLayout(plan=self.plan), tuple(self.history)
        return records.TrainResult(layout=layout, history=history, **names, **measured, **done)

    def log(self, directory: Path, steps: Iterable[int]) -> None:
        log = StepLog(directory / STEPS_FILE)
        for step in steps:
            log.add(_step(step, self.steps_per_epoch, len(self.plan.shares)))
        log.flush()


def _epoch(number: int, plan: DevicePlan) -> records.EpochRecord:
    same: dict[str, Any] = {"stage_times_s": dict.fromkeys(STAGES), "peak_rss_bytes": 1 << 20}
    of_device = same | {
        **{"batch_share": 1 / len(plan.shares), "traffic": _TRAFFIC, "pss_bytes": None},
        **{"threads": {"sample": 1, "load": 1, "propagate": 1}, "host_to_device_bytes": None},
    }
    devices = tuple(
        records.DeviceEpoch(name=each.label, kind=each.kind, figures=each.figures, **of_device)
        for each in (share.device for share in plan.shares)
    )
    figures = {"train_loss": 1 / number, "valid_metric": number / 4, "lr": 0.1} | same
    sizes = {"epoch_time_s": 1.5, "eval_time_s": 0.5, "num_edges": 1000, "num_vertices": 100}
    return records.EpochRecord(epoch=number, devices=devices, **figures, **sizes)


def _step(number: int, steps_per_epoch: int, num_devices: int) -> records.StepRecord:
    epoch, step = divmod(number, steps_per_epoch)
    device = records.DeviceStep(num_seeds=16, threads=_THREADS, stages=_TIMES, traffic=_TRAFFIC)
    done: Any = {"num_edges": 100 * (step + 1), "seconds": 0.5 * (step + 1), "global_step": number}
    done |= {"epoch": epoch + 1, "step": step + 1, "num_steps": steps_per_epoch}
    done |= {"loss": 1.0, "mean_loss": 1.0, "decision": "moved 3 seeds" if number == 1 else None}
    return records.StepRecord(devices=(device,) * num_devices, **done)


def _sums(num_devices: int) -> EpochSums:
    device = DeviceTotals(num_seeds=16, stages=_TIMES, traffic=_TRAFFIC)
    sizes = {"num_seeds": 16 * num_devices, "num_edges": 100, "num_vertices": 50}
    devices = (device,) * num_devices
    return EpochSums(num_batches=1, **sizes, loss=3.5, seconds=0.5, devices=devices)


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
        trained: Any = {"optimizer": optimizer, "optimizer_options": run.config.optimizer}
        state: Any = SimpleNamespace(group=SINGLE_PROCESS, step=SimpleNamespace(rows={}))
        state.learning = ModelState(model=model, trained=model, **trained)
        state.progress = Progress(steps_per_epoch=run.steps_per_epoch)
        state.checkpoint, state.metric = run.checkpoint(path), run.graph.metric
        state.layout = RunLayout(plan=run.plan)
        saved = resume(state)
        if saved is None:
            return
        if (kept := saved.plan_for(state.checkpoint.run.options)) is not None:
            plan = DevicePlan.from_values(run.config.device_plan.parsed(), kept)
            state.layout = RunLayout(plan=plan)
        restore_management(state, saved)
        history = state.progress.history
        if not all(isinstance(each, records.EpochRecord) for each in history):
            raise WrongResultError("something else in place of an epoch")
        _check_epochs(history)
        optimizer.zero_grad()
        train_on(run.graph, model)
        optimizer.step()


def _command(path: Path) -> None:
    command = [sys.executable, "-m", "gnnscale", "train", f"resume={path}", f"epochs={EPOCHS + 1}"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, errors="replace")
    if "Traceback" in ended.stderr or ended.returncode not in (0, 1):
        raise WrongResultError(f"status {ended.returncode}: {ended.stderr[-1500:]}")
    if ended.returncode:
        lines = [line for line in ended.stderr.splitlines() if not line.startswith(PROGRESS)]
        raise ConfigError("\n".join(lines))


_CONFIG, _BEST = "config.yaml", "checkpoints/best.safetensors"
_SIGNATURE = "checkpoints/signature.json"
_JOB = {".hydra/hydra.yaml": b"hydra:\n  job:\n    num: 0\n"}
_JOB |= {".hydra/overrides.yaml": b"- seed=0\n- epochs=3\n"}
#: Files of ids.
_VERTICES, _TABLE = "vertices.npy", "vertices.csv"


class RunDirectories(Artefact):
    """``run=DIR`` of every command that reads one, and what a sweep and a report read."""

    name = place = "run"
    #: A graph that is generated may be larger than this machine takes.
    names = ("dataset.", "dataset:")
    leaves = frozenset(
        {"home", "rows.npy", "rows.ids.npy", "rows.parquet", "model.safetensors"}
        | {*(f"results.{kind}" for kind in ("json", "csv", "svg")), "report.html"}
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
            vertices = np.arange(0, run.graph.num_vertices, 7)
            np.save(folder / str(number) / _VERTICES, vertices)
            table = "id,more\n" + "".join(f"{vertex},x\n" for vertex in vertices)
            (folder / str(number) / _TABLE).write_text(table)
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
        if kind < 0.8:
            values = json.loads(files[_SIGNATURE])
            del values["crc32"]  # as earlier releases wrote it: damage gets past the checksum
            values, edits = odd_values(values, _SIGNATURE, key, number, keep)
            return {**files, _SIGNATURE: json.dumps(values).encode()}, edits
        return damaged(files, key, number, rng.choice((1, 1, 2, 3)), keep)

    def use(self, path: Path, valid: Valid, made: Input) -> None:
        torch.set_num_threads(1)
        _USES[made.kind](path, valid.made_for)


def _evaluate(path: Path, run: TinyRun) -> None:
    found = evaluate(EvaluateConfig(run=path, num_threads=1))
    shares = [value or 0 for each in found.metrics.values() for value in each.values()]
    if not all(0 <= share <= 1 for share in shares):
        raise WrongResultError("a share below 0 or above 1")


def _predict(path: Path, run: TinyRun, suffix: str, *, some: str | None = None) -> None:
    """Predict all vertices, or those of a file, which lies in the directory to be damaged, too."""
    chosen = {} if some is None else {"vertices": str(path / some)}
    out = path.parent / f"rows{suffix}"
    predict.predict(predict.PredictConfig(run=path, out=out, num_threads=1, **chosen))


def _predict_other(path: Path, run: TinyRun) -> None:
    """Predict vertices of a graph in memory; the run's own is not looked at."""
    graph = replace(run.graph, origin=Origin())
    if len(results.load(path).predict(graph=graph)) != graph.num_vertices:
        raise WrongResultError("a vertex is not predicted")


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
    run.log(path, [run.steps_per_epoch])
    steps, result = read_steps(path / STEPS_FILE, num_devices=1), run.result()
    summary = summarize(result, status="completed")
    if "\x1b" in render(result, summary, steps, np.empty(0, SPAN), run.options, path):
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
    **{"evaluate": _evaluate, "load": _load, "report": _report, "sweep": _sweep},
    **{f"predict {kind}": partial(_predict, suffix=f".{kind}") for kind in ("npy", "parquet")},
    "predict other": _predict_other,
    "predict some": partial(_predict, suffix=".npy", some=_VERTICES),
    "predict table": partial(_predict, suffix=".npy", some=_TABLE),
    "export": partial(_export, names="safetensors"),
    "export pyg": partial(_export, names="pyg"),
}
