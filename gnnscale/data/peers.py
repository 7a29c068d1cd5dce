"""Graphs in memory from objects of PyG, DGL and OGB."""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gnnscale.core import Array, GraphError, brief, standard_arithmetic
from gnnscale.data import array_inputs
from gnnscale.data.array_inputs import is_instance_of
from gnnscale.data.interop import GraphInputs, make_graph
from gnnscale.data.peer_fields import (
    OGB_FIELDS,
    PeerGraph,
    PeerOptions,
    fields_of_adjacency,
    has_types,
    is_hetero_data,
    pyg_times,
    time_field,
)
from gnnscale.data.split_input import SplitInput
from gnnscale.data.typed_peers import typed_graph
from gnnscale.data.validation import PART_NAMES
from gnnscale.graph import Graph, TimeUnit

if TYPE_CHECKING:
    import dgl
    import torch_geometric.data

_LOG = logging.getLogger(__name__)
#: Metrics of OGB's data sets.
_OGB_METRICS = {"acc": "accuracy", "rocauc": "roc_auc"}


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
        is_missing = not has_types(single.graph) and "feat" not in single.graph.ndata
        features = None if is_missing else "feat"
        return from_dgl(data, features=features, split=split, mask=mask, advises=advises)
    return from_pyg(data, split=split, mask=mask, advises=advises)


@standard_arithmetic()
def from_dgl(
    graph: "dgl.DGLGraph",
    *,
    features: str | None = "feat",
    labels: str = "label",
    target: str | None = None,
    split: str | Mapping[str, Any] | None = None,
    mask: int | None = None,
    edge_weight: str | None = None,
    edge_feature: str | None = None,
    vertex_time: str | None = None,
    edge_time: str | None = None,
    time_unit: TimeUnit | None = None,
    number_edges: bool = False,
    name: str = "graph",
    metric: str | None = None,
    advises: bool = True,
) -> Graph:
    """Return a Graph of a DGL graph. Features are shared as in ``from_arrays``.

    Edges keep their direction, from source to destination. The split consists of the fields
    ``train_mask``, ``val_mask`` and ``test_mask`` if present. A heterogeneous graph keeps its
    types; a type of vertices or edges may lack features.

    Args:
        graph: DGL graph on the CPU, or a data set of one graph, or OGB's pair of graph and labels.
        features: key of the features of vertices. None: vertices have no features.
        labels: key of the labels of vertices; the default field may be missing.
        target: vertex type whose labels and split are read. None: all that have labels.
        split, mask: as for ``from_arrays``.
        edge_weight: key of the weights of edges, one number an edge. None: all weights are 1.
        edge_feature: key of the features in ``graph.edata``, a row or a number an edge. None:
            edges have no features.
        vertex_time, edge_time: keys of the times from which vertices and edges are known, integers
            in ``time_unit`` (None: seconds); types may lack them. None: known at all times.
        number_edges: whether ``Graph.edge_ids`` has DGL's edge ids.
        name, metric, advises: as for ``from_arrays``.

    Raises:
        GraphError: ``from_arrays`` refuses an array; or a field is missing.
    """
    single = single_graph(graph, name)
    graph = single.graph
    if not is_instance_of(graph, "dgl", "DGLGraph"):
        raise GraphError(f"{name}: expected a DGL graph, got {array_inputs.describe_graph(graph)}")
    options = PeerOptions(
        name=name,
        features=features,
        labels=labels,
        target=target,
        split=single.split if split is None and mask is None else split,
        mask=mask,
        edge_weight=edge_weight,
        edge_features=edge_feature,
        vertex_times=() if vertex_time is None else (vertex_time,),
        edge_times=() if edge_time is None else (edge_time,),
        time_unit=time_unit,
        needs_times=True,
        number_edges=number_edges,
        metric=metric or single.metric,
        advises=advises,
        optional=("feat", "label"),
    )
    convert = typed_graph if has_types(graph) else _homogeneous_dgl
    return convert(single, options)


