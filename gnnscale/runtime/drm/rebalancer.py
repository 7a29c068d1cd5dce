"""When dynamic resource management is asked, and from which step its answer applies."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from gnnscale.core.stages import STAGES, StageTimes
from gnnscale.runtime.drm.rebalance import rebalance
from gnnscale.runtime.drm.rebalancer_state import WINDOW, RebalancerState
from gnnscale.runtime.pipeline.schedule import Schedule

#: First steps whose times are not used: memory is touched for the first time.
_WARM_UP = 2
_BEGINNING = RebalancerState()


class Rebalancer:
    """Asks Algorithm 1 every few steps, and settles the plans of the steps to come.

    Batches of the next steps are on their way when a step ends, so what is decided after step s
    applies from step s + ``lead_steps`` on, and is not reconsidered before those steps report.
    Every process does this with the same times and comes to the same plans.
    """

    def __init__(
        self,
        schedule: Schedule,
        *,
        first_step: int,
        lead_steps: int,
        counted: bool = False,
        state: RebalancerState = _BEGINNING,
    ) -> None:
        """Begin with the schedule's plans.

        Args:
            counted: whether times are those of counted work: they are right from the first step on.
            state: of resource management before ``first_step``.
        """
        self._schedule = schedule
        self._lead_steps = lead_steps
        self._counted = counted
        warm_up = 0 if counted else _WARM_UP
        self._applies_from = max(first_step + warm_up, state.applies_from)
        self._window: list[Sequence[StageTimes]] = [*state.window]
        self._damping = state.damping

    def state(self, step: int) -> RebalancerState:
        """Return where resource management stands before ``step``, the one to be observed next."""
        return RebalancerState(
            applies_from=self._applies_from,
            window=tuple(tuple(each) for each in self._window),
            damping=self._damping,
            pending=self._schedule.pending_after(step),
        )

    def observe(self, step: int, stages: Sequence[StageTimes], *, full: bool) -> str | None:
        """Take note of a step's times, and return what is decided after it, if anything.

        Args:
            full: whether it was a full mini-batch; the last of an epoch may not be.
        """
        if full and step >= self._applies_from:
            self._window.append(stages)
        plan, move = self._schedule.plan, None
        if len(self._window) == WINDOW:
            decision = rebalance(
                plan,
                medians(self._window),
                self._damping,
                movable=self._schedule.movable,
                counted=self._counted,
            )
            self._window.clear()
            self._damping, move = decision.damping, decision.move
            if decision.plan != plan:
                plan, self._applies_from = decision.plan, step + self._lead_steps + 1
        self._schedule.commit_plan(step + 1 + self._lead_steps, plan)
        return move


def medians(steps: Sequence[Sequence[StageTimes]]) -> tuple[StageTimes, ...]:
    """Return each device's median time in each stage over ``steps``."""
    return tuple(
        StageTimes(**{name: statistics.median(getattr(t, name) for t in times) for name in STAGES})
        for times in zip(*steps, strict=True)
    )
