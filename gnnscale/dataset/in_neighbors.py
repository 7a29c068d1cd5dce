"""Edges in memory → in-neighbour lists (CSC), by counting sorts: linear in edges and vertices."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale import ops
from gnnscale.graph import vertex_dtype
from gnnscale.hardware import usable_cores

__all__ = ["edge_order", "in_neighbors"]


def in_neighbors(
    src: NDArray[Any], dst: NDArray[Any], num_vertices: int
) -> tuple[NDArray[np.int64], NDArray[np.integer]]:
    """Sort edges into in-neighbour lists; edges that repeat stay.

    Args:
        src: ``[num_edges]`` int32 or int64 ids below ``num_vertices``.
        dst: the same; ``src[i]`` is an in-neighbour of ``dst[i]``.
        num_vertices: how many vertices there are.

    Returns:
        ``indptr`` ``[num_vertices + 1]`` int64, and ``indices`` ``[num_edges]`` of the type of
        ``src``, each list in ascending order.
    """
    indptr = _list_starts(dst, num_vertices)
    indices = np.empty(len(src), src.dtype)
    ops.csc_fill(src, dst, 0, num_vertices, indptr[:-1].copy(), indices)
    return ops.csc_sort(indptr, indices, False, usable_cores()), indices


def edge_order(
    src: NDArray[Any], dst: NDArray[Any], num_vertices: int
) -> tuple[NDArray[np.int64], NDArray[np.integer]]:
    """Say which edge comes where in the in-neighbour lists.

    Takes the arguments of ``in_neighbors``. At its peak it takes about four arrays of ``num_edges``
    numbers, of 8 bytes from 2^31 edges or vertices on and of 4 below.

    Returns:
        ``indptr``, as ``in_neighbors`` returns it, and ``[num_edges]`` int32 or int64: the edges'
        numbers by destination, then by source, then as they came.
    """
    dtype = np.promote_types(src.dtype, vertex_dtype(len(src)))
    src, dst = src.astype(dtype, copy=False), dst.astype(dtype, copy=False)
    # Counting sort by the lesser key first: the second keeps the order within equal destinations.
    numbers = np.arange(len(src), dtype=dtype)
    by_src = np.empty_like(numbers)
    ops.csc_fill(numbers, src, 0, num_vertices, _list_starts(src, num_vertices)[:-1], by_src)
    indptr, order = _list_starts(dst, num_vertices), numbers
    ops.csc_fill(by_src, dst[by_src], 0, num_vertices, indptr[:-1].copy(), order)
    return indptr, order


def _list_starts(dst: NDArray[Any], num_vertices: int) -> NDArray[np.int64]:
    """Return where the list of each vertex begins, and the end of the last."""
    indptr = np.zeros(num_vertices + 1, np.int64)
    ops.count_in_degrees(dst, indptr[1:])
    return np.cumsum(indptr, out=indptr)
