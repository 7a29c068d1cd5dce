"""Graphs in memory: from arrays, from a DGL graph, from a PyG ``Data``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from gnnscale import ops
from gnnscale.dataset.checks import check_features, check_ids, checked_labels, count_classes
from gnnscale.graph import FEATURE_DTYPES, METRICS, Graph, GraphError, vertex_dtype
from gnnscale.hardware import usable_cores

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

    Raises:
        GraphError: an id is out of range, a feature not finite, a label not a class, or lengths
            differ.
    """
    src, dst = edges
    check_ids(src, len(features), f"{name}: edge sources")
    check_ids(dst, len(features), f"{name}: edge destinations")
    if len(src) != len(dst):
        raise GraphError(f"{name}: {len(src)} edge sources, {len(dst)} destinations")
    indptr, indices = _csc(src, dst, len(features))
    return _graph(
        indptr,
        indices,
        features,
        labels,
        (train_idx, valid_idx, test_idx),
        num_classes=num_classes,
        metric=metric,
        name=name,
    )


def from_dgl(
    graph: dgl.DGLGraph,
    *,
    features: str = "feat",
    labels: str = "label",
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
        name: what reports call it.
        metric: None for accuracy, micro-F1 where labels are multi-label.
    """
    if not graph.is_homogeneous:
        raise GraphError(f"{name}: has several vertex or edge types, allowed is one")
    src, dst = graph.edges()
    return _from_peer(graph.ndata, (src, dst), features, labels, name, metric)


def from_pyg(
    data: torch_geometric.data.Data, *, name: str = "graph", metric: str | None = None
) -> Graph:
    """Make a Graph from a homogeneous PyG ``Data`` with ``x``, ``edge_index`` and perhaps ``y``.

    Features are shared, not copied. Edges keep their direction: in PyG too, ``edge_index[0]``
    sends messages to ``edge_index[1]``. Splits are ``train_mask``, ``val_mask`` and
    ``test_mask``, where it has them.
    """
    fields = data.to_dict()
    if fields.get("edge_index") is None:
        raise GraphError(f"{name}: has no edge_index")
    src, dst = fields["edge_index"]
    return _from_peer(fields, (src, dst), "x", "y", name, metric)


def _from_peer(
    fields: Any,
    edges: tuple[torch.Tensor, torch.Tensor],
    features: str,
    labels: str,
    name: str,
    metric: str | None,
) -> Graph:
    if fields.get(features) is None:
        raise GraphError(f"{name}: has no features {features!r}")
    y = fields.get(labels)
    if y is not None:
        y = y.numpy()
        y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    masks = (fields.get(f"{part}_mask") for part in ("train", "val", "test"))
    train, valid, test = (
        None if mask is None else np.flatnonzero(mask.numpy().reshape(len(mask), -1)[:, 0])
        for mask in masks
    )
    return from_arrays(
        (edges[0].numpy(), edges[1].numpy()),
        fields[features],
        y,
        train_idx=train,
        valid_idx=valid,
        test_idx=test,
        metric=metric,
        name=name,
    )


def _csc(
    src: NDArray[Any], dst: NDArray[Any], num_vertices: int
) -> tuple[NDArray[np.int64], NDArray[np.integer]]:
    """Sort edges into in-neighbour lists; edges that repeat stay."""
    dtype = vertex_dtype(num_vertices)
    src, dst = (np.ascontiguousarray(end, dtype=dtype) for end in (src, dst))
    in_degrees = np.zeros(num_vertices, np.int64)
    ops.count_in_degrees(dst, in_degrees)
    indptr = np.concatenate([[0], np.cumsum(in_degrees)])
    indices = np.empty(len(src), dtype)
    ops.csc_fill(src, dst, 0, num_vertices, indptr[:-1].copy(), indices)
    return ops.csc_sort(indptr, indices, False, usable_cores()), indices


def _graph(
    indptr: NDArray[np.int64],
    indices: NDArray[np.integer],
    features: NDArray[Any] | torch.Tensor,
    labels: NDArray[Any] | None,
    split: tuple[NDArray[Any] | None, ...],
    *,
    num_classes: int | None,
    metric: str | None,
    name: str,
) -> Graph:
    num_vertices = len(indptr) - 1
    rows, feature_dtype = _feature_rows(features, name)
    if labels is None:
        labels, num_classes = np.full(num_vertices, -1), num_classes or 0
    elif num_classes is None:
        num_classes = count_classes(labels, f"{name}: labels")
    metric = metric or ("micro_f1" if labels.ndim == 2 else "accuracy")
    if metric not in METRICS:
        raise GraphError(f"{name}: metric {metric!r}, allowed are {', '.join(METRICS)}")
    labels = checked_labels(
        labels, num_vertices=num_vertices, num_classes=num_classes, source=f"{name}: labels"
    )
    parts = [
        np.empty(0, indices.dtype) if ids is None else np.sort(np.asarray(ids)) for ids in split
    ]
    for part, ids in zip(("train", "valid", "test"), parts, strict=True):
        check_ids(ids, num_vertices, f"{name}: {part} split")
    train_idx, valid_idx, test_idx = (ids.astype(indices.dtype) for ids in parts)
    return Graph(
        name=name,
        indptr=indptr,
        indices=indices,
        features=rows,
        feature_dtype=feature_dtype,
        labels=labels,
        num_classes=num_classes,
        train_idx=train_idx,
        valid_idx=valid_idx,
        test_idx=test_idx,
        metric=metric,
    )


def _feature_rows(features: NDArray[Any] | torch.Tensor, name: str) -> tuple[NDArray[Any], str]:
    """Return the rows as NumPy sees them, and the entry of ``FEATURE_DTYPES`` they are."""
    if features.ndim != 2:
        raise GraphError(f"{name}: features are {list(features.shape)}, allowed is two axes")
    if not isinstance(features, torch.Tensor):
        features = torch.from_numpy(features)
    features = features.detach()
    dtype = str(features.dtype).removeprefix("torch.")
    if dtype not in FEATURE_DTYPES:
        raise GraphError(f"{name}: features are {dtype}, allowed are {', '.join(FEATURE_DTYPES)}")
    if dtype == "bfloat16":
        if not torch.isfinite(features).all():
            raise GraphError(f"{name}: features must be finite")
        return features.view(torch.int16).numpy().view(np.uint16), dtype
    rows: NDArray[Any] = features.numpy()
    check_features(rows, 0, f"{name}: features")
    return rows, dtype
