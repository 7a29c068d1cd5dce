"""``balance_thread`` (HyScale-GNN, section IV-A): a thread moves from the fastest CPU task."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from gnnscale.plan import DevicePlan, DeviceShare, Threads
from gnnscale.runtime.drm import move, task_times


@dataclass(frozen=True, kw_only=True)
class HostTask:
    """A CPU task as one worker runs it, beside its other tasks."""

    device: int  #: the worker's position in the plan
    task: str  #: one of ``CPU_TASKS``


@dataclass(frozen=True, kw_only=True)
class Trade:
    """A host thread that goes from one task to another."""

    giver: HostTask  #: has at least two before
    receiver: HostTask  #: the task that gets it

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
    tasks: Sequence[Mapping[str, float]],
    *,
    givers: Sequence[str],
    bottleneck: str,
    tabu_trades: Collection[Trade] = (),
) -> move.Move | None:
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
    has = _num_threads(plan.shares[receiver.device], bottleneck)
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
            return _num_threads(plan.shares[item[0].device], item[0].task), -item[1]

        giver, fast = max(found.items(), key=wealth)
        spares = _num_threads(plan.shares[giver.device], task)
        trade = Trade(giver=giver, receiver=receiver)
        if spares < 2 or trade in tabu_trades:
            continue
        after = max(slowest * has / (has + 1), fast * spares / (spares - 1))
        if after < slowest:
            return move.Move(plan=trade.apply(plan), promise=1 - after / slowest, trade=trade)
    return None


def take_back(plan: DevicePlan, trade: Trade) -> move.Move:
    """Return the move that undoes ``trade``, which was of no use."""
    back = trade.reverse
    return move.Move(plan=back.apply(plan), promise=1.0, trade=back, takes_back=True)


def _host_tasks(
    plan: DevicePlan, tasks: Sequence[Mapping[str, float]], task: str
) -> dict[HostTask, float]:
    """Seconds of ``task`` on the devices that run it with their own host threads."""
    return {
        HostTask(device=i, task=task): seconds[task]
        for i, (share, seconds) in enumerate(zip(plan.shares, tasks, strict=True))
        if task in seconds and _num_threads(share, task)
    }


def _num_threads(share: DeviceShare, task: str) -> int:
    """Host threads of a device's task; 0 if it has none to trade."""
    threads = share.threads
    if share.prefetch == "none":
        return 0
    if task == task_times.T_TC:
        return threads.propagate
    if share.prefetch == "one_stage":
        return max(threads.sample, threads.load)
    return threads.sample if task == task_times.T_SC else threads.load


def _with_threads(share: DeviceShare, task: str, count: int) -> Threads:
    if task == task_times.T_TC:
        return replace(share.threads, propagate=count)
    if share.prefetch == "one_stage":
        # Sampling and loading take turns, with the same threads.
        return replace(share.threads, sample=count, load=count)
    return replace(share.threads, **{"sample" if task == task_times.T_SC else "load": count})
