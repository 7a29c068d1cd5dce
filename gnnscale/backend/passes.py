"""A mini-batch that no memory holds as a whole, cut into parts of its seeds (Betty, ASPLOS 2023).

What leads to some of the seeds is a mini-batch of its own. Trained one after the other, the parts
add up to the gradients of the whole; vertices that several parts need are brought to each of them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gnnscale.plan.perf.equations import BatchSize
from gnnscale.sampler import MiniBatch

__all__ = ["passes", "size_of_part"]


def passes(
    batch: MiniBatch, seeds: range, fits: Callable[[BatchSize], bool]
) -> tuple[BatchSize, ...] | None:
    """Halve ``seeds`` until what leads to each part fits; None where one seed alone does not.

    Args:
        batch: the mini-batch.
        seeds: positions of seeds in it, one at least.
        fits: whether a mini-batch of a size fits into memory.
    """
    size = size_of_part(batch, seeds)
    if fits(size):
        return (size,)
    if len(seeds) == 1:
        return None
    half = len(seeds) // 2
    halves = [passes(batch, each, fits) for each in (seeds[:half], seeds[half:])]
    return None if halves[0] is None or halves[1] is None else halves[0] + halves[1]


def size_of_part(batch: MiniBatch, seeds: range) -> BatchSize:
    """Return the size of the mini-batch that leads to some seeds of ``batch``.

    Args:
        batch: the mini-batch.
        seeds: positions of the seeds in it.
    """
    needed = np.arange(seeds.start, seeds.stop, dtype=np.int64)
    vertices, edges = [len(needed)], []
    for block in reversed(batch.blocks):
        read = np.zeros(block.num_src, np.bool_)
        read[needed] = True
        # Destinations are the first of the sources, so that a mask over these finds their edges.
        wanted = np.repeat(read[: block.num_dst], np.diff(block.indptr))
        sources = block.indices[wanted]
        read[sources] = True
        needed = np.flatnonzero(read)
        vertices.append(len(needed))
        edges.append(len(sources))
    return BatchSize(vertices=tuple(reversed(vertices)), edges=tuple(reversed(edges)))
