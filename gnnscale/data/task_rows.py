"""Rows of a task, checked against their graph."""

from dataclasses import replace

import numpy as np

from gnnscale.core import GraphError, Int64Array, brief
from gnnscale.data import array_inputs, validation
from gnnscale.data.labels import Labels, read_labels
from gnnscale.data.time_inputs import TimeValues, common_unit, read_times
from gnnscale.graph import (
    ROW_METRICS,
    Graph,
    GraphTimes,
    Split,
    TaskRows,
    format_time,
)

_PARTS = ("train", "valid", "test")


def with_checked_rows(graph: Graph, rows: TaskRows, vertex_type: str | None = None) -> Graph:
    """Return ``graph`` with ``rows``, checked; their cut-offs may be datetime64.

    Args:
        graph: graph with times.
        rows: rows to predict.
        vertex_type: type in which ``rows.vertices`` count from 0. None: they are ids of the graph.

    Raises:
        GraphError: a vertex, label or part of the split is invalid, or cut-offs are in another unit
            than the times, or all earlier.
    """
    source = f"{graph.name}: rows"
    if graph.times is None:
        raise GraphError(f"{source}: expected a graph with times, got one without")
    span = _vertices(graph, vertex_type, source)
    ids = array_inputs.vertex_ids(rows.vertices, span.stop - span.start, f"{source}: vertices")
    labels = _labels(rows, len(ids), source)
    return replace(
        graph,
        rows=TaskRows(
            name=graph.name,
            vertices=(ids + span.start).astype(graph.indices.dtype),
            cutoffs=_cutoffs(rows, len(ids), graph.times, source),
            labels=labels.values,
            num_classes=labels.num_classes,
            split=_split(rows.split, labels, source),
            metric=rows.metric,
            classes=rows.classes,
            columns=rows.columns,
        ),
    )


def _vertices(graph: Graph, vertex_type: str | None, source: str) -> slice:
    """Return the vertices of a type; None: of the graph."""
    if vertex_type is None:
        return slice(0, graph.num_vertices)
    if vertex_type not in graph.vertex_types:
        raise GraphError(
            f"{source}: {brief(vertex_type)}: no such vertex type, allowed are "
            f"{', '.join(graph.vertex_types)}"
        )
    return graph.schema.vertices(graph.vertex_types.index(vertex_type))


def _labels(rows: TaskRows, count: int, source: str) -> Labels:
    if rows.metric not in ROW_METRICS:
        raise GraphError(
            f"{source}: metric={brief(rows.metric)}: expected one of {', '.join(ROW_METRICS)}"
        )
    return read_labels(
        array_inputs.as_array(rows.labels, f"{source}: labels"),
        count=count,
        source=f"{source}: labels",
        metric="rmse" if rows.metric == "mae" else rows.metric,
        num_classes=rows.num_classes,
        of="row",
    )


def _cutoffs(rows: TaskRows, count: int, times: GraphTimes, source: str) -> Int64Array:
    """Return the cut-offs in the unit of ``times``; GraphError: all are before any time."""
    cutoffs = read_times(rows.cutoffs, count, f"{source}: cut-offs")
    of_graph = TimeValues(times.edges, times.unit)
    common_unit({"the graph": of_graph, "cut-offs": cutoffs}, times.unit, source)
    first = times.first
    if count and first is not None and (last := int(cutoffs.values.max())) < first:
        raise GraphError(
            f"{source}: cut-offs: expected from {format_time(first, times.unit)} on, the first "
            f"time of the graph, got at most {format_time(last, times.unit)}"
        )
    return cutoffs.values


def _split(split: Split, labels: Labels, source: str) -> Split:
    """Return the split of rows, sorted; GraphError: a part is invalid, or training is empty."""
    parts = {name: np.asarray(getattr(split, f"{name}_idx")) for name in _PARTS}
    if not any(map(len, parts.values())):
        return Split()
    validation.check_split(parts, labels.values, len(labels.values), source, of="row")
    train, valid, test = map(np.sort, parts.values())
    return Split(train_idx=train, valid_idx=valid, test_idx=test)
