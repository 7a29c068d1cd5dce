"""Records of a worker's steps, and the epoch records that rank 0 makes of all workers' records."""

import json
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from gnnscale.core import (
    SPAN,
    GpuMeter,
    GpuUse,
    StageTimes,
    StructArray,
    Traffic,
    busy_seconds,
    metrics,
    usable_cores,
)
from gnnscale.distributed.process_group import Group
from gnnscale.planner import DevicePlan
from gnnscale.run import records
from gnnscale.training.gradient_sync import StepTotals
from gnnscale.training.pipeline.slices import BatchSlice


@dataclass(kw_only=True)
class EpochCounters:
    """Totals of the mini-batches of an epoch, and its duration."""

    num_batches: int = 0  #: mini-batches
    num_seeds: int = 0  #: seeds
    num_edges: int = 0  #: edges traversed, over all layers
    num_vertices: int = 0  #: vertices traversed, over all layers
    loss: float = 0.0  #: summed over the seeds
    start: float = field(default_factory=time.perf_counter)  #: by the performance counter
    seconds: float = 0.0  #: duration of the epoch; 0 until it ends
    seeds_of: list[int] = field(default_factory=list)  #: seeds of each device, by rank
    stages_of: list[StageTimes] = field(default_factory=list)  #: seconds in each stage, by rank
    traffic_of: list[Traffic] = field(default_factory=list)  #: bytes moved, by rank

    @classmethod
    def begin(cls, num_devices: int, sums: records.EpochSums | None = None) -> "EpochCounters":
        """Start at zero, or continue from ``sums``, with a clock that includes earlier seconds."""
        devices = sums.devices if sums is not None else ()
        totals = devices or [records.DeviceTotals() for _ in range(num_devices)]
        names = ("num_batches", "num_seeds", "num_edges", "num_vertices", "loss")
        return cls(
            seeds_of=[device.num_seeds for device in totals],
            stages_of=[replace(device.stages) for device in totals],
            traffic_of=[device.traffic for device in totals],
            start=time.perf_counter() - (0.0 if sums is None else sums.seconds),
            **({} if sums is None else {name: getattr(sums, name) for name in names}),
        )

    def count(self, *, num_seeds: int, num_edges: int, num_vertices: int, loss: float) -> None:
        """Add a mini-batch over all devices; ``loss`` is the mean over its seeds."""
        self.num_batches += 1
        self.num_seeds += num_seeds
        self.num_edges += num_edges
        self.num_vertices += num_vertices
        self.loss += loss * num_seeds

    @property
    def mean_loss(self) -> float:
        """Mean loss over the seeds so far."""
        return self.loss / self.num_seeds

    def elapsed(self) -> float:
        """Return the seconds since the epoch began."""
        return time.perf_counter() - self.start

    def stop(self) -> None:
        """Set ``seconds`` to the time since the epoch began."""
        self.seconds = self.elapsed()

    def sums(self, counters: Mapping[str, float]) -> records.EpochSums:
        """Return the totals for a checkpoint, with this worker's device ``counters``."""
        parts = zip(self.seeds_of, self.stages_of, self.traffic_of, strict=True)
        return records.EpochSums(
            num_batches=self.num_batches,
            num_seeds=self.num_seeds,
            num_edges=self.num_edges,
            num_vertices=self.num_vertices,
            loss=self.loss,
            seconds=self.elapsed(),
            devices=tuple(
                records.DeviceTotals(num_seeds=seeds, stages=replace(stages), traffic=traffic)
                for seeds, stages, traffic in parts
            ),
            counters=dict(counters),
        )


#: Steps of a run whose spans are kept for the trace.
_TRACED_STEPS = 2000
#: Minimum number of steps between two gatherings if all devices are CPUs.
_GATHER_EVERY = 32
#: Seconds for which a measured proportional set size is reused: measuring it walks all pages, which
#: takes as long as a short epoch.
_PSS_EVERY_S = 1.0
#: Seconds before the load of other programs is known: the system counts in hundredths.
_LOAD_AFTER_S = 2.0


