"""What dynamic resource management remembers between decisions, so that they settle."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import msgspec

from gnnscale.core.types import Count, Seconds
from gnnscale.planner import DevicePlan
from gnnscale.training.drm.move import Move, ThreadMove
from gnnscale.training.drm.task_times import SampleTimes

#: Moves that are not expected to save this part of a step are not made.
DEAD_BAND = 0.02
#: What a move must promise beyond that while the times were seen only once; it falls with the root
#: of the number of times, as their mean's error does.
_DOUBT = 0.05
#: Latest decisions over which times are averaged.
_MEMORY = 8
#: How much shares may change for times to be averaged across the change.
_CLOSE = 0.1
#: How much a device's share must change to derive which part of its time does not depend on it, and
#: the largest part that is believed.
_BASE_LINE = 1 / 3
_MAX_FIXED = 0.7
#: The factor by which the gain grows while nothing moves.
_RESTORE = 1.25
#: Decisions for which a trade of threads is not taken back, or, if it was of no use, not tried.
_TABU_DECISIONS = 24


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A trade of threads that has yet to prove itself."""

    trade: ThreadMove  #: the trade
    step: float  #: seconds of the slowest device before it
    receiver: float  #: seconds of the lane that got the thread, before it


@dataclass(frozen=True, kw_only=True)
class Damping:
    """What is remembered between decisions, so that they settle; ``Damping()`` to begin with."""

    decisions: Count = 0  #: how many there were
    plan: DevicePlan | None = None  #: the plan that the last one was about
    #: each device's time under that plan, the mean of ``count`` decisions
    seconds: tuple[Seconds, ...] = ()
    count: Count = 0  #: see ``seconds``
    #: the part of each device's time that did not depend on its seeds, as far as moves of work have
    #: shown
    fixed: tuple[Seconds, ...] = ()
    #: the part of the way that a move of work goes
    gain: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0
    shift: tuple[int, ...] = ()  #: seeds that each device got with the last move of work
    #: devices without seeds, because they were too slow for even a few
    excluded_devices: tuple[int, ...] = ()
    trial: Trial | None = None  #: the trade of threads made last, if it was the last move
    #: what is known of the seconds in which each device's mini-batches are sampled
    sampled: tuple[SampleTimes, ...] = ()
    #: trades that must not be made, each with the decision until which that holds
    tabu_trades: tuple[tuple[ThreadMove, Count], ...] = ()

    def remember(self, sampled: Sequence[SampleTimes]) -> Damping:
        """Take note of how long mini-batches were sampled; what was not seen stays as it is."""
        before = self.sampled or tuple(SampleTimes() for _ in sampled)
        pairs = zip(before, sampled, strict=True)
        return replace(self, sampled=tuple(old.updated(new) for old, new in pairs))

    def observe(self, plan: DevicePlan, seconds: Sequence[float]) -> Damping:
        """Take note of each device's time; those under one plan are averaged."""
        number = self.decisions + 1
        tabu_trades = tuple((trade, until) for trade, until in self.tabu_trades if until >= number)
        known = replace(self, decisions=number, plan=plan, tabu_trades=tabu_trades)
        before = self._at(plan)
        if before is None:
            fixed = self._fixed(plan, seconds)
            return replace(known, seconds=tuple(seconds), count=1, fixed=fixed)
        count = self.count + 1
        weight = 1 / min(count, _MEMORY)
        mean = tuple(b + weight * (s - b) for b, s in zip(before, seconds, strict=True))
        gain = min(self.gain * _RESTORE, 1.0) if plan == self.plan else self.gain
        return replace(known, seconds=mean, count=count, gain=gain)

    def _at(self, plan: DevicePlan) -> tuple[float, ...] | None:
        """What the mean times would be under ``plan``; None if it is too far from the last."""
        if self.plan is None or plan.with_split(self.plan.split) != self.plan:
            return None
        scaled = []
        for seconds, fixed, old, new in zip(
            self.seconds, self.fixed, self.plan.split, plan.split, strict=True
        ):
            if abs(new - old) > _CLOSE * old:
                return None
            scaled.append(fixed + (seconds - fixed) * new / max(old, 1))
        return tuple(scaled)

    def _fixed(self, plan: DevicePlan, seconds: Sequence[float]) -> tuple[float, ...]:
        """Draw a line through a device's times for its old and its new share, if those differ."""
        fixed = list(self.fixed or [0.0] * len(seconds))
        if self.plan is not None:
            for i, (n, m) in enumerate(zip(self.plan.split, plan.split, strict=True)):
                if min(n, m) > 0 and abs(n - m) >= _BASE_LINE * max(n, m):
                    fixed[i] = (self.seconds[i] * m - seconds[i] * n) / (m - n)
        pairs = zip(fixed, seconds, strict=True)
        return tuple(min(max(each, 0.0), _MAX_FIXED * whole) for each, whole in pairs)

    @property
    def threshold(self) -> float:
        """The part of a step that a move must promise to save."""
        return DEAD_BAND + _DOUBT / math.sqrt(min(self.count, _MEMORY))

    def failed_trade(self, tasks: Sequence[Mapping[str, float]]) -> ThreadMove | None:
        """Return the trade on trial if it did not make its receiver faster, or the step slower."""
        if self.trial is None:
            return None
        receiver = self.trial.trade.receiver
        faster = tasks[receiver.device][receiver.task] < self.trial.receiver
        step = max(max(each.values()) for each in tasks)
        proves_itself = faster and step <= self.trial.step * (1 + DEAD_BAND)
        return None if proves_itself else self.trial.trade

    def after(self, move: Move | None, tasks: Sequence[Mapping[str, float]]) -> Damping:
        """Take note of what was decided."""
        ended = replace(self, trial=None)
        if move is None:
            return ended
        if move.takes_back:
            assert move.trade is not None
            return ended._forbid(move.trade.reverse)
        if move.trade is not None:
            receiver = move.trade.receiver
            trial = Trial(
                trade=move.trade,
                step=max(max(each.values()) for each in tasks),
                receiver=tasks[receiver.device][receiver.task],
            )
            return replace(ended._forbid(move.trade.reverse), trial=trial)
        steered = replace(ended, gain=move.gain)
        if not any(move.shift):
            return steered
        left = move.plan.split
        dropped = tuple(i for i, n in enumerate(move.shift) if n < 0 and not left[i])
        return replace(steered, shift=move.shift, excluded_devices=self.excluded_devices + dropped)

    def _forbid(self, trade: ThreadMove) -> Damping:
        """Forbid a trade for some decisions."""
        tabu = (trade, self.decisions + _TABU_DECISIONS)
        return replace(self, tabu_trades=(*self.tabu_trades, tabu))
