"""Topology of a graph with types, from the edges of each type."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from gnnscale import ops
from gnnscale.core import Array, Float32Array, Int64Array, IntArray, usable_cores
from gnnscale.data.typed_times import TypedTimes
from gnnscale.graph import NO_TIME, EdgeData, Graph, GraphSchema, GraphTimes, TypedFeatures
from gnnscale.graph.store_format import vertex_dtype
from gnnscale.graph.time_order import sort_by_time

#: Edges that are copied and converted at a time.
_SLICE_EDGES = 1 << 20


def typed_topology(
    schema: GraphSchema,
    edges: Sequence[tuple[IntArray, IntArray]],
    *,
    name: str,
    weights: Sequence[Float32Array] | None = None,
    features: TypedFeatures | None = None,
    number_edges: bool = False,
    times: TypedTimes | None = None,
) -> Graph:
    """Return the graph, without features of vertices, of the edges of each edge type.

    Sources ascend in each list or, with ``times``, times do, and sources among equal times; edges
    between the same vertices stay in their order. Memory besides arguments and result is an offset
    for each row and, with an optional argument, a number for each edge of a type: 4 bytes below
    2^31 edges and vertices, else 8. ``times`` of vertices add 8 bytes for each edge of a type.

    Args:
        schema: types; all arguments by edge type are in its order.
        edges: by edge type sources and destinations ``[num_edges]``, ids within their types, in
            range.
        name: name in reports.
        weights: by edge type the weights of the edges. None: all weigh 1.
        features: by edge type the features of the edges, in their order. None: there are none.
        number_edges: whether ``Graph.edge_ids`` has each edge's index among those of its type.
        times: times of vertices and edges. None: all are known at all times.
    """
    indptr = _offsets(schema, edges)
    indices = np.empty(indptr[-1], vertex_dtype(schema.num_vertices))
    list_weights = None if weights is None else np.empty(len(indices), np.float32)
    ids = np.empty(len(indices), np.int64) if number_edges else None
    rows = None if features is None else np.zeros(len(indices), np.uint32)
    list_times = None if times is None else np.full(len(indices), NO_TIME)
    payload = [array for array in (list_weights, ids, rows) if array is not None]
    is_ordered = bool(payload) or times is not None
    for number, (src, dst) in enumerate(edges):
        starts = indptr[:-1][schema.rows(number)]
        sources = schema.vertices(int(schema.sources[number]))
        order = _source_order(src, sources.stop - sources.start) if is_ordered else None
        _write_lists(starts, dst, order, src, indices, shift=sources.start)
        if list_weights is not None and weights is not None:
            bits = weights[number].view(np.int32)
            _write_lists(starts, dst, order, bits, list_weights.view(np.int32))
        if ids is not None:
            _write_lists(starts, dst, order, None, ids)
        if rows is not None and features is not None and features.matrices[number] is not None:
            _write_lists(starts, dst, order, None, rows.view(np.int32))
        type_times = None if times is None else times.of_edges(schema, number, src)
        if list_times is not None and type_times is not None:
            _write_lists(starts, dst, order, type_times, list_times)
    if list_times is not None:
        sort_by_time(indptr, list_times, [indices, *payload])
    elif not is_ordered:
        ops.csc_sort(indptr, indices, False, usable_cores())
    none: Any = TypedFeatures([None] * len(schema.vertex_types))
    return Graph(
        name=name,
        indptr=indptr,
        indices=indices,
        features=none,
        feature_dtype="float32",
        labels=np.full(schema.num_vertices, -1, np.int64),
        num_classes=0,
        edges=EdgeData(weights=list_weights, ids=ids, rows=rows, by_type=features),
        types=schema,
        times=_graph_times(schema, times, list_times),
    )


def _graph_times(
    schema: GraphSchema, times: TypedTimes | None, of_lists: Int64Array | None
) -> GraphTimes | None:
    """Return the times of a graph, those of edges ``of_lists`` in the order of its lists."""
    if times is None or of_lists is None:
        return None
    return GraphTimes(unit=times.unit, edges=of_lists, vertices=times.of_all_vertices(schema))


def _offsets(schema: GraphSchema, edges: Sequence[tuple[Array, IntArray]]) -> Int64Array:
    """Return the offsets ``[num_rows + 1]`` of the lists of all rows."""
    indptr = np.zeros(schema.num_rows + 1, np.int64)
    for number, (_, dst) in enumerate(edges):
        rows = schema.rows(number)
        destinations = schema.vertices(int(schema.destinations[number]))
        counts = np.zeros(destinations.stop - destinations.start, np.int64)
        ops.count_in_degrees(np.ascontiguousarray(dst), counts)
        indptr[1:][rows] = counts
    return np.cumsum(indptr, out=indptr)


def _source_order(src: IntArray, num_sources: int) -> IntArray:
    """Return the numbers of the edges by source and input order, ``[num_edges]``."""
    order = np.empty(len(src), vertex_dtype(max(len(src), num_sources)))
    starts = np.zeros(num_sources + 1, np.int64)
    ops.count_in_degrees(np.ascontiguousarray(src), starts[1:])
    np.cumsum(starts, out=starts)
    _write_lists(starts[:-1], src, None, None, order)
    return order


def _write_lists(
    starts: Int64Array,
    keys: IntArray,
    order: IntArray | None,
    values: Array | None,
    out: Array,
    *,
    shift: int = 0,
) -> None:
    """Write the values of the edges to the lists of their keys in ``out``.

    Args:
        starts: ``[num_keys]`` position in ``out`` of each key's list.
        keys: ``[num_edges]`` keys in range.
        order: ``[num_edges]`` numbers of the edges in the order to write. None: they ascend.
        values: ``[num_edges]``; ``shift`` is added to them. None: the numbers of the edges.
        out: lists, int32 or int64.
    """
    cursor = starts.copy()
    for first in range(0, len(keys), _SLICE_EDGES):
        last = min(first + _SLICE_EDGES, len(keys))
        part = np.arange(first, last) if order is None else order[first:last]
        words = part if values is None else values[part] + shift
        ops.csc_fill(
            words.astype(out.dtype, copy=False),
            keys[part].astype(out.dtype, copy=False),
            *(0, len(cursor), cursor, out),
        )
