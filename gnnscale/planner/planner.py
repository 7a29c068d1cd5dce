"""The planner: split, threads and prefetching that a run begins with (HyScale-GNN section V).

What fits into a device's memory: seeds of a slice, and mini-batches in flight.

The model and the cache stay there, and each mini-batch takes ``batch_bytes`` from its transfer
until it is finished: an emulated device counts the same bytes of the mini-batches that it gets.
"""

import bisect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from gnnscale.core import ConfigError, StageTimes, check_choice
from gnnscale.planner import device_plan
from gnnscale.planner.cost_model import equations
from gnnscale.planner.cost_model import stage_work as work
from gnnscale.planner.cost_model.predict import Correction, Host, predict
from gnnscale.planner.cost_model.workload import Workload
from gnnscale.planner.device_spec import Accelerator, Device, owns_steps
from gnnscale.planner.platform import Platform

#: The part of the room that is kept free when there is a choice, since mini-batches differ.
_SPARE = 0.1


def room(device: Accelerator, workload: Workload) -> int:
    """Return the bytes of a device that mini-batches may take; below 0 if the rest is larger."""
    resident = equations.BYTES_PER_PARAMETER * workload.num_weights + workload.cache.num_bytes
    return device.budget_bytes - resident


def max_seeds(
    device: Device, workload: Workload, in_flight: int, *, spare: float = _SPARE
) -> int | None:
    """Return how many seeds a slice may have for ``in_flight`` of them to fit into a device.

    None for a device that computes in the host's memory, and if a whole mini-batch fits.
    """
    if not isinstance(device, Accelerator):
        return None
    allowed = (1 - spare) * room(device, workload)
    largest = max(workload.slices.num_seeds)

    def fits(num_seeds: int) -> bool:
        return in_flight * work.batch_bytes(workload, workload.size(num_seeds)) <= allowed

    if fits(largest):
        return None
    return bisect.bisect_right(range(largest), False, key=lambda n: not fits(n + 1))


def in_flight_at(device: Device, workload: Workload, num_seeds: int, most: int) -> int:
    """Return how many mini-batches of ``num_seeds`` a device holds at once: 1 to ``most``."""
    if not isinstance(device, Accelerator) or not num_seeds:
        return most
    each = work.batch_bytes(workload, workload.size(num_seeds))
    held = (1 - _SPARE) * room(device, workload) // each
    return min(max(int(held), 1), most)


