"""Graphs in memory from objects of PyG, DGL and OGB."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from gnnscale.core import Array, GraphError, brief, standard_arithmetic
from gnnscale.data import array_inputs
from gnnscale.data.array_inputs import is_instance_of
from gnnscale.data.interop import GraphInputs, make_graph
from gnnscale.data.split_input import SplitInput
from gnnscale.data.validation import PART_NAMES
from gnnscale.graph import Graph

if TYPE_CHECKING:
    import dgl
    import torch_geometric.data

_LOG = logging.getLogger(__name__)
#: Metrics of OGB's data sets.
_OGB_METRICS = {"acc": "accuracy", "rocauc": "roc_auc"}
#: OGB's names of PyG's fields.
_OGB_FIELDS = {"node_feat": "x", "edge_feat": "edge_attr"}


@dataclass(frozen=True, kw_only=True)
class PeerGraph:
    """Graph of another library, with what its data set says about it."""

    graph: Any
    labels: Any = None  #: labels beside the graph. None: the graph has them
    split: Any = None  #: dictionary of ids by part. None: the graph has the split
    metric: str | None = None  #: metric of the data set. None: unknown


def single_graph(data: Any, name: str) -> PeerGraph:
    """Return the only graph of ``data``, a data set of PyG, DGL or OGB, or a graph itself.

    A pair of a graph and labels, as OGB has it, is one graph. GraphError, naming the graph
    ``name``: a data set has several graphs.
    """
    if hasattr(type(data), "get_idx_split"):
        metric = _OGB_METRICS.get(getattr(data, "eval_metric", None) or "")
        single = single_graph(data[0], name)
        return PeerGraph(
            graph=single.graph, labels=single.labels, split=data.get_idx_split(), metric=metric
        )
    if is_instance_of(data, "torch_geometric", "data.Dataset") or is_instance_of(
        data, "dgl.data", "DGLDataset"
    ):
        if len(data) != 1:
            raise GraphError(
                f"{name}: the data set {array_inputs.type_name(data)} has {len(data)} graphs; "
                "expected one: dataset[0] is the first"
            )
        return single_graph(data[0], name)
    if isinstance(data, tuple) and len(data) == 2 and is_peer(data[0]):
        return PeerGraph(graph=data[0], labels=data[1])
    return PeerGraph(graph=data)


def is_peer(data: Any) -> bool:
    """Whether ``data`` is a graph, or a data set of graphs, of PyG, DGL or OGB."""
    kinds = (
        *(("torch_geometric", kind) for kind in ("data.Data", "data.HeteroData", "data.Dataset")),
        *(("dgl", "DGLGraph"), ("dgl.data", "DGLDataset")),
    )
    if any(is_instance_of(data, *kind) for kind in kinds) or _is_ogb_graph(data):
        return True
    is_pair = isinstance(data, tuple) and len(data) == 2
    return hasattr(type(data), "get_idx_split") or (is_pair and is_peer(data[0]))


def _is_ogb_graph(data: Any) -> bool:
    return isinstance(data, dict) and ("edge_index" in data or "edge_index_dict" in data)


def from_peer(
    data: Any, *, split: Any = None, mask: int | None = None, advises: bool = True
) -> Graph:
    """Return a Graph of ``data``, of which ``is_peer`` is true, with the usual names of fields."""
    single = single_graph(data, "graph")
    if is_instance_of(single.graph, "dgl", "DGLGraph"):
        features = "feat" if single.graph.is_homogeneous and "feat" in single.graph.ndata else None
        return from_dgl(data, features=features, split=split, mask=mask, advises=advises)
    return from_pyg(data, split=split, mask=mask, advises=advises)


@standard_arithmetic()
def from_dgl(
    graph: "dgl.DGLGraph",
    *,
    features: str | None = "feat",
    labels: str = "label",
    split: str | Mapping[str, Any] | None = None,
    mask: int | None = None,
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
        graph: DGL graph on the CPU, or a data set of one graph, or OGB's pair of graph and labels.
        features: key of the features in ``graph.ndata``. None: vertices have no features.
        labels: key of the labels in ``graph.ndata``; the default field may be missing.
        split, mask: as for ``from_arrays``.
        edge_weight: key of the weights in ``graph.edata``, one number an edge. None: all weights
            are 1.
        edge_feature: key of the features in ``graph.edata``, a row or a number an edge. None:
            edges have no features.
        number_edges: whether ``Graph.edge_ids`` has DGL's edge ids.
        name, metric, advises: as for ``from_arrays``.

    Raises:
        GraphError: ``from_arrays`` refuses an array; the graph is heterogeneous; or a field is
            missing.
    """
    single = single_graph(graph, name)
    graph = single.graph
    if not is_instance_of(graph, "dgl", "DGLGraph"):
        raise GraphError(f"{name}: expected a DGL graph, got {array_inputs.describe_graph(graph)}")
    if not graph.is_homogeneous:
        raise GraphError(f"{name}: expected one vertex type and one edge type, got several")
    _check_dgl_fields(graph, features, labels, name, advises)
    split = single.split if split is None and mask is None else split
    inputs = GraphInputs(
        # Graphs of DGL's formats csr and csc alone do not list edges by number.
        edges=graph.formats("coo").edges(order="eid"),
        features=None if features is None else graph.ndata[features],
        labels=graph.ndata.get(labels) if single.labels is None else single.labels,
        num_vertices=graph.num_nodes(),
        split=SplitInput.of_fields(graph.ndata, "ndata['{}']", name).chosen(split, mask, name),
        edge_weights=_edge_field(graph.edata, edge_weight, "edata[{!r}]", name),
        edge_features=_edge_field(graph.edata, edge_feature, "edata[{!r}]", name),
        features_name=f"ndata[{features!r}]",
        labels_name=f"ndata[{labels!r}]",
        weights_name=f"edata[{edge_weight!r}]",
    )
    metric = metric or single.metric
    return make_graph(inputs, name=name, metric=metric, number_edges=number_edges, advises=advises)


