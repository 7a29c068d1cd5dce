"""What a worker records of its steps, and what rank 0 makes of all workers' records."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale.core.metrics import peak_rss_bytes
from gnnscale.core.stages import SPAN, Traffic
from gnnscale.plan import DevicePlan
from gnnscale.runtime.pipeline.schedule import BatchSlice
from gnnscale.runtime.sync.group import Group
from gnnscale.runtime.sync.synchronizer import StepTotals
from gnnscale.runtime.telemetry.counters import EpochCounters
from gnnscale.runtime.telemetry.epoch_sums import DeviceSums, EpochSums
from gnnscale.runtime.telemetry.memory import pss_bytes
from gnnscale.runtime.telemetry.records import DeviceEpoch, DeviceStep, EpochRecord, StepRecord

__all__ = ["StepRecorder"]

#: Steps of a run whose spans are kept for the trace.
_TRACED_STEPS = 2000
#: Steps between two gatherings at least, where devices count nothing by themselves.
_GATHER_EVERY = 32
#: Seconds for which a look at the proportional set holds: the kernel walks all pages for it, which
#: takes as long as a short epoch.
_PSS_EVERY_S = 1.0


class StepRecorder:
    """Times, shares, traffic, memory and spans of a run's steps.

    Attributes:
        spans: of the epoch that ``end_epoch`` ended, from all devices; complete on rank 0.
    """

    def __init__(self, group: Group, *, steps_per_epoch: int, start: float) -> None:
        """Begin.

        Args:
            group: the workers of the run.
            steps_per_epoch: steps of an epoch.
            start: when the run began, on the performance counter's clock.
        """
        self.spans: NDArray[np.void] = np.empty(0, SPAN)
        self._group = group
        self._steps_per_epoch = steps_per_epoch
        self._start = start
        self._traced = 0
        self._steps_since_gathered = _GATHER_EVERY  # those of the first epoch are needed
        self._pss: tuple[float, int | None] = (-math.inf, None)
        self._mine: list[tuple[int, int, int, float, float]] = []
        self._figures: list[dict[str, Any]] = []
        self._own_counters: Counter[str] = Counter()
        self.begin_epoch()

    def begin_epoch(self, sums: EpochSums | None = None) -> None:
        """Forget the counts of the epoch before.

        Args:
            sums: of an epoch that was begun before the run was resumed; None for a new one.
        """
        devices = sums.devices if sums is not None else ()
        known = devices or [DeviceSums() for _ in range(self._group.size)]
        self._counters = EpochCounters() if sums is None else EpochCounters.going_on(sums)
        self._stages = [replace(each.stages) for each in known]
        self._traffic = [each.traffic for each in known]
        self._seeds = [each.num_seeds for each in known]
        self._plan: DevicePlan | None = None
        if sums is not None:
            self._own_counters.update(sums.counters)

    def sums(self) -> EpochSums:
        """Return what the epoch has added up so far."""
        counted = self._counters
        parts = zip(self._seeds, self._stages, self._traffic, strict=True)
        return EpochSums(
            num_batches=counted.num_batches,
            num_seeds=counted.num_seeds,
            num_edges=counted.num_edges,
            num_vertices=counted.num_vertices,
            loss=counted.loss,
            seconds=counted.elapsed(),
            devices=tuple(
                DeviceSums(num_seeds=seeds, stages=replace(stages), traffic=traffic)
                for seeds, stages, traffic in parts
            ),
            counters=dict(self._own_counters),
        )

    def add(self, batch: BatchSlice, totals: StepTotals, decision: str | None) -> StepRecord:
        """Record a finished step.

        Args:
            batch: this worker's slice.
            totals: what all workers did.
            decision: what dynamic resource management decided after it.
        """
        self._plan = batch.plan
        self._steps_since_gathered += 1
        self._counters.count(
            num_seeds=batch.num_seeds,
            num_edges=totals.num_edges,
            num_vertices=totals.num_vertices,
            loss=totals.loss,
        )
        for rank, (times, traffic) in enumerate(zip(totals.stages, totals.traffic, strict=True)):
            self._stages[rank].add(times)
            self._traffic[rank] += traffic
            self._seeds[rank] += batch.counts[rank]
        if batch.outcome is not None:
            self._own_counters.update(batch.outcome.counters)
        self._keep_spans(batch)
        return self._step_record(batch, totals, decision)

    def _keep_spans(self, batch: BatchSlice) -> None:
        if self._traced < _TRACED_STEPS:
            self._traced += 1
            self._mine += [
                (self._group.rank, stage, batch.step, start - self._start, end - self._start)
                for stage, start, end in batch.spans
            ]

    def _step_record(
        self, batch: BatchSlice, totals: StepTotals, decision: str | None
    ) -> StepRecord:
        parts = zip(batch.plan.shares, batch.counts, totals.stages, totals.traffic, strict=True)
        return StepRecord(
            epoch=batch.step // self._steps_per_epoch + 1,
            step=self._counters.num_batches,
            num_steps=self._steps_per_epoch,
            mean_loss=self._counters.mean_loss,
            num_edges=self._counters.num_edges,
            seconds=self._counters.elapsed(),
            global_step=batch.step,
            loss=totals.loss,
            devices=tuple(
                DeviceStep(num_seeds=count, threads=share.threads, stages=times, traffic=traffic)
                for share, count, times, traffic in parts
            ),
            decision=decision,
        )

    def _pss_bytes(self) -> int | None:
        """This process's proportional set, as it was within the last second."""
        now = time.perf_counter()
        if now - self._pss[0] >= _PSS_EVERY_S:
            self._pss = now, pss_bytes()
        return self._pss[1]

    @property
    def traffic(self) -> tuple[Traffic, ...]:
        """What each device has moved in the epoch; the same in every worker."""
        return tuple(self._traffic)

    def end_epoch(self, *, last: bool) -> None:
        """End the epoch's clock, and gather every worker's figures and spans on rank 0.

        An epoch of few steps on processors alone keeps the memory of the one before, and leaves
        spans and counters to the next: to gather takes longer than such an epoch.

        Args:
            last: whether the run may end with this epoch.
        """
        self._counters.stop()
        assert self._plan is not None
        counts = any(not share.device.on_host for share in self._plan.shares)
        if counts or last or self._group.size == 1 or self._steps_since_gathered >= _GATHER_EVERY:
            self._gather()
            self._steps_since_gathered = 0
        else:
            self.spans = np.empty(0, SPAN)
            self._figures = [{**each, "counters": {}} for each in self._figures]

    def _gather(self) -> None:
        mine = {
            "peak_rss_bytes": peak_rss_bytes(),
            "pss_bytes": self._pss_bytes(),
            "counters": dict(self._own_counters),
        }
        # One message, for each costs the workers a few turns on the cores.
        spans = np.array(self._mine, SPAN).tobytes()
        found = [each.partition(b"\n") for each in self._group.gather(_json(mine) + b"\n" + spans)]
        self._figures = [json.loads(figures) for figures, _, _ in found]
        self.spans = np.concatenate(
            [np.empty(0, SPAN), *(np.frombuffer(each, SPAN) for _, _, each in found)]
        )
        self._mine = []
        self._own_counters.clear()

    def epoch_record(self, *, epoch: int, lr: float) -> EpochRecord:
        """Describe the epoch that was ended last, before its validation; on rank 0 only.

        Args:
            epoch: counted from 1.
            lr: its learning rate.
        """
        assert self._plan is not None
        devices = tuple(
            self._device(rank, share.device, asdict(share.threads), figures)
            for rank, (share, figures) in enumerate(
                zip(self._plan.shares, self._figures, strict=True)
            )
        )
        return EpochRecord(
            epoch=epoch,
            train_loss=self._counters.mean_loss,
            valid_metric=None,
            lr=lr,
            epoch_time_s=self._counters.seconds,
            eval_time_s=None,
            num_edges=self._counters.num_edges,
            num_vertices=self._counters.num_vertices,
            stage_times_s=_slowest(devices),
            peak_rss_bytes=max(device.peak_rss_bytes for device in devices),
            devices=devices,
        )

    def _device(
        self, rank: int, device: Any, threads: dict[str, int], figures: dict[str, Any]
    ) -> DeviceEpoch:
        times: dict[str, float | None] = asdict(self._stages[rank])
        if device.on_host:
            times["transfer"] = None
        if not times["exchange"]:
            times["exchange"] = None
        return DeviceEpoch(
            name=device.label,
            kind=device.kind,
            figures=device.figures,
            batch_share=self._seeds[rank] / max(sum(self._seeds), 1),
            threads=threads,
            stage_times_s=times,
            traffic=self._traffic[rank],
            host_to_device_bytes=None if device.on_host else self._traffic[rank].link_bytes,
            **figures,
        )


def _json(values: Any) -> bytes:
    return json.dumps(values).encode()


def _slowest(devices: Sequence[DeviceEpoch]) -> dict[str, float | None]:
    """Each stage's time on the device that was slowest in it."""
    slowest: dict[str, float | None] = {}
    for stage in devices[0].stage_times_s:
        times = [device.stage_times_s[stage] for device in devices]
        slowest[stage] = max((time for time in times if time is not None), default=None)
    return slowest
