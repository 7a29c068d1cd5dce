"""Graphs in memory: from arrays, from a DGL graph, from a PyG ``Data``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from gnnscale import ops
from gnnscale.core import (
    Array,
    Float32Array,
    GraphError,
    Int64Array,
    IntArray,
    shown,
    standard_arithmetic,
    usable_cores,
)
from gnnscale.data import array_inputs as given
from gnnscale.data import validation as checks
from gnnscale.graph import EdgeData, EdgeLabels, Graph, Origin, Split, SplitSource
from gnnscale.graph.store_format import METRICS, vertex_dtype

if TYPE_CHECKING:
    import dgl
    import torch_geometric.data


_MASKS = ("train_mask", "val_mask", "test_mask")
_PYG_SPLIT = SplitSource(
    names=("data.train_mask", "data.val_mask", "data.test_mask"),
    cure="torch_geometric.transforms.RandomNodeSplit draws all three",
)
_DGL_SPLIT = SplitSource(
    names=("ndata['train_mask']", "ndata['val_mask']", "ndata['test_mask']"),
    cure="give each as a tensor of booleans",
)


def in_neighbors(src: Array, dst: Array, num_vertices: int) -> tuple[Int64Array, IntArray]:
    """Sort edges from ``src`` to ``dst``, ``[num_edges]`` int32 or int64, into in-neighbour lists.

    Returns ``indptr`` ``[num_vertices + 1]`` int64, and ``indices`` ``[num_edges]`` of the type of
    ``src``, each list in ascending order. Edges that repeat stay.
    """
    indptr = _list_starts(dst, num_vertices)
    indices = np.empty(len(src), src.dtype)
    ops.csc_fill(src, dst, 0, num_vertices, indptr[:-1].copy(), indices)
    return ops.csc_sort(indptr, indices, False, usable_cores()), indices


def edge_order(src: Array, dst: Array, num_vertices: int) -> tuple[Int64Array, IntArray]:
    """Return the order of the edges in the in-neighbour lists.

    At its peak it takes about four arrays of ``num_edges`` numbers, of 8 bytes from 2^31 edges or
    vertices on and of 4 below. Arguments and ``indptr`` are as for ``in_neighbors``; the second
    result is ``[num_edges]`` int32 or int64, edges by destination, then by source, then as given.
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


def _list_starts(dst: Array, num_vertices: int) -> Int64Array:
    """Return the start of the list of each vertex, and the end of the last."""
    indptr = np.zeros(num_vertices + 1, np.int64)
    ops.count_in_degrees(dst, indptr[1:])
    return np.cumsum(indptr, out=indptr)


