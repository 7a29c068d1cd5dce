"""The device plan that a run begins with: proposed by the performance model, and rehearsed."""

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gnnscale.distributed.process_group import Group
from gnnscale.planner import Device, DevicePlan
from gnnscale.planner.cost_model import equations, predict
from gnnscale.planner.cost_model import stage_work as work
from gnnscale.run.config import RunConfig
from gnnscale.sampling import SeedOrder
from gnnscale.training.planning.cost_estimates import PlanModel
from gnnscale.training.planning.profiling import PlanProfile, rehearsed_steps

log = logging.getLogger(__name__)

#: Plans that are rehearsed at most, the seconds that each takes, or the steps if these are
#: longer, and the part of a run that all of them may take: no plan is that much faster.
_REHEARSALS = 3
_REHEARSAL_S = 0.75
_REHEARSAL_STEPS = 6
_PART = 0.25
#: By how much another plan has to promise a shorter step to be rehearsed as well; and what is
#: enough if it prefetches in another way, which the model knows less of.
_WORTHWHILE = 0.95
_UNCERTAIN = 1.25
#: Seconds of a step above which a rehearsal is announced.
_SLOW_S = 0.5


@dataclass(frozen=True, kw_only=True)
class _ProfiledPlan:
    """A plan that was rehearsed: how long its steps took, how many there were, what they taught."""

    plan: DevicePlan
    step_s: float
    num_steps: int
    correction: predict.Correction


class PlanSearch:
    """Finds the plan that a run begins with (section V), on rank 0.

    The model proposes a plan. All workers profile it, the model learns from what they measured, and
    proposes again, until it knows of nothing better or some plans are profiled. The fastest is
    taken. In a run that is short, has but one plan, or fills memory with rows of a disk while it
    trains, nothing is profiled.

    Attributes:
        plan: the proposal, and in the end the choice.
        predicted: what the model says of it, with all that rehearsals taught so far.
    """

    def __init__(
        self,
        config: RunConfig,
        model: PlanModel,
        order: SeedOrder,
        known: Sequence[dict[str, Any]] | None,
    ) -> None:
        """Propose a plan. With ``runtime.deterministic`` that is what is taken.

        Args:
            known: the plan of a run that is resumed, as plain values: nothing is left to choose.
        """
        self._config = config
        self._model = model
        self._num_steps = config.epochs * order.steps_per_epoch
        self._tried: list[_ProfiledPlan] = []
        if known is None:
            self.plan, self.predicted = self._model.proposals(None)[0]
        else:
            self.plan = model.within_limits(DevicePlan.from_values(model.devices, known))
            self.predicted = self._model.predict(self.plan)
        nothing_to_choose = known is not None or self._has_one_plan or config.runtime.deterministic
        nothing_to_choose = nothing_to_choose or not model.is_steady
        # Without a full mini-batch there is nothing that a prediction could be held against.
        is_full = len(next(iter(order.epoch(0))).seeds) == config.batch_size
        self._rehearsals = 0 if nothing_to_choose or not is_full else self._how_many_pay()
        self.converged = not self._rehearsals

    def step_bytes(self) -> work.StepBytes | None:
        """Return what a step of ``plan`` moves, as ``PlanModel`` says."""
        return self._model.step_bytes(self.plan)

    @property
    def rehearsed_s(self) -> float | None:
        """Seconds of a step of ``plan`` in its rehearsal; None if nothing was rehearsed."""
        return min((each.step_s for each in self._tried), default=None)

    @property
    def predictions(self) -> equations.PlanPredictions:
        """What is predicted of ``plan``: by the rates, and by a rehearsal of just this plan."""
        by_rates = self._model.predict(self.plan)
        same = (each for each in self._tried if each.plan == self.plan)
        tried = min(same, key=lambda each: each.step_s, default=None)
        if tried is None:
            steps = rehearsed_steps(self.plan, by_rates.step_s)
            return equations.PlanPredictions(by_rates=by_rates, window_steps=steps)
        return equations.PlanPredictions(
            by_rates=by_rates,
            rehearsed=self._model.predict(self.plan, tried.correction),
            window_steps=tried.num_steps,
        )

    def learn(self, rehearsed: Sequence[PlanProfile]) -> None:
        """Take note of what every worker measured of ``plan``, and propose a plan again."""
        step_s = max(each.step_s for each in rehearsed)
        correction = self._model.correction(self.plan, rehearsed, step_s)
        steps = rehearsed[0].num_steps
        tried = _ProfiledPlan(plan=self.plan, step_s=step_s, num_steps=steps, correction=correction)
        self._tried.append(tried)
        best = min(self._tried, key=lambda each: each.step_s)
        if len(self._tried) < self._rehearsals:
            for plan, predicted in self._model.proposals(correction):
                if predicted.step_s < self._promise(plan) * best.step_s:
                    self.plan, self.predicted = plan, predicted
                    return
        self.plan = best.plan
        self.predicted = self._model.predict(self.plan, best.correction)
        self.converged = True

    @property
    def _has_one_plan(self) -> bool:
        """Whether the options leave no choice: one device, and when it does what."""
        config = self._config
        return len(config.device_plan.parsed()) == 1 and config.runtime.prefetch != "auto"

    def _how_many_pay(self) -> int:
        """How many rehearsals a run of this length is worth."""
        step_s = self.predicted.step_s
        each = max(_REHEARSAL_S, _REHEARSAL_STEPS * step_s)
        return min(_REHEARSALS, int(_PART * self._num_steps * step_s / each))

    def _promise(self, plan: DevicePlan) -> float:
        """Part of the shortest step so far that ``plan`` has to promise to be rehearsed.

        Several devices correct much of a wrong choice by resource management; one alone cannot.
        """
        if len(self._model.devices) > 1:
            return _WORTHWHILE
        tried = {each.plan.shares[0].prefetch for each in self._tried}
        return _WORTHWHILE if plan.shares[0].prefetch in tried else _UNCERTAIN


def agree_on_plan(
    search: PlanSearch | None,
    devices: Sequence[Device],
    group: Group,
    profile: Callable[[DevicePlan], PlanProfile],
) -> DevicePlan:
    """Profile the proposals of ``search`` until it has converged, and return its choice.

    Every worker calls this at the same time.

    Args:
        search: finds the plan, on rank 0; None on the others.
    """
    while True:
        proposal = search and (search.plan.to_values(), search.converged)
        values, converged = group.broadcast_json(proposal)
        plan = DevicePlan.from_values(devices, values)
        if converged:
            return plan
        if search is not None and search.predicted.step_s > _SLOW_S:
            expected = search.predicted.step_s
            log.info(f"rehearsing the device plan: a few steps, about {expected:.1f} s each")
        mine = json.dumps(profile(plan).to_dict()).encode()
        every = [PlanProfile.from_dict(json.loads(each)) for each in group.gather(mine)]
        if search is not None:
            search.learn(every)