def _homogeneous_dgl(single: PeerGraph, options: PeerOptions) -> Graph:
    """Return the Graph of a homogeneous graph of DGL."""
    graph, name, features, labels = single.graph, options.name, options.features, options.labels
    options.check_untyped()
    _check_dgl_fields(graph, (features, labels, *options.vertex_times), name, options.advises)
    for key in options.edge_times:
        _edge_field(graph.edata, key, "edata[{!r}]", name)
    split = SplitInput.of_fields(graph.ndata, "ndata['{}']", name)
    inputs = GraphInputs(
        # Graphs of DGL's formats csr and csc alone do not list edges by number.
        edges=graph.formats("coo").edges(order="eid"),
        features=None if features is None else graph.ndata[features],
        labels=graph.ndata.get(labels) if single.labels is None else single.labels,
        num_vertices=graph.num_nodes(),
        split=split.chosen(options.split, options.mask, name),
        edge_weights=_edge_field(graph.edata, options.edge_weight, "edata[{!r}]", name),
        edge_features=_edge_field(graph.edata, options.edge_features, "edata[{!r}]", name),
        vertex_times=time_field(graph.ndata, options.vertex_times, "ndata[{!r}]", name),
        edge_times=time_field(graph.edata, options.edge_times, "edata[{!r}]", name),
        time_unit=options.time_unit,
        features_name=f"ndata[{features!r}]",
        labels_name=f"ndata[{labels!r}]",
        weights_name=f"edata[{options.edge_weight!r}]",
    )
    return _make(inputs, options)


def _make(inputs: GraphInputs, options: PeerOptions) -> Graph:
    return make_graph(
        inputs,
        name=options.name,
        metric=options.metric,
        number_edges=options.number_edges,
        advises=options.advises,
    )


@standard_arithmetic()
def from_pyg(
    data: "torch_geometric.data.Data | torch_geometric.data.HeteroData",
    *,
    target: str | None = None,
    split: str | Mapping[str, Any] | None = None,
    mask: int | None = None,
    edge_weight: str | None = "edge_weight",
    edge_attr: str | None = "edge_attr",
    time: str | None = "time",
    time_unit: TimeUnit | None = None,
    number_edges: bool = False,
    name: str = "graph",
    metric: str | None = None,
    advises: bool = True,
) -> Graph:
    """Return a Graph of PyG's ``Data`` or ``HeteroData``, features shared as in ``from_arrays``.

    Edges keep their direction: ``edge_index[0]`` sends messages to ``edge_index[1]``; without
    ``edge_index``, ``adj_t`` has the edges. Fields ``y``, ``train_mask``, ``val_mask`` and
    ``test_mask`` (or ``train_idx`` and so on) are optional; ``x`` is, if ``num_nodes`` is set. A
    ``HeteroData`` of several types keeps its types; edge types may have features or none.

    Args:
        data: PyG data on the CPU; a data set of one graph; or OGB's pair of a dictionary of arrays
            (by type, if there are types) and labels.
        target: vertex type whose ``y`` and split are read. None: the only one with ``y``.
        split, mask: as for ``from_arrays``.
        edge_weight: field of the weights, one number an edge; the default field may be missing.
            None: all weights are 1.
        edge_attr: field of the edge features, ``[num_edges, num_edge_features]`` or
            ``[num_edges]``; the default field may be missing. None: edges have no features.
        time: field of the times from which vertices or edges are known, integers in ``time_unit``
            (None: seconds); of edges also ``edge_time``. Types may lack it, and all the default.
            None: all are known at all times.
        number_edges: whether ``Graph.edge_ids`` has the column numbers of ``edge_index``.
        name, metric, advises: as for ``from_arrays``.

    Raises:
        GraphError: ``from_arrays`` refuses an array; or a field is missing.
    """
    single = single_graph(data, name)
    options = PeerOptions(
        name=name,
        features="x",
        labels="y",
        target=target,
        split=single.split if split is None and mask is None else split,
        mask=mask,
        edge_weight=edge_weight,
        edge_features=edge_attr,
        vertex_times=() if time is None else (time,),
        edge_times=() if time is None else (time, f"edge_{time}"),
        time_unit=time_unit,
        needs_times=time != "time",
        number_edges=number_edges,
        metric=metric or single.metric,
        advises=advises,
        optional=("x", "y", "edge_weight", "edge_attr"),
    )
    is_typed = has_types(single.graph) and not is_instance_of(single.graph, "dgl", "DGLGraph")
    convert = typed_graph if is_typed else _homogeneous_pyg
    return convert(single, options)