@standard_arithmetic()
def from_arrays(
    edges: tuple[Array | torch.Tensor, Array | torch.Tensor],
    features: Array | torch.Tensor,
    labels: Array | torch.Tensor | None = None,
    *,
    train_idx: Array | torch.Tensor | None = None,
    valid_idx: Array | torch.Tensor | None = None,
    test_idx: Array | torch.Tensor | None = None,
    num_classes: int | None = None,
    metric: str | None = None,
    name: str = "graph",
    edge_weights: Array | torch.Tensor | None = None,
    edge_features: Array | torch.Tensor | None = None,
    edge_labels: Array | torch.Tensor | None = None,
    edge_split: tuple[Any, Any, Any] | None = None,
    number_edges: bool = False,
    advises: bool = True,
) -> Graph:
    """Make a Graph from an edge list and arrays. Features are shared, not copied.

    Args:
        edges: ``(src, dst)``, whole numbers; ``src[i]`` sends messages to ``dst[i]``.
        features: ``[num_vertices, num_features]`` float32, float16, bfloat16 (torch) or uint8;
            float64 is converted to float32, which is logged.
        labels: ``[num_vertices]`` classes, -1 if unknown; or ``[num_vertices, num_classes]``
            zeros and ones, classes if every row has a single one, else multilabel; or regression
            targets, ``[num_vertices]`` or ``[num_vertices, k]`` floating point, NaN if unknown.
            None for a graph without labels.
        train_idx: vertex ids, or a mask ``[num_vertices]`` of booleans; None for no vertex,
            likewise the next two.
        valid_idx: the same.
        test_idx: the same.
        num_classes: None for the largest class present.
        metric: one of ``METRICS``; None for accuracy, micro-F1 if labels are multi-label, the
            root mean squared error if they are floating point. With another than ``rmse``,
            floating point labels are classes, NaN if unknown.
        name: the graph's name in reports.
        edge_weights: ``[num_edges]`` numbers, finite and not negative, in the order of ``edges``;
            None if every edge counts the same.
        edge_features: ``[num_edges, num_edge_features]`` finite numbers, or ``[num_edges]`` for
            one feature, in the order of ``edges``; any type but float32 is converted to that.
            None without features of edges.
        edge_labels: as ``labels``, one class or regression target for each edge, in the order of
            ``edges``. None without.
        edge_split: numbers of the edges, or masks ``[num_edges]``, that train, validate and test
            by their labels; None for no split.
        number_edges: keep the place that each edge has in ``edges``, as ``Graph.edge_ids``.
        advises: warn of features that a model learns little of; False for a graph that a run
            predicts, and scales as it scaled its own.

    Raises:
        GraphError: an id is out of range, a number not finite, a weight negative, a label no class,
            parts of the split overlap, or types, axes or lengths are not those above.
    """
    rows, feature_dtype = given.feature_rows(features, name, advises=advises)
    num_vertices = len(rows)
    src, dst, weights = _read_edges(edges, edge_weights, num_vertices, name)
    of_edges = None
    if edge_features is not None:
        of_edges = given.edge_features(edge_features, len(src), name, advises=advises)
    of_labels = None
    if edge_labels is not None:
        of_labels = given.edge_labels(edge_labels, edge_split, len(src), name)
    elif edge_split is not None:
        raise GraphError(f"{name}: edge_split without edge_labels")
    _check_metric(metric, name)
    found = given.graph_labels(
        labels, num_classes=num_classes, metric=metric, num_vertices=num_vertices, name=name
    )
    train, valid, test = given.split_parts((train_idx, valid_idx, test_idx), num_vertices, name)
    return Graph(
        name=name,
        **_topology(src, dst, num_vertices, weights, of_edges, of_labels, number_edges),
        features=rows,
        feature_dtype=feature_dtype,
        labels=found.values,
        num_classes=found.num_classes,
        split=Split(train_idx=train, valid_idx=valid, test_idx=test),
        metric=found.metric,
    )


def _check_metric(metric: str | None, name: str) -> None:
    if metric is not None and metric not in METRICS:
        raise GraphError(f"{name}: metric {shown(metric)!r}, allowed are {', '.join(METRICS)}")


def _read_edges(
    edges: Any, edge_weights: Any, num_vertices: int, name: str
) -> tuple[Array, Array, Float32Array | None]:
    """Return sources, destinations and weights, as many of each."""
    if not isinstance(edges, (tuple, list, np.ndarray, torch.Tensor)):
        kind = given.other_graph(edges)
        raise GraphError(
            f"{name}: edges: {kind}; expected (src, dst), ids of the ends of each edge"
        )
    if isinstance(edges, (np.ndarray, torch.Tensor)):
        edges = np.atleast_1d(given.as_array(edges, f"{name}: edges"))
    if len(edges) != 2:
        raise GraphError(f"{name}: edges have {len(edges)} rows, allowed are 2: (src, dst)")
    src, dst = (
        given.vertex_ids(end, num_vertices, f"{name}: edge {what}")
        for end, what in zip(edges, ("sources", "destinations"), strict=True)
    )
    if len(src) != len(dst):
        raise GraphError(f"{name}: {len(src)} edge sources, {len(dst)} destinations")
    if edge_weights is None:
        return src, dst, None
    what = f"{name}: edge weights"
    return src, dst, checks.checked_weights(given.as_array(edge_weights, what), len(src), what)


