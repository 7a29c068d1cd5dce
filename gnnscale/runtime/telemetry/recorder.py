"""What a worker writes down of its steps, and what the leading worker makes of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale.backend import Backend
from gnnscale.metrics import peak_rss_bytes
from gnnscale.plan import DevicePlan
from gnnscale.runtime.pipeline.schedule import BatchSlice
from gnnscale.runtime.sync.group import Group
from gnnscale.runtime.sync.synchronizer import StepTotals
from gnnscale.runtime.telemetry.counters import EpochCounters
from gnnscale.runtime.telemetry.memory import pss_bytes
from gnnscale.runtime.telemetry.records import DeviceEpoch, DeviceStep, EpochRecord, StepRecord
from gnnscale.stages import SPAN, StageTimes

__all__ = ["StepRecorder"]

#: Steps of a run whose spans are kept for the trace.
_TRACED_STEPS = 2000


class StepRecorder:
    """Times, shares, memory and spans of a run's steps.

    Attributes:
        spans: of the epoch that ``end_epoch`` ended, from all devices, where the worker leads.
    """

    def __init__(self, plan: DevicePlan, group: Group, backend: Backend, *, start: float) -> None:
        """Begin; ``start`` is when the run did, on the performance counter's clock."""
        self.spans: NDArray[np.void] = np.empty(0, SPAN)
        self._group = group
        self._backend = backend
        self._start = start
        self._plan = plan
        self._mine: list[tuple[int, int, int, float, float]] = []
        self._traced = 0
        self._sync = 0.0
        self._slices: list[int] = []
        self._begin_epoch()

    def _begin_epoch(self) -> None:
        self._totals = [StageTimes() for _ in self._plan.shares]
        self._seeds = [0] * len(self._plan.shares)
        self._moved = self._backend.host_to_device_bytes or 0
        self._late = (self._backend.late_s or 0.0, self._backend.late_steps or 0)

    def with_last_sync(self, stages: StageTimes) -> StageTimes:
        """Return ``stages`` with the last step's synchronisation, the latest that is known."""
        return replace(stages, sync=self._sync)

    def add(
        self, work: BatchSlice, plan: DevicePlan, stages: Sequence[StageTimes], num_seeds: int
    ) -> None:
        """Write a finished step down.

        Args:
            work: this worker's part.
            plan: the plan that applied to it.
            stages: every device's times.
            num_seeds: seeds of the mini-batch.
        """
        self._plan = plan
        self._sync = work.stages.sync
        for total, times in zip(self._totals, stages, strict=True):
            total.add(times)
        self._slices = [part.stop - part.start for part in plan.slices(num_seeds)]
        for device, count in enumerate(self._slices):
            self._seeds[device] += count
        if self._traced < _TRACED_STEPS:
            self._traced += 1
            self._mine += [
                (self._group.rank, stage, work.step, start - self._start, end - self._start)
                for stage, start, end in work.spans
            ]

    def step_record(
        self,
        traffic: EpochCounters,
        step: StepTotals,
        number: int,
        *,
        epoch: int,
        num_steps: int,
        decision: str | None,
    ) -> StepRecord:
        """Describe the step that was added last."""
        parts = zip(self._plan.shares, self._slices, step.stages, strict=True)
        return StepRecord(
            epoch=epoch,
            step=traffic.num_batches,
            num_steps=num_steps,
            loss=traffic.loss / traffic.num_seeds,
            num_edges=traffic.num_edges,
            seconds=traffic.elapsed(),
            global_step=number,
            step_loss=step.loss,
            devices=tuple(
                DeviceStep(num_seeds=count, threads=share.threads, stages=times)
                for share, count, times in parts
            ),
            decision=decision,
        )

    def end_epoch(self) -> tuple[DeviceEpoch, ...]:
        """Collect every worker's figures and spans; what it returns is whole where it leads."""
        backend = self._backend
        mine = {
            "host_to_device_bytes": None
            if backend.host_to_device_bytes is None
            else backend.host_to_device_bytes - self._moved,
            "peak_rss_bytes": peak_rss_bytes(),
            "pss_bytes": pss_bytes(),
            "late_s": None if backend.late_s is None else backend.late_s - self._late[0],
            "late_steps": None
            if backend.late_steps is None
            else backend.late_steps - self._late[1],
        }
        figures = [json.loads(each) for each in self._group.gather(json.dumps(mine).encode())]
        spans = self._group.gather(np.array(self._mine, SPAN).tobytes())
        self.spans = np.concatenate(
            [np.empty(0, SPAN), *(np.frombuffer(each, SPAN) for each in spans)]
        )
        self._mine = []
        devices = tuple(self._device(i, each) for i, each in enumerate(figures))
        self._begin_epoch()
        return devices

    def _device(self, position: int, figures: dict[str, Any]) -> DeviceEpoch:
        share = self._plan.shares[position]
        times: dict[str, float | None] = asdict(self._totals[position])
        if share.device.on_host:
            times["transfer"] = None
        return DeviceEpoch(
            name=share.device.name or share.device.kind,
            kind=share.device.kind,
            batch_share=self._seeds[position] / max(sum(self._seeds), 1),
            threads=asdict(share.threads),
            stage_times_s=times,
            **figures,
        )

    def epoch_record(
        self,
        traffic: EpochCounters,
        devices: tuple[DeviceEpoch, ...],
        *,
        epoch: int,
        lr: float,
        valid_metric: float | None,
        eval_time: float | None,
    ) -> EpochRecord:
        """Describe the epoch that was ended last."""
        return EpochRecord(
            epoch=epoch,
            train_loss=traffic.loss / traffic.num_seeds,
            valid_metric=valid_metric,
            lr=lr,
            epoch_time_s=traffic.seconds,
            eval_time_s=eval_time,
            num_edges=traffic.num_edges,
            num_vertices=traffic.num_vertices,
            stage_times_s=_slowest(devices),
            peak_rss_bytes=max(device.peak_rss_bytes for device in devices),
            devices=devices,
        )


def _slowest(devices: Sequence[DeviceEpoch]) -> dict[str, float | None]:
    """Each stage's time on the device that was slowest in it."""
    slowest: dict[str, float | None] = {}
    for stage in devices[0].stage_times_s:
        times = [device.stage_times_s[stage] for device in devices]
        slowest[stage] = max((time for time in times if time is not None), default=None)
    return slowest
