"""Planner: the split, threads and prefetching that a run begins with (HyScale-GNN section V).

The model, the cache and the mini-batches in flight have to fit into a device's memory. A mini-batch
takes ``batch_bytes`` from its transfer until its step ends. An emulated device counts the bytes of
its mini-batches in the same way.
"""

import bisect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from gnnscale.core import ConfigError, StageTimes, check_choice
from gnnscale.planner import device_plan
from gnnscale.planner.cost_model import Workload, equations
from gnnscale.planner.cost_model import stage_work as work
from gnnscale.planner.cost_model.predict import Correction, Host, predict
from gnnscale.planner.device_spec import Accelerator, Device, owns_steps
from gnnscale.planner.platform import Platform

#: Fraction of device memory left free where possible, since mini-batches vary in size.
_SPARE = 0.1


def batch_memory_bytes(device: Accelerator, workload: Workload) -> int:
    """Return the bytes that model and cache leave to mini-batches; negative: the two do not fit."""
    resident = equations.BYTES_PER_PARAMETER * workload.num_weights + workload.cache.num_bytes
    return device.budget_bytes - resident


def max_seeds(
    device: Device, workload: Workload, in_flight: int, *, spare: float = _SPARE
) -> int | None:
    """Return the most seeds with which ``in_flight`` mini-batches fit into device memory.

    ``spare`` is the fraction of the memory to leave free. None: no limit, since the device is no
    accelerator, or the largest slice of ``workload`` fits.
    """
    if not isinstance(device, Accelerator):
        return None
    allowed = (1 - spare) * batch_memory_bytes(device, workload)
    largest = max(workload.slices.num_seeds)

    def fits(num_seeds: int) -> bool:
        return in_flight * work.batch_bytes(workload, workload.size(num_seeds)) <= allowed

    if fits(largest):
        return None
    return bisect.bisect_right(range(largest), False, key=lambda n: not fits(n + 1))


def in_flight_at(device: Device, workload: Workload, num_seeds: int, limit: int) -> int:
    """Return how many mini-batches of ``num_seeds`` fit into device memory, up to ``limit``.

    The result is at least 1, even if none fits.
    """
    if not isinstance(device, Accelerator) or not num_seeds:
        return limit
    num_bytes = work.batch_bytes(workload, workload.size(num_seeds))
    count = (1 - _SPARE) * batch_memory_bytes(device, workload) // num_bytes
    return min(max(int(count), 1), limit)


