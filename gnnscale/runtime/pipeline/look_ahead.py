"""Slices whose mini-batches are drawn some steps before they are needed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from numpy.typing import NDArray

from gnnscale.runtime.pipeline.schedule import BatchSlice
from gnnscale.runtime.pipeline.stages import Stages

__all__ = ["look_ahead"]


def look_ahead(
    slices: Iterator[BatchSlice],
    stages: Stages,
    *,
    window: int,
    expect: Callable[[NDArray[Any] | None], None],
) -> Iterator[BatchSlice]:
    """Yield ``slices`` with their samples, each once the ``window`` slices after it are sampled.

    Args:
        slices: in the order of steps.
        stages: draws the samples.
        window: slices that are sampled ahead of the one that is yielded.
        expect: told the input vertices of every slice in this order; None where it has no seeds.
    """
    waiting: deque[BatchSlice] = deque()
    for batch in slices:
        stages.sample(batch)
        expect(None if batch.batch is None else batch.batch.input_vertices)
        waiting.append(batch)
        if len(waiting) > window:
            yield waiting.popleft()
    yield from waiting
