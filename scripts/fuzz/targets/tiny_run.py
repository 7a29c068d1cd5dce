"""A small run, as its directory holds it: with figures that are the same each time."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import yaml
from omegaconf import OmegaConf

from gnnscale.api.options import compose_run
from gnnscale.core.stages import STAGES, Access, StageTimes, Traffic
from gnnscale.graph import Graph
from gnnscale.model import TrainableModel
from gnnscale.optimizer.plain import optimizer_state
from gnnscale.options.config import typed
from gnnscale.options.run_directory import CONFIG_FILE
from gnnscale.plan import DevicePlan, DeviceShare, Threads
from gnnscale.report.files.steps import STEPS_FILE, StepLog
from gnnscale.report.files.summary import SUMMARY_FILE, summarise, write_json, write_metrics
from gnnscale.runtime.checkpoint.run_checkpoint import RunCheckpoint
from gnnscale.runtime.checkpoint.worker_part import WorkerPart
from gnnscale.runtime.drm.rebalancer_state import RebalancerState
from gnnscale.runtime.settings import TrainConfig
from gnnscale.runtime.telemetry.epoch_sums import DeviceSums, EpochSums
from gnnscale.runtime.telemetry.records import (
    DeviceEpoch,
    DeviceStep,
    EpochRecord,
    RunLayout,
    StepRecord,
    TrainResult,
)

from .training import train_on
from .words import TINY

#: Epochs that are trained; the run has one more, so that it can go on.
EPOCHS = 2
_THREADS = Threads(sample=1, load=1, propagate=1)
_TIMES = StageTimes(sample=0.5, load=0.25)
_TRAFFIC = Traffic(rows=Access(host_bytes=1000), lists=Access(host_bytes=10))


@dataclass(kw_only=True)
class TinyRun:
    """A run on the graph of ``TINY``, trained a step: its options, also as plain values."""

    config: TrainConfig
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
        config = typed(node, TrainConfig)
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
    def history(self) -> list[EpochRecord]:
        return [_epoch(number, self.plan) for number in range(1, EPOCHS + 1)]

    def build(self) -> tuple[TrainableModel, torch.optim.Optimizer]:
        torch.manual_seed(0)
        sizes = {"num_features": self.graph.num_features, "num_classes": self.graph.num_classes}
        model = self.config.model.build(**sizes)
        return model, self.config.optimizer.build(model)

    def checkpoint(self, directory: Path) -> RunCheckpoint:
        same = {"config": self.config, "graph": self.graph, "metric": self.graph.metric}
        return RunCheckpoint(directory=directory, options={**self.options, "resume": None}, **same)

    def write(self, directory: Path, *, inside: bool = False, manages: bool = False) -> None:
        """Write the directory; it stopped ``inside`` an epoch, or resource management decided."""
        directory.mkdir()
        options = {**self.options, "resume": None}
        (directory / CONFIG_FILE).write_text(yaml.safe_dump(options, sort_keys=False))
        self._write_checkpoints(directory, inside=inside, manages=manages)
        write_metrics(directory, self.history)
        self._log(directory, range(EPOCHS * self.steps_per_epoch))
        write_json(directory / SUMMARY_FILE, summarise(self.result(), status="completed"))

    def _write_checkpoints(self, directory: Path, *, inside: bool, manages: bool) -> None:
        model, optimizer = self.build()
        for parameter in model.parameters():
            parameter.grad = torch.randn_like(parameter)
        optimizer.step()
        best = {name: each.clone() for name, each in model.state_dict().items()}
        history, num_devices = self.history, len(self.plan.shares)
        if not inside:
            history[-1] = replace(history[-1], valid_metric=None, eval_time_s=None)
        buffers = {name: each.clone() for name, each in model.named_buffers()}
        part = WorkerPart(buffers=buffers, rows={0: 7, 1: 5}, counters={"late_s": 0.5})
        checkpoint, step = self.checkpoint(directory), EPOCHS * self.steps_per_epoch + inside
        state = {"model": model, "optimizer": optimizer_state(optimizer), "best_weights": best}
        checkpoint.save(
            **{"step": step, "history": history, "plan": self.plan, **state},
            management=self._management() if manages else None,
            sums=_sums(num_devices) if inside else None,
            workers=[part.packed()] * num_devices if inside else (),
        )
        checkpoint.wait()
        checkpoint.save_best(EPOCHS, best)
        checkpoint.close()

    def _management(self) -> dict[str, Any]:
        num_devices, step = len(self.plan.shares), EPOCHS * self.steps_per_epoch
        damping = RebalancerState().damping.observe(self.plan, [0.5] * num_devices)
        window, pending = ((_TIMES,) * num_devices,), ((step + 2, self.plan),)
        state = RebalancerState(applies_from=step, window=window, damping=damping, pending=pending)
        return state.to_values()

    def result(self) -> TrainResult:
        metric, steps = self.graph.metric, self.steps_per_epoch
        return TrainResult(
            **{"dataset": self.graph.name, "model": self.config.model.name, "seed": 0},
            **{"layout": RunLayout(plan=self.plan), "ceiling": None, "measures": (metric,)},
            **{"test_metrics": {metric: 0.5}, "history": tuple(self.history)},
            **{"steps_per_epoch": steps, "steps_done": EPOCHS * steps},
        )

    def go_on(self, directory: Path) -> None:
        """Write the step after the last of the first epoch, as if the run went on from there."""
        self._log(directory, [self.steps_per_epoch])

    def _log(self, directory: Path, steps: Iterable[int]) -> None:
        log = StepLog(directory / STEPS_FILE)
        for step in steps:
            log.add(_step(step, self.steps_per_epoch, len(self.plan.shares)))
        log.flush()

    def step(self, model: TrainableModel, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        train_on(self.graph, model)
        optimizer.step()


def _epoch(number: int, plan: DevicePlan) -> EpochRecord:
    same: dict[str, Any] = {"stage_times_s": dict.fromkeys(STAGES), "peak_rss_bytes": 1 << 20}
    of_device = same | {
        **{"batch_share": 1 / len(plan.shares), "traffic": _TRAFFIC, "pss_bytes": None},
        **{"threads": {"sample": 1, "load": 1, "propagate": 1}, "host_to_device_bytes": None},
    }
    devices = tuple(
        DeviceEpoch(name=each.label, kind=each.kind, figures=each.figures, **of_device)
        for each in (share.device for share in plan.shares)
    )
    figures = {"train_loss": 1 / number, "valid_metric": number / 4, "lr": 0.1} | same
    sizes = {"epoch_time_s": 1.5, "eval_time_s": 0.5, "num_edges": 1000, "num_vertices": 100}
    return EpochRecord(epoch=number, devices=devices, **figures, **sizes)


def _step(number: int, steps_per_epoch: int, num_devices: int) -> StepRecord:
    epoch, step = divmod(number, steps_per_epoch)
    device = DeviceStep(num_seeds=16, threads=_THREADS, stages=_TIMES, traffic=_TRAFFIC)
    done = {"num_edges": 100 * (step + 1), "seconds": 0.5 * (step + 1), "global_step": number}
    return StepRecord(
        **{"epoch": epoch + 1, "step": step + 1, "num_steps": steps_per_epoch, **done},
        **{"loss": 1.0, "mean_loss": 1.0, "devices": (device,) * num_devices},
        decision="moved 3 seeds" if number == 1 else None,
    )


def _sums(num_devices: int) -> EpochSums:
    device = DeviceSums(num_seeds=16, stages=_TIMES, traffic=_TRAFFIC)
    sizes = {"num_seeds": 16 * num_devices, "num_edges": 100, "num_vertices": 50}
    devices = (device,) * num_devices
    return EpochSums(num_batches=1, **sizes, loss=3.5, seconds=0.5, devices=devices)
