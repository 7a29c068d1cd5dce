"""Graphs in memory: from arrays, from a DGL graph, from a PyG ``Data``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from gnnscale.dataset.checks import (
    check_features,
    check_ids,
    checked_labels,
    checked_weights,
    count_classes,
)
from gnnscale.dataset.in_neighbors import edge_order, in_neighbors
from gnnscale.errors import shown
from gnnscale.graph import (
    FEATURE_DTYPES,
    MAX_CLASSES,
    MAX_FEATURES,
    METRICS,
    Graph,
    GraphError,
    vertex_dtype,
)

if TYPE_CHECKING:
    import dgl
    import torch_geometric.data

__all__ = ["from_arrays", "from_dgl", "from_pyg"]


def from_arrays(
    edges: tuple[NDArray[Any], NDArray[Any]],
    features: NDArray[Any] | torch.Tensor,
    labels: NDArray[Any] | None = None,
    *,
    train_idx: NDArray[Any] | None = None,
    valid_idx: NDArray[Any] | None = None,
    test_idx: NDArray[Any] | None = None,
    num_classes: int | None = None,
    metric: str | None = None,
    name: str = "graph",
    edge_weights: NDArray[Any] | torch.Tensor | None = None,
    number_edges: bool = False,
) -> Graph:
    """Make a Graph from an edge list and arrays. Features are shared, not copied.

    Args:
        edges: ``(src, dst)``, whole numbers; ``src[i]`` sends messages to ``dst[i]``.
        features: ``[num_vertices, num_features]`` float32, float16, bfloat16 (torch) or uint8.
        labels: ``[num_vertices]`` classes, -1 where unknown; or ``[num_vertices, num_classes]``
            zeros and ones. None where the graph has none.
        train_idx: vertex ids; None for no vertex, likewise the next two.
        valid_idx: vertex ids.
        test_idx: vertex ids.
        num_classes: None for the largest class present.
        metric: None for accuracy, micro-F1 where labels are multi-label.
        name: what reports call it.
        edge_weights: ``[num_edges]`` numbers, finite and not negative, in the order of ``edges``;
            None where every edge counts the same.
        number_edges: keep the place that each edge has in ``edges``, as ``Graph.edge_ids``.

    Raises:
        GraphError: an id is out of range, a feature or a weight not finite, a weight negative, a
            label not a class, parts of the split overlap, or types, axes or lengths are not those
            above.
    """
    rows, feature_dtype = _feature_rows(features, name)
    num_vertices = len(rows)
    if len(edges) != 2:
        raise GraphError(f"{name}: edges have {len(edges)} rows, allowed are 2: (src, dst)")
    src, dst = (
        _ids(end, num_vertices, f"{name}: edge {what}")
        for end, what in zip(edges, ("sources", "destinations"), strict=True)
    )
    if len(src) != len(dst):
        raise GraphError(f"{name}: {len(src)} edge sources, {len(dst)} destinations")
    weights = None
    if edge_weights is not None:
        what = f"{name}: edge weights"
        weights = checked_weights(_array(edge_weights, what), len(src), what)
    classes, num_classes = _labels(labels, num_classes, num_vertices, name)
    metric = metric or ("micro_f1" if classes.ndim == 2 else "accuracy")
    if metric not in METRICS:
        raise GraphError(f"{name}: metric {shown(metric)!r}, allowed are {', '.join(METRICS)}")
    parts = _split((train_idx, valid_idx, test_idx), num_vertices, name)
    return Graph(
        name=name,
        **_topology(src, dst, num_vertices, weights, number_edges),
        features=rows,
        feature_dtype=feature_dtype,
        labels=classes,
        num_classes=num_classes,
        train_idx=parts[0],
        valid_idx=parts[1],
        test_idx=parts[2],
        metric=metric,
    )


def from_dgl(
    graph: dgl.DGLGraph,
    *,
    features: str = "feat",
    labels: str = "label",
    edge_weight: str | None = None,
    number_edges: bool = False,
    name: str = "graph",
    metric: str | None = None,
) -> Graph:
    """Make a Graph from a homogeneous DGL graph. Features are shared, not copied.

    Edges keep their direction: in DGL too, messages go from source to destination. Splits are
    ``train_mask``, ``val_mask`` and ``test_mask``, where it has them.

    Args:
        graph: DGL graph on the CPU.
        features: key of the features in ``graph.ndata``.
        labels: key of the labels, which may be missing.
        edge_weight: key of the weights in ``graph.edata``, one number for each edge; None where
            every edge counts the same.
        number_edges: keep DGL's numbers of the edges, as ``Graph.edge_ids``.
        name: what reports call it.
        metric: None for accuracy, micro-F1 where labels are multi-label.

    Raises:
        GraphError: as ``from_arrays`` does; the graph has several types, no features, or no weights
            of that name.
    """
    if not graph.is_homogeneous:
        raise GraphError(f"{name}: has several vertex or edge types, allowed is one")
    src, dst = graph.edges(order="eid")
    weights = None
    if edge_weight is not None:
        weights = _edge_weights(graph.edata, edge_weight, name)
    return _from_peer(
        graph.ndata,
        (src, dst),
        features,
        labels,
        name=name,
        metric=metric,
        edge_weights=weights,
        number_edges=number_edges,
    )


def from_pyg(
    data: torch_geometric.data.Data,
    *,
    edge_weight: str | None = "edge_weight",
    number_edges: bool = False,
    name: str = "graph",
    metric: str | None = None,
) -> Graph:
    """Make a Graph from a homogeneous PyG ``Data`` with ``x``, ``edge_index`` and perhaps ``y``.

    Features are shared, not copied. Edges keep their direction: in PyG too, ``edge_index[0]``
    sends messages to ``edge_index[1]``. Splits are ``train_mask``, ``val_mask`` and
    ``test_mask``, where it has them.

    Args:
        data: PyG data on the CPU.
        edge_weight: field of the weights, one number for each edge. Of the fields, ``edge_weight``
            alone may be missing; None where every edge counts the same.
        number_edges: keep the columns' numbers of ``edge_index``, as ``Graph.edge_ids``.
        name: what reports call it.
        metric: None for accuracy, micro-F1 where labels are multi-label.

    Raises:
        GraphError: as ``from_arrays`` does; the data have no edges, no features, or no weights of
            that name.
    """
    fields = data.to_dict()
    if fields.get("edge_index") is None:
        raise GraphError(f"{name}: has no edge_index")
    edges = _array(fields["edge_index"], f"{name}: edge_index")
    if edges.ndim != 2 or len(edges) != 2:
        raise GraphError(f"{name}: edge_index is {list(edges.shape)}, allowed is [2, num_edges]")
    weights = None
    if edge_weight is not None and (
        edge_weight != "edge_weight" or fields.get(edge_weight) is not None
    ):
        weights = _edge_weights(fields, edge_weight, name)
    return _from_peer(
        fields,
        (edges[0], edges[1]),
        "x",
        "y",
        name=name,
        metric=metric,
        edge_weights=weights,
        number_edges=number_edges,
    )


def _edge_weights(fields: Any, key: str, name: str) -> NDArray[Any]:
    """Return the weights, one axis, from the fields of edges of a peer's graph."""
    values = fields.get(key)
    if values is None:
        raise GraphError(f"{name}: has no edge weights {key!r}")
    weights = _array(values, f"{name}: edge weights {key!r}")
    if weights.ndim != 1:
        raise GraphError(
            f"{name}: edge weights {key!r} are {list(weights.shape)}, allowed is one axis"
        )
    return weights