class WorkerStats:
    """Memory, GPU use, counters and spans of all workers, gathered at rank 0 after some epochs."""

    def __init__(self, group: Group, start: float, meter: GpuMeter | None) -> None:
        """Start; spans count seconds from ``start``, a time of the performance counter."""
        self._meter = meter
        self._gpu: GpuUse | None = None
        self.spans: StructArray = np.empty(0, SPAN)
        self.by_worker: list[dict[str, Any]] = []
        self.counters: Counter[str] = Counter()
        self._group = group
        self._start = start
        self._traced = 0
        self._steps_since_gathered = _GATHER_EVERY  # the first epoch is gathered
        self._pss: tuple[float, int | None] = (-math.inf, None)
        self._own_spans: list[tuple[int, int, int, float, float]] = []
        self._began = (time.perf_counter(), busy_seconds(), time.process_time())
        #: share of the cores that other programs kept busy, as in ``EpochRecord.other_load``
        self.other_load: float | None = None

    def add(self, batch: BatchSlice) -> None:
        """Add this worker's slice of a step: counters, and spans during the first 2,000 steps."""
        self._steps_since_gathered += 1
        if batch.outcome is not None and batch.outcome.counters:
            self.counters.update(batch.outcome.counters)
        if self._traced < _TRACED_STEPS:
            self._traced += 1
            self._own_spans += [
                (self._group.rank, stage, batch.step, start - self._start, end - self._start)
                for stage, start, end in batch.spans
            ]

    def begin_epoch(self) -> None:
        """Restart the measurement of the GPU's energy and utilization."""
        if self._meter is not None:
            self._meter.take()

    def end_epoch(self, *, due: bool) -> None:
        """Gather all workers' statistics at rank 0, if it is time.

        It is time with one worker, if ``due``, or 32 steps after the last time. Otherwise memory
        and GPU use stay as gathered last, and counters and spans are empty.
        """
        self._gpu = None if self._meter is None else self._meter.take()
        if due or self._group.size == 1 or self._steps_since_gathered >= _GATHER_EVERY:
            self._gather()
            self._steps_since_gathered = 0
        else:
            self.other_load = None
            self.spans = np.empty(0, SPAN)
            self.by_worker = [{**stats, "counters": {}} for stats in self.by_worker]

    def _gather(self) -> None:
        stats = {
            "peak_rss_bytes": metrics.peak_rss_bytes(),
            "pss_bytes": self._pss_bytes(),
            "gpu": None if self._gpu is None else asdict(self._gpu),
            "counters": dict(self.counters),
            "cpu_s": time.process_time() - self._began[2],
        }
        # One message for all: each message costs the workers several context switches.
        spans = np.array(self._own_spans, SPAN).tobytes()
        message = json.dumps(stats).encode() + b"\n" + spans
        messages = [gathered.partition(b"\n") for gathered in self._group.gather(message)]
        self.by_worker = [json.loads(encoded) for encoded, _, _ in messages]
        self.other_load = self._other_load([stats.pop("cpu_s") for stats in self.by_worker])
        self.spans = np.concatenate(
            [np.empty(0, SPAN), *(np.frombuffer(packed, SPAN) for _, _, packed in messages)]
        )
        self._own_spans = []
        self.counters.clear()

    def _other_load(self, cpu_seconds: Sequence[float]) -> float | None:
        """Return ``EpochRecord.other_load``; ``cpu_seconds`` are those of the workers."""
        seconds = time.perf_counter() - self._began[0]
        if seconds < _LOAD_AFTER_S or len(cpu_seconds) > self._group.local_size:
            return None
        other_s = busy_seconds() - self._began[1] - sum(cpu_seconds)
        return min(max(other_s / (seconds * usable_cores()), 0.0), 1.0)

    def _pss_bytes(self) -> int | None:
        """Return this process's proportional set size in bytes, measured at most once a second."""
        now = time.perf_counter()
        if now - self._pss[0] >= _PSS_EVERY_S:
            self._pss = now, pss_bytes()
        return self._pss[1]


def pss_bytes() -> int | None:
    """Return this process's proportional set size in bytes; None: the system reports none."""
    try:
        lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return None


