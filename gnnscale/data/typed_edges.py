"""Topology of a graph with types, from the edges of each type."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from gnnscale import ops
from gnnscale.core import Array, Float32Array, Int64Array
from gnnscale.graph import EdgeData, Graph, GraphSchema, TypedFeatures
from gnnscale.graph.store_format import vertex_dtype


def typed_topology(
    schema: GraphSchema,
    edges: Sequence[tuple[Int64Array, Int64Array]],
    *,
    name: str,
    weights: Sequence[Float32Array] | None = None,
    number_edges: bool = False,
) -> Graph:
    """Return the graph, without features, of the edges of each edge type.

    Args:
        schema: types; all arguments by edge type are in its order.
        edges: by edge type sources and destinations ``[num_edges]``, ids within their types, in
            range.
        name: name in reports.
        weights: by edge type the weights of the edges. None: all weigh 1.
        number_edges: whether ``Graph.edge_ids`` has each edge's index among those of its type.
    """
    indptr = _offsets(schema, edges)
    indices = np.empty(indptr[-1], vertex_dtype(schema.num_vertices))
    placed_weights = None if weights is None else np.empty(len(indices), np.float32)
    ids = np.empty(len(indices), np.int64) if number_edges else None
    for number, (src, dst) in enumerate(edges):
        # Sources ascend in each list; edges between the same vertices stay in their order.
        order = np.argsort(src, kind="stable")
        rows = _rows(schema, number, dst[order])
        first = schema.vertices(int(schema.sources[number])).start
        _write_lists(indptr, rows, (src[order] + first).astype(indices.dtype), indices)
        if placed_weights is not None and weights is not None:
            bits = weights[number][order].view(np.int32)
            _write_lists(indptr, rows, bits, placed_weights.view(np.int32))
        if ids is not None:
            _write_lists(indptr, rows, order, ids)
    features: Any = TypedFeatures([None] * len(schema.vertex_types))
    return Graph(
        name=name,
        indptr=indptr,
        indices=indices,
        features=features,
        feature_dtype="float32",
        labels=np.full(schema.num_vertices, -1, np.int64),
        num_classes=0,
        edges=EdgeData(weights=placed_weights, ids=ids),
        types=schema,
    )


def _rows(schema: GraphSchema, edge_type: int, destinations: Int64Array) -> Int64Array:
    rows = schema.rows(edge_type)
    numbers: Int64Array = destinations * rows.step + rows.start
    return numbers


def _offsets(schema: GraphSchema, edges: Sequence[tuple[Array, Int64Array]]) -> Int64Array:
    """Return the offsets ``[num_rows + 1]`` of the lists of all rows."""
    indptr = np.zeros(schema.num_rows + 1, np.int64)
    for number, (_, dst) in enumerate(edges):
        ops.count_in_degrees(_rows(schema, number, dst), indptr[1:])
    np.cumsum(indptr, out=indptr)
    return indptr


def _write_lists(indptr: Int64Array, rows: Int64Array, values: Array, out: Array) -> None:
    """Write the values of the edges in ``rows`` to their lists in ``out``, in the given order."""
    cursor = indptr[:-1].copy()
    word = np.int64 if out.itemsize == 8 or len(cursor) > np.iinfo(np.int32).max else np.int32
    words = out.astype(word, copy=False)
    ops.csc_fill(values.astype(word, copy=False), rows.astype(word), 0, len(cursor), cursor, words)
    if words is not out:
        out[:] = words
