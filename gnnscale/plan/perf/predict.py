"""What a device plan takes on a platform: the equations, and how devices share the host."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gnnscale.plan.device import Device, Emulated
from gnnscale.plan.device_plan import DevicePlan, DeviceShare
from gnnscale.plan.perf.equations import (
    BYTES_PER_FEATURE,
    BatchSize,
    Prediction,
    load_seconds,
    pipeline_seconds,
    sync_seconds,
    trainer_seconds,
    transfer_seconds,
)
from gnnscale.plan.perf.host_work import load_work, propagation_work
from gnnscale.plan.perf.workload import Workload
from gnnscale.plan.platform import Platform, Processor
from gnnscale.stages import StageTimes

__all__ = ["Correction", "DeviceTimes", "Host", "host_seconds", "predict", "transfer_bytes"]

#: Rounds in which stage times and the load that stages put on the host settle.
_ROUNDS = 40
_TOLERANCE = 1e-3


def transfer_bytes(workload: Workload, size: BatchSize) -> float:
    """Bytes that cross an accelerator's link for a mini-batch: the numerator of eq. 8.

    Features and topology; where the first layer was aggregated on the host, |V^1| rows of the first
    product's width take the place of |V^0|·f^0, and its block is not sent.
    """
    first = workload.layers[0]
    if workload.aggregates_on_load:
        rows = size.vertices[1] * first.products[0][0]
        layers = range(1, len(size.edges))
    else:
        rows = size.vertices[0] * first.width_in
        layers = range(len(size.edges))
    topology = sum(8 * (size.vertices[layer + 1] + 1) + 4 * size.edges[layer] for layer in layers)
    return rows * BYTES_PER_FEATURE + topology


@dataclass(frozen=True, kw_only=True)
class Host:
    """What the stages of all devices need to know of the host.

    Attributes:
        workload: what is trained.
        processor: the host's rates.
        num_workers: worker processes that synchronise.
        emulates: whether emulated devices compute on this host, as in a run, and may so be late; a
            platform that is only simulated has the devices themselves.
    """

    workload: Workload
    processor: Processor
    num_workers: int
    emulates: bool

    def sample(self, num_seeds: int, size: BatchSize, threads: int, active: float) -> float:
        """T_samp: as measured alone, slowed by those who use the same memory."""
        alone = self.workload.sample_seconds(num_seeds, threads)
        if alone is None:
            return size.num_edges / self.processor.rate("sampled_edges_per_s", threads, active)
        before = self.processor.rate("memory_rows_per_s", threads, threads)
        if math.isinf(before):
            return alone
        return alone * before / self.processor.rate("memory_rows_per_s", threads, active)

    def load(self, size: BatchSize, threads: int, active: float) -> float:
        """T_load, eq. 7, with the cache in front of the memory."""
        work = load_work(self.workload, size, cache=self.processor.cache_bytes)
        alone = self.processor.load_s + work.lookups / self.processor.lookups_per_s
        return alone * max(1.0, active / self.processor.cores) + self._seconds(
            threads,
            active,
            rows_per_s=work.rows,
            memory_rows_per_s=work.missed_rows,
            cache_bandwidth=work.cached_bytes,
            memory_bandwidth=work.memory_bytes,
        )

    def propagate(self, size: BatchSize, threads: int, active: float) -> float:
        """T_trainer on the host's cores, eq. 10 to 12, and a constant for each layer."""
        work = propagation_work(self.workload, size)
        least = work.num_layers * self.processor.layer_seconds(threads, active)
        return least + self._seconds(
            threads,
            active,
            macs_per_s=work.macs,
            aggregate_bandwidth=work.aggregate_bytes,
            stream_bandwidth=work.stream_bytes,
            attention_per_s=work.attention,
        )

    def sync(self, device: Device) -> float:
        """T_sync, eq. 13: over the device's link, among the workers, and the update itself."""
        num_bytes = self.workload.weight_bytes
        seconds = self.processor.update_s + num_bytes / self.processor.update_bandwidth
        seconds += self.processor.sync_seconds(num_bytes, self.num_workers)
        if isinstance(device, Emulated) and device.link_bandwidth is not None:
            seconds += sync_seconds(num_bytes, device.link_bandwidth, device.link_latency_s)
        return seconds

    def _seconds(self, threads: int, active: float, **amounts: float) -> float:
        rates = ((amount, self.processor.rate(n, threads, active)) for n, amount in amounts.items())
        return sum(amount / rate for amount, rate in rates)