class StepRecorder:
    """Recorder of the times, shares, traffic, memory and spans of a run's steps."""

    def __init__(
        self, group: Group, *, steps_per_epoch: int, start: float, meter: GpuMeter | None = None
    ) -> None:
        """Start to record a run that began at ``start``, by the performance counter."""
        self._group = group
        self._steps_per_epoch = steps_per_epoch
        self._stats = WorkerStats(group, start, meter)
        self.begin_epoch()

    def begin_epoch(self, sums: records.EpochSums | None = None) -> None:
        """Begin an epoch, or continue the interrupted epoch whose totals are ``sums``."""
        self._counters = EpochCounters.begin(self._group.size, sums)
        self._plan: DevicePlan | None = None
        self._stats.begin_epoch()
        if sums is not None:
            self._stats.counters.update(sums.counters)

    def sums(self) -> records.EpochSums:
        """Return the totals of the epoch so far."""
        return self._counters.sums(self._stats.counters)

    @property
    def spans(self) -> StructArray:
        """Spans of all devices in the last ended epoch, on rank 0; empty if not gathered."""
        return self._stats.spans

    @property
    def traffic(self) -> tuple[Traffic, ...]:
        """Bytes that each device has moved in the epoch, by rank; equal in every worker."""
        return tuple(self._counters.traffic_of)

    def add(
        self, batch: BatchSlice, totals: StepTotals, decision: str | None
    ) -> records.StepRecord:
        """Count a finished step; return its record with the ``decision`` of resource management."""
        self._plan = batch.plan
        counters = self._counters
        counters.count(
            num_seeds=batch.num_seeds,
            num_edges=totals.num_edges,
            num_vertices=totals.num_vertices,
            loss=totals.loss,
        )
        devices = []
        parts = zip(batch.plan.shares, batch.counts, totals.stages, totals.traffic, strict=True)
        for rank, (share, count, stages, traffic) in enumerate(parts):
            counters.seeds_of[rank] += count
            counters.stages_of[rank].add(stages)
            counters.traffic_of[rank] += traffic
            device = records.DeviceStep(
                num_seeds=count, threads=share.threads, stages=stages, traffic=traffic
            )
            devices.append(device)
        self._stats.add(batch)
        return records.StepRecord(
            epoch=batch.step // self._steps_per_epoch + 1,
            step=counters.num_batches,
            num_steps=self._steps_per_epoch,
            mean_loss=counters.mean_loss,
            num_edges=counters.num_edges,
            seconds=counters.elapsed(),
            global_step=batch.step,
            loss=totals.loss,
            devices=tuple(devices),
            decision=decision,
        )

    def end_epoch(self, *, last: bool) -> None:
        """Stop the clock of the epoch, and gather all workers' statistics at rank 0.

        Several CPU workers gather them only 32 steps after the last time, or if ``last``.
        """
        self._counters.stop()
        assert self._plan is not None
        has_accelerator = any(not share.device.on_host for share in self._plan.shares)
        self._stats.end_epoch(due=has_accelerator or last)

    def epoch_record(self, *, epoch: int, lr: float) -> records.EpochRecord:
        """Return the record of the last ended epoch before its validation; only for rank 0."""
        assert self._plan is not None
        pairs = zip(self._plan.shares, self._stats.by_worker, strict=True)
        devices = tuple(
            self._device(rank, share.device, asdict(share.threads), stats)
            for rank, (share, stats) in enumerate(pairs)
        )
        return records.EpochRecord(
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
            other_load=self._stats.other_load,
        )

    def _device(
        self, rank: int, device: Any, threads: dict[str, int], stats: dict[str, Any]
    ) -> records.DeviceEpoch:
        counters, traffic = self._counters, self._counters.traffic_of[rank]
        times: dict[str, float | None] = asdict(counters.stages_of[rank])
        if device.on_host:
            times["transfer"] = None
        if not times["exchange"]:
            times["exchange"] = None
        return records.DeviceEpoch(
            name=device.label,
            kind=device.kind,
            figures=device.figures,
            batch_share=counters.seeds_of[rank] / max(sum(counters.seeds_of), 1),
            threads=threads,
            stage_times_s=times,
            traffic=traffic,
            host_to_device_bytes=None if device.on_host else traffic.link_bytes,
            **{**stats, "gpu": None if stats["gpu"] is None else GpuUse(**stats["gpu"])},
        )


def _slowest(devices: Sequence[records.DeviceEpoch]) -> dict[str, float | None]:
    """Return each stage's time on its slowest device, in seconds."""
    slowest: dict[str, float | None] = {}
    for stage in devices[0].stage_times_s:
        times = [device.stage_times_s[stage] for device in devices]
        slowest[stage] = max((time for time in times if time is not None), default=None)
    return slowest
