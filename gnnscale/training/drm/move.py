"""Moves of dynamic resource management: host threads and seeds change devices."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gnnscale.planner import BY_DEVICE, DevicePlan, DeviceShare, Threads
from gnnscale.training.drm.task_times import T_SC, T_TC


@dataclass(frozen=True, kw_only=True)
class HostTask:
    """CPU task of one worker."""

    device: int  #: the worker's position in the plan
    task: str  #: one of ``CPU_TASKS``


@dataclass(frozen=True, kw_only=True)
class ThreadMove:
    """Move of a host thread from one task to another."""

    giver: HostTask  #: the task that gives a thread, and has at least two before
    receiver: HostTask  #: the task that receives the thread

    @property
    def reverse(self) -> ThreadMove:
        """The opposite move."""
        return ThreadMove(giver=self.receiver, receiver=self.giver)

    def apply(self, plan: DevicePlan) -> DevicePlan:
        """Return ``plan`` after the move; the total ``host_threads`` is unchanged."""
        shares = list(plan.shares)
        for lane, change in ((self.giver, -1), (self.receiver, 1)):
            share = shares[lane.device]
            count = num_threads(share, lane.task) + change
            shares[lane.device] = replace(share, threads=_with_threads(share, lane.task, count))
        return DevicePlan(shares=tuple(shares))


@dataclass(frozen=True, kw_only=True)
class Move:
    """A change of the plan."""

    plan: DevicePlan  #: the plan after the move
    promise: float  #: expected saving, as a fraction of a step
    #: the move of a thread; None: another kind of move
    trade: ThreadMove | None = None
    shift: tuple[int, ...] = ()  #: change of seeds of each device
    gain: float = 1.0  #: fraction of the way to equal times that seeds move
    #: device for which the host samples more or fewer mini-batches; None: another kind of move
    sampling_of: int | None = None
    takes_back: bool = False  #: whether this reverses a thread move that saved no time


def num_threads(share: DeviceShare, task: str) -> int:
    """Return the host threads of a task; 0: the task has no threads that can move."""
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
        # Sampling and loading run one after the other, on the same threads.
        return replace(share.threads, sample=count, load=count)
    return replace(share.threads, **{"sample" if task == T_SC else "load": count})
