"""Search for the initial device plan: proposals of the performance model, and profiling."""

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gnnscale.distributed.process_group import Group
from gnnscale.planner import Device, DevicePlan
from gnnscale.planner.cost_model import equations, predict
from gnnscale.planner.cost_model import stage_work as work
from gnnscale.sampling import SeedOrder
from gnnscale.training.planning.cost_estimates import PlanModel
from gnnscale.training.planning.profiling import PlanProfile, num_profiled_steps

log = logging.getLogger(__name__)

#: Limits of profiling: the number of plans, the seconds or steps that each takes (whichever is
#: longer), and the fraction of a run that all plans may take.
_MAX_PROFILES = 3
_PROFILE_S = 0.75
_PROFILE_STEPS = 6
_MAX_FRACTION = 0.25
#: Predicted step time, relative to the fastest profiled step, below which another plan is profiled.
#: The second limit is for another kind of prefetching, which the model predicts less accurately.
_WORTHWHILE = 0.95
_UNCERTAIN = 1.25
#: Seconds of a step above which profiling is announced.
_SLOW_S = 0.5


@dataclass(frozen=True, kw_only=True)
class _ProfiledPlan:
    """Profiled plan, with its step time, number of steps, and correction of the model."""

    plan: DevicePlan
    step_s: float
    num_steps: int
    correction: predict.Correction


class PlanSearch:
    """Search for the initial plan of a run (section V), on rank 0.

    The performance model proposes a plan. All workers profile it, the model is corrected by the
    measured times, and proposes again. The search ends when the model predicts no better plan, or
    after three profiles; the fastest plan is chosen. Nothing is profiled if the run is short,
    deterministic or resumed with its plan, has a single possible plan or no full mini-batch, or has
    a tiered store, whose memory fills during training.

    ``plan`` is the current proposal, and finally the choice; ``predicted`` is the model's
    prediction of it, corrected by the last profile, finally by the profile of the chosen plan.
    """

    def __init__(
        self, model: PlanModel, order: SeedOrder, saved_plan: Sequence[dict[str, Any]] | None
    ) -> None:
        """Choose ``saved_plan``, or propose a plan; it is final if nothing is to be profiled."""
        options = model.options
        self._model = model
        self._num_steps = options.epochs * order.steps_per_epoch
        self._profiled: list[_ProfiledPlan] = []
        if saved_plan is None:
            self.plan, self.predicted = self._model.proposals(None)[0]
        else:
            self.plan = model.within_limits(DevicePlan.from_values(model.devices, saved_plan))
            self.predicted = self._model.predict(self.plan)
        has_one_plan = len(model.devices) == 1 and options.prefetch != "auto"
        nothing_to_choose = saved_plan is not None or has_one_plan or options.deterministic
        nothing_to_choose = nothing_to_choose or not model.is_steady
        # Predictions are of full mini-batches, so without one there is nothing to compare.
        is_full = len(next(iter(order.epoch(0))).seeds) == options.batch_size
        self._num_profiles = 0 if nothing_to_choose or not is_full else self._num_worthwhile()
        self.converged = not self._num_profiles

    def step_bytes(self) -> work.StepBytes | None:
        """Return the bytes that a step of ``plan`` moves, see ``PlanModel.step_bytes``."""
        return self._model.step_bytes(self.plan)

    @property
    def profiled_s(self) -> float | None:
        """Seconds of a step in the fastest profile so far; None: nothing was profiled."""
        return min((profiled.step_s for profiled in self._profiled), default=None)

    @property
    def predictions(self) -> equations.PlanPredictions:
        """Predictions of ``plan``: by rates alone, and corrected by its profiling run, if any."""
        by_rates = self._model.predict(self.plan)
        profiles = (profiled for profiled in self._profiled if profiled.plan == self.plan)
        fastest = min(profiles, key=lambda profiled: profiled.step_s, default=None)
        if fastest is None:
            steps = num_profiled_steps(self.plan, by_rates.step_s)
            return equations.PlanPredictions(by_rates=by_rates, window_steps=steps)
        return equations.PlanPredictions(
            by_rates=by_rates,
            rehearsed=self._model.predict(self.plan, fastest.correction),
            window_steps=fastest.num_steps,
        )

    def learn(self, profiles: Sequence[PlanProfile]) -> None:
        """Correct the model by the workers' ``profiles`` of ``plan``.

        Then propose a plan that promises to be faster, or choose the fastest profiled plan and end.
        """
        step_s = max(profile.step_s for profile in profiles)
        correction = self._model.correction(self.plan, profiles, step_s)
        steps = profiles[0].num_steps
        profiled = _ProfiledPlan(
            plan=self.plan, step_s=step_s, num_steps=steps, correction=correction
        )
        self._profiled.append(profiled)
        best = min(self._profiled, key=lambda profiled: profiled.step_s)
        if len(self._profiled) < self._num_profiles:
            for plan, predicted in self._model.proposals(correction):
                if predicted.step_s < self._worthwhile_ratio(plan) * best.step_s:
                    self.plan, self.predicted = plan, predicted
                    return
        self.plan = best.plan
        self.predicted = self._model.predict(self.plan, best.correction)
        self.converged = True

    def _num_worthwhile(self) -> int:
        """Return how many profiles a run of this length justifies."""
        step_s = self.predicted.step_s
        profile_s = max(_PROFILE_S, _PROFILE_STEPS * step_s)
        return min(_MAX_PROFILES, int(_MAX_FRACTION * self._num_steps * step_s / profile_s))

    def _worthwhile_ratio(self, plan: DevicePlan) -> float:
        """Return how long the predicted step of ``plan`` may be to justify profiling it.

        The result is relative to the fastest profiled step. It is above 1 for a single device with
        prefetching that no profile has tried.
        """
        if len(self._model.devices) > 1:
            return _WORTHWHILE
        prefetches = {profiled.plan.shares[0].prefetch for profiled in self._profiled}
        return _WORTHWHILE if plan.shares[0].prefetch in prefetches else _UNCERTAIN


def agree_on_plan(
    search: PlanSearch | None,
    devices: Sequence[Device],
    group: Group,
    profile: Callable[[DevicePlan], PlanProfile],
) -> DevicePlan:
    """Return the plan that ``search`` chooses after all workers ``profile`` its proposals.

    ``search`` is None on all ranks but 0.
    """
    while True:
        proposal = search and (search.plan.to_values(), search.converged)
        values, converged = group.broadcast_object(proposal)
        plan = DevicePlan.from_values(devices, values)
        if converged:
            return plan
        if search is not None and search.predicted.step_s > _SLOW_S:
            expected = search.predicted.step_s
            log.info(f"profiling the device plan: a few steps, about {expected:.1f} s each")
        own_profile = json.dumps(profile(plan).to_dict()).encode()
        profiles = [PlanProfile.from_dict(json.loads(p)) for p in group.gather(own_profile)]
        if search is not None:
            search.learn(profiles)