@standard_arithmetic()
def from_pyg(
    data: "torch_geometric.data.Data",
    *,
    split: str | Mapping[str, Any] | None = None,
    mask: int | None = None,
    edge_weight: str | None = "edge_weight",
    edge_attr: str | None = "edge_attr",
    number_edges: bool = False,
    name: str = "graph",
    metric: str | None = None,
    advises: bool = True,
) -> Graph:
    """Return a Graph of a homogeneous PyG ``Data``. Features are shared as in ``from_arrays``.

    Edges keep their direction: ``edge_index[0]`` sends messages to ``edge_index[1]``; without
    ``edge_index``, ``adj_t`` has the edges. Fields ``y``, ``train_mask``, ``val_mask`` and
    ``test_mask`` (or ``train_idx`` and so on) are optional; ``x`` is, if ``num_nodes`` is set.

    Args:
        data: PyG data on the CPU; a ``HeteroData`` of one vertex type and one edge type; a data set
            of one graph; or OGB's pair of a dictionary of arrays and labels.
        split, mask: as for ``from_arrays``.
        edge_weight: field of the weights, one number an edge; the default field may be missing.
            None: all weights are 1.
        edge_attr: field of the edge features, ``[num_edges, num_edge_features]`` or
            ``[num_edges]``; the default field may be missing. None: edges have no features.
        number_edges: whether ``Graph.edge_ids`` has the column numbers of ``edge_index``.
        name, metric, advises: as for ``from_arrays``.

    Raises:
        GraphError: ``from_arrays`` refuses an array; the data are heterogeneous; or a field is
            missing.
    """
    single = single_graph(data, name)
    fields = pyg_fields(single.graph, name)
    if single.labels is not None:
        fields["y"] = single.labels
    edges = _edge_index(fields, name)
    if edge_weight == "edge_weight" and fields.get(edge_weight) is None:
        edge_weight = None
    if edge_attr == "edge_attr" and (fields.get(edge_attr) is None or edge_weight == edge_attr):
        edge_attr = None
    _check_pyg_fields(fields, (edge_weight, edge_attr), name, advises)
    split = single.split if split is None and mask is None else split
    inputs = GraphInputs(
        edges=(edges[0], edges[1]),
        features=fields.get("x"),
        labels=fields.get("y"),
        num_vertices=fields.get("num_nodes"),
        split=SplitInput.of_fields(fields, "data.{}", name).chosen(split, mask, name),
        edge_weights=_edge_field(fields, edge_weight, "data.{}", name),
        edge_features=_edge_field(fields, edge_attr, "data.{}", name),
        features_name="data.x",
        labels_name="data.y",
        weights_name=f"data.{edge_weight}",
    )
    metric = metric or single.metric
    return make_graph(inputs, name=name, metric=metric, number_edges=number_edges, advises=advises)


def pyg_fields(data: Any, name: str) -> dict[str, Any]:
    """Return the fields of a PyG graph, or of OGB's dictionary, by PyG's names.

    ``adj_t`` becomes ``edge_index`` and, unless all are 1, ``edge_weight`` or ``edge_attr``.
    GraphError, naming the graph ``name``: another object, several types, or no edges.
    """
    if is_instance_of(data, "torch_geometric", "data.HeteroData"):
        fields = _fields_of_types(data, name)
    elif is_instance_of(data, "torch_geometric", "data.Data"):
        fields = data.to_dict()
    elif _is_ogb_graph(data) and "edge_index" in data:
        fields = {_OGB_FIELDS.get(key, key): value for key, value in data.items()}
    else:
        raise GraphError(
            f"{name}: expected a torch_geometric.data.Data, got {array_inputs.describe_graph(data)}"
        )
    if fields.get("edge_index") is None and fields.get("adj_t") is not None:
        fields |= fields_of_adjacency(fields.pop("adj_t"), name)
    if fields.get("edge_index") is None:
        raise GraphError(f"{name}: data.edge_index is missing, and so is data.adj_t")
    return fields


