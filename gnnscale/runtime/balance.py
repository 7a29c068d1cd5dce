"""The two moves of dynamic resource management (HyScale-GNN, section IV-A)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from gnnscale.plan import DevicePlan, DeviceShare, Threads
from gnnscale.plan.device_plan import apportion
from gnnscale.runtime.task_times import T_SC, T_TC, TaskTimes

__all__ = ["Lane", "Trade", "balance_thread", "balance_work", "expected_seconds"]

#: A device that had no seeds gets this part of an equal share, to find out how fast it is.
_PROBE = 1 / 8
#: Seconds below which a time says nothing of speed.
_LEAST_SECONDS = 1e-6


def balance_work(
    split: Sequence[int],
    seconds: Sequence[float],
    *,
    fixed: Sequence[float] = (),
    gain: float = 1.0,
    given_up: Collection[int] = (),
) -> tuple[int, ...]:
    """Move seeds so that the CPU and the accelerators are expected to take equally long.

    Time is taken to be linear in seeds, beside the part that is known not to depend on them. The
    paper's accelerators are identical; here this also balances the devices of either side among
    each other, and the devices of a plan that has only one side. A device without seeds has no
    known speed, and gets a small share to show it.

    Args:
        split: seeds of each device.
        seconds: how long each takes for them.
        fixed: how long each takes beside them, part of ``seconds``; empty for not at all.
        gain: the part of the way that is gone, above 0 and at most 1.
        given_up: devices without seeds that stay without.

    Returns:
        Seeds of each device; the sum is that of ``split``.
    """
    total = sum(split)
    idle = [i for i, count in enumerate(split) if count == 0 and i not in given_up]
    probe = max(1, int(_PROBE * total / len(split)))
    left = total - probe * len(idle)
    if left < len(split):
        idle, left = [], total
    lines = _lines(split, seconds, fixed)
    end = _equal_seconds(lines, left)
    weights = [float((1 - gain) * count) for count in split]
    for i, (intercept, slope) in lines.items():
        weights[i] += gain * max(end - intercept, 0.0) / slope
    parts = apportion(weights, left)
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


def _lines(
    split: Sequence[int], seconds: Sequence[float], fixed: Sequence[float]
) -> dict[int, tuple[float, float]]:
    """Seconds beside the seeds and for each of them, of every device that has some."""
    intercepts = fixed or [0.0] * len(split)
    return {
        i: (intercept, max(each - intercept, _LEAST_SECONDS) / count)
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
class Lane:
    """A CPU task as one worker runs it, beside its other lanes.

    Attributes:
        device: the worker's position in the plan.
        task: one of ``CPU_TASKS``.
    """

    device: int
    task: str


@dataclass(frozen=True, kw_only=True)
class Trade:
    """A host thread that goes from one lane to another.

    Attributes:
        giver: has at least two before.
        receiver: the lane that gets it.
    """

    giver: Lane
    receiver: Lane

    @property
    def reverse(self) -> Trade:
        """The trade that undoes this one."""
        return Trade(giver=self.receiver, receiver=self.giver)

    def apply(self, plan: DevicePlan) -> DevicePlan:
        """Return ``plan`` after the trade; ``host_threads`` stays what it was."""
        shares = list(plan.shares)
        for lane, change in ((self.giver, -1), (self.receiver, 1)):
            share = shares[lane.device]
            count = _num_threads(share, lane.task) + change
            shares[lane.device] = replace(share, threads=_with_threads(share, lane.task, count))
        return DevicePlan(shares=tuple(shares))


def balance_thread(
    plan: DevicePlan,
    devices: Sequence[TaskTimes],
    *,
    givers: Sequence[str],
    bottleneck: str,
    barred: Collection[Trade] = (),
) -> tuple[Trade, float] | None:
    """Find a thread of the fastest CPU task that the bottleneck makes better use of.

    It is given to the slowest device of the bottleneck task, and taken from the device that has
    most in the giving task; of several from the one whose task takes the least time. A task keeps
    at least one thread, and time is taken to be inverse to threads: where the giver would become
    as slow as the bottleneck was, the next task is asked.

    Args:
        plan: who has how many threads.
        devices: each device's task times.
        givers: CPU tasks, the fastest first.
        bottleneck: the CPU task that is to become faster.
        barred: trades that are not to be made.

    Returns:
        The trade, and the part of the bottleneck's time that it is expected to save; None where
        there is no such trade: without prefetching no two tasks run at once, a task of which each
        lane has one thread has none to give, and a device that computes itself takes none.
    """
    receivers = _lanes(plan, devices, bottleneck)
    if not receivers:
        return None
    receiver, slowest = max(receivers.items(), key=lambda item: item[1])
    has = _num_threads(plan.shares[receiver.device], bottleneck)
    for task in givers:
        lanes = {} if task == bottleneck else _lanes(plan, devices, task)
        here = plan.shares[receiver.device].machine
        lanes = {
            lane: seconds
            for lane, seconds in lanes.items()
            if plan.shares[lane.device].machine == here
        }
        if not lanes:
            continue

        def wealth(item: tuple[Lane, float]) -> tuple[int, float]:
            return _num_threads(plan.shares[item[0].device], item[0].task), -item[1]

        giver, fast = max(lanes.items(), key=wealth)
        spares = _num_threads(plan.shares[giver.device], task)
        trade = Trade(giver=giver, receiver=receiver)
        if spares < 2 or trade in barred:
            continue
        after = max(slowest * has / (has + 1), fast * spares / (spares - 1))
        if after < slowest:
            return trade, 1 - after / slowest
    return None


def _lanes(plan: DevicePlan, devices: Sequence[TaskTimes], task: str) -> dict[Lane, float]:
    """Seconds of the lanes that run ``task`` with host threads of their own."""
    return {
        Lane(device=i, task=task): times.tasks()[task]
        for i, (share, times) in enumerate(zip(plan.shares, devices, strict=True))
        if task in times.tasks() and _num_threads(share, task)
    }


def _num_threads(share: DeviceShare, task: str) -> int:
    """Host threads of a device's task; 0 where it has none to trade."""
    threads = share.threads
    if share.prefetch == "none":
        return 0
    if task == T_TC:
        return threads.propagate
    if share.prefetch == "one_stage":
        return max(threads.sample, threads.load)
    return threads.sample if task == T_SC else threads.load


def _with_threads(share: DeviceShare, task: str, count: int) -> Threads:
    if task == T_TC:
        return replace(share.threads, propagate=count)
    if share.prefetch == "one_stage":
        # Sampling and loading take turns, with the same threads.
        return replace(share.threads, sample=count, load=count)
    return replace(share.threads, **{"sample" if task == T_SC else "load": count})
