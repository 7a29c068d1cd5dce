"""Native operations that plan caches: the hottest vertices, who caches them, and what is hot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnscale import _native
from gnnscale.ops.native import Array, contiguous, naming

__all__ = ["Shared", "hottest", "scatter_to_neighbors", "share_out"]


def hottest(
    hotness: Array,
    tie_break: Array | None = None,
    *,
    capacity: int,
    bytes_per_vertex: int,
    offsets: NDArray[np.int64] | None = None,
    bytes_per_entry: int = 0,
    max_bytes: int | None = None,
    only_hot: bool = False,
    num_threads: int,
) -> Array:
    """Return the hottest vertices that fit into ``capacity`` bytes, and one more at most.

    Vertex ``v`` takes ``bytes_per_vertex + bytes_per_entry * (offsets[v + 1] - offsets[v])`` bytes:
    a feature row the first alone, an adjacency list 8 and 4 (Legion, equation 3).

    Takes up to 8 bytes a vertex with the result, 16 where ids are int64.

    Args:
        hotness: ``[num_vertices]`` float32, int32 or int64, none negative.
        tie_break: ``[num_vertices]`` int32 or int64, none negative; None for none.
        capacity: bytes; may be more than all vertices take.
        bytes_per_vertex: 0 to 2^31 - 1.
        offsets: ``[num_vertices + 1]`` of the vertices' lists, from 0.
        bytes_per_entry: of these; 0 to 2^31 - 1.
        max_bytes: a vertex that takes more is left out, as if it were none; None for no limit.
        only_hot: whether vertices of hotness 0 are left out.
        num_threads: threads to use; the result does not depend on it.

    Returns:
        ``[n]`` int32, int64 for 2^31 vertices or more, by falling hotness, then falling
        ``tie_break``, then rising id: every vertex before which there are less than ``capacity``
        bytes.

    Raises:
        ValueError: a hotness is negative or NaN, a tie_break negative, or offsets fall; or all
            vertices together take 2^63 bytes.
        MemoryError: there is not so much memory.
    """
    vertices: Array
    with naming("hotness", getattr(hotness, "shape", hotness)):
        vertices = _native.hottest(
            *(contiguous(hotness), contiguous(tie_break), capacity, bytes_per_vertex),
            *(contiguous(offsets), bytes_per_entry, max_bytes, only_hot, num_threads),
        )
    return vertices


class Shared(NamedTuple):
    """Who takes what, and what that comes to.

    Attributes:
        member: ``[n]`` int16, the member of each vertex of the order; -1 where none has room. A
            smaller vertex after it may still find some.
        bytes: ``[K]`` int64, what each member's vertices take.
        reads: ``[K, K]`` int64, at ``[j, k]`` the hotness to member ``j`` of what member ``k``
            takes; None unless hotness is int32.
    """

    member: NDArray[np.int16]
    bytes: NDArray[np.int64]
    reads: NDArray[np.int64] | None


def share_out(
    order: Array,
    local: Sequence[Array],
    *,
    capacities: NDArray[np.int64],
    bytes_per_vertex: int,
    offsets: NDArray[np.int64] | None = None,
    bytes_per_entry: int = 0,
    num_threads: int,
) -> Shared:
    """Share vertices out among the members of a clique (Legion, Algorithm 1).

    In the order given, a vertex goes to the member to which it is hottest of those with room for
    it. Of members to which it is as hot, it is the one with most bytes left, then the lowest.
    Algorithm 1 knows no room; with enough of it, the result is Algorithm 1's.

    Args:
        order: ``[n]`` int32 or int64 distinct vertices; one that comes twice takes room twice.
        local: of each of K members, ``[num_vertices]`` int32 or float32 hotness, none negative;
            at most 1024 members.
        capacities: ``[K]`` bytes of each member.
        bytes_per_vertex: as for ``hottest``.
        offsets: likewise.
        bytes_per_entry: likewise.
        num_threads: threads that read; the result does not depend on it.

    Raises:
        ValueError: the order holds what is no vertex, a hotness is negative or NaN, or the list of
            a vertex of the order is none.
    """
    return Shared(
        *_native.share_out(
            *(contiguous(order), local, contiguous(capacities), bytes_per_vertex),
            *(contiguous(offsets), bytes_per_entry, num_threads),
        )
    )


def scatter_to_neighbors(
    indptr: NDArray[np.int64],
    indices: Array,
    values: Array,
    out: Array,
    *,
    num_threads: int,
) -> None:
    """Add every vertex's value to each of its in-neighbours: ``out[u] += values[v]``.

    The sum of each vertex is taken in the order of the edges, whatever the number of threads, so
    that the result is the same to the last bit. A neighbour that is listed twice is added to twice.
    Takes 32 MiB of memory, for large graphs 2 bytes a vertex.

    Args:
        indptr: ``[num_vertices + 1]`` int64, at most 2^32 vertices.
        indices: ``[num_edges]`` int32 or int64.
        values: ``[num_vertices]`` float32 or float64. The lists of vertices with 0 are not read.
        out: the same, updated in place; not ``values`` itself.
        num_threads: threads to use; the result does not depend on it.

    Raises:
        ValueError: the topology is damaged; some may have been added by then.
        MemoryError: there is not so much memory.
    """
    with naming("indices", getattr(indices, "shape", indices)):
        _native.scatter_to_neighbors(indptr, indices, values, out, num_threads)
