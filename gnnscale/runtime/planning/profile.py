"""A rehearsal: a few mini-batches under a plan, by all workers at once, that leave no trace."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from gnnscale.backend import Backend
from gnnscale.plan import DevicePlan
from gnnscale.plan.perf.equations import pipeline_seconds
from gnnscale.runtime.drm.rebalancer import medians
from gnnscale.runtime.pipeline.schedule import Schedule
from gnnscale.runtime.pipeline.stages import Stages, measured, pipeline
from gnnscale.runtime.sync.synchronizer import Synchronizer
from gnnscale.stages import StageTimes

__all__ = ["PlanProfile", "profile_plan"]

#: Steps that do not count: memory is touched for the first time, and lanes fill.
_WARM_UP = 3
#: Seconds that the others are to take, and how many there are whatever they take.
_BUDGET_S = 0.7
_MIN_STEPS, _MAX_STEPS = 3, 32
#: Mini-batches on their way; more of them would only have to be waited for at the end.
_DEPTH = 2


@dataclass(frozen=True, kw_only=True)
class PlanProfile:
    """Medians of what one worker measured.

    Attributes:
        stages: seconds of each stage.
        step_s: seconds from the end of a step to that of the next.
    """

    stages: StageTimes
    step_s: float

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> PlanProfile:
        """Rebuild one from plain values."""
        return cls(stages=StageTimes(**values["stages"]), step_s=values["step_s"])


def profile_plan(
    train_idx: NDArray[np.integer[Any]],
    plan: DevicePlan,
    *,
    rank: int,
    seed: int,
    model: nn.Module,
    backend: Backend,
    synchronizer: Synchronizer,
    optimizer: torch.optim.Optimizer,
) -> PlanProfile:
    """Train for half a second, or a few steps; afterwards the weights are what they were before.

    Every worker does so at the same time, and all of them stop after the same step.

    Args:
        train_idx: ``[n]`` training vertices, enough for a mini-batch.
        plan: the plan.
        rank: the worker's position in it.
        seed: fixes the mini-batches.
        model: the host's weights.
        backend: the device.
        synchronizer: sums gradients over all workers.
        optimizer: one of its own, whose state nobody needs afterwards.
    """
    share = plan.shares[rank]
    backend.set_threads(share.threads)
    stages = Stages(backend)
    # Full mini-batches alone: predictions are for these.
    whole = len(train_idx) - len(train_idx) % plan.batch_size
    lead_steps = 1 + _DEPTH * any(each.prefetch != "none" for each in plan.shares)
    schedule = Schedule(
        train_idx[:whole],
        plan,
        rank=rank,
        seed=seed,
        epochs=_WARM_UP + _MAX_STEPS + _DEPTH + 1,
        first_step=0,
        lead_steps=lead_steps,
    )
    works = pipeline(
        stages,
        schedule.work(),
        prefetch=share.prefetch,
        has_link=not share.device.on_host,
        limit=_DEPTH,
    )
    found, ends, last = [], [], None
    try:
        with _restored(model):
            for work in works:
                loss = stages.propagate(work)
                with measured(work, "sync"):
                    step = synchronizer.synchronize(loss, work.stages, num_edges=0, num_vertices=0)
                    optimizer.step()
                    optimizer.zero_grad()
                    backend.weights_in()
                if last is None:
                    found.append((work.stages, _seconds(plan, step.stages)))
                    ends.append(time.perf_counter())
                    if _enough([seconds for _, seconds in found[_WARM_UP:]]):
                        # The device's memory is free once all that is on its way is trained.
                        last = work.step + lead_steps - 1
                    else:
                        schedule.commit_plan(work.step + 1 + lead_steps, plan)
                if work.step == last:
                    break
    finally:
        schedule.close()
        works.close()
    return PlanProfile(
        stages=medians([[stages] for stages, _ in found[_WARM_UP:]])[0],
        step_s=float(np.median(np.diff(ends[_WARM_UP - 1 :]))),
    )


def _seconds(plan: DevicePlan, stages: Sequence[StageTimes]) -> float:
    """About what a step took: known to every worker alike, unlike what its own clock says."""
    parts = zip(stages, plan.shares, strict=True)
    return max(pipeline_seconds(times, share.prefetch) for times, share in parts)


def _enough(seconds: Sequence[float]) -> bool:
    """Whether steps that took so long will do."""
    if len(seconds) < _MIN_STEPS:
        return False
    return len(seconds) >= _MAX_STEPS or sum(seconds) >= _BUDGET_S


@contextmanager
def _restored(model: nn.Module) -> Iterator[None]:
    """Give the model back what the ``with`` block changes of it, and torch its random numbers."""
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