def _from_peer(
    fields: Any,
    edges: tuple[NDArray[Any], NDArray[Any]],
    features: str,
    labels: str,
    *,
    name: str,
    **options: Any,
) -> Graph:
    rows = fields.get(features)
    if rows is None:
        raise GraphError(f"{name}: has no features {features!r}")
    y = fields.get(labels)
    if y is not None:
        y = _array(y, f"{name}: labels {labels!r}")
        y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    train, valid, test = (
        _masked(fields.get(mask), len(rows), f"{name}: {mask}")
        for mask in ("train_mask", "val_mask", "test_mask")
    )
    return from_arrays(
        edges, rows, y, train_idx=train, valid_idx=valid, test_idx=test, name=name, **options
    )


def _masked(mask: Any, num_vertices: int, what: str) -> NDArray[np.int64] | None:
    """Return the vertices that a mask names; of several masks, its columns, the first counts."""
    if mask is None:
        return None
    mask = _array(mask, what)
    if mask.dtype.kind not in "bu" or mask.ndim not in (1, 2) or 0 in mask.shape[1:]:
        raise GraphError(
            f"{what} is {mask.dtype}{list(mask.shape)}, allowed is bool[{num_vertices}]"
        )
    if len(mask) != num_vertices:
        raise GraphError(f"{what}: {len(mask)} entries for {num_vertices} vertices")
    return np.flatnonzero(mask.reshape(num_vertices, -1)[:, 0])


def _array(values: Any, what: str) -> NDArray[Any]:
    """Return a tensor in main memory, an array or a list as NumPy sees it."""
    if isinstance(values, torch.Tensor):
        _check_dense(values, what)
        values = values.detach()
    try:
        return np.asarray(values)
    except (TypeError, ValueError) as error:  # a type that NumPy lacks; a ragged list
        raise GraphError(f"{what}: not an array ({error})") from None


def _check_dense(tensor: torch.Tensor, what: str) -> None:
    if tensor.layout != torch.strided or tensor.device.type != "cpu":
        raise GraphError(
            f"{what}: {shown(tensor.layout)} on {tensor.device}, allowed is a dense tensor on cpu"
        )


