"""The device plan that a run begins with: proposed by the performance model, and rehearsed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gnnscale.graph import Graph
from gnnscale.hardware import usable_cores
from gnnscale.model import GNN
from gnnscale.plan import DevicePlan
from gnnscale.plan.calibration.kept import this_machine
from gnnscale.plan.perf.correction import correct
from gnnscale.plan.perf.equations import Prediction
from gnnscale.plan.perf.predict import Correction
from gnnscale.plan.perf.workload import measure_workload
from gnnscale.plan.planner import plan_devices, predict
from gnnscale.runtime.planning.profile import PlanProfile
from gnnscale.runtime.settings import TrainConfig
from gnnscale.runtime.sync.group import Group

__all__ = ["PlanSearch"]

#: Plans that are rehearsed at most.
_REHEARSALS = 3
#: By how much another plan has to promise a shorter step to be rehearsed as well.
_WORTHWHILE = 0.95


@dataclass(frozen=True, kw_only=True)
class _Tried:
    """A plan that was rehearsed, the seconds that its steps took, and what they taught."""

    plan: DevicePlan
    step_s: float
    correction: Correction


class PlanSearch:
    """Finds the plan that a run begins with (section V), on rank 0.

    The model proposes a plan. All workers profile it, the model learns from what they measured, and
    proposes again, until it knows of nothing better or some plans are profiled. The fastest is
    taken.

    Attributes:
        plan: the proposal, and in the end the choice.
        predicted: what the model says of it.
    """

    def __init__(
        self,
        config: TrainConfig,
        graph: Graph,
        model: GNN,
        group: Group,
        known: Sequence[dict[str, Any]] | None,
        *,
        num_train: int,
    ) -> None:
        """Propose a plan by the rates of ``gnnscale doctor calibrate=true``, or a quick estimate.

        Args:
            config: the run's options, which may fix the split and the kind of prefetching.
            graph: the graph.
            model: the model, for its sizes.
            group: the workers, which may be spread over several machines of the same kind.
            known: the plan of a run that is resumed, as plain values: nothing is left to choose.
            num_train: vertices that are trained.
        """
        self._config = config
        self._group = group
        self._platform = this_machine()
        self._workload = measure_workload(
            graph,
            model,
            config.sampler,
            batch_size=config.batch_size,
            seed=config.seed,
            fused=config.runtime.fused,
            cores=min(config.num_threads, usable_cores()),
        )
        self._fixed = known is not None
        self._tried: list[_Tried] = []
        if known is None:
            self.plan, self.predicted = self._propose(None)
        else:
            self.plan = DevicePlan.from_values(config.device_plan.parsed(), known)
            self.predicted = self._predict(None)
        # Without a full mini-batch there is nothing that a prediction could be held against.
        self.converged = num_train < config.batch_size

    def learn(self, rehearsed: Sequence[PlanProfile]) -> None:
        """Take note of what every worker measured of ``plan``, and propose a plan again."""
        step_s = max(each.step_s for each in rehearsed)
        stages = [each.stages for each in rehearsed]
        correction = correct(self.plan, self._workload, self._platform, stages, step_s)
        self._tried.append(_Tried(plan=self.plan, step_s=step_s, correction=correction))
        best = min(self._tried, key=lambda each: each.step_s)
        if not self._fixed and len(self._tried) < _REHEARSALS:
            self.plan, self.predicted = self._propose(correction)
            if self.predicted.step_s < _WORTHWHILE * best.step_s:
                return
        self.plan = best.plan
        self.predicted = self._predict(best.correction)
        self.converged = True

    def _propose(self, correction: Correction | None) -> tuple[DevicePlan, Prediction]:
        config, group = self._config, self._group
        threads = min(config.num_threads, usable_cores())
        return plan_devices(
            config.device_plan.parsed(),
            batch_size=config.batch_size,
            cores=threads * -(-group.size // group.local_size),
            prefetch=config.runtime.prefetch,
            split=config.device_plan.split,
            workload=self._workload,
            platform=self._platform,
            in_flight=config.runtime.prefetch_depth + 1,
            per_machine=group.local_size,
            correction=correction,
        )

    def _predict(self, correction: Correction | None) -> Prediction:
        """What is said of ``plan``, and what the rates alone say."""
        by_rates = predict(self.plan, self._workload, self._platform)
        found = predict(self.plan, self._workload, self._platform, correction=correction)
        return found if correction is None else replace(found, by_rates_s=by_rates.step_s)