def _homogeneous_pyg(single: PeerGraph, options: PeerOptions) -> Graph:
    """Return the Graph of homogeneous data of PyG, or of OGB's dictionary."""
    name, weight, features = options.name, options.edge_weight, options.edge_features
    fields = pyg_fields(single.graph, name)
    options.check_untyped()
    if single.labels is not None:
        fields["y"] = single.labels
    edges = _edge_index(fields, name)
    if weight == "edge_weight" and fields.get(weight) is None:
        weight = None
    if features == "edge_attr" and (fields.get(features) is None or weight == features):
        features = None
    vertex_times, edge_times = pyg_times(fields, edges.shape[1], options)
    used = (weight, features, *options.edge_times)
    _check_pyg_fields(fields, used, name, options.advises)
    split = SplitInput.of_fields(fields, "data.{}", name)
    inputs = GraphInputs(
        edges=(edges[0], edges[1]),
        features=fields.get("x"),
        labels=fields.get("y"),
        num_vertices=fields.get("num_nodes"),
        split=split.chosen(options.split, options.mask, name),
        edge_weights=_edge_field(fields, weight, "data.{}", name),
        edge_features=_edge_field(fields, features, "data.{}", name),
        vertex_times=vertex_times,
        edge_times=edge_times,
        time_unit=options.time_unit,
        features_name="data.x",
        labels_name="data.y",
        weights_name=f"data.{weight}",
    )
    return _make(inputs, options)


def pyg_fields(data: Any, name: str) -> dict[str, Any]:
    """Return the fields of a PyG graph, or of OGB's dictionary, by PyG's names.

    ``adj_t`` becomes ``edge_index`` and, unless all are 1, ``edge_weight`` or ``edge_attr``.
    GraphError, naming the graph ``name``: another object, several types, or no edges.
    """
    if is_hetero_data(data) and not has_types(data):
        (vertices,), (edges,) = data.node_stores, data.edge_stores
        fields = {"num_nodes": vertices.num_nodes, **dict(vertices)}
        fields |= {f"edge_{key}" if key in fields else key: of for key, of in edges.items()}
    elif is_instance_of(data, "torch_geometric", "data.Data"):
        fields = data.to_dict()
    elif _is_ogb_graph(data) and "edge_index" in data:
        fields = {OGB_FIELDS.get(key, key): value for key, value in data.items()}
    else:
        raise GraphError(
            f"{name}: expected a torch_geometric.data.Data, got {array_inputs.describe_graph(data)}"
        )
    if fields.get("edge_index") is None and fields.get("adj_t") is not None:
        fields |= fields_of_adjacency(fields.pop("adj_t"), name)
    if fields.get("edge_index") is None:
        raise GraphError(f"{name}: data.edge_index is missing, and so is data.adj_t")
    return fields


def _edge_index(fields: Any, name: str) -> Array:
    """Return ``edge_index`` ``[2, num_edges]`` in the fields of PyG data; GraphError: not so."""
    edges = array_inputs.as_array(fields["edge_index"], f"{name}: data.edge_index")
    if edges.ndim != 2 or len(edges) != 2:
        raise GraphError(
            f"{name}: data.edge_index: expected [2, num_edges], got {list(edges.shape)}"
        )
    return edges


def _check_dgl_fields(graph: Any, used: tuple[str | None, ...], name: str, advises: bool) -> None:
    """Raise GraphError if a field of ``graph.ndata`` is missing; with ``advises``, log the rest.

    ``used`` are the keys of features, labels and times; ``label`` may be missing.
    """
    listed = brief(", ".join(graph.ndata)) or "no field"
    for key in used:
        if key == "label":
            continue
        if key is not None and key not in graph.ndata:
            raise GraphError(
                f"{name}: ndata[{key!r}] is missing, it has {listed}; features=None reads no "
                "features"
            )
    if advises:
        hint = "from_dgl(graph, features=KEY) reads a field"
        _tell_unread(graph.ndata, used, "ndata[{!r}]", name, hint)


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
    read = {*used, *(key for keys in PART_NAMES for key in keys)}
    names = (key for key, value in fields.items() if value is not None and key not in read)
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
