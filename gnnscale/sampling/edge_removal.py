"""Mini-batches without messages along some edges, such as those that a step predicts."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale.core import BoolArray, IntArray
from gnnscale.core.sorted_sets import contained, distinct
from gnnscale.graph import Relation
from gnnscale.sampling.minibatch import Block, MiniBatch
from gnnscale.sampling.typed import TypedBlock, TypedMiniBatch

#: Arrays of a block with an entry for each edge.
_PER_EDGE = ("indices", "importance", "edge_vertices", "edge_weights", "edge_rows")


def without_edges(batch: MiniBatch, sources: IntArray, destinations: IntArray) -> MiniBatch:
    """Return ``batch`` without messages, in any layer, along the edges given by both ends.

    Edge i leads from ``sources[i]`` to ``destinations[i]``, global ids ``[n]``.
    """
    if not len(sources):
        return batch
    edges = _EdgeSet(sources, destinations)
    expanded = batch.input_vertices[: batch.blocks[0].num_dst]
    rows = np.flatnonzero(contained(expanded.astype(np.int64, copy=False), edges.destinations))
    vertices = batch.input_vertices
    blocks = tuple(_without(block, (vertices, vertices), rows, edges) for block in batch.blocks)
    return replace(batch, blocks=blocks)


def without_typed_edges(
    batch: TypedMiniBatch, sources: IntArray, destinations: IntArray, relation: Relation
) -> TypedMiniBatch:
    """Return ``batch`` without messages along edges of one edge type, nor along its reverses.

    Edge i of type ``relation.edge_type`` leads from ``sources[i]`` to ``destinations[i]``, global
    ids ``[n]``. Messages of ``relation.reverses`` the other way are left out in all layers too.
    """
    if not len(sources):
        return batch
    blocks = batch.blocks
    for number, is_turned in relation.turns():
        ends = (destinations, sources) if is_turned else (sources, destinations)
        blocks = _without_relation(batch, blocks, number, _EdgeSet(*ends))
    return replace(batch, blocks=blocks)


def _without_relation(
    batch: TypedMiniBatch, blocks: tuple[TypedBlock, ...], number: int, edges: "_EdgeSet"
) -> tuple[TypedBlock, ...]:
    """Return ``blocks`` of ``batch`` without messages along ``edges`` by edge type ``number``."""
    source, destination = batch.ends[number]
    vertices = batch.vertices(source), batch.vertices(destination)
    expanded = vertices[1][: blocks[0].dst_sizes[destination]]
    rows = np.flatnonzero(contained(expanded.astype(np.int64, copy=False), edges.destinations))
    parts = []
    for block in blocks:
        relations = list(block.relations)
        relations[number] = _without(relations[number], vertices, rows, edges)
        parts.append(replace(block, relations=tuple(relations)))
    return tuple(parts)


class _EdgeSet:
    """Set of edges with look-ups by both ends."""

    def __init__(self, sources: IntArray, destinations: IntArray) -> None:
        src, dst = (np.asarray(ends, np.int64) for ends in (sources, destinations))
        #: Above all ids, so that a pair of ids is one number.
        self._base = int(max(src.max(), dst.max())) + 1
        self.destinations = distinct(dst)
        self._keys = distinct(src * self._base + dst)

    def contains(self, src: IntArray, dst: IntArray) -> BoolArray:
        """Return ``[n]``, whether the edge from ``src[i]`` to ``dst[i]`` is in the set."""
        src, dst = src.astype(np.int64), dst.astype(np.int64)
        is_in_range = (src < self._base) & (dst < self._base)
        return is_in_range & contained(src * self._base + dst, self._keys)


def _without(
    block: Block, vertices: tuple[IntArray, IntArray], rows: NDArray[np.intp], edges: _EdgeSet
) -> Block:
    """Return ``block`` without its messages along ``edges``.

    ``vertices`` are the global ids of sources and of destinations by local id. ``rows`` are the
    local ids of all destinations of ``edges``: only messages to these vertices are compared with
    ``edges``.
    """
    sources, destinations = vertices
    rows = rows[rows < block.num_dst]
    lengths = block.indptr[rows + 1] - block.indptr[rows]
    # Positions of these rows' edges: runs that start at the rows' offsets.
    skipped = np.cumsum(lengths) - lengths
    positions = np.arange(lengths.sum()) + np.repeat(block.indptr[rows] - skipped, lengths)
    owners = np.repeat(rows, lengths)
    out = edges.contains(sources[block.indices[positions]], destinations[owners])
    if not out.any():
        return block
    removed = np.bincount(owners[out] + 1, minlength=block.num_dst + 1)
    remaining: dict[str, Any] = {
        name: np.delete(values, positions[out])
        for name in _PER_EDGE
        if (values := getattr(block, name)) is not None
    }
    return replace(block, indptr=block.indptr - np.cumsum(removed), **remaining)
