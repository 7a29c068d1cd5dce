"""Predicted time of a device plan on a platform: the equations, and contention for the host."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from gnnscale.core import STAGES, StageTimes
from gnnscale.nn.cost import BYTES_PER_FEATURE, LayerWork
from gnnscale.planner.cost_model import equations, stage_work
from gnnscale.planner.cost_model.workload import Workload
from gnnscale.planner.device_plan import SAMPLED_IN_TURN, DevicePlan, DeviceShare
from gnnscale.planner.device_spec import Accelerator, Device
from gnnscale.planner.platform import Platform
from gnnscale.planner.processor import Processor

#: Maximum rounds, and tolerance, of the fixed point of stage times and host load.
_ROUNDS = 40
_TOLERANCE = 1e-3


@dataclass(frozen=True, kw_only=True)
class Propagation:
    """Work of a mini-batch's propagation, whatever else the host does."""

    layers: tuple[tuple[LayerWork, LayerWork], ...]  #: each layer's work, forward and backward
    total: LayerWork  #: sum of ``layers``

    @classmethod
    def of(cls, workload: Workload, size: equations.BatchSize) -> "Propagation":
        """Return the work of a mini-batch of ``size``."""
        layers = stage_work.propagation_work(workload, size)
        return cls(layers=layers, total=sum(chain.from_iterable(layers), start=LayerWork()))


@dataclass(frozen=True, kw_only=True)
class Host:
    """Model of the host: its methods return the seconds of a device's stages on the host.

    A stage has ``threads`` of the ``active`` threads that work on the host at the time.
    """

    processor: Processor  #: the host's rates
    num_workers: int  #: number of worker processes that synchronize
    #: whether emulated devices compute on this host, as in a run. False: the devices are real
    emulates: bool

    def computes(self, device: Device) -> bool:
        """Return whether the device's propagation runs on the host's cores."""
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
        """Return the seconds of sampling (T_samp), measured or by rate, beside other threads."""
        unshared_s = workload.slices.sample_seconds(num_seeds, threads)
        if unshared_s is None:
            return size.num_edges / self.processor.rate("sampled_edges_per_s", threads, active)
        for name in ("memory_rows_per_s", "memory_bandwidth"):
            unshared_rate = self.processor.rate(name, threads, threads)
            if not math.isinf(unshared_rate):
                return unshared_s * unshared_rate / self.processor.rate(name, threads, active)
        return unshared_s

    def load(
        self, workload: Workload, size: equations.BatchSize, threads: int, active: float
    ) -> float:
        """Return the seconds of loading, T_load of eq. 7, with a cache in front of the memory."""
        work = stage_work.load_work(workload, size, cache=self.processor.cache_bytes)
        overhead_s = self.processor.load_s + work.lookups / self.processor.lookups_per_s
        return overhead_s * max(1.0, active / self.processor.cores) + self._seconds(
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
        """Return the seconds of propagation on the host, eq. 10 to 12 plus a time per operation."""
        return self.propagation_seconds(workload, Propagation.of(workload, size), threads, active)

    def propagation_seconds(
        self, workload: Workload, propagation: Propagation, threads: int, active: float
    ) -> float:
        """Return the seconds of ``propagation``, which is of a mini-batch of ``workload``."""
        work = propagation.total
        minimum = work.operations * self.processor.layer_seconds(threads, active)
        factor = 1.0 if workload.counted is None else workload.counted.host_factor
        # Amounts count float32 values.
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
                propagation.layers, macs_per_s=rate(products), operand_bandwidth=bandwidth
            )
        amounts = {
            "aggregate_bandwidth": narrower * work.read_bytes,
            "stream_bandwidth": narrower * streamed,
            "attention_per_s": work.attention,
        }
        seconds += self._seconds(threads, active, **amounts)
        return factor * minimum + factor * seconds

    def exchange(self, workload: Workload, size: equations.BatchSize) -> float:
        """Return the seconds in which a device receives its peers' data in P3; 0 without P3."""
        num_peers = workload.num_sharing - 1
        if not num_peers:
            return 0.0
        received = stage_work.block_bytes(size) + stage_work.partial_bytes(size, workload.widths[1])
        # Three messages: a block, a partial product and a gradient.
        latency_s, bandwidth = self.processor.sharing.messages
        return num_peers * (3 * latency_s + received / bandwidth)

    def sync(self, workload: Workload, device: Device) -> float:
        """Return the seconds of synchronization, eq. 13: link, all-reduce and weight update."""
        num_bytes = workload.weight_bytes
        seconds = self.processor.update_s + num_bytes / self.processor.update_bandwidth
        seconds += self.processor.sharing.sync_seconds(num_bytes, self.num_workers)
        if isinstance(device, Accelerator) and device.link_bandwidth is not None:
            seconds += equations.sync_seconds(
                num_bytes, device.link_bandwidth, device.link_latency_s
            )
        return seconds

    def _seconds(self, threads: int, active: float, **amounts: float) -> float:
        rate = self.processor.rate
        return sum(amount / rate(name, threads, active) for name, amount in amounts.items())