def _ids(values: Any, num_vertices: int, what: str) -> NDArray[np.integer]:
    """Return vertex ids, one axis, in range, in the type that holds them."""
    ids = _array(values, what)
    if ids.ndim != 1:
        raise GraphError(f"{what} are {list(ids.shape)}, allowed is one axis")
    if ids.dtype.kind == "b":
        raise GraphError(f"{what} are a mask, allowed are ids, as numpy.flatnonzero gives them")
    if len(ids):  # an empty list is float64 to NumPy
        check_ids(ids, num_vertices, what)
    return np.ascontiguousarray(ids, dtype=vertex_dtype(num_vertices))


def _split(parts: tuple[Any, ...], num_vertices: int, name: str) -> list[NDArray[np.integer]]:
    """Return sorted ids of the three parts, which may be empty and must not overlap."""
    seen = np.zeros(num_vertices, np.bool_)
    found = []
    for part, values in zip(("train", "valid", "test"), parts, strict=True):
        ids = np.sort(_ids([] if values is None else values, num_vertices, f"{name}: {part} split"))
        twice = seen[ids]
        twice[1:] |= ids[1:] == ids[:-1]
        if twice.any():
            raise GraphError(
                f"{name}: {part} split: vertex {ids[twice.argmax()]} is in the split already"
            )
        seen[ids] = True
        found.append(ids)
    return found


def _labels(
    values: Any, num_classes: int | None, num_vertices: int, name: str
) -> tuple[NDArray[np.integer], int]:
    """Return labels as a Graph holds them, and how many classes there are."""
    if num_classes is not None and not (
        isinstance(num_classes, (int, np.integer)) and 0 <= num_classes <= MAX_CLASSES
    ):
        raise GraphError(
            f"{name}: num_classes {shown(num_classes)}, allowed are 0 to {MAX_CLASSES}"
        )
    if values is None:
        return np.full(num_vertices, -1), num_classes or 0
    what = f"{name}: labels"
    labels = _array(values, what)
    if labels.ndim not in (1, 2) or labels.dtype.kind not in "biuf":
        raise GraphError(
            f"{what} are {labels.dtype}{list(labels.shape)}, allowed are classes[num_vertices] or "
            "zeros and ones [num_vertices, num_classes]"
        )
    if num_classes is None:
        num_classes = count_classes(labels, what)
    if num_classes > MAX_CLASSES:
        raise GraphError(f"{what}: {num_classes} classes, allowed are up to {MAX_CLASSES}")
    if labels.ndim == 2 and labels.shape[1] != num_classes:
        raise GraphError(f"{what}: {labels.shape[1]} columns for {num_classes} classes")
    checked = checked_labels(
        labels, num_vertices=num_vertices, num_classes=num_classes, source=what
    )
    return checked, num_classes


def _topology(
    src: NDArray[Any],
    dst: NDArray[Any],
    num_vertices: int,
    weights: NDArray[np.float32] | None,
    number_edges: bool,
) -> dict[str, Any]:
    """Return what a Graph holds of the edges."""
    if weights is None and not number_edges:
        indptr, indices = in_neighbors(src, dst, num_vertices)
        return {"indptr": indptr, "indices": indices}
    indptr, order = edge_order(src, dst, num_vertices)
    return {
        "indptr": indptr,
        "indices": src[order],
        "edge_weights": None if weights is None else weights[order],
        "edge_ids": order.astype(np.int64, copy=False) if number_edges else None,
    }


def _feature_rows(features: Any, name: str) -> tuple[NDArray[Any], str]:
    """Return the rows as NumPy sees them, and the entry of ``FEATURE_DTYPES`` they are."""
    what = f"{name}: features"
    if isinstance(features, torch.Tensor):
        _check_dense(features, what)
        features = features.detach()
        dtype = str(features.dtype).removeprefix("torch.")
    else:
        features = _array(features, what)
        dtype = str(features.dtype).replace("bfloat16", "bfloat16 of another library")
    if features.ndim != 2:
        raise GraphError(f"{what} are {list(features.shape)}, allowed is two axes")
    # A graph in memory may have no features at all: samplers and loaders do without.
    if not (len(features) and features.shape[1] <= MAX_FEATURES):
        raise GraphError(
            f"{what} are {list(features.shape)}, allowed are at least one row, of at most "
            f"{MAX_FEATURES} features"
        )
    if dtype not in FEATURE_DTYPES:
        raise GraphError(f"{what} are {dtype}, allowed are {', '.join(FEATURE_DTYPES)}")
    if dtype == "bfloat16":
        if not torch.isfinite(features).all():
            raise GraphError(f"{what} must be finite")
        return features.contiguous().view(torch.int16).numpy().view(np.uint16), dtype
    rows = np.require(features, requirements=("C", "A"))
    check_features(rows, 0, what)
    return rows, dtype
