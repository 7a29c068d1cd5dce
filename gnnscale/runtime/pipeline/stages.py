"""The four stages of training on one device (HyScale-GNN, section III-B), timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident

from gnnscale.backend import Backend
from gnnscale.runtime.pipeline.pipeline import Pipeline, StageGroup
from gnnscale.runtime.pipeline.schedule import BatchSlice
from gnnscale.stages import STAGES

__all__ = ["RUNNING", "Stages", "measured", "pipeline", "running"]

#: What each thread of this process is in, by its identifier: a stage, ``validate`` or
#: ``checkpoint``; a thread that is in none of them is missing.
RUNNING: dict[int, str] = {}


class Stages:
    """What becomes of a slice on a device, stage by stage; an empty slice passes untouched."""

    def __init__(self, backend: Backend) -> None:
        """Run on ``backend``."""
        self._backend = backend

    def sample(self, work: BatchSlice) -> None:
        """Pick the neighbours of the slice's seeds."""
        if len(work.seeds):
            with measured(work, "sample"):
                work.batch = self._backend.sample(work.seeds, work.step)

    def load(self, work: BatchSlice) -> None:
        """Read their features from the host's memory."""
        if work.batch is not None:
            with measured(work, "load"):
                work.inputs = self._backend.load(work.batch)

    def transfer(self, work: BatchSlice) -> None:
        """Bring topology and features to the device."""
        if work.batch is None or work.inputs is None:
            return
        if self._backend.device.on_host:
            # Handed over, not moved: no stage of its own.
            work.resident = self._backend.transfer(work.batch, work.inputs)
            return
        with measured(work, "transfer"):
            work.resident = self._backend.transfer(work.batch, work.inputs)

    def propagate(self, work: BatchSlice) -> float:
        """Compute the gradients, and return the slice's weighted loss."""
        if work.resident is None:
            return 0.0
        with measured(work, "propagate"):
            loss = self._backend.propagate(work.resident, work.weight)
        work.inputs = work.resident = None
        return loss


@contextmanager
def measured(work: BatchSlice, stage: str) -> Iterator[None]:
    """Add the time of the ``with`` block to the work's ``stage``."""
    thread = get_ident()
    RUNNING[thread] = stage
    start = time.perf_counter()
    try:
        yield
    finally:
        end = time.perf_counter()
        del RUNNING[thread]
        setattr(work.stages, stage, getattr(work.stages, stage) + end - start)
        work.spans.append((STAGES.index(stage), start, end))


@contextmanager
def running(name: str) -> Iterator[None]:
    """Say in ``RUNNING`` what the ``with`` block, or the decorated function, does."""
    RUNNING[get_ident()] = name
    try:
        yield
    finally:
        del RUNNING[get_ident()]


def pipeline(
    stages: Stages, source: Iterator[BatchSlice], *, prefetch: str, has_link: bool, limit: int
) -> Pipeline[BatchSlice]:
    """Arrange the stages before propagation in lanes.

    Args:
        stages: the stages.
        source: slices in the order of steps.
        prefetch: one of ``PREFETCH``. ``two_stage`` loads and transfers in lanes of their own, so
            that while a batch propagates the next is on the link and the one after it is being
            loaded (figure 7); without a link there is nothing to transfer, and no lane for it.
        has_link: whether anything is transferred.
        limit: batches that may be on their way.
    """
    ahead: list[Callable[[BatchSlice], None]] = [stages.sample, stages.load, stages.transfer]
    if prefetch == "none":
        return Pipeline(source, [], limit=limit, inline=ahead)
    if prefetch == "one_stage":
        return Pipeline(source, [ahead], limit=limit)
    lanes: list[StageGroup[BatchSlice]] = [[stage] for stage in ahead]
    if not has_link:
        lanes = [[stages.sample], [stages.load, stages.transfer]]
    return Pipeline(source, lanes, limit=limit)