@dataclass(frozen=True, kw_only=True)
class Correction:
    """By how much a rehearsal differed from what the rates say; see ``plan/correct.py``.

    Attributes:
        host: for each device of the plan, measured over predicted seconds of each of its stages on
            the host.
        step: measured over predicted seconds of a step, with the stages corrected: workers that
            wait for whoever is latest in each step, and all else that no equation has.
    """

    host: tuple[Mapping[str, float], ...]
    step: float


@dataclass(kw_only=True)
class DeviceTimes:
    """A device's stage times, and how long each keeps its threads of the host busy."""

    stages: StageTimes
    busy: dict[str, tuple[int, float]]


def _device_times(
    host: Host,
    share: DeviceShare,
    size: BatchSize,
    active: Mapping[str, float],
    correction: Mapping[str, float],
) -> DeviceTimes:
    """Return the seconds of each of a device's stages.

    Args:
        host: the host and what is trained.
        share: the device and its slice.
        size: the mini-batch that the slice becomes.
        active: for each stage, the host's threads that work while it does, its own included.
        correction: what the host's seconds of each stage are multiplied with.
    """
    threads, device, count = share.threads, share.device, share.num_seeds
    times = StageTimes(sync=host.sync(device))
    if not count:
        return DeviceTimes(stages=times, busy={})
    times.sample = host.sample(count, size, threads.sample, active["sample"])
    times.load = host.load(size, threads.load, active["load"])
    busy = {"sample": threads.sample, "load": threads.load}
    if not isinstance(device, Emulated) or host.emulates:
        busy["propagate"] = max(threads.propagate, 1)
        times.propagate = host.propagate(size, busy["propagate"], active["propagate"])
    for stage in busy:
        setattr(times, stage, getattr(times, stage) * correction.get(stage, 1.0))
    occupied = {stage: (on_host, getattr(times, stage)) for stage, on_host in busy.items()}
    if isinstance(device, Emulated):
        _take_device_time(host.workload, device, size, times)
    return DeviceTimes(stages=times, busy=occupied)


def _take_device_time(
    workload: Workload, device: Emulated, size: BatchSize, times: StageTimes
) -> None:
    """Let stages last as long as the device's metadata say, where that is longer."""
    if device.host_bandwidth is not None:
        row_bytes = workload.widths[0] * workload.feature_bytes
        paced = load_seconds(size.vertices[0] * row_bytes, device.host_bandwidth)
        times.load = max(times.load, paced)
    if device.link_bandwidth is not None:
        moved = transfer_bytes(workload, size)
        times.transfer = transfer_seconds(moved, device.link_bandwidth, device.link_latency_s)
    computing = device.launch_s + trainer_seconds(
        size,
        workload.widths,
        memory_bandwidth=device.memory_bandwidth,
        macs_per_s=device.macs_per_s,
        pipelined=device.pipelined,
        aggregated=workload.aggregates_on_load,
    )
    times.propagate = max(times.propagate, computing)


def predict(
    plan: DevicePlan,
    workload: Workload,
    platform: Platform,
    *,
    emulates: bool = True,
    correction: Correction | None = None,
) -> Prediction:
    """Predict one full step of ``plan``, eq. 5 to 13.

    Args:
        plan: the devices, their slices, threads and prefetching.
        workload: what is trained.
        platform: the host's rates; its accelerators do not matter, the plan has its own.
        emulates: see ``Host``.
        correction: what a rehearsal taught of these devices, None where the rates stand alone.
    """
    sizes = [workload.size(share.num_seeds) for share in plan.shares]
    found = _fixed_point(plan, workload, platform, emulates, correction)
    step = _longest(plan, found) * (1.0 if correction is None else correction.step)
    for each, share in zip(found, plan.shares, strict=True):
        # Whoever is done early waits for the others' gradients.
        each.stages.sync += max(step - pipeline_seconds(each.stages, share.prefetch), 0.0)
    return Prediction(
        devices=tuple(each.stages for each in found),
        step_s=step,
        num_edges=round(sum(size.num_edges for size in sizes)),
        source=platform.name,
    )


