"""Hits of a dynamic cache over a sequence of batches."""

from collections.abc import Iterable

from gnnscale.cache.belady import Belady, HitCounts
from gnnscale.core.types import Array, Int32Array


def count_hits(
    batches: Iterable[Array],
    *,
    num_vertices: int,
    capacity: int,
    window: int,
    priority: Int32Array,
    match: bool = False,
    num_threads: int,
) -> HitCounts:
    """Return the hits and misses of ``batches``, served in turn by an initially empty ``Belady``.

    The vertices of a batch are distinct.
    """
    cache = Belady(
        num_vertices,
        capacity,
        window=window,
        priority=priority,
        match=match,
        num_threads=num_threads,
    )
    counts = HitCounts()
    for batch in batches:
        cache.expect(batch)
        if cache.num_expected > window:
            counts += cache.advance().counts
    while cache.num_expected:
        counts += cache.advance().counts
    return counts
