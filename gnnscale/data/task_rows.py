"""Rows of a task, checked against their graph."""

from dataclasses import replace
from typing import Any

import numpy as np

from gnnscale.core import GraphError, Int64Array, brief
from gnnscale.data import array_inputs, validation
from gnnscale.data.labels import Labels, read_labels
from gnnscale.data.time_inputs import TimeValues, common_unit, read_times
from gnnscale.data.time_split import PARTS
from gnnscale.graph import ROW_METRICS, Graph, GraphTimes, Split, TaskRows, format_time


def with_checked_rows(graph: Graph, rows: TaskRows, vertex_type: str | None = None) -> Graph:
    """Check ``rows`` against ``graph``, and return the graph with them.

    Cut-offs of ``rows`` may be datetime64.

    Args:
        graph: graph with times.
        rows: rows to predict.
        vertex_type: type in which ``rows.vertices`` count from 0. None: they are ids of the graph.

    Raises:
        GraphError: a vertex, label or part of the split is invalid, or cut-offs are in another unit
            than the times, or all earlier.
    """
    source = f"{graph.name}: rows"
    times = times_of(graph, source)
    span = _vertices(graph, vertex_type, source)
    ids = array_inputs.vertex_ids(rows.vertices, span.stop - span.start, f"{source}: vertices")
    labels = row_labels(rows.labels, len(ids), rows.metric, source, rows.num_classes)
    return replace(
        graph,
        rows=TaskRows(
            name=graph.name,
            vertices=(ids + span.start).astype(graph.indices.dtype),
            cutoffs=_cutoffs(rows, len(ids), times, source),
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


def times_of(graph: Graph, source: str) -> GraphTimes:
    """Return the times of ``graph``.

    GraphError: it has none; the message begins with ``source``.
    """
    if graph.times is None:
        raise GraphError(f"{source}: expected a graph with times, got one without")
    return graph.times


def row_labels(
    labels: Any, count: int, metric: str | None, source: str, num_classes: int | None = None
) -> Labels:
    """Return the labels of ``count`` rows, as ``read_labels`` does.

    GraphError, which begins with ``source``: labels are invalid, or ``metric`` is none of rows.
    """
    if metric is not None and metric not in ROW_METRICS:
        raise GraphError(
            f"{source}: metric={brief(metric)}: expected one of {', '.join(ROW_METRICS)}"
        )
    return read_labels(
        array_inputs.as_array(labels, f"{source}: labels"),
        count=count,
        source=f"{source}: labels",
        metric="rmse" if metric == "mae" else metric,
        num_classes=num_classes,
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
    parts = {name: np.asarray(getattr(split, f"{name}_idx")) for name in PARTS}
    if not any(map(len, parts.values())):
        return Split()
    validation.check_split(parts, labels.values, len(labels.values), source, of="row")
    train, valid, test = map(np.sort, parts.values())
    return Split(train_idx=train, valid_idx=valid, test_idx=test)
