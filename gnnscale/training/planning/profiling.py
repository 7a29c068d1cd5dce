"""A rehearsal: a few mini-batches under a plan, by all workers at once, that leave no trace."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from gnnscale.backend import Backend
from gnnscale.core import StageTimes
from gnnscale.planner import DevicePlan
from gnnscale.planner.cost_model.equations import pipeline_seconds
from gnnscale.sampling import SeedOrder
from gnnscale.sampling.seed_order import FullBatches
from gnnscale.training.drm.rebalancer import medians
from gnnscale.training.pipeline.device_step import max_late
from gnnscale.training.pipeline.slices import Schedule
from gnnscale.training.pipeline.stages import Stages, build_pipeline, runs_ahead
from gnnscale.training.pipeline.step import WorkerStep

#: Steps that do not count: memory is touched for the first time, and stages fill.
_WARM_UP = 3
#: Seconds that the others are to take, and how many there are whatever they take.
_BUDGET_S = 0.7
_MIN_STEPS, _MAX_STEPS = 3, 32
#: Where a device is simulated, a step may take seconds, and its times are the same every time.
_SIMULATED_WARM_UP, _SIMULATED_STEPS = 1, 1
#: Mini-batches on their way; more of them would only have to be waited for at the end.
_DEPTH = 2


@dataclass(frozen=True, kw_only=True)
class PlanProfile:
    """Medians of what one worker measured."""

    stages: StageTimes  #: seconds of each stage
    step_s: float  #: seconds from the end of a step to that of the next
    num_steps: int  #: steps that were measured

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> PlanProfile:
        """Rebuild a profile from plain values."""
        return cls(**values | {"stages": StageTimes(**values["stages"])})


def rehearsed_steps(plan: DevicePlan, step_s: float) -> int:
    """Return how many steps of ``step_s`` a rehearsal of ``plan`` measures."""
    if any(each.device.simulated for each in plan.shares):
        return _SIMULATED_STEPS
    return min(max(math.ceil(_BUDGET_S / step_s), _MIN_STEPS), _MAX_STEPS)


def profile_plan(
    order: SeedOrder,
    plan: DevicePlan,
    *,
    rank: int,
    model: nn.Module,
    backend: Backend,
    stages: Stages,
    step: WorkerStep,
) -> PlanProfile:
    """Train for half a second, or a few steps; afterwards the weights are what they were before.

    Every worker does so at the same time, and all of them stop after the same step.

    Args:
        order: the seeds of every step, with full mini-batches among them.
        step: propagation and update, with an optimizer whose state nobody needs afterwards.
    """
    share, measured = plan.shares[rank], _ProfiledSteps(plan)
    backend.set_threads(share.threads)
    lead_steps = 1 + _DEPTH * runs_ahead(plan) + max_late(plan)
    schedule = Schedule(
        FullBatches(order, trains=False),
        plan,
        rank=rank,
        epochs=_WARM_UP + _MAX_STEPS + _DEPTH + 1,
        first_step=0,
        lead_steps=lead_steps,
    )
    batches = build_pipeline(
        stages,
        schedule.slices(),
        prefetch=share.prefetch,
        has_link=not share.device.on_host,
        limit=_DEPTH,
    )
    try:
        with restored(model):
            for batch in batches:
                step.propagate(batch)
                finished = step.synchronize(batch)
                step.update_weights(batch)
                for done, totals in finished:
                    if measured.done:
                        break
                    measured.add(done.stages, totals.stages)
                    if measured.done:
                        # The device's memory is free once all that is on its way is trained.
                        schedule.end_at(done.step + lead_steps)
                    else:
                        schedule.commit_plan(done.step + 1 + lead_steps, plan)
    finally:
        schedule.close()
        batches.close()
        backend.load_state()
    return measured.profile()


class _ProfiledSteps:
    """The times of a rehearsal's steps; done after as many as its plan needs."""

    def __init__(self, plan: DevicePlan) -> None:
        self._plan = plan
        self._simulated = any(each.device.simulated for each in plan.shares)
        self._warm_up = _SIMULATED_WARM_UP if self._simulated else _WARM_UP
        self._stages: list[StageTimes] = []
        self._seconds: list[float] = []
        self._ends: list[float] = []

    def add(self, mine: StageTimes, every: Sequence[StageTimes]) -> None:
        """Take note of a step: this worker's stages, and those of every worker."""
        self._stages.append(mine)
        # Known to every worker alike, unlike what its own clock says.
        parts = zip(every, self._plan.shares, strict=True)
        self._seconds.append(max(pipeline_seconds(t, share.prefetch) for t, share in parts))
        self._ends.append(time.perf_counter())

    @property
    def done(self) -> bool:
        """Whether the steps so far will do."""
        counted = self._seconds[self._warm_up :]
        if self._simulated:
            return len(counted) >= _SIMULATED_STEPS
        if len(counted) < _MIN_STEPS:
            return False
        return len(counted) >= _MAX_STEPS or sum(counted) >= _BUDGET_S

    def profile(self) -> PlanProfile:
        """Return the medians of the steps that count."""
        counted, first = self._seconds[self._warm_up :], self._warm_up
        # What simulating takes is none of the plan's business.
        times = counted if self._simulated else np.diff(self._ends[first - 1 :])
        return PlanProfile(
            stages=medians([[each] for each in self._stages[first:]])[0],
            step_s=float(np.median(times)),
            num_steps=len(counted),
        )


@contextmanager
def restored(model: nn.Module) -> Iterator[None]:
    """Give the model back what training in here changes, and torch its random numbers."""
    before = {name: value.clone() for name, value in model.state_dict().items()}
    generator = torch.get_rng_state()
    training = model.training
    model.train()
    try:
        yield
    finally:
        model.load_state_dict(before)
        model.train(training)
        model.zero_grad(set_to_none=True)
        torch.set_rng_state(generator)
