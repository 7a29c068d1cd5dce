"""Moves of dynamic resource management: host threads and seeds that go from device to device."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gnnscale.planner import BY_DEVICE, DevicePlan, DeviceShare, Threads
from gnnscale.training.drm.task_times import T_SC, T_TC


@dataclass(frozen=True, kw_only=True)
class HostTask:
    """A CPU task as one worker runs it, beside its other tasks."""

    device: int  #: the worker's position in the plan
    task: str  #: one of ``CPU_TASKS``


@dataclass(frozen=True, kw_only=True)
class ThreadMove:
    """A host thread that goes from one task to another."""

    giver: HostTask  #: has at least two before
    receiver: HostTask  #: the task that gets it

    @property
    def reverse(self) -> ThreadMove:
        """The trade that undoes this one."""
        return ThreadMove(giver=self.receiver, receiver=self.giver)

    def apply(self, plan: DevicePlan) -> DevicePlan:
        """Return ``plan`` after the trade; ``host_threads`` stays what it was."""
        shares = list(plan.shares)
        for lane, change in ((self.giver, -1), (self.receiver, 1)):
            share = shares[lane.device]
            count = num_threads(share, lane.task) + change
            shares[lane.device] = replace(share, threads=_with_threads(share, lane.task, count))
        return DevicePlan(shares=tuple(shares))


@dataclass(frozen=True, kw_only=True)
class Move:
    """A change of the plan."""

    plan: DevicePlan  #: the plan after it
    promise: float  #: the part of a step that it is expected to save
    #: the thread that goes from one task to another; None if seeds move
    trade: ThreadMove | None = None
    shift: tuple[int, ...] = ()  #: seeds that each device gets; negative if it gives some
    gain: float = 1.0  #: the part of the way to equal times that they go
    #: the device for which the host samples more mini-batches, or fewer; None if something else
    #: moves
    sampling_of: int | None = None
    takes_back: bool = False  #: whether it undoes a trade that was of no use


def num_threads(share: DeviceShare, task: str) -> int:
    """Host threads of a device's task; 0 if it has no thread to trade."""
    threads = share.threads
    if share.prefetch in ("none", BY_DEVICE):
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
