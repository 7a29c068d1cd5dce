"""What dynamic resource management remembers, as plain values that a checkpoint keeps."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from gnnscale.core.errors import shown
from gnnscale.core.records import Count, decode
from gnnscale.core.stages import StageTimes
from gnnscale.plan import DevicePlan
from gnnscale.runtime.drm.damping import Damping
from gnnscale.runtime.drm.move import Trade
from gnnscale.runtime.drm.task_times import CPU_TASKS, TaskTimes
from gnnscale.runtime.pipeline.schedule import MAX_PLANS

__all__ = ["WINDOW", "RebalancerState"]

#: Steps whose median is looked at; one slow step is no reason to move work.
WINDOW = 3


@dataclass(frozen=True, kw_only=True)
class RebalancerState:
    """Where dynamic resource management stands after a step; ``RebalancerState()`` to begin with.

    Attributes:
        applies_from: the first step whose times tell something of the plan decided last.
        window: each device's times in the steps since the last decision.
        damping: what the last decision left.
        pending: plans that were decided and are not in force yet, each with its first step.
    """

    applies_from: int = 0
    window: tuple[tuple[StageTimes, ...], ...] = ()
    damping: Damping = field(default_factory=Damping)
    pending: tuple[tuple[int, DevicePlan], ...] = ()

    def to_values(self) -> dict[str, Any]:
        """Return plain values; the devices themselves are in the run's options."""
        plan = self.damping.plan
        values = asdict(replace(self, damping=replace(self.damping, plan=None), pending=()))
        values["damping"]["plan"] = None if plan is None else plan.to_values()
        values["pending"] = [[first, each.to_values()] for first, each in self.pending]
        return values

    @classmethod
    def from_values(cls, plan: DevicePlan, values: Any, *, step: int) -> RebalancerState:
        """Rebuild a state from ``to_values``.

        Args:
            plan: in force at ``step``. Its devices may hold more or fewer seeds than when the
                values were kept; plans to come go no further than that.
            values: what was kept.
            step: the next step.

        Raises:
            ValueError: the values are not those of a state under ``plan``.
        """
        found = decode(_StateValues, values, source="drm")
        pending = tuple((first, _plan(plan, each)) for first, each in found.pending)
        last = pending[-1][1] if pending else plan
        damping = _damping(last, found.damping)
        state = cls(**{**vars(found), "damping": damping, "pending": pending})
        state._check(plan, step)
        return state

    def _check(self, plan: DevicePlan, step: int) -> None:
        firsts = [step, *(first for first, _ in self.pending)]
        if sorted(set(firsts)) != firsts or len(firsts) > MAX_PLANS:
            raise ValueError(f"drm.pending: plans from steps {shown(firsts[1:])} on, behind {step}")
        if len(self.window) >= WINDOW or any(len(each) != len(plan.shares) for each in self.window):
            raise ValueError(f"drm.window: not fewer than {WINDOW} steps of all devices")
        seconds = [s for step in self.window for times in step for s in asdict(times).values()]
        if min(seconds, default=0.0) < 0:
            raise ValueError(f"drm.window: {shown(min(seconds))} seconds")


@dataclass(frozen=True, kw_only=True)
class _DampingValues(Damping):
    """``Damping`` with its plan as plain values."""

    plan: Any = None


@dataclass(frozen=True, kw_only=True)
class _StateValues:
    """``RebalancerState`` with its plans as plain values."""

    applies_from: Count
    window: tuple[tuple[StageTimes, ...], ...]
    damping: _DampingValues
    pending: tuple[tuple[Count, Any], ...]


def _damping(plan: DevicePlan, values: _DampingValues) -> Damping:
    """Rebuild what the last decision left, and make sure that the next one can read it.

    Args:
        plan: what was decided last.
        values: what was kept.
    """
    known = None if values.plan is None else _plan(plan, values.plan)
    damping = Damping(**{**vars(values), "plan": known})
    num_devices = len(plan.shares)
    if {len(damping.seconds), len(damping.fixed)} != {0 if known is None else num_devices}:
        raise ValueError(f"drm.damping.seconds: not of {num_devices} devices")
    if len(damping.shift) not in (0, num_devices):
        raise ValueError(f"drm.damping.shift: not of {num_devices} devices")
    if not set(damping.excluded_devices) <= set(range(num_devices)):
        raise ValueError(f"drm.damping.excluded_devices: there are {num_devices} devices")
    if damping.trial is not None:
        _check_trade(damping.trial.trade, plan)
    return damping


def _check_trade(trade: Trade, plan: DevicePlan) -> None:
    """Refuse a trade of threads that could not be taken back under ``plan``."""
    for end in (trade.giver, trade.receiver):
        device = end.device
        known = 0 <= device < len(plan.shares) and end.task in CPU_TASKS
        share = plan.shares[device] if known else None
        if share is None or end.task not in TaskTimes.of_device(share, StageTimes()).tasks():
            raise ValueError(f"drm.damping.trial: no {shown(end.task)} of device {shown(device)}")
    trade.reverse.apply(plan)


def _plan(plan: DevicePlan, values: Any) -> DevicePlan:
    """Rebuild a plan of the devices and the mini-batch of ``plan``, within their memory."""
    found = DevicePlan.from_values([share.device for share in plan.shares], values)
    if found.batch_size != plan.batch_size:
        raise ValueError(f"drm: a plan shares out {found.batch_size} seeds")
    pairs = list(zip(found.shares, plan.shares, strict=True))
    if any((old.prefetch, old.machine) != (new.prefetch, new.machine) for old, new in pairs):
        raise ValueError("drm: a plan prefetches in another way")
    shares = tuple(replace(old, max_seeds=new.max_seeds, depth=new.depth) for old, new in pairs)
    found = DevicePlan(shares=shares)
    return found.with_split(found.within_memory(found.split))
