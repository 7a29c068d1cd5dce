"""Memory of dynamic resource management between decisions, which makes plans converge."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import msgspec

from gnnscale.core.types import Count, Seconds
from gnnscale.planner import DevicePlan
from gnnscale.training.drm.task_times import Move, SampleTimes, ThreadMove

#: Minimum fraction of a step that a move must be expected to save.
DEAD_BAND = 0.02
#: Additional saving required after a single observation; it falls with the root of the number of
#: observations, like the standard error of their mean.
_DOUBT = 0.05
#: Number of latest decisions over which times are averaged.
_MAX_DECISIONS = 8
#: Maximum relative change of a share across which times are still averaged.
_MAX_CHANGE = 0.1
#: Minimum relative change of a share that shows the fixed part of a device's time, and the maximum
#: of that part.
_MIN_CHANGE = 1 / 3
_MAX_FIXED = 0.7
#: Factor by which the gain grows while nothing moves.
_GAIN_GROWTH = 1.25
#: Number of decisions for which a thread move is not reversed, or not tried again if it saved no
#: time.
_TABU_DECISIONS = 24


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Thread move whose effect is not measured yet."""

    trade: ThreadMove  #: the thread move
    step: float  #: seconds of the slowest device before the move
    receiver: float  #: seconds of the receiving task before the move


@dataclass(frozen=True, kw_only=True)
class Damping:
    """State that resource management keeps between decisions; ``Damping()``: start of a run."""

    decisions: Count = 0  #: number of decisions so far
    plan: DevicePlan | None = None  #: plan of the last decision
    seconds: tuple[Seconds, ...] = ()  #: mean time of each device over ``count`` decisions
    count: Count = 0  #: number of decisions averaged in ``seconds``
    #: seconds of each device that do not depend on its seeds, as measured by moves of seeds
    fixed: tuple[Seconds, ...] = ()
    #: fraction of the way to equal times that a move of seeds goes
    gain: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0
    shift: tuple[int, ...] = ()  #: change of seeds of each device in the last move of seeds
    #: devices left without seeds, because they were too slow for even a few
    excluded_devices: tuple[int, ...] = ()
    trial: Trial | None = None  #: thread move of the last decision, not measured yet
    sampled: tuple[SampleTimes, ...] = ()  #: measured sampling times of each device
    #: forbidden thread moves, each with the last decision for which it is forbidden
    tabu_trades: tuple[tuple[ThreadMove, Count], ...] = ()

    def remember(self, sampled: Sequence[SampleTimes]) -> Damping:
        """Return a copy with new sampling times; None in ``sampled`` keeps the older time."""
        times = self.sampled or tuple(SampleTimes() for _ in sampled)
        pairs = zip(times, sampled, strict=True)
        return replace(self, sampled=tuple(old.updated(new) for old, new in pairs))

    def observe(self, plan: DevicePlan, seconds: Sequence[float]) -> Damping:
        """Return a copy with each device's ``seconds`` under ``plan``.

        They are averaged with those of the last plan if only its split differs, by at most 10 %.
        One more decision is counted, and expired bans of thread moves are dropped.
        """
        number = self.decisions + 1
        tabu_trades = tuple((trade, until) for trade, until in self.tabu_trades if until >= number)
        updated = replace(self, decisions=number, plan=plan, tabu_trades=tabu_trades)
        previous = self._predict(plan)
        if previous is None:
            fixed = self._fixed(plan, seconds)
            return replace(updated, seconds=tuple(seconds), count=1, fixed=fixed)
        count = self.count + 1
        weight = 1 / min(count, _MAX_DECISIONS)
        mean = tuple(p + weight * (s - p) for p, s in zip(previous, seconds, strict=True))
        gain = min(self.gain * _GAIN_GROWTH, 1.0) if plan == self.plan else self.gain
        return replace(updated, seconds=mean, count=count, gain=gain)

    def _predict(self, plan: DevicePlan) -> tuple[float, ...] | None:
        """Return each device's seconds under ``plan``, by mean seconds under the last plan.

        None: a device's seeds differ by more than 10 %, or the plans in anything else.
        """
        if self.plan is None or plan.with_split(self.plan.split) != self.plan:
            return None
        scaled = []
        for seconds, fixed, old, new in zip(
            self.seconds, self.fixed, self.plan.split, plan.split, strict=True
        ):
            if abs(new - old) > _MAX_CHANGE * old:
                return None
            scaled.append(fixed + (seconds - fixed) * new / max(old, 1))
        return tuple(scaled)

    def _fixed(self, plan: DevicePlan, seconds: Sequence[float]) -> tuple[float, ...]:
        """Return each device's seconds at zero seeds, by a line through its times at two splits.

        A device whose seeds changed little keeps its value.
        """
        fixed = list(self.fixed or [0.0] * len(seconds))
        if self.plan is not None:
            for i, (n, m) in enumerate(zip(self.plan.split, plan.split, strict=True)):
                if min(n, m) > 0 and abs(n - m) >= _MIN_CHANGE * max(n, m):
                    fixed[i] = (self.seconds[i] * m - seconds[i] * n) / (m - n)
        pairs = zip(fixed, seconds, strict=True)
        return tuple(min(max(time_s, 0.0), _MAX_FIXED * total_s) for time_s, total_s in pairs)

    @property
    def threshold(self) -> float:
        """Minimum fraction of a step that a move must promise to save."""
        return DEAD_BAND + _DOUBT / math.sqrt(min(self.count, _MAX_DECISIONS))

    def failed_trade(self, tasks: Sequence[Mapping[str, float]]) -> ThreadMove | None:
        """Return the last thread move if it failed, by the ``tasks``' seconds since; else None.

        It failed if the receiving task got no faster, or the step over 2 % slower.
        """
        if self.trial is None:
            return None
        receiver = self.trial.trade.receiver
        faster = tasks[receiver.device][receiver.task] < self.trial.receiver
        step = max(max(times.values()) for times in tasks)
        proves_itself = faster and step <= self.trial.step * (1 + DEAD_BAND)
        return None if proves_itself else self.trial.trade

    def after(self, move: Move | None, tasks: Sequence[Mapping[str, float]]) -> Damping:
        """Return a copy after ``move`` (None: no move); ``tasks`` are the seconds before it."""
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
                step=max(max(times.values()) for times in tasks),
                receiver=tasks[receiver.device][receiver.task],
            )
            return replace(ended._forbid(move.trade.reverse), trial=trial)
        steered = replace(ended, gain=move.gain)
        if not any(move.shift):
            return steered
        split = move.plan.split
        idle = tuple(i for i, n in enumerate(move.shift) if n < 0 and not split[i])
        return replace(steered, shift=move.shift, excluded_devices=self.excluded_devices + idle)

    def _forbid(self, trade: ThreadMove) -> Damping:
        """Return a copy with ``trade`` forbidden for the next 24 decisions."""
        tabu = (trade, self.decisions + _TABU_DECISIONS)
        return replace(self, tabu_trades=(*self.tabu_trades, tabu))