def seed_limits(
    devices: Sequence[Device],
    workloads: Sequence[Workload],
    in_flight: int,
    *,
    batch_size: int,
    split: Sequence[int] | None,
) -> list[int | None]:
    """Return the most seeds that a slice of each device may have; None for any number.

    With the ``split`` of parts or of the user each device has to hold one mini-batch of its part.
    Otherwise all devices together have to hold one, with as many in flight as they can. Whatever
    moves seeds later gives no device more than is returned, or than ``split`` gives it.

    Args:
        split: seeds of each device; None if they can be chosen.

    Raises:
        ConfigError: a mini-batch does not fit; the message names what would.
    """
    pairs = list(zip(devices, workloads, strict=True))
    if split is not None:
        # There may be fewer seeds to train than a mini-batch has.
        whole = min(batch_size, max(workloads[0].slices.num_seeds))
        parts = [-(-part * whole // batch_size) for part in split]
        check_parts(devices, workloads, parts, batch_size=batch_size)
        limits = [max_seeds(*each, in_flight) for each in pairs]
        return [
            None if limit is None else max(limit, part)
            for limit, part in zip(limits, split, strict=True)
        ]
    spares = [*((count, _SPARE) for count in range(in_flight, 0, -1)), (1, 0.0)]
    for count, spare in spares:
        limits = [max_seeds(*each, count, spare=spare) for each in pairs]
        held = sum(batch_size if limit is None else limit for limit in limits)
        if held >= batch_size:
            return limits
    fits = sum(max_seeds(*each, 1) or 0 for each in pairs)
    smaller = f"batch_size={fits}, " if fits else ""
    raise ConfigError(
        f"batch_size={batch_size}: the devices' memory holds about {held} seeds with these "
        f"neighbours; {smaller}fewer neighbours (sampler.fanouts) or smaller caches fit"
    )


def check_parts(
    devices: Sequence[Device],
    workloads: Sequence[Workload],
    parts: Sequence[int],
    *,
    batch_size: int,
) -> None:
    """Refuse parts of a mini-batch that their devices cannot hold; the message names what they can.

    Raises:
        ConfigError: one does not fit.
    """
    for device, workload, num_seeds in zip(devices, workloads, parts, strict=True):
        _check_part(device, workload, num_seeds, batch_size=batch_size)


def _check_part(device: Device, workload: Workload, num_seeds: int, *, batch_size: int) -> None:
    held = max_seeds(device, workload, 1, spare=0.0)
    if held is None or num_seeds <= held:
        return
    assert isinstance(device, Accelerator)
    needed = work.batch_bytes(workload, workload.size(num_seeds))
    left, cached = room(device, workload), workload.cache.num_bytes
    # Smaller slices are estimated: what is proposed has something to spare.
    most, smaller_cache = max_seeds(device, workload, 1), left + cached - needed / (1 - _SPARE)
    fits = [f"batch_size={batch_size * most // num_seeds}"] if most else []
    if smaller_cache >= 0:
        fits.append(f"cache_planner.budget_bytes={int(smaller_cache)}")
    fits.append("fewer neighbours (sampler.fanouts)")
    raise ConfigError(
        f"device_plan: {device.label} has {num_seeds} of batch_size={batch_size} seeds, whose "
        f"mini-batch needs about {needed / 1e6:,.1f} MB, and {max(left, 0) / 1e6:,.1f} MB of "
        f"memory_bytes={device.budget_bytes} are left by the model and {cached / 1e6:,.1f} MB of "
        f"cache; {' or '.join(fits)} would fit"
    )


def with_depths(
    plan: device_plan.DevicePlan, workloads: Sequence[Workload], in_flight: int
) -> device_plan.DevicePlan:
    """Return ``plan`` with the depth of prefetching that each device's memory has room for."""

    def deepened(share: device_plan.DeviceShare, workload: Workload) -> device_plan.DeviceShare:
        held = in_flight_at(share.device, workload, share.num_seeds, in_flight)
        return replace(share, depth=held if held < in_flight else None)

    pairs = zip(plan.shares, workloads, strict=True)
    return device_plan.DevicePlan(shares=tuple(deepened(*each) for each in pairs))


#: Rounds in which a split is moved towards equal times, and how much they may differ at the end.
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
    """Plan each way to prefetch, and order the plans by the step that the model expects.

    Every worker gets a thread of the host at least. With more workers than cores each gets one, and
    they take turns. Otherwise all threads that may compute at once have a core, unless ``prefetch``
    names a mode that needs more.

    Args:
        prefetch: one of ``PREFETCH`` for all devices, or ``auto`` for the best of each; a device
            that owns its steps overlaps them whatever it says.
        split: seeds of each device; None to make the devices finish together, eq. 6 and 9.
        in_flight: mini-batches that a device may hold at once; fewer if its memory is short.

    Returns:
        Plans, each with the model's prediction; the devices of no two prefetch alike.

    Raises:
        ConfigError: a split that does not fit the devices and the mini-batch, or a mini-batch that
            does not fit into their memory.
    """
    check_choice("runtime.prefetch", prefetch, ("auto", *device_plan.PREFETCH))
    if split is not None:
        _check_split(split, devices, batch_size)
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
        found = _evaluate(plan, expect, fixed=split is not None)
        modes = tuple(mode for _, mode in choices)
        if modes not in best or found[1].step_s < best[modes][1].step_s:
            best[modes] = found
    found_plans = sorted(best.values(), key=lambda each: each[1].step_s)
    return [(with_depths(plan, workloads, in_flight), each) for plan, each in found_plans]


def _check_split(split: Sequence[int], devices: Sequence[Device], batch_size: int) -> None:
    option = f"device_plan.split={list(split)}"
    if len(split) != len(devices):
        raise ConfigError(f"{option}: one number for each of {len(devices)} devices is needed")
    if min(split) < 0:
        raise ConfigError(f"{option}: none may be below 0")
    if sum(split) != batch_size:
        raise ConfigError(f"{option}: sums to {sum(split)}, not to batch_size={batch_size}")


def _host_seconds(workload: Workload, platform: Platform, num_seeds: int) -> StageTimes:
    """Stage times of a slice on one thread of the host: what threads are shared out by."""
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
    """Yield threads and prefetching of all devices; devices of a group get the same."""
    if owns_steps(devices):
        share = max(cores // len(devices), 1)
        threads = device_plan.Threads(sample=share, load=share, propagate=0)
        yield [(threads, device_plan.BY_DEVICE)] * len(devices)
        return
    for on_cores, elsewhere in _grants(devices, cores):
        processors = [_modes(each, True, prefetch, seconds) for each in on_cores]
        shared = set.intersection(*(set(each) for each in processors)) if processors else {""}
        accelerators = _modes(elsewhere, False, prefetch, seconds)
        for mode in sorted(shared):
            for choice in accelerators.values() if len(on_cores) < len(devices) else (None,):
                taken = iter(processors)
                yield [
                    next(taken)[mode] if _computes(device) or choice is None else choice
                    for device in devices
                ]


def _computes(device: Device) -> bool:
    """Whether the host's threads are the device."""
    return not isinstance(device, Accelerator)


def _grants(devices: Sequence[Device], cores: int) -> Iterator[tuple[list[int], int]]:
    """Yield the host's threads of each processor of the plan, and of every accelerator."""
    num_processors = sum(_computes(device) for device in devices)
    num_accelerators = len(devices) - num_processors
    max_each = 1 if not num_accelerators else max(1, (cores - num_processors) // num_accelerators)
    smaller = {max(1, max_each * eighths // 8) for eighths in (1, 2, 3, 4, 6)}
    for each in sorted({max_each, *smaller}) if num_processors else [max_each]:
        rest = max(cores - num_accelerators * each, num_processors)
        yield device_plan.apportion([1] * num_processors, rest) if num_processors else [], each


def _modes(threads: int, computes: bool, prefetch: str, seconds: StageTimes) -> dict[str, _Choice]:
    """Share a worker's threads among its stages, for every mode of prefetching that is allowed.

    Stages of one lane take turns on the same threads. Unless a mode is asked for, one that needs
    more threads than there are is left out, and so is having an accelerator wait.
    """
    own = 1 if computes else 0
    found = {}
    if prefetch == "none" or (prefetch == "auto" and computes):
        found["none"] = (
            device_plan.Threads(sample=threads, load=threads, propagate=own * threads),
            "none",
        )
    if prefetch == "one_stage" or (prefetch == "auto" and threads > own):
        ahead, train = threads, 0
        if computes:
            ahead, train = _proportional(
                threads, (seconds.sample + seconds.load, seconds.propagate)
            )
        found["one_stage"] = (
            device_plan.Threads(sample=ahead, load=ahead, propagate=train),
            "one_stage",
        )
    if prefetch == "two_stage" or (prefetch == "auto" and threads > 1 + own):
        lanes = (seconds.sample, seconds.load, seconds.propagate)[: 2 + own]
        sample, load, *rest = _proportional(threads, lanes)
        propagate = rest[0] if rest else 0
        found["two_stage"] = (
            device_plan.Threads(sample=sample, load=load, propagate=propagate),
            "two_stage",
        )
    return found


def _proportional(threads: int, seconds: Sequence[float]) -> list[int]:
    """Share threads in proportion to work, one each at least."""
    spare = max(threads - len(seconds), 0)
    return [1 + extra for extra in device_plan.apportion(seconds, spare)]


def _balanced(split: Sequence[int], times: Sequence[float]) -> list[int]:
    """Share the mini-batch in proportion to each device's seeds per second."""
    pairs = zip(split, times, strict=True)
    speeds = [count / seconds if count and seconds > 0 else 0.0 for count, seconds in pairs]
    return device_plan.apportion(speeds, sum(split))


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
    """Predict a plan, after balancing its split unless that is ``fixed``."""
    best = plan, expect(plan)
    if fixed or len(plan.shares) == 1:
        return best
    for _ in range(_ROUNDS):
        times = [
            equations.pipeline_seconds(replace(stages, sync=0.0), share.prefetch)
            for stages, share in zip(best[1].devices, plan.shares, strict=True)
        ]
        plan = plan.with_split(plan.within_memory(_balanced(plan.split, times)))
        found = plan, expect(plan)
        if found[1].step_s >= best[1].step_s * (1 - _BALANCED):
            return found if found[1].step_s < best[1].step_s else best
        best = found
    return best