def seed_limits(
    devices: Sequence[Device],
    workloads: Sequence[Workload],
    in_flight: int,
    *,
    batch_size: int,
    split: Sequence[int] | None,
) -> list[int | None]:
    """Return the maximum number of seeds of each device's slice. None: no limit.

    With a fixed ``split`` each device has to hold one mini-batch of its part. Otherwise all devices
    together have to hold one mini-batch, with as many in flight (up to ``in_flight``) as possible.
    Later moves of seeds respect the limits. Raises ConfigError if a mini-batch does not fit; the
    message proposes a size that does.
    """
    pairs = list(zip(devices, workloads, strict=True))
    if split is not None:
        # The training set may be smaller than a mini-batch.
        num_seeds = min(batch_size, max(workloads[0].slices.num_seeds))
        parts = [-(-part * num_seeds // batch_size) for part in split]
        check_parts(devices, workloads, parts, batch_size=batch_size)
        limits = [max_seeds(*pair, in_flight) for pair in pairs]
        return [
            None if limit is None else max(limit, part)
            for limit, part in zip(limits, split, strict=True)
        ]
    spares = [*((count, _SPARE) for count in range(in_flight, 0, -1)), (1, 0.0)]
    for count, spare in spares:
        limits = [max_seeds(*pair, count, spare=spare) for pair in pairs]
        capacity = sum(batch_size if limit is None else limit for limit in limits)
        if capacity >= batch_size:
            return limits
    fits = sum(max_seeds(*pair, 1) or 0 for pair in pairs)
    smaller = f"batch_size={fits}, " if fits else ""
    raise ConfigError(
        f"batch_size={batch_size}: expected at most about {capacity}, the seeds that fit into the "
        f"devices' memory; {smaller}lower sampler.fanouts or smaller caches fit"
    )


def check_parts(
    devices: Sequence[Device],
    workloads: Sequence[Workload],
    parts: Sequence[int],
    *,
    batch_size: int,
) -> None:
    """Raise ConfigError, with proposals, if a device cannot hold a mini-batch of its seeds.

    ``parts`` are the seeds of each device.
    """
    for device, workload, num_seeds in zip(devices, workloads, parts, strict=True):
        largest = max_seeds(device, workload, 1, spare=0.0)
        if largest is None or num_seeds <= largest:
            continue
        assert isinstance(device, Accelerator)
        needed = work.batch_bytes(workload, workload.size(num_seeds))
        free, cached = batch_memory_bytes(device, workload), workload.cache.num_bytes
        # Sizes of smaller slices are estimates, so that the proposals leave a margin.
        safe_seeds = max_seeds(device, workload, 1)
        smaller_cache = free + cached - needed / (1 - _SPARE)
        fits = [f"batch_size={batch_size * safe_seeds // num_seeds}"] if safe_seeds else []
        if smaller_cache >= 0:
            fits.append(f"cache_planner.budget_bytes={int(smaller_cache)}")
        fits.append("lower sampler.fanouts")
        raise ConfigError(
            f"device_plan: {device.label}: {num_seeds} of batch_size={batch_size} seeds need about "
            f"{needed / 1e6:,.1f} MB, and model and {cached / 1e6:,.1f} MB of cache leave "
            f"{max(free, 0) / 1e6:,.1f} MB of memory_bytes={device.budget_bytes}; "
            f"{' or '.join(fits)} would fit"
        )


def with_depths(
    plan: device_plan.DevicePlan, workloads: Sequence[Workload], in_flight: int
) -> device_plan.DevicePlan:
    """Return ``plan`` with each device's ``depth``, the mini-batches in flight that fit its memory.

    None: ``in_flight`` fit.
    """
    shares = []
    for share, workload in zip(plan.shares, workloads, strict=True):
        depth = in_flight_at(share.device, workload, share.num_seeds, in_flight)
        shares.append(replace(share, depth=depth if depth < in_flight else None))
    return device_plan.DevicePlan(shares=tuple(shares))


#: Maximum rounds of balancing a split, and relative gain below which balancing stops.
_ROUNDS = 12
_BALANCED = 0.005

#: Threads and prefetching of a device.
_Choice: TypeAlias = tuple[device_plan.Threads, str]


def plan_devices(
    devices: Sequence[Device],
    *,
    batch_size: int,
    cores: int,
    prefetch: str,
    split: Sequence[int] | None,
    workloads: Sequence[Workload],
    platform: Platform,
    emulates: bool = True,
    in_flight: int = 1,
    per_machine: int | None = None,
    correction: Correction | None = None,
) -> list[tuple[device_plan.DevicePlan, equations.Prediction]]:
    """Return the best plan and its prediction for each way to prefetch, fastest first.

    Every worker gets at least one host thread. With more workers than cores, workers have one
    thread each and take turns. Otherwise every thread that may compute has a core, unless
    ``prefetch`` requires more threads.

    Raises ConfigError if the split does not match the devices and the mini-batch, or a mini-batch
    does not fit into memory.

    Args:
        prefetch: one of ``PREFETCH``, or ``auto``; device-driven steps overlap in any case.
        split: seeds of each device. None: balance the devices' times, eq. 6 and 9.
        emulates: whether emulated devices compute on this host.
        in_flight: mini-batches that a device may hold at a time, if its memory allows.
        per_machine: devices on each machine. None: all devices are on one machine.
        correction: corrections from a profiling run. None: the rates alone.
    """
    check_choice("runtime.prefetch", prefetch, ("auto", *device_plan.PREFETCH))
    if split is not None:
        device_plan.check_split("device_plan.split", split, len(devices), batch_size)
    best: dict[tuple[str, ...], tuple[device_plan.DevicePlan, equations.Prediction]] = {}
    limits = seed_limits(devices, workloads, in_flight, batch_size=batch_size, split=split)
    start = split or device_plan.cap_split(
        device_plan.apportion([1] * len(devices), batch_size), limits
    )
    seconds = _host_seconds(workloads[0], platform, max(1, batch_size // len(devices)))
    expect = partial(
        predict, workloads=workloads, platform=platform, emulates=emulates, correction=correction
    )
    for choices in _choices(devices, cores, prefetch, seconds):
        plan = _plan(devices, choices, start, limits, per_machine or len(devices))
        plan, prediction = _evaluate(plan, expect, fixed=split is not None)
        modes = tuple(mode for _, mode in choices)
        if modes not in best or prediction.step_s < best[modes][1].step_s:
            best[modes] = plan, prediction
    ranked = sorted(best.values(), key=lambda candidate: candidate[1].step_s)
    return [(with_depths(plan, workloads, in_flight), expected) for plan, expected in ranked]


def _host_seconds(workload: Workload, platform: Platform, num_seeds: int) -> StageTimes:
    """Return stage times of ``num_seeds`` on one host thread, the weights for dividing threads."""
    host = Host(processor=platform.processor, num_workers=1, emulates=False)
    size = workload.size(num_seeds)
    return StageTimes(
        sample=host.sample(workload, num_seeds, size, 1, 1),
        load=host.load(workload, size, 1, 1),
        propagate=host.propagate(workload, size, 1, 1),
    )


def _choices(
    devices: Sequence[Device], cores: int, prefetch: str, seconds: StageTimes
) -> Iterator[list[_Choice]]:
    """Yield lists of (threads, prefetching) by device; all accelerators get an equal pair."""
    if owns_steps(devices):
        share = max(cores // len(devices), 1)
        threads = device_plan.Threads(sample=share, load=share, propagate=0)
        yield [(threads, device_plan.BY_DEVICE)] * len(devices)
        return
    for on_cores, elsewhere in _grants(devices, cores):
        processors = [_modes(threads, True, prefetch, seconds) for threads in on_cores]
        shared = set.intersection(*map(set, processors)) if processors else {""}
        accelerators = _modes(elsewhere, False, prefetch, seconds)
        for mode in sorted(shared):
            for choice in accelerators.values() if len(on_cores) < len(devices) else (None,):
                remaining = iter(processors)
                yield [
                    next(remaining)[mode] if _computes(device) or choice is None else choice
                    for device in devices
                ]


def _computes(device: Device) -> bool:
    """Whether the device consists of host threads: it is no accelerator."""
    return not isinstance(device, Accelerator)


def _grants(devices: Sequence[Device], cores: int) -> Iterator[tuple[list[int], int]]:
    """Yield divisions of ``cores``: the threads of each CPU device, and of each accelerator."""
    num_processors = sum(_computes(device) for device in devices)
    num_accelerators = len(devices) - num_processors
    largest = 1 if not num_accelerators else max(1, (cores - num_processors) // num_accelerators)
    smaller = {max(1, largest * eighths // 8) for eighths in (1, 2, 3, 4, 6)}
    for threads in sorted({largest, *smaller}) if num_processors else [largest]:
        remaining = max(cores - num_accelerators * threads, num_processors)
        on_cores = device_plan.apportion([1] * num_processors, remaining) if num_processors else []
        yield on_cores, threads


def _modes(threads: int, computes: bool, prefetch: str, seconds: StageTimes) -> dict[str, _Choice]:
    """Return threads and prefetching: for ``prefetch``, or (``auto``) each that ``threads`` allow.

    ``computes``: the threads also propagate. ``seconds`` of the stages are weights.
    """
    num_computing = 1 if computes else 0
    threads_by_mode: dict[str, tuple[int, int, int]] = {}
    if prefetch == "none" or (prefetch == "auto" and computes):
        threads_by_mode["none"] = threads, threads, num_computing * threads
    if prefetch == "one_stage" or (prefetch == "auto" and threads > num_computing):
        prepare, train = threads, 0
        if computes:
            prepare, train = _proportional(
                threads, (seconds.sample + seconds.load, seconds.propagate)
            )
        threads_by_mode["one_stage"] = prepare, prepare, train
    if prefetch == "two_stage" or (prefetch == "auto" and threads > 1 + num_computing):
        lanes = (seconds.sample, seconds.load, seconds.propagate)[: 2 + num_computing]
        sample, load, *train_threads = _proportional(threads, lanes)
        threads_by_mode["two_stage"] = sample, load, sum(train_threads)
    return {
        mode: (device_plan.Threads(sample=sample, load=load, propagate=propagate), mode)
        for mode, (sample, load, propagate) in threads_by_mode.items()
    }


def _proportional(threads: int, seconds: Sequence[float]) -> list[int]:
    """Return ``threads`` divided in proportion to ``seconds``, at least one each."""
    spare = max(threads - len(seconds), 0)
    return [1 + extra for extra in device_plan.apportion(seconds, spare)]


def _plan(
    devices: Sequence[Device],
    choices: Sequence[_Choice],
    split: Sequence[int],
    limits: Sequence[int | None],
    per_machine: int,
) -> device_plan.DevicePlan:
    parts = zip(devices, choices, split, limits, strict=True)
    return device_plan.DevicePlan(
        shares=tuple(
            device_plan.DeviceShare(
                device=device,
                num_seeds=count,
                threads=threads,
                prefetch=mode,
                max_seeds=limit,
                machine=position // per_machine,
            )
            for position, (device, (threads, mode), count, limit) in enumerate(parts)
        )
    )


def _evaluate(
    plan: device_plan.DevicePlan,
    expect: Callable[[device_plan.DevicePlan], equations.Prediction],
    *,
    fixed: bool,
) -> tuple[device_plan.DevicePlan, equations.Prediction]:
    """Balance the split unless ``fixed``; return the plan and its prediction by ``expect``."""
    best = plan, expect(plan)
    if fixed or len(plan.shares) == 1:
        return best
    for _ in range(_ROUNDS):
        times = [
            equations.pipeline_seconds(replace(stages, sync=0.0), share.prefetch)
            for stages, share in zip(best[1].devices, plan.shares, strict=True)
        ]
        # Seeds are divided in proportion to the devices' speeds.
        speeds = [
            count / seconds if count and seconds > 0 else 0.0
            for count, seconds in zip(plan.split, times, strict=True)
        ]
        split = device_plan.apportion(speeds, sum(plan.split))
        plan = plan.with_split(plan.within_memory(split))
        moved = plan, expect(plan)
        if moved[1].step_s >= best[1].step_s * (1 - _BALANCED):
            return moved if moved[1].step_s < best[1].step_s else best
        best = moved
    return best
