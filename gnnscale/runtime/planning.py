"""The device plan that a run begins with: proposed by the performance model, and rehearsed."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from gnnscale.graph import Graph
from gnnscale.hardware import usable_cores
from gnnscale.model import GNN
from gnnscale.plan import Device, DevicePlan, DeviceShare
from gnnscale.plan.calibrate import estimate
from gnnscale.plan.correct import correct
from gnnscale.plan.perf_model import Prediction
from gnnscale.plan.planner import plan_devices, predict
from gnnscale.plan.platform import Platform, ThisMachine, platform_file
from gnnscale.plan.predict import Correction
from gnnscale.plan.workload import measure_workload
from gnnscale.runtime.group import Group
from gnnscale.runtime.plain_records import fields_from
from gnnscale.runtime.rehearsal import Rehearsed
from gnnscale.runtime.settings import TrainConfig

__all__ = ["Planning", "plan_from", "plan_values"]

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


class Planning:
    """Finds the plan that a run begins with (section V), in the process that leads.

    The model proposes a plan. All workers rehearse it, the model learns from what they measured,
    and proposes again, until it knows of nothing better or some plans are rehearsed. The one that
    took the least is taken.

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
        self._platform = _this_machine()
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
            self.plan = plan_from(config.device_plan.parsed(), known)
            self.predicted = self._predict(None)
        # Without a full mini-batch there is nothing that a prediction could be held against.
        self.settled = num_train < config.batch_size

    def learn(self, rehearsed: Sequence[Rehearsed]) -> None:
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
        self.settled = True

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


@functools.cache
def _this_machine() -> Platform:
    return ThisMachine().open() if platform_file().exists() else estimate()


def plan_values(plan: DevicePlan) -> list[dict[str, Any]]:
    """Return a plan as plain values; the devices themselves are in the options."""
    return [
        {
            "num_seeds": share.num_seeds,
            "threads": asdict(share.threads),
            "prefetch": share.prefetch,
            "most_seeds": share.most_seeds,
            "machine": share.machine,
        }
        for share in plan.shares
    ]


def plan_from(devices: Sequence[Device], values: Sequence[dict[str, Any]]) -> DevicePlan:
    """Rebuild a plan from ``plan_values``.

    Raises:
        ValueError: they are not those of a plan for ``devices``.
    """
    if len(values) != len(devices):
        raise ValueError(f"a plan for {len(values)} devices, there are {len(devices)}")
    shares = (
        fields_from(DeviceShare, each, where=f"plan.{i}", without=("device",))
        for i, each in enumerate(values)
    )
    return DevicePlan(
        shares=tuple(
            DeviceShare(device=device, **share)
            for device, share in zip(devices, shares, strict=True)
        )
    )
