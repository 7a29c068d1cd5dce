"""Edges that are left out of a sampled mini-batch: a model must not see what it predicts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale.sampler.minibatch import Block, MiniBatch

__all__ = ["without_edges"]

#: Arrays of a block with an entry for each edge.
_PER_EDGE = ("indices", "importance", "edge_vertices")


def without_edges(
    batch: MiniBatch, sources: NDArray[np.integer], destinations: NDArray[np.integer]
) -> MiniBatch:
    """Return ``batch`` without the messages along some edges, in any of its layers.

    Only the lists of these edges' destinations are looked at.

    Args:
        batch: a sampled mini-batch.
        sources: ``[n]`` global ids.
        destinations: ``[n]`` global ids; edge i leads from ``sources[i]`` to ``destinations[i]``.
    """
    if not len(sources):
        return batch
    edges = _Edges(sources, destinations)
    expanded = batch.input_vertices[: batch.blocks[0].num_dst]
    rows = np.flatnonzero(_among(expanded.astype(np.int64, copy=False), edges.destinations))
    blocks = tuple(_without(block, batch.input_vertices, rows, edges) for block in batch.blocks)
    return replace(batch, blocks=blocks)


class _Edges:
    """A set of edges that are looked up by both ends."""

    def __init__(self, sources: NDArray[np.integer], destinations: NDArray[np.integer]) -> None:
        src, dst = (np.asarray(ends, np.int64) for ends in (sources, destinations))
        #: More than any id, so that a pair of ids is one number.
        self._base = int(max(src.max(), dst.max())) + 1
        self.destinations = np.unique(dst)
        self._keys = np.unique(src * self._base + dst)

    def contains(self, src: NDArray[np.integer], dst: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Return which edges from ``src`` ``[n]`` to ``dst`` ``[n]`` are in the set."""
        src, dst = src.astype(np.int64), dst.astype(np.int64)
        known = (src < self._base) & (dst < self._base)
        return known & _among(src * self._base + dst, self._keys)


def _among(values: NDArray[np.int64], known: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which of ``values`` are among ``known``, which ascend."""
    places = np.minimum(np.searchsorted(known, values), len(known) - 1)
    found: NDArray[np.bool_] = known[places] == values
    return found


def _without(
    block: Block, vertices: NDArray[np.integer], rows: NDArray[np.intp], edges: _Edges
) -> Block:
    """Return ``block`` without ``edges``, which lead to none but destinations ``rows``."""
    rows = rows[rows < block.num_dst]
    lengths = block.indptr[rows + 1] - block.indptr[rows]
    # The places of these rows' edges: runs that begin at the rows' offsets.
    skipped = np.cumsum(lengths) - lengths
    places = np.arange(lengths.sum()) + np.repeat(block.indptr[rows] - skipped, lengths)
    owners = np.repeat(rows, lengths)
    out = edges.contains(vertices[block.indices[places]], vertices[owners])
    if not out.any():
        return block
    removed = np.bincount(owners[out] + 1, minlength=block.num_dst + 1)
    kept: dict[str, Any] = {
        name: np.delete(values, places[out])
        for name in _PER_EDGE
        if (values := getattr(block, name)) is not None
    }
    return replace(block, indptr=block.indptr - np.cumsum(removed), **kept)
