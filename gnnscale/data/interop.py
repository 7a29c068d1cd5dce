"""Graphs in memory: from arrays, from a DGL graph, from a PyG ``Data``."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from gnnscale import ops
from gnnscale.core import Array, GraphError, brief, standard_arithmetic, usable_cores
from gnnscale.core.types import Float32Array, Int64Array, IntArray
from gnnscale.data import array_inputs, validation
from gnnscale.graph import EdgeData, EdgeLabels, Graph, Origin, Split, SplitSource
from gnnscale.graph.store_format import METRICS, vertex_dtype

if TYPE_CHECKING:
    import dgl
    import torch_geometric.data


_MASKS = ("train_mask", "val_mask", "test_mask")
_PYG_SPLIT = SplitSource(
    names=("data.train_mask", "data.val_mask", "data.test_mask"),
    hint="torch_geometric.transforms.RandomNodeSplit draws all three",
)
_DGL_SPLIT = SplitSource(
    names=("ndata['train_mask']", "ndata['val_mask']", "ndata['test_mask']"),
    hint="give each as a tensor of booleans",
)


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
    """Return a Graph of an edge list and arrays. Contiguous features are shared, except float64.

    Args:
        edges: ``(src, dst)``, integers; ``src[i]`` sends messages to ``dst[i]``.
        features: ``[num_vertices, num_features]`` float32, float16, bfloat16 (torch) or uint8;
            float64 is converted to float32.
        labels: classes ``[num_vertices]``, -1 if unknown; multi-label zeros and ones
            ``[num_vertices, num_classes]`` (classes if one-hot); or floating point regression
            targets ``[num_vertices]`` or ``[num_vertices, k]``, NaN if unknown.
        train_idx, valid_idx, test_idx: vertex ids, or a mask ``[num_vertices]``; None: no vertex.
        num_classes: number of classes. None: the largest class present, plus one.
        metric: one of ``METRICS``. None: accuracy, micro-F1 for multi-label, RMSE for floating
            point. With a metric of classes, floating point labels are classes, NaN if unknown.
        name: name of the graph in reports.
        edge_weights: ``[num_edges]`` finite, non-negative numbers. None: all weights are 1.
        edge_features: ``[num_edges, num_edge_features]`` or ``[num_edges]`` finite numbers,
            converted to float32.
        edge_labels: ``[num_edges]`` classes or regression targets.
        edge_split: train, valid and test edges: indices into ``edges``, or masks ``[num_edges]``.
        number_edges: whether ``Graph.edge_ids`` has the index of each edge in ``edges``.
        advises: whether to warn about feature magnitudes that impede training.

    Raises:
        GraphError: an id is out of range, a number is not finite, a weight is negative, a label is
            not a class, parts of the split overlap, or a type, axis or length differs.
    """
    vertices = _read_vertices(
        features, labels, (train_idx, valid_idx, test_idx), num_classes, metric, name, advises
    )
    num_vertices = len(vertices["features"])
    edge_data = _read_edges(edges, edge_weights, num_vertices, name)
    edge_data |= _read_edge_data(
        edge_features, edge_labels, edge_split, len(edge_data["src"]), name, advises
    )
    return Graph(name=name, **vertices, **_topology(num_vertices, number_edges, **edge_data))


def _read_vertices(
    features: Any,
    labels: Any,
    split: tuple[Any, Any, Any],
    num_classes: int | None,
    metric: str | None,
    name: str,
    advises: bool,
) -> dict[str, Any]:
    """Return the ``Graph`` fields of features, labels and split; GraphError if not valid."""
    rows, feature_dtype = array_inputs.feature_rows(features, name, advises=advises)
    if metric is not None and metric not in METRICS:
        raise GraphError(f"{name}: metric={brief(metric)!r}: expected one of {', '.join(METRICS)}")
    vertex_labels = array_inputs.graph_labels(
        labels, num_classes=num_classes, metric=metric, num_vertices=len(rows), name=name
    )
    train, valid, test = array_inputs.split_parts(split, len(rows), name)
    return {
        "features": rows,
        "feature_dtype": feature_dtype,
        "labels": vertex_labels.values,
        "num_classes": vertex_labels.num_classes,
        "split": Split(train_idx=train, valid_idx=valid, test_idx=test),
        "metric": vertex_labels.metric,
    }


def _read_edges(edges: Any, edge_weights: Any, num_vertices: int, name: str) -> dict[str, Any]:
    """Return ``src``, ``dst`` and ``weights`` (or None) of all edges; GraphError if not valid."""
    if not isinstance(edges, (tuple, list, np.ndarray, torch.Tensor)):
        raise GraphError(
            f"{name}: edges: expected (src, dst), ids of the ends of each edge, got "
            f"{array_inputs.describe_graph(edges)}"
        )
    if isinstance(edges, (np.ndarray, torch.Tensor)):
        edges = np.atleast_1d(array_inputs.as_array(edges, f"{name}: edges"))
    if len(edges) != 2:
        raise GraphError(f"{name}: edges: expected 2 rows, (src, dst), got {len(edges)}")
    src, dst = (
        array_inputs.vertex_ids(end, num_vertices, f"{name}: edge {what}")
        for end, what in zip(edges, ("sources", "destinations"), strict=True)
    )
    if len(src) != len(dst):
        raise GraphError(f"{name}: {len(src)} edge sources, {len(dst)} destinations")
    weights = None
    if edge_weights is not None:
        what = f"{name}: edge weights"
        values = array_inputs.as_array(edge_weights, what)
        weights = validation.check_weights(values, len(src), what)
    return {"src": src, "dst": dst, "weights": weights}


def _read_edge_data(
    edge_features: Any, edge_labels: Any, edge_split: Any, num_edges: int, name: str, advises: bool
) -> dict[str, Any]:
    """Return checked ``features`` and ``labels`` of edges by name, None if not given."""
    features = labels = None
    if edge_features is not None:
        features = array_inputs.edge_features(edge_features, num_edges, name, advises=advises)
    if edge_labels is not None:
        labels = array_inputs.edge_labels(edge_labels, edge_split, num_edges, name)
    elif edge_split is not None:
        raise GraphError(f"{name}: edge_split without edge_labels")
    return {"features": features, "labels": labels}


@standard_arithmetic()
def from_dgl(
    graph: "dgl.DGLGraph",
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
    """Return a Graph of a homogeneous DGL graph. Features are shared as in ``from_arrays``.

    Edges keep their direction, from source to destination. The split consists of the fields
    ``train_mask``, ``val_mask`` and ``test_mask`` if present.

    Args:
        graph: DGL graph on the CPU.
        features: key of the features in ``graph.ndata``. None: vertices have no features.
        labels: key of the labels in ``graph.ndata``; the field may be missing.
        edge_weight: key of the weights in ``graph.edata``, one number an edge. None: all weights
            are 1.
        edge_feature: key of the features in ``graph.edata``, a row or a number an edge. None:
            edges have no features.
        number_edges: whether ``Graph.edge_ids`` has DGL's edge ids.
        name: name of the graph in reports.
        metric: as for ``from_arrays``.
        advises: as for ``from_arrays``.

    Raises:
        GraphError: ``from_arrays`` refuses an array; the graph is heterogeneous; or a field is
            missing.
    """
    if not array_inputs.is_instance_of(graph, "dgl", "DGLGraph"):
        raise GraphError(f"{name}: expected a DGL graph, got {array_inputs.describe_graph(graph)}")
    if not graph.is_homogeneous:
        raise GraphError(f"{name}: expected one vertex type and one edge type, got several")
    return _from_peer(
        *(graph.ndata, graph.edges(order="eid"), features, labels, graph.num_nodes()),
        name=name,
        split=_DGL_SPLIT,
        metric=metric,
        edge_weights=_edge_weights(graph.edata, edge_weight, name),
        edge_features=_edge_field(graph.edata, edge_feature, name, "features"),
        number_edges=number_edges,
        advises=advises,
    )


@standard_arithmetic()
def from_pyg(
    data: "torch_geometric.data.Data",
    *,
    edge_weight: str | None = "edge_weight",
    edge_attr: str | None = "edge_attr",
    number_edges: bool = False,
    name: str = "graph",
    metric: str | None = None,
    advises: bool = True,
) -> Graph:
    """Return a Graph of a homogeneous PyG ``Data``. Features are shared as in ``from_arrays``.

    Edges keep their direction: ``edge_index[0]`` sends messages to ``edge_index[1]``. Fields ``y``,
    ``train_mask``, ``val_mask`` and ``test_mask`` are optional; ``x`` is, if ``num_nodes`` is set.

    Args:
        data: PyG data on the CPU.
        edge_weight: field of the weights, one number an edge; the default field may be missing.
            None: all weights are 1.
        edge_attr: field of the edge features, ``[num_edges, num_edge_features]`` or
            ``[num_edges]``; the default field may be missing. None: edges have no features.
        number_edges: whether ``Graph.edge_ids`` has the column numbers of ``edge_index``.
        name: name of the graph in reports.
        metric: as for ``from_arrays``.
        advises: as for ``from_arrays``.

    Raises:
        GraphError: ``from_arrays`` refuses an array; the data are heterogeneous; or a field is
            missing.
    """
    if not array_inputs.is_instance_of(data, "torch_geometric", "data.Data"):
        raise GraphError(
            f"{name}: expected a torch_geometric.data.Data, got {array_inputs.describe_graph(data)}"
        )
    fields = data.to_dict()
    edges = _edge_index(fields, name)
    if edge_weight == "edge_weight" and fields.get(edge_weight) is None:
        edge_weight = None
    if edge_attr == "edge_attr" and (fields.get(edge_attr) is None or edge_weight == edge_attr):
        edge_attr = None
    features = None if fields.get("x") is None and fields.get("num_nodes") is not None else "x"
    return _from_peer(
        *(fields, (edges[0], edges[1]), features, "y", fields.get("num_nodes", 0)),
        name=name,
        split=_PYG_SPLIT,
        metric=metric,
        edge_weights=_edge_weights(fields, edge_weight, name),
        edge_features=_edge_field(fields, edge_attr, name, "features"),
        number_edges=number_edges,
        advises=advises,
    )


def _edge_index(fields: Any, name: str) -> Array:
    """Return ``edge_index`` ``[2, num_edges]`` in the fields of PyG data; GraphError without it."""
    if fields.get("edge_index") is None:
        sparse = fields.get("adj_t") is not None
        hint = "; it has adj_t: leave out the transform ToSparseTensor" if sparse else ""
        raise GraphError(f"{name}: has no edge_index{hint}")
    edges = array_inputs.as_array(fields["edge_index"], f"{name}: edge_index")
    if edges.ndim != 2 or len(edges) != 2:
        raise GraphError(f"{name}: edge_index: expected [2, num_edges], got {list(edges.shape)}")
    return edges


def _edge_weights(fields: Any, key: str | None, name: str) -> Array | None:
    """Return edge weights ``fields[key]`` ``[num_edges]``; None if ``key`` is None."""
    values = _edge_field(fields, key, name, "weights")
    if values is None:
        return None
    weights = array_inputs.as_array(values, f"{name}: edge weights {key!r}")
    if weights.ndim != 1:
        raise GraphError(
            f"{name}: edge weights {key!r}: expected one axis, got {list(weights.shape)}"
        )
    return weights


def _edge_field(fields: Any, key: str | None, name: str, what: str) -> Any:
    """Return edge data ``fields[key]``, None if ``key`` is None; GraphError: it is missing."""
    if key is not None and fields.get(key) is None:
        raise GraphError(f"{name}: has no edge {what} {key!r}")
    return None if key is None else fields[key]


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
        y = array_inputs.as_array(y, f"{name}: labels {labels!r}")
    train, valid, test = (
        _masked(fields.get(mask), len(rows), f"{name}: {mask}") for mask in _MASKS
    )
    graph = from_arrays(
        edges, rows, y, train_idx=train, valid_idx=valid, test_idx=test, name=name, **options
    )
    return replace(graph, origin=Origin(split=split))


def _masked(mask: Any, num_vertices: int, what: str) -> Int64Array | None:
    """Return the vertex ids that a mask selects, or None without a mask.

    Of a matrix of masks ``[num_vertices, k]`` the first column counts.
    """
    if mask is None:
        return None
    mask = array_inputs.as_array(mask, what)
    if mask.dtype.kind not in "bu" or mask.ndim not in (1, 2) or 0 in mask.shape[1:]:
        raise GraphError(
            f"{what}: expected bool[{num_vertices}], got {mask.dtype}{list(mask.shape)}"
        )
    if len(mask) != num_vertices:
        raise GraphError(f"{what}: {len(mask)} entries for {num_vertices} vertices")
    return np.flatnonzero(mask.reshape(num_vertices, -1)[:, 0])


def _topology(
    num_vertices: int,
    number_edges: bool,
    *,
    src: Array,
    dst: Array,
    weights: Float32Array | None,
    features: Float32Array | None,
    labels: EdgeLabels | None,
) -> dict[str, Any]:
    """Return the ``Graph`` fields ``indptr``, ``indices`` and ``edges``, sorted by destination.

    ``number_edges``: whether ``edges`` has each edge's index in the input.
    """
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
