"""Tasks of dynamic resource management (HyScale-GNN, section IV-A): their times, and moves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace

from gnnscale.core import Seconds, StageTimes
from gnnscale.planner import BY_DEVICE, SAMPLED_IN_TURN, DevicePlan, DeviceShare, Threads

#: Tasks that Algorithm 1 sorts, by the paper's names.
T_SC, T_SA, T_LOAD, T_TC, T_ACCEL = "T_SC", "T_SA", "T_Load", "T_TC", "T_Accel"
#: Tasks of host threads.
CPU_TASKS = (T_SC, T_LOAD, T_TC)


@dataclass(frozen=True, kw_only=True)
class SampleTimes:
    """Seconds in which a device, and the host for it, samples a mini-batch; None: not measured."""

    on_device: Seconds | None = None
    on_host: Seconds | None = None

    def updated(self, newer: SampleTimes) -> SampleTimes:
        """Return ``newer``, with times of this object where ``newer`` has None."""
        return SampleTimes(
            on_device=self.on_device if newer.on_device is None else newer.on_device,
            on_host=self.on_host if newer.on_host is None else newer.on_host,
        )


def sampling_tasks(share: DeviceShare, sampled: SampleTimes) -> dict[str, float]:
    """Return seconds of T_SA (sampling on a device), and of T_SC (on the host) if the host helps.

    Both are means over all the device's mini-batches: a device that samples half of them takes half
    of its measured time.
    """
    host_part = share.host_samples / SAMPLED_IN_TURN
    times = {T_SA: (1 - host_part) * (sampled.on_device or 0.0)}
    if host_part:
        times[T_SC] = host_part * (sampled.on_host or 0.0)
    return times


@dataclass(frozen=True, kw_only=True)
class TaskTimes:
    """Task times in seconds, the input of Algorithm 1; None: the run has no such task.

    In the paper all tasks run at the same time. Stages that run one after the other are one task
    here, since only their sum can be shortened. The stages of a task depend on prefetching:

        ==========  ======================  ============================  ==================
        prefetch    T_SC or T_SA            T_Load                        T_TC or T_TA
        ==========  ======================  ============================  ==================
        none        --                      --                            all four stages
        one_stage   --                      sample + load + transfer      propagate
        two_stage   sample                  load (on the host: and        propagate
                                            transfer, which takes none)
        device      as two_stage, by the device's own clock
        ==========  ======================  ============================  ==================

    If host and accelerator both sample the accelerator's mini-batches, T_SC and T_SA are both means
    over all mini-batches. T_Tran is an accelerator's transfer with ``two_stage`` and ``device``.
    Synchronization belongs to no task: it is mostly waiting for the slowest device.
    """

    sample_accel: float | None = None  #: T_SA, sampling on an accelerator
    sample_cpu: float | None = None  #: T_SC, sampling on the host for any device
    load: float | None = None  #: T_Load, feature loading
    transfer: float | None = None  #: T_Tran
    train_cpu: float | None = None  #: T_TC, training on the host
    train_accel: float | None = None  #: T_TA, training on an accelerator

    @classmethod
    def from_plan(
        cls,
        plan: DevicePlan,
        stages: Sequence[StageTimes],
        sampled: Sequence[SampleTimes] | None = None,
    ) -> TaskTimes:
        """Return each task's time on the slowest device that has the task."""
        parts = zip(plan.shares, stages, sampled or [SampleTimes()] * len(stages), strict=True)
        devices = [cls.for_device(*part) for part in parts]
        names = [field.name for field in fields(cls)]
        return cls(**{name: _longest(getattr(times, name) for times in devices) for name in names})

    @classmethod
    def for_device(
        cls, share: DeviceShare, stages: StageTimes, sampled: SampleTimes = SampleTimes()
    ) -> TaskTimes:
        """Return the task times of one device, by its share of the plan and its ``stages``.

        ``sampled`` times replace the sampling stage if the host samples some of its mini-batches.
        """
        device = share.device
        train = "train_cpu" if device.on_host else "train_accel"
        prepare = stages.sample + stages.load + stages.transfer
        if share.prefetch == "none":
            return cls(**{train: prepare + stages.propagate})
        if share.prefetch == "one_stage":
            return cls(**{"load": prepare, train: stages.propagate})
        times: dict[str, float | None] = {
            "sample_accel" if device.samples else "sample_cpu": stages.sample,
            train: stages.propagate,
        }
        if share.host_samples:
            both = sampling_tasks(share, sampled)
            times |= {"sample_accel": both[T_SA], "sample_cpu": both[T_SC]}
        if device.on_host:
            return cls(load=stages.load + stages.transfer, **times)
        return cls(load=stages.load, transfer=stages.transfer, **times)

    def tasks(self) -> dict[str, float]:
        """Return the existing tasks' seconds by the paper's names; T_Accel is max(T_Tran, T_TA)."""
        times = {
            T_SC: self.sample_cpu,
            T_SA: self.sample_accel,
            T_LOAD: self.load,
            T_TC: self.train_cpu,
            T_ACCEL: _longest([self.transfer, self.train_accel]),
        }
        return {name: seconds for name, seconds in times.items() if seconds is not None}

    @property
    def longest(self) -> float:
        """Seconds of the longest task: a device's time of a step if it never waited."""
        return max(self.tasks().values())


def _longest(times: Iterable[float | None]) -> float | None:
    return max((seconds for seconds in times if seconds is not None), default=None)


@dataclass(frozen=True, kw_only=True)
class HostTask:
    """Key of a CPU task that host threads run: the worker's position and the task's name."""

    device: int  #: the worker's position in the plan
    task: str  #: one of ``CPU_TASKS``


@dataclass(frozen=True, kw_only=True)
class ThreadMove:
    """Move of a host thread from one task to another."""

    giver: HostTask  #: the task that gives a thread, and has at least two before
    receiver: HostTask  #: the task that receives the thread

    @property
    def reverse(self) -> ThreadMove:
        """Move of a thread back from ``receiver`` to ``giver``."""
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
    """Change of the plan: of threads, seeds, or mini-batches that the host samples."""

    plan: DevicePlan  #: the plan after the move
    promise: float  #: expected saving, as a fraction of a step
    trade: ThreadMove | None = None  #: the move of a thread; None: another kind of move
    shift: tuple[int, ...] = ()  #: change of seeds of each device
    gain: float = 1.0  #: fraction of the way to equal times that seeds move
    #: device for which the host samples more or fewer mini-batches; None: another kind of move
    sampling_of: int | None = None
    takes_back: bool = False  #: whether this reverses a thread move that saved no time


def num_threads(share: DeviceShare, task: str) -> int:
    """Return the host threads of a task; 0: resource management cannot move its threads."""
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
