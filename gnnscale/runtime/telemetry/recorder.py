"""What a worker records of its steps, and what rank 0 makes of all workers' records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale.core.stages import Traffic
from gnnscale.plan import DevicePlan
from gnnscale.runtime.pipeline.schedule import BatchSlice
from gnnscale.runtime.sync.group import Group
from gnnscale.runtime.sync.synchronizer import StepTotals
from gnnscale.runtime.telemetry.counters import EpochCounters
from gnnscale.runtime.telemetry.epoch_sums import EpochSums
from gnnscale.runtime.telemetry.gathering import WorkerFigures
from gnnscale.runtime.telemetry.records import DeviceEpoch, DeviceStep, EpochRecord, StepRecord

__all__ = ["StepRecorder"]


class StepRecorder:
    """Times, shares, traffic, memory and spans of a run's steps."""

    def __init__(self, group: Group, *, steps_per_epoch: int, start: float) -> None:
        """Begin.

        Args:
            group: the workers of the run.
            steps_per_epoch: steps of an epoch.
            start: when the run began, on the performance counter's clock.
        """
        self._group = group
        self._steps_per_epoch = steps_per_epoch
        self._figures = WorkerFigures(group, start)
        self.begin_epoch()

    def begin_epoch(self, sums: EpochSums | None = None) -> None:
        """Forget the counts of the epoch before.

        Args:
            sums: of an epoch that was begun before the run was resumed; None for a new one.
        """
        self._counters = EpochCounters.begin(self._group.size, sums)
        self._plan: DevicePlan | None = None
        if sums is not None:
            self._figures.counters.update(sums.counters)

    def sums(self) -> EpochSums:
        """Return what the epoch has added up so far."""
        return self._counters.sums(self._figures.counters)

    @property
    def spans(self) -> NDArray[np.void]:
        """Spans of the epoch that ``end_epoch`` ended, of all devices; complete on rank 0."""
        return self._figures.spans

    @property
    def traffic(self) -> tuple[Traffic, ...]:
        """What each device has moved in the epoch; the same in every worker."""
        return tuple(self._counters.traffic_of)

    def add(self, batch: BatchSlice, totals: StepTotals, decision: str | None) -> StepRecord:
        """Record a finished step.

        Args:
            batch: this worker's slice.
            totals: what all workers did.
            decision: what dynamic resource management decided after it.
        """
        self._plan = batch.plan
        counters = self._counters
        counters.count(
            num_seeds=batch.num_seeds,
            num_edges=totals.num_edges,
            num_vertices=totals.num_vertices,
            loss=totals.loss,
        )
        parts = zip(batch.counts, totals.stages, totals.traffic, strict=True)
        for rank, (count, times, traffic) in enumerate(parts):
            counters.count_slice(rank, num_seeds=count, stages=times, traffic=traffic)
        self._figures.add(batch)
        return self._step_record(batch, totals, decision)

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

    def end_epoch(self, *, last: bool) -> None:
        """End the epoch's clock, and let rank 0 know every worker's figures and spans.

        Args:
            last: whether the run may end with this epoch.
        """
        self._counters.stop()
        assert self._plan is not None
        counts = any(not share.device.on_host for share in self._plan.shares)
        self._figures.end_epoch(due=counts or last)

    def epoch_record(self, *, epoch: int, lr: float) -> EpochRecord:
        """Describe the epoch that was ended last, before its validation; on rank 0 only.

        Args:
            epoch: counted from 1.
            lr: its learning rate.
        """
        assert self._plan is not None
        pairs = zip(self._plan.shares, self._figures.of_workers, strict=True)
        devices = tuple(
            self._device(rank, share.device, asdict(share.threads), figures)
            for rank, (share, figures) in enumerate(pairs)
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
        counters, traffic = self._counters, self._counters.traffic_of[rank]
        times: dict[str, float | None] = asdict(counters.stages_of[rank])
        if device.on_host:
            times["transfer"] = None
        if not times["exchange"]:
            times["exchange"] = None
        return DeviceEpoch(
            name=device.label,
            kind=device.kind,
            figures=device.figures,
            batch_share=counters.seeds_of[rank] / max(sum(counters.seeds_of), 1),
            threads=threads,
            stage_times_s=times,
            traffic=traffic,
            host_to_device_bytes=None if device.on_host else traffic.link_bytes,
            **figures,
        )


def _slowest(devices: Sequence[DeviceEpoch]) -> dict[str, float | None]:
    """Each stage's time on the device that was slowest in it."""
    slowest: dict[str, float | None] = {}
    for stage in devices[0].stage_times_s:
        times = [device.stage_times_s[stage] for device in devices]
        slowest[stage] = max((time for time in times if time is not None), default=None)
    return slowest
