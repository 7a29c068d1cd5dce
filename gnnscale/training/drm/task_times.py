"""The times that dynamic resource management uses (HyScale-GNN, section IV-A)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

from gnnscale.core import StageTimes
from gnnscale.core.types import Seconds
from gnnscale.planner import DevicePlan, DeviceShare
from gnnscale.planner.device_plan import SAMPLED_IN_TURN

#: What Algorithm 1 sorts, by the paper's names.
T_SC, T_SA, T_LOAD, T_TC, T_ACCEL = "T_SC", "T_SA", "T_Load", "T_TC", "T_Accel"
#: Those that host threads do.
CPU_TASKS = (T_SC, T_LOAD, T_TC)


@dataclass(frozen=True, kw_only=True)
class SampleTimes:
    """Seconds in which a device's mini-batch is sampled at either place; None if not known."""

    on_device: Seconds | None = None
    on_host: Seconds | None = None

    def updated(self, newer: SampleTimes) -> SampleTimes:
        """Return what is known once ``newer`` was seen."""
        return SampleTimes(
            on_device=self.on_device if newer.on_device is None else newer.on_device,
            on_host=self.on_host if newer.on_host is None else newer.on_host,
        )


def sampling_tasks(share: DeviceShare, sampled: SampleTimes) -> dict[str, float]:
    """Return T_SA, and T_SC if the host samples some of an accelerator's mini-batches."""
    part = share.host_samples / SAMPLED_IN_TURN
    found = {T_SA: (1 - part) * (sampled.on_device or 0.0)}
    if part:
        found[T_SC] = part * (sampled.on_host or 0.0)
    return found


@dataclass(frozen=True, kw_only=True)
class TaskTimes:
    """The input of Algorithm 1, in seconds; None if there is no such task.

    The paper's tasks all run at once. Here stages that take turns are one task, since only their
    sum can be shortened, and what they make up depends on prefetching:

    ==========  ======================  ============================  ==================
    prefetch    T_SC or T_SA            T_Load                        T_TC or T_TA
    ==========  ======================  ============================  ==================
    none        --                      --                            all four stages
    one_stage   --                      sample + load + transfer      propagate
    two_stage   sample                  load (on the host: and        propagate
                                        transfer, which takes none)
    device      as two_stage, by the device's own clock
    ==========  ======================  ============================  ==================

    If the host samples some mini-batches of an accelerator that samples the others, both T_SC and
    T_SA are there, each a mean over all mini-batches.
    T_Tran is an accelerator's transfer with ``two_stage`` and ``device``. Synchronisation is in
    none of them: it is mostly waiting for the slowest device.
    """

    sample_accel: float | None = None  #: T_SA, sampling on an accelerator
    sample_cpu: float | None = None  #: T_SC, sampling on the host, for whichever device
    load: float | None = None  #: T_Load, feature loading
    transfer: float | None = None  #: T_Tran
    train_cpu: float | None = None  #: T_TC, training on the host
    train_accel: float | None = None  #: T_TA, training on an accelerator

    @classmethod
    def of(
        cls,
        plan: DevicePlan,
        stages: Sequence[StageTimes],
        sampled: Sequence[SampleTimes] | None = None,
    ) -> TaskTimes:
        """Return each task's time on the slowest of the devices that have it."""
        parts = zip(plan.shares, stages, sampled or [SampleTimes()] * len(stages), strict=True)
        devices = [cls.of_device(*each) for each in parts]
        names = [each.name for each in fields(cls)]
        return cls(**{name: _longest(getattr(each, name) for each in devices) for name in names})

    @classmethod
    def of_device(
        cls, share: DeviceShare, stages: StageTimes, sampled: SampleTimes = SampleTimes()
    ) -> TaskTimes:
        """Return the tasks of one device.

        Args:
            sampled: of a device of which the host samples some mini-batches.
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
        """Return what Algorithm 1 sorts: the tasks that there are, by the paper's names.

        Line 1 is here: T_Accel = max(T_Tran, T_TA).
        """
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
        """Seconds of the longest task: a device's part of a step, if nothing made it wait."""
        return max(self.tasks().values())


def _longest(times: Iterable[float | None]) -> float | None:
    return max((seconds for seconds in times if seconds is not None), default=None)
