"""Graphs in memory from arrays, tensors, lists and data frames."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from gnnscale import ops
from gnnscale.core import Array, GraphError, brief, standard_arithmetic, usable_cores
from gnnscale.core.types import Float32Array, Int64Array, IntArray
from gnnscale.data import array_inputs, validation
from gnnscale.data.labels import read_edge_labels
from gnnscale.data.split_input import SplitInput
from gnnscale.data.time_inputs import common_unit, read_times
from gnnscale.graph import EdgeData, EdgeLabels, Graph, GraphTimes, Origin, Split, TimeUnit
from gnnscale.graph.store_format import METRICS, vertex_dtype
from gnnscale.graph.time_order import edge_times, sort_by_time

_EDGE_SPLIT = ("edge_split[0]", "edge_split[1]", "edge_split[2]")


@standard_arithmetic()
def from_arrays(
    edges: Any,
    features: Array | torch.Tensor | None,
    labels: Array | torch.Tensor | None = None,
    *,
    train_idx: Array | torch.Tensor | None = None,
    valid_idx: Array | torch.Tensor | None = None,
    test_idx: Array | torch.Tensor | None = None,
    split: str | Mapping[str, Any] | None = None,
    mask: int | None = None,
    num_classes: int | None = None,
    metric: str | None = None,
    name: str = "graph",
    edge_weights: Array | torch.Tensor | None = None,
    edge_features: Array | torch.Tensor | None = None,
    edge_labels: Array | torch.Tensor | None = None,
    edge_split: tuple[Any, Any, Any] | None = None,
    vertex_times: Any = None,
    edge_times: Any = None,
    time_unit: TimeUnit | None = None,
    number_edges: bool = False,
    advises: bool = True,
) -> Graph:
    """Return a Graph of an edge list and arrays. Contiguous features are shared, except float64.

    Args:
        edges: ``(src, dst)``, integers, or a data frame of both; ``src[i]`` sends to ``dst[i]``.
        features: ``[num_vertices, num_features]`` float32, float16, bfloat16 (torch) or uint8;
            booleans become uint8, other types float32. None: a vertex for each label.
        labels: classes ``[num_vertices]``, -1 if unknown, or texts; multi-label zeros and ones
            ``[num_vertices, num_classes]`` (classes if one-hot); or floating point regression
            targets ``[num_vertices]`` or ``[num_vertices, k]``, NaN if unknown.
        train_idx, valid_idx, test_idx: vertex ids, or a mask ``[num_vertices]``; None: no vertex.
        split: ``random``: of labeled vertices and edges 60 % train, 20 % validate, the others test;
            or a dictionary of ids or masks by ``train``, ``valid`` and ``test``.
        mask: column to read, if parts are masks ``[num_vertices, k]``.
        num_classes: number of classes. None: the largest class present, plus one.
        metric: one of ``METRICS``. None: accuracy, micro-F1 for multi-label, RMSE for floating
            point. With a metric of classes, floating point labels are classes, NaN if unknown.
        name, advises: name in reports; whether to warn of features that impede training.
        edge_weights: ``[num_edges]`` finite, non-negative numbers. None: all weights are 1.
        edge_features: ``[num_edges, k]`` or ``[num_edges]`` finite numbers, made float32.
        edge_labels, edge_split: classes or targets ``[num_edges]``; ids or masks of three parts.
        vertex_times, edge_times: times from which vertices and edges are known, integers or
            datetime64; an edge is not known before its source. None: known at all times.
        time_unit: unit of integers, ``s`` if None; dates state their own.
        number_edges: whether ``Graph.edge_ids`` has the index of each edge in ``edges``.

    Raises:
        GraphError: an argument is invalid, such as an id out of range, or parts that overlap.
    """
    inputs = GraphInputs(
        edges=edges,
        features=features,
        labels=labels,
        num_classes=num_classes,
        split=SplitInput.of_arguments((train_idx, valid_idx, test_idx), split, mask, name),
        edge_weights=edge_weights,
        edge_features=edge_features,
        edge_labels=edge_labels,
        edge_split=edge_split,
        vertex_times=vertex_times,
        edge_times=edge_times,
        time_unit=time_unit,
    )
    return make_graph(inputs, name=name, metric=metric, number_edges=number_edges, advises=advises)


@dataclass(frozen=True, kw_only=True)
class GraphInputs:
    """Arrays of a user's graph, which ``from_arrays`` documents, and their names in errors."""

    edges: Any
    features: Any  #: ``[num_vertices, num_features]``. None: vertices have no features
    labels: Any = None
    num_classes: int | None = None  #: number of classes. None: by the labels
    num_vertices: int | None = None  #: number of vertices. None: the rows of features
    split: SplitInput = field(default_factory=SplitInput)
    edge_weights: Any = None
    edge_features: Any = None
    edge_labels: Any = None
    edge_split: Any = None
    vertex_times: Any = None
    edge_times: Any = None
    time_unit: TimeUnit | None = None  #: unit of integers. None: seconds
    features_name: str = "features"
    labels_name: str = "labels"
    weights_name: str = "edge weights"
    ids: Any = None  #: Arrow array of the user's ids ``[num_vertices]``. None: they count up