def _fields_of_types(data: Any, name: str) -> dict[str, Any]:
    """Return the fields of a PyG ``HeteroData`` of one type of vertices and one of edges."""
    if len(data.node_types) != 1 or len(data.edge_types) != 1:
        vertices = ", ".join(data.node_types)
        edges = ", ".join(map("-".join, data.edge_types)) or "none"
        raise GraphError(
            f"{name}: expected one type of vertices and one of edges, got {vertices} and {edges}; "
            "data.to_homogeneous() makes them one"
        )
    (vertices,), (edges,) = data.node_stores, data.edge_stores
    return {"num_nodes": vertices.num_nodes, **dict(vertices), **dict(edges)}


def fields_of_adjacency(adjacency: Any, name: str) -> dict[str, Any]:
    """Return ``edge_index`` and the values of PyG's transposed adjacency matrix ``adj_t``.

    Row i has the in-neighbors of vertex i. The matrix is a sparse tensor, of torch or torch_sparse.
    """
    if isinstance(adjacency, torch.Tensor) and adjacency.layout != torch.strided:
        if adjacency.layout != torch.sparse_coo:
            adjacency = adjacency.to_sparse(layout=torch.sparse_coo)
        rows, columns = adjacency._indices()
        values = adjacency._values()
    elif hasattr(adjacency, "coo") and hasattr(adjacency, "storage"):
        rows, columns, values = adjacency.coo()
    else:
        raise GraphError(
            f"{name}: data.adj_t: expected a sparse tensor, got {array_inputs.type_name(adjacency)}"
        )
    fields = {"edge_index": torch.stack([columns, rows])}
    if values is not None and not bool((values == 1).all()):
        fields["edge_weight" if values.ndim == 1 else "edge_attr"] = values
    return fields


def _edge_index(fields: Any, name: str) -> Array:
    """Return ``edge_index`` ``[2, num_edges]`` in the fields of PyG data; GraphError: not so."""
    edges = array_inputs.as_array(fields["edge_index"], f"{name}: data.edge_index")
    if edges.ndim != 2 or len(edges) != 2:
        raise GraphError(
            f"{name}: data.edge_index: expected [2, num_edges], got {list(edges.shape)}"
        )
    return edges


def _check_dgl_fields(
    graph: Any, features: str | None, labels: str, name: str, advises: bool
) -> None:
    """Raise GraphError if a field of ``graph.ndata`` is missing; with ``advises``, log the rest."""
    listed = brief(", ".join(graph.ndata)) or "no field"
    for key in (features, None if labels == "label" else labels):
        if key is not None and key not in graph.ndata:
            raise GraphError(
                f"{name}: ndata[{key!r}] is missing, it has {listed}; features=None reads no "
                "features"
            )
    if advises:
        hint = "from_dgl(graph, features=KEY) reads a field"
        _tell_unread(graph.ndata, (features, labels), "ndata[{!r}]", name, hint)


def _check_pyg_fields(
    fields: Mapping[str, Any], of_edges: tuple[str | None, ...], name: str, advises: bool
) -> None:
    """Raise GraphError if vertices are missing; with ``advises``, log ``fields`` not read.

    ``of_edges`` are the fields with data of edges.
    """
    if fields.get("x") is None and fields.get("num_nodes") is None:
        raise GraphError(f"{name}: data.x is missing, and so is data.num_nodes")
    if advises:
        used = ("x", "y", "edge_index", "num_nodes", *of_edges)
        _tell_unread(fields, used, "data.{}", name, "features are to be data.x")


def _tell_unread(
    fields: Mapping[str, Any], used: tuple[str | None, ...], form: str, name: str, hint: str
) -> None:
    """Log the ``fields`` that are neither ``used`` nor the split; without features, as a warning.

    ``used`` begins with the key of the features; ``form`` makes the name in messages of a key.
    """
    known = {*used, *(key for keys in PART_NAMES for key in keys)}
    names = (key for key, value in fields.items() if value is not None and key not in known)
    unread = brief(", ".join(form.format(key) for key in names if not key.startswith("_")))
    if unread and used[0] in fields:
        _LOG.info("%s: not read: %s", name, unread)
    elif unread:
        _LOG.warning("%s: has no features; not read: %s; %s", name, unread, hint)


def _edge_field(fields: Any, key: str | None, form: str, name: str) -> Any:
    """Return edge data ``fields[key]``, None if ``key`` is None; GraphError: it is missing.

    ``form`` makes the name in errors of a key.
    """
    if key is not None and fields.get(key) is None:
        raise GraphError(f"{name}: {form.format(key)} is missing")
    return None if key is None else fields[key]
