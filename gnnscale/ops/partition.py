"""Native operations that divide a graph: edges between parts, and what a part reaches."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gnnscale import _native
from gnnscale.ops.native import Array, contiguous, naming

__all__ = ["count_cut", "hops_from", "pagraph_stream"]


def count_cut(
    indptr: NDArray[np.int64],
    indices: Array,
    owner: NDArray[np.int16],
    num_parts: int,
    *,
    num_threads: int,
) -> NDArray[np.int64]:
    """Count the edges inside of parts and between them.

    Args:
        indptr: ``[num_vertices + 1]`` int64.
        indices: ``[num_edges]`` int32 or int64.
        owner: ``[num_vertices]`` int16, the part of each vertex; -1 for none.
        num_parts: K, at most 1024.
        num_threads: threads to use.

    Returns:
        ``[K, K]`` int64: edges whose source is of part ``i`` and whose destination is of part
        ``j``. Those with an end of no part are left out.

    Raises:
        ValueError: an owner is none, or an offset or a neighbour.
    """
    counts: NDArray[np.int64] = _native.count_cut(indptr, indices, owner, num_parts, num_threads)
    return counts


def hops_from(
    indptr: NDArray[np.int64],
    indices: Array,
    vertices: Array,
    num_hops: int,
    hops: NDArray[np.uint8],
    *,
    num_threads: int,
) -> int:
    """Mark the fewest hops at which vertices are reached, from in-neighbour to in-neighbour.

    Labels only fall. So vertices may be added later, with the same ``num_hops``, and that costs
    no more than what improves.

    Args:
        indptr: ``[num_vertices + 1]`` int64.
        indices: ``[num_edges]`` int32 or int64.
        vertices: ``[n]`` of the type of ``indices``, 0 hops away.
        num_hops: L, the most hops to walk; at most 254.
        hops: ``[num_vertices]`` uint8, 255 where nothing was reached yet; updated in place.
        num_threads: threads to use; the result does not depend on it.

    Returns:
        Number of vertices that were 255 and are reached now.

    Raises:
        ValueError: ``vertices`` or the topology hold what is no vertex; some labels may have
            fallen by then.
    """
    return int(
        _native.hops_from(indptr, indices, contiguous(vertices), num_hops, hops, num_threads)
    )


def pagraph_stream(
    indptr: NDArray[np.int64],
    indices: Array,
    vertices: Array,
    *,
    num_parts: int,
    num_hops: int,
    max_walked: int,
    max_sampled: int,
    seed: int,
    num_threads: int,
) -> tuple[NDArray[np.int16], NDArray[np.uint8], int]:
    """Assign training vertices to parts, one after the other (PaGraph, Algorithm 1, equation 1).

    A vertex ``v`` goes to the part ``i`` with the largest ``|TV_i & IN(v)| * (TV_avg - |TV_i|) /
    |PV_i|``, and its in-neighbourhood ``IN(v)`` joins the part. ``TV_i`` are the part's training
    vertices, ``PV_i`` all its vertices. Equal scores go to the part with the fewest training
    vertices, then the fewest vertices, then the lowest number. A part is full once more would
    leave it more than one vertex ahead of another at the end.

    ``|PV_i|`` is exact. So is the overlap ``|TV_i & IN(v)|`` where the paths from ``v`` have at
    most ``max_walked`` edges in all, or where there are at most ``max_sampled`` vertices. Else it
    is counted among S = ``max_sampled`` of them, drawn uniformly without replacement. For an
    overlap of a share ``p`` of all N training vertices this is unbiased, with a relative standard
    error of ``sqrt((1 - p) / (p S) * (1 - S / N))``.

    Args:
        indptr: ``[num_vertices + 1]`` int64.
        indices: ``[num_edges]`` int32 or int64.
        vertices: ``[n]`` training vertices in the order of the stream, of the type of ``indices``.
        num_parts: K, at most 1024.
        num_hops: L, the length of the paths that make up a neighbourhood; 1 to 254.
        max_walked: edges that may be walked for an overlap; 0 to 2^31 - 1.
        max_sampled: S. The bits take S / 8 bytes for each vertex that is not walked, and 64 or,
            where L > 2, 128 bytes a vertex.
        seed: of the sample.
        num_threads: threads to use; the result does not depend on it.

    Returns:
        ``[n]`` int16, the part of each of ``vertices``; and ``[K, num_vertices]`` uint8, the hops
        at which each part reaches a vertex, 255 where it does not; and the number of overlaps that
        were not exact.

    Raises:
        ValueError: a vertex is none or comes twice, or the topology is damaged.
        MemoryError: there is not so much memory.
    """
    result: tuple[NDArray[np.int16], NDArray[np.uint8], int]
    with naming("num_parts", num_parts):
        result = _native.pagraph_stream(
            *(indptr, indices, contiguous(vertices)),
            *(num_parts, num_hops, max_walked, max_sampled, seed, num_threads),
        )
    return result