def make_graph(
    inputs: GraphInputs,
    *,
    name: str,
    metric: str | None = None,
    number_edges: bool = False,
    advises: bool = True,
) -> Graph:
    """Return the Graph of ``inputs``; arguments and errors are as in ``from_arrays``."""
    if metric is not None and metric not in METRICS:
        raise GraphError(f"{name}: metric={brief(metric)!r}: expected one of {', '.join(METRICS)}")
    features = inputs.features
    if features is None:
        features = np.zeros((_count_vertices(inputs, name), 0), np.float32)
    rows, feature_dtype = array_inputs.feature_rows(
        features, name, what=inputs.features_name, advises=advises
    )
    if inputs.num_vertices not in (None, len(rows)):
        raise GraphError(
            f"{name}: {inputs.features_name}: {len(rows)} rows for {inputs.num_vertices} vertices"
        )
    labels = array_inputs.graph_labels(
        inputs.labels,
        num_classes=inputs.num_classes,
        metric=metric,
        num_vertices=len(rows),
        name=name,
        what=inputs.labels_name,
    )
    # A random split is of the labels that there are.
    splits = labels.num_classes or inputs.edge_labels is None or not inputs.split.is_random
    edge_data = _read_edges(inputs, len(rows), name)
    edge_data |= _read_edge_data(inputs, edge_data["src"], edge_data["dst"], name, advises)
    edge_data |= _read_times(inputs, edge_data["src"], len(rows), name)
    return Graph(
        name=name,
        features=rows,
        feature_dtype=feature_dtype,
        labels=labels.values,
        num_classes=labels.num_classes,
        split=inputs.split.read(labels, len(rows), name) if splits else Split(),
        metric=labels.metric,
        origin=Origin(
            split=replace(inputs.split.source, labels=inputs.labels_name),
            ids=inputs.ids,
            classes=labels.classes,
        ),
        **_topology(len(rows), number_edges, **edge_data),
    )


def _count_vertices(inputs: GraphInputs, name: str) -> int:
    """Return the number of vertices without features: as given, or that of labels; GraphError."""
    if inputs.num_vertices is not None:
        return inputs.num_vertices
    if inputs.labels is None:
        raise GraphError(f"{name}: features and labels are missing: expected a row per vertex")
    return len(array_inputs.as_array(inputs.labels, f"{name}: {inputs.labels_name}"))


