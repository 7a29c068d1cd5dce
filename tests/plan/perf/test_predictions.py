from __future__ import annotations

from gnnscale.plan.perf.equations import Prediction
from gnnscale.plan.perf.predictions import PlanPredictions


def step(step_s: float) -> Prediction:
    return Prediction(devices=(), step_s=step_s, num_edges=1, source="here")


def test_a_rehearsal_goes_before_rates() -> None:
    found = PlanPredictions(by_rates=step(1.0), rehearsed=step(2.0), window_steps=3)
    assert (found.basis, found.best) == ("rehearsed", step(2.0))


def test_a_plan_that_was_not_rehearsed_goes_by_rates() -> None:
    found = PlanPredictions(by_rates=step(1.0), window_steps=3)
    assert (found.basis, found.best) == ("by_rates", step(1.0))
