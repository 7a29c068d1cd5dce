"""In-neighbor lists (CSC) of edges in memory."""

import numpy as np

from gnnscale import ops
from gnnscale.core import Array, Int64Array, IntArray, usable_cores
from gnnscale.graph.store_format import vertex_dtype


def in_neighbors(src: Array, dst: Array, num_vertices: int) -> tuple[Int64Array, IntArray]:
    """Return ``indptr`` ``[num_vertices + 1]`` int64 and ascending ``indices`` of edges (CSC).

    Ends are int32 or int64, and ``indices`` have the type of ``src``. Repeated edges remain.
    """
    indptr = _list_starts(dst, num_vertices)
    indices = np.empty(len(src), src.dtype)
    ops.csc_fill(src, dst, 0, num_vertices, indptr[:-1].copy(), indices)
    return ops.csc_sort(indptr, indices, False, usable_cores()), indices


def edge_order(src: Array, dst: Array, num_vertices: int) -> tuple[Int64Array, IntArray]:
    """Return the permutation that sorts edges by destination, then source, then input order.

    The result is ``indptr`` ``[num_vertices + 1]`` int64 and the order ``[num_edges]`` int32 or
    int64. Peak memory is about four arrays of ``num_edges`` numbers: of 4 bytes below 2^31 edges
    and vertices, else of 8.
    """
    dtype = np.promote_types(src.dtype, vertex_dtype(len(src)))
    src, dst = src.astype(dtype, copy=False), dst.astype(dtype, copy=False)
    # Counting sort by the lesser key first: the second sort keeps the order in each list.
    numbers = np.arange(len(src), dtype=dtype)
    by_src = np.empty_like(numbers)
    ops.csc_fill(numbers, src, 0, num_vertices, _list_starts(src, num_vertices)[:-1], by_src)
    indptr, order = _list_starts(dst, num_vertices), numbers
    ops.csc_fill(by_src, dst[by_src], 0, num_vertices, indptr[:-1].copy(), order)
    return indptr, order


def _list_starts(dst: Array, num_vertices: int) -> Int64Array:
    """Return ``[num_vertices + 1]`` offsets of the lists of ``dst``."""
    indptr = np.zeros(num_vertices + 1, np.int64)
    ops.count_in_degrees(dst, indptr[1:])
    return np.cumsum(indptr, out=indptr)
