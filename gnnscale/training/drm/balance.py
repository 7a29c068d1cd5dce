"""``balance_work`` (HyScale-GNN, section IV-A): seeds move until all devices take equally long."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from gnnscale.core import Count, StageTimes
from gnnscale.planner import DevicePlan, DeviceShare, device_plan
from gnnscale.planner.device_plan import SAMPLED_IN_TURN
from gnnscale.training.drm.damping import Damping
from gnnscale.training.drm.move import HostTask, Move, ThreadMove, num_threads
from gnnscale.training.drm.task_times import T_SA, T_SC, SampleTimes, sampling_tasks

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


@dataclass(frozen=True, kw_only=True)
class BalanceInput:
    """A step as resource management sees it."""

    step: Count  #: its number in the run
    stages: tuple[StageTimes, ...]  #: each device's


def shares_sampling(share: DeviceShare) -> bool:
    """Whether the host may sample for a device that samples by itself, both at the same time."""
    return share.device.takes_samples and share.prefetch == "two_stage"


def steps_to_see(plan: DevicePlan, num_steps: int) -> int:
    """Return how many steps show what they take under ``plan``: ``num_steps``, or a whole turn."""
    in_turn = any(0 < share.host_samples < SAMPLED_IN_TURN for share in plan.shares)
    return SAMPLED_IN_TURN if in_turn else num_steps


def sample_times(plan: DevicePlan, steps: Sequence[BalanceInput]) -> tuple[SampleTimes, ...]:
    """Return the median seconds of mini-batches that each device, and the host, has sampled."""
    return tuple(_sample_times(share, i, steps) for i, share in enumerate(plan.shares))


def _sample_times(share: DeviceShare, position: int, steps: Sequence[BalanceInput]) -> SampleTimes:
    if not shares_sampling(share):
        return SampleTimes()
    found: dict[bool, list[float]] = {False: [], True: []}
    for each in steps:
        if (seconds := each.stages[position].sample) > 0:
            found[share.host_samples_at(each.step)].append(seconds)
    on_device, on_host = (statistics.median(each) if each else None for each in found.values())
    return SampleTimes(on_device=on_device, on_host=on_host)


def balance_sampling(
    plan: DevicePlan,
    tasks: Sequence[Mapping[str, float]],
    sampled: Sequence[SampleTimes],
    *,
    gain: float,
) -> Move | None:
    """Let the host sample so many mini-batches that both samplers are done at the same time.

    It does so for the device whose step takes longest, if that is for sampling. How long the host
    takes for such a mini-batch is found out with one in eight.

    Args:
        tasks: seconds of each device's tasks, by the paper's names.
        sampled: what is known of each device's mini-batches.
        gain: of moves of seeds, which this leaves as it is.

    Returns:
        The move, which promises a part of the step; None if there is none.
    """
    longest = [max(each.values()) for each in tasks]
    slowest = longest.index(max(longest))
    share, known = plan.shares[slowest], sampled[slowest]
    bottleneck = max(tasks[slowest], key=lambda task: tasks[slowest][task])
    if not shares_sampling(share) or bottleneck not in (T_SC, T_SA):
        return None
    if known.on_host is None or known.on_device is None:
        probe = _probe(share, known)
        return None if probe is None else _move(plan, slowest, probe, promise=1.0, gain=gain)
    rest = [each for task, each in tasks[slowest].items() if task not in (T_SC, T_SA)]
    rest += [seconds for i, seconds in enumerate(longest) if i != slowest]

    def step_s(host_samples: int) -> float:
        times = sampling_tasks(replace(share, host_samples=host_samples), known)
        return max(*times.values(), *rest, 0.0)

    # Of equally good ones the one that moves least.
    choices = sorted(range(SAMPLED_IN_TURN + 1), key=lambda n: abs(n - share.host_samples))
    best = min(choices, key=step_s)
    promise = 1 - step_s(best) / longest[slowest]
    return _move(plan, slowest, best, promise=promise, gain=gain)


def _probe(share: DeviceShare, known: SampleTimes) -> int | None:
    """Return how many mini-batches the host samples to find out how fast that is."""
    if known.on_host is None:
        return 1 if share.host_samples == 0 else None
    return SAMPLED_IN_TURN - 1 if share.host_samples == SAMPLED_IN_TURN else None


def _move(
    plan: DevicePlan, position: int, host_samples: int, *, promise: float, gain: float
) -> Move:
    shares = list(plan.shares)
    shares[position] = replace(shares[position], host_samples=host_samples)
    moved = DevicePlan(shares=tuple(shares))
    return Move(plan=moved, promise=promise, gain=gain, sampling_of=position)


def balance_thread(
    plan: DevicePlan,
    tasks: Sequence[Mapping[str, float]],
    *,
    givers: Sequence[str],
    bottleneck: str,
    tabu_trades: Collection[ThreadMove] = (),
) -> Move | None:
    """Find a thread of the fastest CPU task that the bottleneck makes better use of.

    It is given to the slowest device of the bottleneck task, and taken from the device that has
    most in the giving task; of several from the one whose task takes the least time. A task keeps
    at least one thread, and time is taken to be inverse to threads: if the giver would become
    as slow as the bottleneck was, the next task is asked.

    Args:
        tasks: seconds of each device's tasks, by the paper's names.
        givers: CPU tasks, the fastest first.

    Returns:
        The trade, which promises a part of the bottleneck's time; None if there is none: without
        prefetching no two tasks run at once, a task of which each device has one thread has none to
        give, and a device that computes itself takes none.
    """
    receivers = _host_tasks(plan, tasks, bottleneck)
    if not receivers:
        return None
    receiver, slowest = max(receivers.items(), key=lambda item: item[1])
    has = num_threads(plan.shares[receiver.device], bottleneck)
    for task in givers:
        found = {} if task == bottleneck else _host_tasks(plan, tasks, task)
        here = plan.shares[receiver.device].machine
        found = {
            each: seconds
            for each, seconds in found.items()
            if plan.shares[each.device].machine == here
        }
        if not found:
            continue

        def wealth(item: tuple[HostTask, float]) -> tuple[int, float]:
            return num_threads(plan.shares[item[0].device], item[0].task), -item[1]

        giver, fast = max(found.items(), key=wealth)
        spares = num_threads(plan.shares[giver.device], task)
        trade = ThreadMove(giver=giver, receiver=receiver)
        if spares < 2 or trade in tabu_trades:
            continue
        after = max(slowest * has / (has + 1), fast * spares / (spares - 1))
        if after < slowest:
            return Move(plan=trade.apply(plan), promise=1 - after / slowest, trade=trade)
    return None


def take_back(plan: DevicePlan, trade: ThreadMove) -> Move:
    """Return the move that undoes ``trade``, which was of no use."""
    back = trade.reverse
    return Move(plan=back.apply(plan), promise=1.0, trade=back, takes_back=True)


def _host_tasks(
    plan: DevicePlan, tasks: Sequence[Mapping[str, float]], task: str
) -> dict[HostTask, float]:
    """Seconds of ``task`` on the devices that run it with their own host threads."""
    return {
        HostTask(device=i, task=task): seconds[task]
        for i, (share, seconds) in enumerate(zip(plan.shares, tasks, strict=True))
        if task in seconds and num_threads(share, task)
    }
