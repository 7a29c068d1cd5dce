"""Sums of the weights of each vertex's in-edges."""

from __future__ import annotations

import numpy as np

from gnnscale.core import Float32Array, GraphError, Int64Array

#: Number of adjacency lists whose weights are summed at a time.
_LISTS = 1 << 18


def list_sums(indptr: Int64Array, values: Float32Array) -> Float32Array:
    """Return the float32 sum of each list's ``values``, accumulated in float64.

    ``indptr`` ``[num_lists + 1]`` are the offsets of the lists.
    """
    sums = np.zeros(len(indptr) - 1, np.float32)
    filled = np.diff(indptr) > 0
    if filled.any():
        with np.errstate(over="ignore", invalid="ignore"):  # of damaged weights
            sums[filled] = np.add.reduceat(values, indptr[:-1][filled], dtype=np.float64)
    return sums


def checked_list_sums(indptr: Int64Array, weights: Float32Array, *, source: object) -> Float32Array:
    """Return ``list_sums`` of a store's edge ``weights`` in bounded memory; refuse damage."""
    num_vertices = len(indptr) - 1
    sums = np.empty(num_vertices, np.float32)
    for first in range(0, num_vertices, _LISTS):
        ends = np.asarray(indptr[first : first + _LISTS + 1])
        if ends[0] < 0 or ends[-1] > len(weights) or (np.diff(ends) < 0).any():
            raise GraphError(
                f"{source}: damaged, indptr: lists between vertices {first} and "
                f"{first + len(ends) - 1} do not lie in order within the {len(weights)} weights; "
                "gnnscale doctor store=DIR shows more"
            )
        values = np.asarray(weights[ends[0] : ends[-1]])
        part = list_sums(ends - ends[0], values)
        valid = (part >= 0) & np.isfinite(part)
        if not valid.all():
            i = int(valid.argmin())
            if part[i] == np.inf and np.isfinite(values).all():
                raise GraphError(
                    f"{source}: edge_weights: those of the in-edges of vertex {first + i} add up "
                    "to more than float32 holds; scale all weights"
                )
            raise GraphError(
                f"{source}: damaged, edge_weights: those of the in-edges of vertex {first + i} "
                f"add up to {part[i]}; gnnscale doctor store=DIR looks at all of it"
            )
        sums[first : first + _LISTS] = part
    return sums
