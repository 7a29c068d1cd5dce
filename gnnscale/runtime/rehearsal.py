"""A rehearsal: a few mini-batches under a plan, by all workers at once, that leave no trace."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import nn

from gnnscale.backend import Backend
from gnnscale.metrics import StageTimes
from gnnscale.plan import DeviceShare
from gnnscale.runtime.schedule import Schedule
from gnnscale.runtime.stages import Stages, measured, pipeline
from gnnscale.runtime.synchronizer import Synchronizer

__all__ = ["WARM_UP", "Rehearsed", "rehearse"]

#: Steps that do not count: memory is touched for the first time, and lanes fill.
WARM_UP = 3


@dataclass(frozen=True, kw_only=True)
class Rehearsed:
    """Medians of what one worker measured.

    Attributes:
        stages: seconds of each stage.
        step_s: seconds from the end of a step to that of the next.
    """

    stages: StageTimes
    step_s: float

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Rehearsed:
        """Rebuild one from plain values."""
        return cls(stages=StageTimes(**values["stages"]), step_s=values["step_s"])


def rehearse(
    schedule: Schedule,
    share: DeviceShare,
    num_steps: int,
    *,
    model: nn.Module,
    backend: Backend,
    synchronizer: Synchronizer,
    optimizer: torch.optim.Optimizer,
    depth: int,
) -> Rehearsed:
    """Train for ``num_steps`` steps; afterwards the weights are what they were before.

    Every worker does so at the same time, under the same plan.

    Args:
        schedule: hands out the worker's slices, from the first step of a run.
        share: what the plan gives to the worker's device.
        num_steps: more than ``WARM_UP``; those of a full mini-batch alone are trained.
        model: the host's weights.
        backend: the device.
        synchronizer: sums gradients over all workers.
        optimizer: one of its own, whose state nobody needs afterwards.
        depth: most mini-batches on their way.
    """
    backend.set_threads(share.threads)
    stages = Stages(backend)
    full = (
        work
        for work in schedule.work()
        if work.step % schedule.steps_per_epoch < schedule.full_steps
    )
    # No more than are trained: what is on its way at the end would keep its device memory.
    source = itertools.islice(full, num_steps)
    has_link = not share.device.on_host
    found, ends = [], []
    with (
        _restored(model),
        pipeline(stages, source, prefetch=share.prefetch, has_link=has_link, limit=depth) as works,
    ):
        for work in itertools.islice(works, num_steps):
            loss = stages.propagate(work)
            with measured(work, "sync"):
                synchronizer.synchronize(loss, work.stages, num_edges=0, num_vertices=0)
                optimizer.step()
                optimizer.zero_grad()
                backend.weights_in()
            found.append(astuple(work.stages))
            ends.append(time.perf_counter())
    medians = np.median(found[WARM_UP:], axis=0).tolist()
    names = (stage.name for stage in fields(StageTimes))
    return Rehearsed(
        stages=StageTimes(**dict(zip(names, medians, strict=True))),
        step_s=float(np.median(np.diff(ends[WARM_UP - 1 :]))),
    )


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
