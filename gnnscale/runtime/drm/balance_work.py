"""``balance_work`` (HyScale-GNN, section IV-A): seeds move until all devices take equally long."""

from collections.abc import Collection, Mapping, Sequence
from functools import partial

from gnnscale.plan import DevicePlan, device_plan
from gnnscale.runtime.drm.damping import Damping
from gnnscale.runtime.drm.move import Move

#: A device that had no seeds gets this part of an equal share, to find out how fast it is.
_PROBE = 1 / 8
#: Times that differ this much are brought closer in any case: the time of a device with
#: a small share is mostly overhead, and makes it look slow.
_FAR_APART = 2 / 3
#: The gain is halved when a move goes back where the last one came from, down to this; it grows by
#: the factor when a move continues in the last one's direction.
_MIN_GAIN = 0.125
_RESTORE = 1.25
#: Seconds below which a time is no measure of speed.
_MIN_SECONDS = 1e-6


def balance_work(
    split: Sequence[int],
    seconds: Sequence[float],
    *,
    fixed: Sequence[float] = (),
    gain: float = 1.0,
    excluded_devices: Collection[int] = (),
) -> tuple[int, ...]:
    """Move seeds so that the CPU and the accelerators are expected to take equally long.

    Time is taken to be linear in seeds, beside the part that is known not to depend on them. The
    paper's accelerators are identical; here this also balances the devices of either side among
    each other, and the devices of a plan that has only one side. A device without seeds has no
    known speed, and gets a small share to show it.

    Args:
        fixed: how long each takes beside them, part of ``seconds``; empty for not at all.
        gain: the part of the way that is gone, above 0 and at most 1.

    Returns:
        Seeds of each device; the sum is that of ``split``.
    """
    total = sum(split)
    idle = [i for i, count in enumerate(split) if count == 0 and i not in excluded_devices]
    probe = max(1, int(_PROBE * total / len(split)))
    left = total - probe * len(idle)
    if left < len(split):
        idle, left = [], total
    lines = _lines(split, seconds, fixed)
    end = _equal_seconds(lines, left)
    weights = [float((1 - gain) * count) for count in split]
    for i, (intercept, slope) in lines.items():
        weights[i] += gain * max(end - intercept, 0.0) / slope
    parts = device_plan.apportion(weights, left)
    for i in idle:
        parts[i] = probe
    return tuple(parts)


def expected_seconds(
    split: Sequence[int],
    seconds: Sequence[float],
    new_split: Sequence[int],
    *,
    fixed: Sequence[float] = (),
) -> float:
    """Return how long the slowest device would take with ``new_split``.

    Devices that have no seeds in ``split`` are left out.
    """
    lines = _lines(split, seconds, fixed).items()
    return max(intercept + slope * new_split[i] for i, (intercept, slope) in lines if new_split[i])


def propose_work(plan: DevicePlan, damping: Damping) -> Move:
    """Return the move of work that ``damping`` allows.

    It promises the part of a step that equal times would save, and all of it if a device's speed
    is unknown. Times are the mean ones under the plan, so that noise fades while nothing moves.
    """
    balance = partial(
        balance_work,
        plan.split,
        damping.seconds,
        fixed=damping.fixed,
        excluded_devices=damping.excluded_devices,
    )
    target = plan.within_memory(balance())
    towards = _shift(plan.split, target)
    gain = _gain(damping.gain, damping.shift, towards)
    split = plan.within_memory(balance(gain=gain))
    return Move(
        promise=_promise(plan.split, damping.seconds, target, damping.fixed),
        shift=_shift(plan.split, split),
        gain=gain,
        plan=plan.with_split(split),
    )


def _gain(gain: float, before: Sequence[int], towards: Sequence[int]) -> float:
    """The next gain: lower for a move that goes back where the last one came from."""
    alignment = sum(a * b for a, b in zip(before, towards, strict=False))
    return max(gain / 2, _MIN_GAIN) if alignment < 0 else min(gain * _RESTORE, 1.0)


def _promise(
    split: Sequence[int], seconds: Sequence[float], target: Sequence[int], fixed: Sequence[float]
) -> float:
    if any(new and not old for old, new in zip(split, target, strict=True)):
        return 1.0
    working = [each for each, count in zip(seconds, split, strict=True) if count]
    if min(working) < _FAR_APART * max(working):
        return 1.0
    return 1 - expected_seconds(split, seconds, target, fixed=fixed) / max(seconds)


def _shift(old: Sequence[int], new: Sequence[int]) -> tuple[int, ...]:
    return tuple(after - before for before, after in zip(old, new, strict=True))


def _lines(
    split: Sequence[int], seconds: Sequence[float], fixed: Sequence[float]
) -> dict[int, tuple[float, float]]:
    """Seconds beside the seeds and for each of them, of every device that has some."""
    intercepts = fixed or [0.0] * len(split)
    return {
        i: (intercept, max(each - intercept, _MIN_SECONDS) / count)
        for i, (count, each, intercept) in enumerate(zip(split, seconds, intercepts, strict=True))
        if count
    }


def _equal_seconds(lines: Mapping[int, tuple[float, float]], total: int) -> float:
    """Seconds in which the devices together do ``total`` seeds; the slowest may do none."""
    end = weights = done = 0.0
    for intercept, slope in sorted(lines.values()):
        if weights and end <= intercept:
            break
        weights += 1 / slope
        done += intercept / slope
        end = (total + done) / weights
    return end
