"""What a device plan takes on a platform: the equations, and how devices share the host."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from gnnscale.core import STAGES, StageTimes
from gnnscale.nn.cost import BYTES_PER_FEATURE, LayerWork
from gnnscale.planner.cost_model import equations
from gnnscale.planner.cost_model.stage_work import (
    block_bytes,
    list_reads,
    load_work,
    partial_bytes,
    propagation_work,
    transfer_bytes,
)
from gnnscale.planner.cost_model.workload import Workload
from gnnscale.planner.device_plan import SAMPLED_IN_TURN, DevicePlan, DeviceShare
from gnnscale.planner.device_spec import Accelerator, Device
from gnnscale.planner.platform import Platform, Processor

#: Rounds in which stage times and the load that stages put on the host settle.
_ROUNDS = 40
_TOLERANCE = 1e-3


@dataclass(frozen=True, kw_only=True)
class Host:
    """The host's part of the stages of all devices."""

    processor: Processor  #: the host's rates
    num_workers: int  #: worker processes that synchronise
    #: whether emulated devices compute on this host, as in a run, and may so be late; a platform
    #: that is only simulated has the devices themselves
    emulates: bool

    def computes(self, device: Device) -> bool:
        """Return whether the device's propagation occupies cores of the host."""
        emulated = isinstance(device, Accelerator)
        return device.computes_on_host and (self.emulates or not emulated)

    def sample(
        self,
        workload: Workload,
        num_seeds: int,
        size: equations.BatchSize,
        threads: int,
        active: float,
    ) -> float:
        """T_samp: as measured alone, slowed by those who use the same memory."""
        alone = workload.slices.sample_seconds(num_seeds, threads)
        if alone is None:
            return size.num_edges / self.processor.rate("sampled_edges_per_s", threads, active)
        for name in ("memory_rows_per_s", "memory_bandwidth"):
            before = self.processor.rate(name, threads, threads)
            if not math.isinf(before):
                return alone * before / self.processor.rate(name, threads, active)
        return alone

    def load(
        self, workload: Workload, size: equations.BatchSize, threads: int, active: float
    ) -> float:
        """T_load, eq. 7, with the cache in front of the memory."""
        work = load_work(workload, size, cache=self.processor.cache_bytes)
        alone = self.processor.load_s + work.lookups / self.processor.lookups_per_s
        return alone * max(1.0, active / self.processor.cores) + self._seconds(
            threads,
            active,
            rows_per_s=work.rows,
            memory_rows_per_s=work.missed_rows,
            cache_bandwidth=work.cached_bytes,
            memory_bandwidth=work.memory_bytes,
            widened_per_s=work.widened,
            write_bandwidth=work.written_bytes,
        )

    def propagate(
        self, workload: Workload, size: equations.BatchSize, threads: int, active: float
    ) -> float:
        """T_trainer on the host's cores, eq. 10 to 12, and a constant for each operation."""
        layers = propagation_work(workload, size)
        work = sum((each for layer in layers for each in layer), start=LayerWork())
        minimum = work.operations * self.processor.layer_seconds(threads, active)
        factor = 1.0 if workload.counted is None else workload.counted.host_factor
        # Amounts are those of float32.
        narrower = workload.compute_bytes / BYTES_PER_FEATURE
        products = "bfloat16_macs_per_s" if workload.compute_dtype == "bfloat16" else "macs_per_s"
        rate = partial(self.processor.rate, threads=threads, active=active)
        streamed = work.stream_bytes
        if self.processor.rates.operand_bandwidth is None:
            streamed += work.operand_bytes
            seconds = work.macs / rate(products)
        else:
            bandwidth = rate("operand_bandwidth") / narrower
            seconds = equations.product_seconds(
                layers, macs_per_s=rate(products), operand_bandwidth=bandwidth
            )
        amounts = {
            "aggregate_bandwidth": narrower * work.read_bytes,
            "stream_bandwidth": narrower * streamed,
            "attention_per_s": work.attention,
        }
        seconds += self._seconds(threads, active, **amounts)
        return factor * minimum + factor * seconds

    def exchange(self, workload: Workload, size: equations.BatchSize) -> float:
        """Seconds in which a device gets what a split first layer (P3) needs from the others.

        That is as much as it sends when devices have slices of one size.
        """
        others = workload.num_sharing - 1
        if not others:
            return 0.0
        received = block_bytes(size) + partial_bytes(size, workload.widths[1])
        # A block, a partial product and a gradient, each of them one message.
        latency_s, bandwidth = self.processor.sharing.messages
        return others * (3 * latency_s + received / bandwidth)

    def sync(self, workload: Workload, device: Device) -> float:
        """T_sync, eq. 13: over the device's link, among the workers, and the update itself."""
        num_bytes = workload.weight_bytes
        seconds = self.processor.update_s + num_bytes / self.processor.update_bandwidth
        seconds += self.processor.sharing.sync_seconds(num_bytes, self.num_workers)
        if isinstance(device, Accelerator) and device.link_bandwidth is not None:
            seconds += equations.sync_seconds(
                num_bytes, device.link_bandwidth, device.link_latency_s
            )
        return seconds

    def _seconds(self, threads: int, active: float, **amounts: float) -> float:
        rates = ((amount, self.processor.rate(n, threads, active)) for n, amount in amounts.items())
        return sum(amount / rate for amount, rate in rates)


