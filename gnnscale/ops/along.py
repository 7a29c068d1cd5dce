"""Native operations along an order of vertices: running sums, and the part of each member."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gnnscale import _native
from gnnscale.ops.native import Array, contiguous

__all__ = ["running_sums", "split_by_member"]


def running_sums(
    order: Array,
    values: Array | None = None,
    *,
    every: int,
    bytes_per_vertex: int = 0,
    offsets: NDArray[np.int64] | None = None,
    bytes_per_entry: int = 0,
    falling: bool = False,
    num_threads: int,
) -> Array:
    """Return the sums of the first 0, ``every``, 2 · ``every``, ... vertices of an order, and all.

    A vertex counts as its value and the bytes that it takes, as for ``hottest``.

    Args:
        order: ``[n]`` int32 or int64 vertices.
        values: ``[num_vertices]`` int32 or float32; None for bytes alone, which needs ``offsets``.
        every: vertices from one sum to the next.
        bytes_per_vertex: as for ``hottest``.
        offsets: likewise.
        bytes_per_entry: likewise.
        falling: whether values never rise along the order, which the caller has to know. Where the
            first of some vertices and the last one have the same, those between are not read.
        num_threads: threads to use; the result does not depend on it.

    Returns:
        ``[⌈n / every⌉ + 1]`` int64, float64 of float32, the first 0 and the last the sum of all.

    Raises:
        ValueError: the order holds what is no vertex, or the list of one is none.
    """
    sums: Array = _native.running_sums(
        *(contiguous(order), contiguous(values), every, bytes_per_vertex),
        *(contiguous(offsets), bytes_per_entry, falling, num_threads),
    )
    return sums


def split_by_member(
    order: Array, member: NDArray[np.int16], *, num_members: int, num_threads: int
) -> list[Array]:
    """Return the vertices of each member of a clique, in the order of ``order``.

    Args:
        order: ``[n]`` int32 or int64 vertices.
        member: ``[n]`` int16, the member of each; -1 for none.
        num_members: up to 1024.
        num_threads: threads to use; the result does not depend on it.

    Raises:
        ValueError: a member is less than -1, or ``num_members`` or more.
    """
    vertices: list[Array] = _native.split_by_member(
        contiguous(order), contiguous(member), num_members, num_threads
    )
    return vertices
