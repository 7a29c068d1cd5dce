"""The device plan that a run begins with: proposed by the performance model, and rehearsed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gnnscale.graph import Graph
from gnnscale.model import GNN, TrainableModel
from gnnscale.model.layer import GraphLayer
from gnnscale.plan import Device, DevicePlan
from gnnscale.plan.calibration.kept import this_machine
from gnnscale.plan.device_plan import apportion
from gnnscale.plan.memory import check_parts, seed_limits, with_depths
from gnnscale.plan.perf.correction import correct
from gnnscale.plan.perf.counted import nominal_platform
from gnnscale.plan.perf.equations import PlanPredictions, Prediction
from gnnscale.plan.perf.predict import Correction, predict
from gnnscale.plan.perf.step_bytes import StepBytes, step_bytes
from gnnscale.plan.perf.workload import CacheEffect, measure_workload
from gnnscale.plan.planner import plan_devices
from gnnscale.runtime.planning.measured_step import with_measured_step
from gnnscale.runtime.planning.profile import PlanProfile, rehearsed_steps
from gnnscale.runtime.planning.workloads import workloads_of
from gnnscale.runtime.settings import TrainConfig
from gnnscale.runtime.sync.group import Group
from gnnscale.sampler import SamplerConfig, SeedOrder

__all__ = ["PlanSearch"]

#: Plans that are rehearsed at most, the seconds that each takes, or the steps where these are
#: longer, and the part of a run that all of them may take: no plan is that much faster.
_REHEARSALS = 3
_REHEARSAL_S = 0.75
_REHEARSAL_STEPS = 6
_PART = 0.25
#: By how much another plan has to promise a shorter step to be rehearsed as well; and what is
#: enough where it prefetches in another way, which the model knows less of.
_WORTHWHILE = 0.95
_UNCERTAIN = 1.25


@dataclass(frozen=True, kw_only=True)
class _Tried:
    """A plan that was rehearsed: how long its steps took, how many there were, what they taught."""

    plan: DevicePlan
    step_s: float
    num_steps: int
    correction: Correction


class PlanSearch:
    """Finds the plan that a run begins with (section V), on rank 0.

    The model proposes a plan. All workers profile it, the model learns from what they measured, and
    proposes again, until it knows of nothing better or some plans are profiled. The fastest is
    taken. In a run that is short, or has but one plan, nothing is profiled.

    Attributes:
        plan: the proposal, and in the end the choice.
        predicted: what the model says of it, with all that rehearsals taught so far.
    """

    def __init__(
        self,
        config: TrainConfig,
        graph: Graph,
        model: TrainableModel,
        group: Group,
        order: SeedOrder,
        known: Sequence[dict[str, Any]] | None,
        *,
        sampling: SamplerConfig,
        devices: Sequence[Device],
        effects: Sequence[CacheEffect],
    ) -> None:
        """Propose a plan by the rates of ``gnnscale doctor calibrate=true``, or a quick estimate.

        With ``runtime.deterministic`` by nominal rates, and that is what is taken.

        Args:
            config: the run's options, which may fix the split and the kind of prefetching.
            graph: the graph.
            model: the model, for its sizes.
            group: the workers, which may be spread over several machines of the same kind.
            order: the seeds of every step.
            known: the plan of a run that is resumed, as plain values: nothing is left to choose.
            sampling: how mini-batches are sampled.
            devices: the trainers, in the order of ranks.
            effects: what each device's cache takes and spares.
        """
        self._config = config
        self._group = group
        self._num_steps = config.epochs * order.steps_per_epoch
        #: Whether nothing that is measured may decide.
        self._counts = config.runtime.deterministic
        self._platform = nominal_platform(config.host_threads) if self._counts else this_machine()
        self._devices = tuple(devices)
        workload = measure_workload(
            graph,
            model,
            sampling,
            order,
            seed=config.seed,
            cores=config.host_threads,
            num_steps=0 if self._counts else self._num_steps,
        )
        if self._counts:
            workload = replace(workload, sample_threads=(), sample_s=())
        elif workload.counted is not None:
            workload = with_measured_step(workload, config, graph, model, order, self._platform)
        self._workloads = workloads_of(config, workload, self._devices, effects)
        self._first = model.layer(0) if isinstance(model, GNN) else None
        self._id_bytes = graph.indices.itemsize
        first = next(iter(order.epoch(0)))
        #: Seeds of each device, where the user or the seed order fixes them.
        self._split = config.device_plan.split or (
            first.counts and apportion(first.counts, config.batch_size)
        )
        if first.counts is not None:
            counts = zip(*(step.counts or () for step in order.epoch(0)), strict=True)
            largest = [max(each) for each in counts]
            check_parts(self._devices, self._workloads, largest, batch_size=config.batch_size)
        self._tried: list[_Tried] = []
        if known is None:
            self.plan, self.predicted = self._proposals(None)[0]
        else:
            self.plan = self._within_limits(DevicePlan.from_values(self._devices, known))
            self.predicted = self._predict(None)
        nothing_to_choose = known is not None or self._has_one_plan() or self._counts
        # Without a full mini-batch there is nothing that a prediction could be held against.
        useless = nothing_to_choose or len(first.seeds) < config.batch_size
        self._rehearsals = 0 if useless else self._how_many_pay()
        self.converged = not self._rehearsals

    def step_bytes(self) -> StepBytes | None:
        """Return what a step of ``plan`` moves, data-parallel and with a split first layer.

        None for one device, and where the first layer cannot be split (see ``StepBytes``), or
        its aggregation is ready.
        """
        first = self._first
        ready = self._config.features.preaggregates
        if ready or first is None or not first.splits_columns or len(self._devices) < 2:
            return None
        pairs = zip(self._workloads, self.plan.split, strict=True)
        return step_bytes(
            [workload.size(num_seeds) for workload, num_seeds in pairs],
            widths=self._workloads[0].widths,
            feature_bytes=self._workloads[0].feature_bytes,
            num_first_weights=_num_weights(first),
            id_bytes=self._id_bytes,
        )

    @property
    def predictions(self) -> PlanPredictions:
        """What is predicted of ``plan``: by the rates, and by a rehearsal of just this plan."""
        by_rates = self._predict(None)
        same = (each for each in self._tried if each.plan == self.plan)
        tried = min(same, key=lambda each: each.step_s, default=None)
        if tried is None:
            steps = rehearsed_steps(self.plan, by_rates.step_s)
            return PlanPredictions(by_rates=by_rates, window_steps=steps)
        return PlanPredictions(
            by_rates=by_rates,
            rehearsed=self._predict(tried.correction),
            window_steps=tried.num_steps,
        )

    def learn(self, rehearsed: Sequence[PlanProfile]) -> None:
        """Take note of what every worker measured of ``plan``, and propose a plan again."""
        step_s = max(each.step_s for each in rehearsed)
        stages = [each.stages for each in rehearsed]
        correction = correct(self.plan, self._workloads, self._platform, stages, step_s)
        self._tried.append(
            _Tried(
                plan=self.plan,
                step_s=step_s,
                num_steps=rehearsed[0].num_steps,
                correction=correction,
            )
        )
        best = min(self._tried, key=lambda each: each.step_s)
        if len(self._tried) < self._rehearsals:
            for plan, predicted in self._proposals(correction):
                if predicted.step_s < self._promise(plan) * best.step_s:
                    self.plan, self.predicted = plan, predicted
                    return
        self.plan = best.plan
        self.predicted = self._predict(best.correction)
        self.converged = True

    def _has_one_plan(self) -> bool:
        """Whether the options leave no choice: one device, and when it does what."""
        return (
            len(self._config.device_plan.devices) == 1 and self._config.runtime.prefetch != "auto"
        )

    def _how_many_pay(self) -> int:
        """How many rehearsals a run of this length is worth."""
        step_s = self.predicted.step_s
        each = max(_REHEARSAL_S, _REHEARSAL_STEPS * step_s)
        return min(_REHEARSALS, int(_PART * self._num_steps * step_s / each))

    def _promise(self, plan: DevicePlan) -> float:
        """Part of the shortest step so far that ``plan`` has to promise to be rehearsed.

        Several devices correct much of a wrong choice by resource management; one alone cannot.
        """
        if len(self._devices) > 1:
            return _WORTHWHILE
        tried = {each.plan.shares[0].prefetch for each in self._tried}
        return _WORTHWHILE if plan.shares[0].prefetch in tried else _UNCERTAIN

    def _proposals(self, correction: Correction | None) -> list[tuple[DevicePlan, Prediction]]:
        config, group = self._config, self._group
        return plan_devices(
            self._devices,
            batch_size=config.batch_size,
            cores=config.host_threads * -(-group.size // group.local_size),
            prefetch=config.runtime.prefetch,
            split=self._split,
            workloads=self._workloads,
            platform=self._platform,
            in_flight=self._in_flight,
            per_machine=group.local_size,
            correction=correction,
        )

    @property
    def _in_flight(self) -> int:
        """Mini-batches that a device may hold at once."""
        runtime = self._config.runtime
        return 1 if runtime.prefetch == "none" else runtime.prefetch_depth + 1

    def _within_limits(self, plan: DevicePlan) -> DevicePlan:
        """Return a plan that was kept, with what the devices hold now: the depth may be another.

        Raises:
            ConfigError: a device cannot hold its part any more.
        """
        limits = seed_limits(
            self._devices,
            self._workloads,
            self._in_flight,
            batch_size=plan.batch_size,
            split=plan.split,
        )
        pairs = zip(plan.shares, limits, strict=True)
        shares = tuple(replace(share, max_seeds=limit) for share, limit in pairs)
        return with_depths(DevicePlan(shares=shares), self._workloads, self._in_flight)

    def _predict(self, correction: Correction | None) -> Prediction:
        """What is said of ``plan``."""
        return predict(self.plan, self._workloads, self._platform, correction=correction)


def _num_weights(layer: GraphLayer) -> int:
    """Return the elements of a layer's weights, biases aside: W¹ is what P3 splits."""
    return sum(each.numel() for each in layer.parameters() if each.dim() > 1)