@dataclass(frozen=True, kw_only=True)
class Correction:
    """Ratios of measured to predicted times from a profiling run, as factors of predictions."""

    #: for each device, measured over predicted seconds of each of its stages on the host
    host: tuple[Mapping[str, float], ...]
    #: measured over predicted seconds of a step with corrected stages, such as waits for stragglers
    step: float


@dataclass(kw_only=True)
class DeviceTimes:
    """Stage times of a device, with the host threads and seconds of each stage on the host."""

    stages: StageTimes
    busy: dict[str, tuple[int, float]]

    def copy(self) -> "DeviceTimes":
        """Return a copy for an identical device, whose stage times may then be changed."""
        return DeviceTimes(stages=replace(self.stages), busy=self.busy)


@dataclass(frozen=True, kw_only=True)
class Unloaded:
    """Work of a device's mini-batch that does not depend on the load of the host."""

    propagation: Propagation  #: work of the propagation
    accelerator: StageTimes | None  #: the accelerator's own stage times. None: it is none

    @classmethod
    def of(cls, share: DeviceShare, workload: Workload, size: equations.BatchSize) -> "Unloaded":
        """Return the part of a device's times that its mini-batch alone decides."""
        device = share.device
        return cls(
            propagation=Propagation.of(workload, size),
            accelerator=accelerator_seconds(device, workload, size)
            if isinstance(device, Accelerator)
            else None,
        )


def device_times(
    host: Host,
    share: DeviceShare,
    workload: Workload,
    size: equations.BatchSize,
    active: Mapping[str, float],
    correction: Mapping[str, float],
    unloaded: Unloaded | None = None,
) -> DeviceTimes:
    """Return a device's stage times for a mini-batch, and its threads and seconds on the host.

    Args:
        active: for each stage, the number of host threads that work during the stage, its own
            included.
        correction: factor for the host's seconds of each stage.
        unloaded: what ``Unloaded.of`` returns for the mini-batch. None: it is computed.
    """
    threads, device, count = share.threads, share.device, share.num_seeds
    times = StageTimes(sync=host.sync(workload, device), exchange=host.exchange(workload, size))
    if not count:
        return DeviceTimes(stages=times, busy={})
    unloaded = unloaded or Unloaded.of(share, workload, size)
    busy: dict[str, int] = {}
    if not device.samples or host.computes(device):
        busy["sample"] = threads.sample
        times.sample = host.sample(workload, count, size, threads.sample, active["sample"])
    if not device.loads or host.computes(device):
        busy["load"] = threads.load
        times.load = host.load(workload, size, threads.load, active["load"])
    if host.computes(device):
        busy["propagate"] = max(threads.propagate, 1)
        times.propagate = host.propagation_seconds(
            workload, unloaded.propagation, busy["propagate"], active["propagate"]
        )
    for stage in busy:
        setattr(times, stage, getattr(times, stage) * correction.get(stage, 1.0))
    occupied = {stage: (on_host, getattr(times, stage)) for stage, on_host in busy.items()}
    # Only host stages vary from step to step, and so make workers wait for stragglers.
    varying_s = equations.pipeline_seconds(
        StageTimes(**{stage: seconds for stage, (_, seconds) in occupied.items()}), share.prefetch
    )
    if unloaded.accelerator is not None:
        accelerator = replace(unloaded.accelerator)
        if part := share.host_samples / SAMPLED_IN_TURN:
            on_host = host.sample(workload, count, size, threads.sample, active["sample"])
            accelerator.sample = max((1 - part) * accelerator.sample, part * on_host)
        for stage in STAGES[:-1]:
            setattr(times, stage, max(getattr(times, stage), getattr(accelerator, stage)))
    times.sync += host.processor.sharing.straggler_seconds(varying_s, host.num_workers)
    if not device.loads:
        _wait_for_rows(times, share.prefetch, workload.source.seconds(size.vertices[0]))
    return DeviceTimes(stages=times, busy=occupied)