@dataclass(frozen=True, kw_only=True)
class Correction:
    """How far a rehearsal differed from the rates' predictions; see ``correction.py``."""

    #: for each device of the plan, measured over predicted seconds of each of its stages on the
    #: host
    host: tuple[Mapping[str, float], ...]
    #: measured over predicted seconds of a step, with the stages corrected: workers that wait for
    #: the latest in each step, and all else that no equation has
    step: float


@dataclass(kw_only=True)
class DeviceTimes:
    """A device's stage times, and how long each keeps its threads of the host busy."""

    stages: StageTimes
    busy: dict[str, tuple[int, float]]

    def copy(self) -> DeviceTimes:
        """Return the same of another device, for a caller that changes one of them."""
        return DeviceTimes(stages=replace(self.stages), busy=self.busy)


def device_times(
    host: Host,
    share: DeviceShare,
    workload: Workload,
    size: equations.BatchSize,
    active: Mapping[str, float],
    correction: Mapping[str, float],
) -> DeviceTimes:
    """Return the seconds of each of a device's stages.

    Args:
        active: for each stage, the host's threads that work while it does, its own included.
        correction: what the host's seconds of each stage are multiplied with.
    """
    threads, device, count = share.threads, share.device, share.num_seeds
    times = StageTimes(sync=host.sync(workload, device), exchange=host.exchange(workload, size))
    if not count:
        return DeviceTimes(stages=times, busy={})
    busy: dict[str, int] = {}
    if not device.samples or host.computes(device):
        busy["sample"] = threads.sample
        times.sample = host.sample(workload, count, size, threads.sample, active["sample"])
    if not device.loads or host.computes(device):
        busy["load"] = threads.load
        times.load = host.load(workload, size, threads.load, active["load"])
    if host.computes(device):
        busy["propagate"] = max(threads.propagate, 1)
        times.propagate = host.propagate(workload, size, busy["propagate"], active["propagate"])
    for stage in busy:
        setattr(times, stage, getattr(times, stage) * correction.get(stage, 1.0))
    occupied = {stage: (on_host, getattr(times, stage)) for stage, on_host in busy.items()}
    # The host's steps vary, and with them those of the others; what an accelerator does, does not.
    varying_s = equations.pipeline_seconds(
        StageTimes(**{stage: seconds for stage, (_, seconds) in occupied.items()}), share.prefetch
    )
    if isinstance(device, Accelerator):
        own = accelerator_seconds(device, workload, size)
        if part := share.host_samples / SAMPLED_IN_TURN:
            on_host = host.sample(workload, count, size, threads.sample, active["sample"])
            own.sample = max((1 - part) * own.sample, part * on_host)
        for stage in STAGES[:-1]:
            setattr(times, stage, max(getattr(times, stage), getattr(own, stage)))
    times.sync += host.processor.sharing.straggler_seconds(varying_s, host.num_workers)
    if not device.loads:
        _wait_for_rows(times, share.prefetch, workload.source.seconds(size.vertices[0]))
    return DeviceTimes(stages=times, busy=occupied)


def _wait_for_rows(times: StageTimes, prefetch: str, source_s: float) -> None:
    """Let loading wait for a source that reads rows while all stages run, for ``source_s``."""
    others = equations.pipeline_seconds(replace(times, load=0.0), prefetch)
    if prefetch == "two_stage":
        others = 0.0
    elif prefetch == "one_stage":
        others = equations.pipeline_seconds(replace(times, load=0.0, propagate=0.0), prefetch)
    times.load = max(times.load, source_s - others)