def _read_edges(inputs: GraphInputs, num_vertices: int, name: str) -> dict[str, Any]:
    """Return ``src``, ``dst`` and ``weights`` (or None) of all edges; GraphError if not valid."""
    edges = inputs.edges
    if array_inputs.is_frame(edges):
        edges = _ends_of_frame(edges, name)
    if not isinstance(edges, (tuple, list, np.ndarray, torch.Tensor)):
        raise GraphError(
            f"{name}: edges: expected (src, dst), ids of the ends of each edge, got "
            f"{array_inputs.describe_graph(edges)}"
        )
    if isinstance(edges, (np.ndarray, torch.Tensor)):
        edges = np.atleast_1d(array_inputs.as_array(edges, f"{name}: edges"))
    if len(edges) != 2:
        hint = "; edges.T has them" if getattr(edges, "shape", ())[1:] == (2,) else ""
        raise GraphError(f"{name}: edges: expected 2 rows, (src, dst), got {len(edges)}{hint}")
    src, dst = (
        array_inputs.vertex_ids(end, num_vertices, f"{name}: edge {what}")
        for end, what in zip(edges, ("sources", "destinations"), strict=True)
    )
    if len(src) != len(dst):
        raise GraphError(f"{name}: {len(src)} edge sources, {len(dst)} destinations")
    weights = None
    if inputs.edge_weights is not None:
        what = f"{name}: {inputs.weights_name}"
        values = array_inputs.as_array(inputs.edge_weights, what)
        values = values[:, 0] if values.shape[1:] == (1,) else values
        if values.ndim != 1:
            raise GraphError(f"{what}: expected a weight per edge, got {list(values.shape)}")
        weights = validation.check_weights(values, len(src), what)
    return {"src": src, "dst": dst, "weights": weights}


def _ends_of_frame(edges: Any, name: str) -> tuple[Array, Array]:
    """Return the two columns of a data frame; GraphError if it has other columns."""
    if len(edges.columns) != 2:
        columns = ", ".join(map(brief, edges.columns))
        raise GraphError(
            f"{name}: edges: expected a data frame of two columns, source and destination, got "
            f"{columns}"
        )
    # Column by column: a frame of nullable columns, or of other types, is an array of objects.
    source, target = (array_inputs.as_array(edges[c], f"{name}: edges") for c in edges.columns)
    return source, target


def _read_edge_data(
    inputs: GraphInputs, src: IntArray, dst: IntArray, name: str, advises: bool
) -> dict[str, Any]:
    """Return checked ``features`` and ``labels`` of edges by name, None if not given."""
    features = labels = None
    if inputs.edge_features is not None:
        features = array_inputs.edge_features(inputs.edge_features, len(src), name, advises=advises)
    if inputs.edge_labels is not None:
        labels = read_labels_of_edges(
            inputs.edge_labels,
            inputs.edge_split,
            np.stack([src, dst], axis=1),
            is_random=inputs.split.is_random,
            name=name,
        )
    elif inputs.edge_split is not None:
        raise GraphError(f"{name}: edge_split without edge_labels")
    return {"features": features, "labels": labels}


def _read_times(inputs: GraphInputs, src: IntArray, num_vertices: int, name: str) -> dict[str, Any]:
    """Return ``times`` of vertices and edges in the order of the input, and ``own_times`` of edges.

    Both are None where there are none.
    """
    of_graph = {
        what: read_times(values, count, f"{name}: times of {what}")
        for what, values, count in (
            ("vertices", inputs.vertex_times, num_vertices),
            ("edges", inputs.edge_times, len(src)),
        )
        if values is not None
    }
    if not of_graph:
        return {"times": None, "own_times": None}
    unit = common_unit(of_graph, inputs.time_unit, name)
    vertices, of_edges = (
        of_graph[what].values if what in of_graph else None for what in ("vertices", "edges")
    )
    known_from = edge_times(of_edges, vertices, src)
    assert known_from is not None
    times = GraphTimes(unit=unit, edges=known_from, vertices=vertices)
    return {"times": times, "own_times": of_edges}


