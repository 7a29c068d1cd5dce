"""What dynamic resource management remembers, as plain values that a checkpoint keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from gnnscale.core.errors import shown
from gnnscale.core.stages import StageTimes
from gnnscale.plain_records import fields_from, record_from
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
        damping = asdict(replace(self.damping, plan=None, tabu_trades=()))
        damping["plan"] = None if self.damping.plan is None else self.damping.plan.to_values()
        damping["tabu_trades"] = [[asdict(each), until] for each, until in self.damping.tabu_trades]
        return {
            "applies_from": self.applies_from,
            "window": [[asdict(each) for each in step] for step in self.window],
            "damping": damping,
            "pending": [[first, plan.to_values()] for first, plan in self.pending],
        }

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
        found = fields_from(cls, values, where="drm", without=("damping", "pending"))
        pending = tuple(
            (_number(each[0], "drm.pending"), _plan(plan, each[1]))
            for each in _pairs(values.get("pending"), "drm.pending")
        )
        last = pending[-1][1] if pending else plan
        damping = _damping(last, values.get("damping"))
        state = cls(damping=damping, pending=pending, **found)
        state._check(plan, step)
        return state

    def _check(self, plan: DevicePlan, step: int) -> None:
        firsts = [step, *(first for first, _ in self.pending)]
        if sorted(set(firsts)) != firsts or len(firsts) > MAX_PLANS:
            raise ValueError(f"drm.pending: plans from steps {shown(firsts[1:])} on, behind {step}")
        _number(self.applies_from, "drm.applies_from")
        if len(self.window) >= WINDOW or any(len(each) != len(plan.shares) for each in self.window):
            raise ValueError(f"drm.window: not fewer than {WINDOW} steps of all devices")
        _check_seconds(
            [s for each in self.window for times in each for s in asdict(times).values()]
        )


def _damping(plan: DevicePlan, values: Any) -> Damping:
    """Rebuild what the last decision left, and make sure that the next one can read it.

    Args:
        plan: what was decided last.
        values: what was kept.
    """
    where = "drm.damping"
    found = fields_from(Damping, values, where=where, without=("plan", "tabu_trades"))
    known = values.get("plan")
    damping = Damping(
        plan=None if known is None else _plan(plan, known),
        tabu_trades=tuple(
            (record_from(Trade, each[0], where=where), _number(each[1], where))
            for each in _pairs(values.get("tabu_trades"), where)
        ),
        **found,
    )
    num_devices = len(plan.shares)
    lengths = {len(damping.seconds), len(damping.fixed)}
    if lengths != {0 if damping.plan is None else num_devices}:
        raise ValueError(f"{where}.seconds: not of {num_devices} devices")
    if len(damping.shift) not in (0, num_devices):
        raise ValueError(f"{where}.shift: not of {num_devices} devices")
    if min(damping.decisions, damping.count) < 0 or not 0 < damping.gain <= 1:
        raise ValueError(f"{where}: no state of {shown(damping.decisions)} decisions")
    if not set(damping.excluded_devices) <= set(range(num_devices)):
        raise ValueError(f"{where}.excluded_devices: there are {num_devices} devices")
    _check_seconds([*damping.seconds, *damping.fixed])
    if damping.trial is not None:
        _check_trade(damping.trial.trade, plan)
    return damping


def _check_seconds(seconds: Sequence[float]) -> None:
    if min(seconds, default=0.0) < 0:
        raise ValueError(f"drm: {shown(min(seconds))} seconds")


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
    if not isinstance(values, list):
        raise ValueError(f"drm: {shown(values)} is no plan")
    found = DevicePlan.from_values([share.device for share in plan.shares], values)
    if found.batch_size != plan.batch_size:
        raise ValueError(f"drm: a plan shares out {found.batch_size} seeds")
    pairs = list(zip(found.shares, plan.shares, strict=True))
    if any((old.prefetch, old.machine) != (new.prefetch, new.machine) for old, new in pairs):
        raise ValueError("drm: a plan prefetches in another way")
    shares = tuple(replace(old, max_seeds=new.max_seeds, depth=new.depth) for old, new in pairs)
    found = DevicePlan(shares=shares)
    return found.with_split(found.within_memory(found.split))


def _pairs(values: Any, where: str) -> list[Any]:
    if not isinstance(values, list) or not all(
        isinstance(each, list) and len(each) == 2 for each in values
    ):
        raise ValueError(f"{where}: {shown(values)} are no pairs")
    return values


def _number(value: Any, where: str) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        raise ValueError(f"{where}: {shown(value)} is no number of a step")
    return value