def accelerator_seconds(
    device: Accelerator, workload: Workload, size: equations.BatchSize
) -> StageTimes:
    """Return an accelerator's seconds of each stage of a mini-batch, by its own rates, eq. 7 to 12.

    A stage that the host does for the device takes 0 here.
    """
    times, cache = StageTimes(), workload.cache
    row_bytes = size.vertices[0] * workload.row_bytes
    if device.host_bandwidth is not None:
        times.load = equations.load_seconds(row_bytes * cache.row_misses, device.host_bandwidth)
    if device.sampled_edges_per_s is not None:
        times.sample = size.num_edges / device.sampled_edges_per_s
    if device.link_bandwidth is not None:
        rows, topology = transfer_bytes(workload, size)
        if device.samples:
            times.sample += device.read_seconds(
                cache.list_misses * list_reads(size), device.link_request_bytes
            )
        if device.loads:
            times.load = device.link_latency_s + device.read_seconds(
                size.vertices[0] * cache.row_misses, workload.row_bytes
            )
        sent = (0 if device.loads else rows) + (0 if device.samples else topology)
        times.transfer = equations.transfer_seconds(
            sent, device.link_bandwidth, device.link_latency_s
        )
    if cache.num_bytes:
        hits = row_bytes * (1 - cache.row_misses - cache.peer_rows)
        times.load += device.cache_seconds(hits, row_bytes * cache.peer_rows)
    times.propagate = device.launch_s + equations.trainer_seconds(
        propagation_work(workload, size),
        memory_bandwidth=device.memory_bandwidth,
        macs_per_s=device.macs_per_s,
        pipelined=device.pipelined,
    )
    return times


def predict(
    plan: DevicePlan,
    workloads: Sequence[Workload],
    platform: Platform,
    *,
    emulates: bool = True,
    correction: Correction | None = None,
) -> equations.Prediction:
    """Predict one full step of ``plan``, eq. 5 to 13.

    Args:
        platform: the host's rates; its accelerators do not matter, the plan has its own.
        correction: what a rehearsal taught of these devices, None if only the rates are used.
    """
    pairs = zip(workloads, plan.shares, strict=True)
    sizes = [workload.size(share.num_seeds) for workload, share in pairs]
    found = _fixed_point(plan, workloads, platform, emulates, correction)
    step = _longest(plan, found) * (1.0 if correction is None else correction.step)
    for each, share in zip(found, plan.shares, strict=True):
        # Whoever is done early waits for the others' gradients.
        each.stages.sync += max(step - equations.pipeline_seconds(each.stages, share.prefetch), 0.0)
    return equations.Prediction(
        devices=tuple(each.stages for each in found),
        step_s=step,
        num_edges=round(sum(size.num_edges for size in sizes)),
        source=platform.name,
        is_mean=any(workload.source.row_misses > 0 for workload in workloads),
    )


def host_seconds(
    plan: DevicePlan,
    workloads: Sequence[Workload],
    platform: Platform,
    correction: Correction | None,
) -> tuple[dict[str, float], ...]:
    """Return for each device how long each stage occupies the host, whatever the device takes."""
    found = _fixed_point(plan, workloads, platform, True, correction)
    return tuple({stage: seconds for stage, (_, seconds) in each.busy.items()} for each in found)


def _fixed_point(
    plan: DevicePlan,
    workloads: Sequence[Workload],
    platform: Platform,
    emulates: bool,
    correction: Correction | None,
) -> list[DeviceTimes]:
    """Find stage times and the load that they put on the host together, by iteration.

    Stages that overlap share cores and memory, and how much they overlap depends on how long they
    take.
    """
    host = Host(processor=platform.processor, num_workers=len(plan.shares), emulates=emulates)
    corrections = ({},) * len(plan.shares) if correction is None else correction.host
    parts = [
        (share, workload, workload.size(share.num_seeds), each)
        for share, workload, each in zip(plan.shares, workloads, corrections, strict=True)
    ]
    alike = _alike(plan, workloads, corrections)
    load = dict.fromkeys(_lanes(plan), 0.0)
    step = 0.0
    found: list[DeviceTimes] = []
    for _ in range(_ROUNDS):
        total = sum(load.values())
        found = []
        for position, (share, workload, size, each) in enumerate(parts):
            if alike[position] < position:
                found.append(found[alike[position]].copy())
                continue
            active = _active(share, position, load, total)
            found.append(device_times(host, share, workload, size, active, each))
        before, step = step, _longest(plan, found)
        last, load = load, _host_load(plan, found, step, load)
        moved = max(abs(load[lane] - last[lane]) for lane in load)
        if max(abs(step - before) / step, moved) <= _TOLERANCE:
            break
    return found


def _alike(
    plan: DevicePlan, workloads: Sequence[Workload], corrections: Sequence[Mapping[str, float]]
) -> list[int]:
    """Return for each device the first that does just the same, and so takes the same time."""
    shares = [replace(each, device=replace(each.device, name=None)) for each in plan.shares]
    parts = list(zip(shares, workloads, corrections, strict=True))
    return [parts.index(part) for part in parts]


def _longest(plan: DevicePlan, found: Sequence[DeviceTimes]) -> float:
    """Seconds of the device whose step takes longest, eq. 6."""
    parts = zip(found, plan.shares, strict=True)
    return max(equations.pipeline_seconds(each.stages, share.prefetch) for each, share in parts)


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