def read_labels_of_edges(
    values: Any, split: Any, ends: IntArray, *, is_random: bool, name: str
) -> EdgeLabels:
    """Return the labels of edges with ``ends`` ``[n, 2]``, and the split of edges.

    ``split`` is None, for no edges or with ``is_random`` a random split, or three parts: each is
    ids, a mask, or None for no edges. GraphError: labels or split are invalid.
    """
    what = f"{name}: labels of edges"
    labels = array_inputs.as_array(values, what)
    classes = read_edge_labels(labels, num_edges=len(ends), source=what)
    if not isinstance(split, (tuple, list, np.ndarray, torch.Tensor, type(None))):
        raise GraphError(
            f"{name}: edge_split: expected (train, valid, test), each of ids, a mask or None, got "
            f"{array_inputs.type_name(split)}"
        )
    parts = (None, None, None) if split is None else tuple(split)
    if len(parts) != len(_EDGE_SPLIT):
        raise GraphError(f"{name}: edge_split: expected 3 parts, got {len(parts)}")
    edge_split = SplitInput(parts=parts, names=_EDGE_SPLIT, is_random=is_random and split is None)
    return EdgeLabels(
        name=name,
        labels=classes.values,
        num_classes=classes.num_classes,
        split=edge_split.read_edges(classes.values, ends, name),
        metric=classes.metric,
    )


def _topology(
    num_vertices: int,
    number_edges: bool,
    *,
    src: Array,
    dst: Array,
    weights: Float32Array | None,
    features: Float32Array | None,
    labels: EdgeLabels | None,
    times: GraphTimes | None,
    own_times: Int64Array | None,
) -> dict[str, Any]:
    """Return the ``Graph`` fields of the topology, edges sorted by destination, time and source.

    ``number_edges``: whether ``edges`` has each edge's index in the input. ``own_times`` are those
    of the edges without their sources'.
    """
    listed = features is not None or labels is not None
    ends = np.stack([src, dst], axis=1) if listed else None
    if weights is None and features is None and times is None and not number_edges:
        indptr, indices = in_neighbors(src, dst, num_vertices)
        return {"indptr": indptr, "indices": indices, "edges": EdgeData(ends=ends, labels=labels)}
    indptr, order = edge_order(src, dst, num_vertices)
    if times is not None:
        list_times = times.edges[order]
        sort_by_time(indptr, list_times, [order])
        times = replace(times, edges=list_times)
    edges = EdgeData(
        ends=ends,
        labels=labels,
        row_times=own_times if listed else None,
        weights=None if weights is None else weights[order],
        ids=order.astype(np.int64, copy=False) if number_edges else None,
        rows=None if features is None else order.astype(np.uint32),
        features=features,
    )
    return {"indptr": indptr, "indices": src[order], "edges": edges, "times": times}


def in_neighbors(src: Array, dst: Array, num_vertices: int) -> tuple[Int64Array, IntArray]:
    """Return edges as CSC: ``indptr`` int64, and sources, ascending for each destination."""
    indptr = _list_starts(dst, num_vertices)
    indices = np.empty(len(src), src.dtype)
    ops.csc_fill(src, dst, 0, num_vertices, indptr[:-1].copy(), indices)
    return ops.csc_sort(indptr, indices, False, usable_cores()), indices


def edge_order(src: Array, dst: Array, num_vertices: int) -> tuple[Int64Array, IntArray]:
    """Return CSC ``indptr``, and the indices of the edges by destination, source and input order.

    Memory is about four arrays of ``num_edges`` numbers: of 4 bytes below 2^31, else of 8.
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
    """Return CSC ``indptr`` ``[num_vertices + 1]`` of edges with the destinations ``dst``."""
    indptr = np.zeros(num_vertices + 1, np.int64)
    ops.count_in_degrees(dst, indptr[1:])
    return np.cumsum(indptr, out=indptr)