@standard_arithmetic()
def from_dgl(
    graph: dgl.DGLGraph,
    *,
    features: str | None = "feat",
    labels: str = "label",
    edge_weight: str | None = None,
    edge_feature: str | None = None,
    number_edges: bool = False,
    name: str = "graph",
    metric: str | None = None,
    advises: bool = True,
) -> Graph:
    """Make a Graph from a homogeneous DGL graph. Features are shared, not copied.

    Edges keep their direction: in DGL too, messages go from source to destination. Splits are
    ``train_mask``, ``val_mask`` and ``test_mask``, if it has them.

    Args:
        graph: DGL graph on the CPU.
        features: key of the features in ``graph.ndata``; None for a graph without.
        labels: key of the labels, which may be missing.
        edge_weight: key of the weights in ``graph.edata``, one number for each edge; None if
            every edge counts the same.
        edge_feature: key of the features in ``graph.edata``, a row or a number for each edge; None
            without them.
        number_edges: keep DGL's numbers of the edges, as ``Graph.edge_ids``.
        name: what reports call it.
        metric: as for ``from_arrays``.
        advises: as for ``from_arrays``.

    Raises:
        GraphError: as ``from_arrays`` does; the graph has several types, no features, or no weights
            or features of edges of that name.
    """
    if not given.is_from(graph, "dgl", "DGLGraph"):
        raise GraphError(f"{name}: {given.other_graph(graph)}; from_dgl expects a DGL graph")
    if not graph.is_homogeneous:
        raise GraphError(f"{name}: has several vertex or edge types, allowed is one")
    src, dst = graph.edges(order="eid")
    weights = None if edge_weight is None else _edge_weights(graph.edata, edge_weight, name)
    of_edges = None if edge_feature is None else _edge_field(graph.edata, edge_feature, name)
    return _from_peer(
        graph.ndata,
        (src, dst),
        features,
        labels,
        graph.num_nodes(),
        name=name,
        split=_DGL_SPLIT,
        metric=metric,
        edge_weights=weights,
        edge_features=of_edges,
        number_edges=number_edges,
        advises=advises,
    )


@standard_arithmetic()
def from_pyg(
    data: torch_geometric.data.Data,
    *,
    edge_weight: str | None = "edge_weight",
    edge_attr: str | None = "edge_attr",
    number_edges: bool = False,
    name: str = "graph",
    metric: str | None = None,
    advises: bool = True,
) -> Graph:
    """Make a Graph from a homogeneous PyG ``Data``: ``edge_index``, perhaps ``x`` and ``y``.

    Features are shared, not copied; data with ``num_nodes`` may lack them. Edges keep their
    direction: in PyG too, ``edge_index[0]``
    sends messages to ``edge_index[1]``. Splits are ``train_mask``, ``val_mask`` and
    ``test_mask``, if it has them.

    Args:
        data: PyG data on the CPU.
        edge_weight: field of the weights, one number for each edge. That of the default's name may
            be missing; None if every edge counts the same.
        edge_attr: field of the features of edges, ``[num_edges, num_edge_features]`` or
            ``[num_edges]``. That of the default's name may be missing, or be the weights; None to
            leave them out.
        number_edges: keep the columns' numbers of ``edge_index``, as ``Graph.edge_ids``.
        name: what reports call it.
        metric: as for ``from_arrays``.
        advises: as for ``from_arrays``.

    Raises:
        GraphError: as ``from_arrays`` does; the data are heterogeneous, or have no edges, no
            features, or no weights or features of edges of that name.
    """
    if not given.is_from(data, "torch_geometric", "data.Data"):
        raise GraphError(
            f"{name}: {given.other_graph(data)}; from_pyg expects a torch_geometric.data.Data"
        )
    fields = data.to_dict()
    if fields.get("edge_index") is None:
        sparse = fields.get("adj_t") is not None
        cure = "; it has adj_t: leave out the transform ToSparseTensor" if sparse else ""
        raise GraphError(f"{name}: has no edge_index{cure}")
    edges = given.as_array(fields["edge_index"], f"{name}: edge_index")
    if edges.ndim != 2 or len(edges) != 2:
        raise GraphError(f"{name}: edge_index is {list(edges.shape)}, allowed is [2, num_edges]")
    if edge_weight == "edge_weight" and fields.get(edge_weight) is None:
        edge_weight = None
    if edge_attr == "edge_attr" and (fields.get(edge_attr) is None or edge_weight == edge_attr):
        edge_attr = None
    weights = None if edge_weight is None else _edge_weights(fields, edge_weight, name)
    of_edges = None if edge_attr is None else _edge_field(fields, edge_attr, name)
    return _from_peer(
        fields,
        (edges[0], edges[1]),
        None if fields.get("x") is None and fields.get("num_nodes") is not None else "x",
        "y",
        fields.get("num_nodes", 0),
        name=name,
        split=_PYG_SPLIT,
        metric=metric,
        edge_weights=weights,
        edge_features=of_edges,
        number_edges=number_edges,
        advises=advises,
    )