def host_seconds(
    plan: DevicePlan, workload: Workload, platform: Platform, correction: Correction | None
) -> tuple[dict[str, float], ...]:
    """Return for each device how long each stage occupies the host, whatever the device takes."""
    found = _fixed_point(plan, workload, platform, True, correction)
    return tuple({stage: seconds for stage, (_, seconds) in each.busy.items()} for each in found)


def _fixed_point(
    plan: DevicePlan,
    workload: Workload,
    platform: Platform,
    emulates: bool,
    correction: Correction | None,
) -> list[DeviceTimes]:
    """Find stage times and the load that they put on the host together, by iteration.

    Stages that overlap share cores and memory, and how much they overlap depends on how long they
    take.
    """
    host = Host(
        workload=workload,
        processor=platform.processor,
        num_workers=len(plan.shares),
        emulates=emulates,
    )
    corrections = ({},) * len(plan.shares) if correction is None else correction.host
    parts = [
        (share, workload.size(share.num_seeds), each)
        for share, each in zip(plan.shares, corrections, strict=True)
    ]
    load = dict.fromkeys(_lanes(plan), 0.0)
    step = 0.0
    for _ in range(_ROUNDS):
        total = sum(load.values())
        found = [
            _device_times(host, share, size, _active(share, position, load, total), each)
            for position, (share, size, each) in enumerate(parts)
        ]
        before, step = step, _longest(plan, found)
        last, load = load, _host_load(plan, found, step, load)
        moved = max(abs(load[lane] - last[lane]) for lane in load)
        if max(abs(step - before) / step, moved) <= _TOLERANCE:
            break
    return found


def _longest(plan: DevicePlan, found: Sequence[DeviceTimes]) -> float:
    """Seconds of the device whose step takes longest, eq. 6."""
    parts = zip(found, plan.shares, strict=True)
    return max(pipeline_seconds(each.stages, share.prefetch) for each, share in parts)


def _lane(share: DeviceShare, stage: str) -> str:
    """Which of a device's lanes a stage belongs to; stages of one lane take turns."""
    if share.prefetch == "none":
        return "all"
    if stage == "propagate":
        return "train"
    return "prepare" if share.prefetch == "one_stage" else stage


def _lanes(plan: DevicePlan) -> list[tuple[int, str]]:
    return [
        (position, lane)
        for position, share in enumerate(plan.shares)
        for lane in dict.fromkeys(_lane(share, stage) for stage in ("sample", "load", "propagate"))
    ]


def _active(
    share: DeviceShare, position: int, load: Mapping[tuple[int, str], float], total: float
) -> dict[str, float]:
    """Threads that work while each of the device's stages does: its own, and all other lanes'."""
    threads = share.threads
    own = {"sample": threads.sample, "load": threads.load, "propagate": max(threads.propagate, 1)}
    return {
        stage: count + total - load[position, _lane(share, stage)] for stage, count in own.items()
    }


def _host_load(
    plan: DevicePlan,
    found: Sequence[DeviceTimes],
    step: float,
    before: Mapping[tuple[int, str], float],
) -> dict[tuple[int, str], float]:
    """Mean number of threads that each lane keeps busy, half-way from what it was ``before``."""
    load = dict.fromkeys(before, 0.0)
    for position, (share, each) in enumerate(zip(plan.shares, found, strict=True)):
        for stage, (threads, seconds) in each.busy.items():
            load[position, _lane(share, stage)] += threads * min(1.0, seconds / step)
    return {lane: (load[lane] + before[lane]) / 2 for lane in load}
