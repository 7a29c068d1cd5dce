"""Profiling run of a device plan: a few mini-batches, after which weights are restored."""

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
from gnnscale.sampling import FullBatches, SeedOrder
from gnnscale.training.drm.rebalancer import medians
from gnnscale.training.pipeline import Schedule, Stages, build_pipeline, max_late, runs_ahead
from gnnscale.training.pipeline.step import WorkerStep

#: Steps that are not measured: memory is touched for the first time, and the pipeline fills.
_WARM_UP = 3
#: Seconds that the measured steps should take, and limits of their number.
_BUDGET_S = 0.7
_MIN_STEPS, _MAX_STEPS = 3, 32
#: Steps on simulated devices: a step may take seconds, and its times always repeat.
_SIMULATED_WARM_UP, _SIMULATED_STEPS = 1, 1
#: Mini-batches in flight, few because the end of profiling waits for them.
_DEPTH = 2


@dataclass(frozen=True, kw_only=True)
class PlanProfile:
    """Median times that one worker measured under a plan."""

    stages: StageTimes  #: seconds of each stage
    step_s: float  #: seconds between the ends of consecutive steps
    num_steps: int  #: number of measured steps

    def to_dict(self) -> dict[str, Any]:
        """Return the profile as plain values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "PlanProfile":
        """Rebuild a profile from plain values."""
        return cls(**values | {"stages": StageTimes(**values["stages"])})


def num_profiled_steps(plan: DevicePlan, step_s: float) -> int:
    """Return how many steps, of ``step_s`` seconds each, a profiling run of ``plan`` measures."""
    if any(share.device.simulated for share in plan.shares):
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
    """Train after a warm-up for 0.7 s, but 3 to 32 steps; restore weights, and return the times.

    With simulated devices one step is measured. Every worker calls this at the same time, and stops
    after an equal number of steps. Only full mini-batches of ``order`` are trained; the caller
    discards the optimizer of ``step``.
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
        with restoring(model):
            for batch in batches:
                step.propagate(batch)
                finished = step.synchronize(batch)
                step.update_weights(batch)
                for done, totals in finished:
                    if measured.done:
                        break
                    measured.add(done.stages, totals.stages)
                    if measured.done:
                        # Slices in flight are trained, so that the memory of the device is free
                        # afterwards.
                        schedule.end_at(done.step + lead_steps)
                    else:
                        schedule.commit_plan(done.step + 1 + lead_steps, plan)
    finally:
        schedule.close()
        batches.close()
        backend.load_state()
    return measured.profile()


class _ProfiledSteps:
    """Times of the steps of a profiling run, which ends after enough steps."""

    def __init__(self, plan: DevicePlan) -> None:
        self._plan = plan
        self._simulated = any(share.device.simulated for share in plan.shares)
        self._warm_up = _SIMULATED_WARM_UP if self._simulated else _WARM_UP
        self._stages: list[StageTimes] = []
        self._seconds: list[float] = []
        self._ends: list[float] = []

    def add(self, own_stages: StageTimes, stages: Sequence[StageTimes]) -> None:
        """Add a step: this worker's times, and those of all workers, which decide when to end."""
        self._stages.append(own_stages)
        # Equal in every worker, unlike a time by the worker's clock.
        parts = zip(stages, self._plan.shares, strict=True)
        self._seconds.append(max(pipeline_seconds(t, share.prefetch) for t, share in parts))
        self._ends.append(time.perf_counter())

    @property
    def done(self) -> bool:
        """Whether enough steps are measured after the warm-up, by number and total seconds."""
        counted = self._seconds[self._warm_up :]
        if self._simulated:
            return len(counted) >= _SIMULATED_STEPS
        if len(counted) < _MIN_STEPS:
            return False
        return len(counted) >= _MAX_STEPS or sum(counted) >= _BUDGET_S

    def profile(self) -> PlanProfile:
        """Return the medians of the steps after the warm-up."""
        counted, first = self._seconds[self._warm_up :], self._warm_up
        # The time of the simulation itself is not the time of the simulated plan.
        times = counted if self._simulated else np.diff(self._ends[first - 1 :])
        return PlanProfile(
            stages=medians([[stages] for stages in self._stages[first:]])[0],
            step_s=float(np.median(times)),
            num_steps=len(counted),
        )


@contextmanager
def restoring(model: nn.Module) -> Iterator[None]:
    """Restore model and torch's random state after the ``with`` block, entered in training mode."""
    state = {name: value.clone() for name, value in model.state_dict().items()}
    generator = torch.get_rng_state()
    training = model.training
    model.train()
    try:
        yield
    finally:
        model.load_state_dict(state)
        model.train(training)
        model.zero_grad(set_to_none=True)
        torch.set_rng_state(generator)