def _edge_weights(fields: Any, key: str, name: str) -> Array:
    """Return the weights, one axis, from the fields of edges of a peer's graph."""
    values = fields.get(key)
    if values is None:
        raise GraphError(f"{name}: has no edge weights {key!r}")
    weights = given.as_array(values, f"{name}: edge weights {key!r}")
    if weights.ndim != 1:
        raise GraphError(
            f"{name}: edge weights {key!r} are {list(weights.shape)}, allowed is one axis"
        )
    return weights


def _edge_field(fields: Any, key: str, name: str) -> Any:
    """Return the features of edges from the fields of edges of a peer's graph."""
    values = fields.get(key)
    if values is None:
        raise GraphError(f"{name}: has no edge features {key!r}")
    return values


def _from_peer(
    fields: Any,
    edges: tuple[Array, Array],
    features: str | None,
    labels: str,
    num_vertices: int,
    *,
    name: str,
    split: SplitSource,
    **options: Any,
) -> Graph:
    rows = np.zeros((num_vertices, 0), np.float32) if features is None else fields.get(features)
    if rows is None:
        raise GraphError(f"{name}: has no features {features!r}")
    y = fields.get(labels)
    if y is not None:
        y = given.as_array(y, f"{name}: labels {labels!r}")
    train, valid, test = (
        _masked(fields.get(mask), len(rows), f"{name}: {mask}") for mask in _MASKS
    )
    graph = from_arrays(
        edges, rows, y, train_idx=train, valid_idx=valid, test_idx=test, name=name, **options
    )
    return replace(graph, origin=Origin(split=split))


def _masked(mask: Any, num_vertices: int, what: str) -> Int64Array | None:
    """Return the vertices that a mask, or the first of several masks, its columns, names."""
    if mask is None:
        return None
    mask = given.as_array(mask, what)
    if mask.dtype.kind not in "bu" or mask.ndim not in (1, 2) or 0 in mask.shape[1:]:
        raise GraphError(
            f"{what} is {mask.dtype}{list(mask.shape)}, allowed is bool[{num_vertices}]"
        )
    if len(mask) != num_vertices:
        raise GraphError(f"{what}: {len(mask)} entries for {num_vertices} vertices")
    return np.flatnonzero(mask.reshape(num_vertices, -1)[:, 0])


def _topology(
    src: Array,
    dst: Array,
    num_vertices: int,
    weights: Float32Array | None,
    features: Float32Array | None,
    labels: EdgeLabels | None,
    number_edges: bool,
) -> dict[str, Any]:
    listed = features is not None or labels is not None
    ends = np.stack([src, dst], axis=1) if listed else None
    if weights is None and features is None and not number_edges:
        indptr, indices = in_neighbors(src, dst, num_vertices)
        return {"indptr": indptr, "indices": indices, "edges": EdgeData(ends=ends, labels=labels)}
    indptr, order = edge_order(src, dst, num_vertices)
    edges = EdgeData(
        ends=ends,
        labels=labels,
        weights=None if weights is None else weights[order],
        ids=order.astype(np.int64, copy=False) if number_edges else None,
        rows=None if features is None else order.astype(np.uint32),
        features=features,
    )
    return {"indptr": indptr, "indices": src[order], "edges": edges}