def _wait_for_rows(times: StageTimes, prefetch: str, source_s: float) -> None:
    """Extend ``times.load`` to at least the seconds that a step waits for a backing store's rows.

    The store reads for ``source_s`` seconds, also during stages that take turns with loading under
    ``prefetch``. Their seconds are subtracted from ``source_s``; with ``two_stage`` there are none.
    """
    overlapped_s = equations.pipeline_seconds(replace(times, load=0.0), prefetch)
    if prefetch == "two_stage":
        overlapped_s = 0.0
    elif prefetch == "one_stage":
        overlapped_s = equations.pipeline_seconds(replace(times, load=0.0, propagate=0.0), prefetch)
    times.load = max(times.load, source_s - overlapped_s)


def accelerator_seconds(
    device: Accelerator, workload: Workload, size: equations.BatchSize
) -> StageTimes:
    """Return an accelerator's own stage times, eq. 7 to 12; stages of the host take 0 seconds."""
    times, cache = StageTimes(), workload.cache
    row_bytes = size.vertices[0] * workload.row_bytes
    if device.host_bandwidth is not None:
        times.load = equations.load_seconds(row_bytes * cache.row_misses, device.host_bandwidth)
    if device.sampled_edges_per_s is not None:
        times.sample = size.num_edges / device.sampled_edges_per_s
    if device.link_bandwidth is not None:
        rows, topology = stage_work.transfer_bytes(workload, size)
        if device.samples:
            times.sample += device.read_seconds(
                cache.list_misses * stage_work.list_reads(size), device.link_request_bytes
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
        stage_work.propagation_work(workload, size),
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
    """Return the predicted times of a full step of ``plan``, eq. 5 to 13.

    Args:
        platform: rates of the host; the plan's own devices replace the platform's accelerators.
        emulates: whether emulated devices compute on the host.
        correction: corrections from a profiling run. None: the rates alone.
    """
    pairs = zip(workloads, plan.shares, strict=True)
    sizes = [workload.size(share.num_seeds) for workload, share in pairs]
    times = _fixed_point(plan, workloads, platform, emulates, correction)
    step = _longest(plan, times) * (1.0 if correction is None else correction.step)
    for device, share in zip(times, plan.shares, strict=True):
        # A fast device waits for the gradients of slower devices.
        wait_s = step - equations.pipeline_seconds(device.stages, share.prefetch)
        device.stages.sync += max(wait_s, 0.0)
    return equations.Prediction(
        devices=tuple(device.stages for device in times),
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
    """Return for each device the seconds that each stage occupies the host."""
    times = _fixed_point(plan, workloads, platform, True, correction)
    return tuple({stage: seconds for stage, (_, seconds) in t.busy.items()} for t in times)


def _fixed_point(
    plan: DevicePlan,
    workloads: Sequence[Workload],
    platform: Platform,
    emulates: bool,
    correction: Correction | None,
) -> list[DeviceTimes]:
    """Return each device's times, iterated until they agree with the host load that they cause."""
    host = Host(processor=platform.processor, num_workers=len(plan.shares), emulates=emulates)
    corrections = ({},) * len(plan.shares) if correction is None else correction.host
    first_equal = _first_equal(plan, workloads, corrections)
    sizes = [
        workload.size(share.num_seeds)
        for share, workload in zip(plan.shares, workloads, strict=True)
    ]
    unloaded = [
        Unloaded.of(plan.shares[rank], workloads[rank], sizes[rank])
        if first == rank and plan.shares[rank].num_seeds
        else None
        for rank, first in enumerate(first_equal)
    ]
    parts = [*zip(plan.shares, workloads, sizes, corrections, unloaded, strict=True)]
    load = dict.fromkeys(_lanes(plan), 0.0)
    step = 0.0
    times: list[DeviceTimes] = []
    for _ in range(_ROUNDS):
        total = sum(load.values())
        times = []
        for position, (share, workload, size, factors, work) in enumerate(parts):
            if first_equal[position] < position:
                times.append(times[first_equal[position]])
                continue
            active = _active(share, position, load, total)
            times.append(device_times(host, share, workload, size, active, factors, work))
        last_step, step = step, _longest(plan, times)
        last_load, load = load, _host_load(plan, times, step, load)
        moved = max(abs(load[lane] - last_load[lane]) for lane in load)
        if max(abs(step - last_step) / step, moved) <= _TOLERANCE:
            break
    pairs = zip(first_equal, times, strict=True)
    return [t if first == position else t.copy() for position, (first, t) in enumerate(pairs)]


def _first_equal(
    plan: DevicePlan, workloads: Sequence[Workload], corrections: Sequence[Mapping[str, float]]
) -> list[int]:
    """Return for each device the index of the first identical device, which takes equal times."""
    shares = [replace(s, device=replace(s.device, name=None)) for s in plan.shares]
    parts = list(zip(shares, workloads, corrections, strict=True))
    return [parts.index(part) for part in parts]


def _longest(plan: DevicePlan, times: Sequence[DeviceTimes]) -> float:
    """Return the seconds of the slowest device's step, eq. 6."""
    parts = zip(times, plan.shares, strict=True)
    return max(equations.pipeline_seconds(t.stages, share.prefetch) for t, share in parts)


def _lane(share: DeviceShare, stage: str) -> str:
    """Return the name of the group of the device's host stages that take turns with ``stage``."""
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
    """Return the mean host threads that work during each stage of the device at ``position``.

    They are the stage's own threads, and those busy in other lanes, of all devices; a lane is the
    stages of a device that take turns. ``load`` has each lane's busy threads, ``total`` their sum.
    """
    threads = share.threads
    counts = {
        "sample": threads.sample,
        "load": threads.load,
        "propagate": max(threads.propagate, 1),
    }
    return {
        stage: count + total - load[position, _lane(share, stage)]
        for stage, count in counts.items()
    }


def _host_load(
    plan: DevicePlan,
    times: Sequence[DeviceTimes],
    step: float,
    previous: Mapping[tuple[int, str], float],
) -> dict[tuple[int, str], float]:
    """Return the mean busy threads of each lane (a device's stages that take turns) in a step.

    ``step`` are its seconds; the result is averaged with ``previous``.
    """
    load = dict.fromkeys(previous, 0.0)
    for position, (share, device) in enumerate(zip(plan.shares, times, strict=True)):
        for stage, (threads, seconds) in device.busy.items():
            load[position, _lane(share, stage)] += threads * min(1.0, seconds / step)
    return {lane: (load[lane] + previous[lane]) / 2 for lane in load}
