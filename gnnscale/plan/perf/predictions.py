"""What is predicted of a run's plan, under the name of what it rests on."""

from __future__ import annotations

from dataclasses import dataclass

from gnnscale.plan.perf.equations import Prediction

__all__ = ["PlanPredictions"]


@dataclass(frozen=True, kw_only=True)
class PlanPredictions:
    """The predictions of one plan.

    Attributes:
        by_rates: by the equations and the platform's rates alone; nothing of this plan was run.
        rehearsed: the same corrected by a rehearsal of this very plan, so that it repeats what a
            few steps of the run took; None where this plan was not rehearsed. What a rehearsal of
            another plan taught is never in it.
        window_steps: steps that the rehearsal measured, or that one would have.
    """

    by_rates: Prediction
    rehearsed: Prediction | None = None
    window_steps: int

    @property
    def basis(self) -> str:
        """Name of the prediction that a run goes by: ``rehearsed`` where there is one."""
        return "by_rates" if self.rehearsed is None else "rehearsed"

    @property
    def best(self) -> Prediction:
        """The prediction that ``basis`` names."""
        return self.rehearsed or self.by_rates
