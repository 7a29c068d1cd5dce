"""What fits into a device's memory: seeds of a slice, and mini-batches in flight.

The model and the cache stay there, and each mini-batch takes ``batch_bytes`` from its transfer
until it is finished: an emulated device counts the same bytes of the mini-batches that it gets.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import replace

from gnnscale.core.errors import ConfigError
from gnnscale.plan.device import Accelerator, Device
from gnnscale.plan.device_plan import DevicePlan, DeviceShare
from gnnscale.plan.perf import equations, work
from gnnscale.plan.perf.workload import Workload

#: The part of the room that is kept free when there is a choice, since mini-batches differ.
_SPARE = 0.1


def room(device: Accelerator, workload: Workload) -> int:
    """Return the bytes of a device that mini-batches may take; below 0 if the rest is larger."""
    resident = equations.BYTES_PER_PARAMETER * workload.num_weights + workload.cache.num_bytes
    return device.memory_bytes - resident


def max_seeds(
    device: Device, workload: Workload, in_flight: int, *, spare: float = _SPARE
) -> int | None:
    """Return how many seeds a slice may have for ``in_flight`` of them to fit into a device.

    None for a device that computes in the host's memory, and if a whole mini-batch fits.
    """
    if not isinstance(device, Accelerator):
        return None
    allowed = (1 - spare) * room(device, workload)
    largest = max(workload.num_seeds)

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
        whole = min(batch_size, max(workloads[0].num_seeds))
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
        f"memory_bytes={device.memory_bytes} are left by the model and {cached / 1e6:,.1f} MB of "
        f"cache; {' or '.join(fits)} would fit"
    )


def with_depths(plan: DevicePlan, workloads: Sequence[Workload], in_flight: int) -> DevicePlan:
    """Return ``plan`` with the depth of prefetching that each device's memory has room for."""

    def deepened(share: DeviceShare, workload: Workload) -> DeviceShare:
        held = in_flight_at(share.device, workload, share.num_seeds, in_flight)
        return replace(share, depth=held if held < in_flight else None)

    pairs = zip(plan.shares, workloads, strict=True)
    return DevicePlan(shares=tuple(deepened(*each) for each in pairs))
