"""Graphs of other libraries, PyG, DGL and OGB, and their attributes by type."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from gnnscale.core import GraphError, brief
from gnnscale.data import array_inputs
from gnnscale.data.array_inputs import is_instance_of

#: Source type, relation and destination type of an edge type.
Triple = tuple[str, str, str]
#: OGB's names of PyG's fields.
OGB_FIELDS = {"node_feat": "x", "edge_feat": "edge_attr"}


@dataclass(frozen=True, kw_only=True)
class PeerGraph:
    """Graph of another library, with what its data set says about it."""

    graph: Any
    labels: Any = None  #: labels beside the graph. None: the graph has them
    split: Any = None  #: dictionary of ids by part. None: the graph has the split
    metric: str | None = None  #: metric of the data set. None: unknown


@dataclass(frozen=True, kw_only=True)
class PeerOptions:
    """Arguments of ``from_pyg`` and ``from_dgl``."""

    name: str  #: name in reports
    features: str | None  #: attribute of the features. None: vertices have no features
    labels: str  #: attribute of the labels
    target: str | None  #: vertex type of the labels. None: all that have labels
    split: Any
    mask: int | None
    edge_weight: str | None  #: attribute of the weights. None: all weights are 1
    edge_features: str | None  #: attribute of edge features. None: edges have no features
    vertex_times: tuple[str, ...]  #: attributes of the times of vertices; a type has one at most
    edge_times: tuple[str, ...]  #: attributes of the times of edges, likewise
    time_unit: Any  #: unit of integers. None: seconds
    needs_times: bool  #: whether attributes of times must be present
    number_edges: bool
    metric: str | None
    advises: bool
    optional: tuple[str, ...]  #: default attributes, which may be missing

    def check_untyped(self) -> None:
        """Raise GraphError if the user names a vertex type of a graph without types."""
        if self.target is not None:
            raise GraphError(
                f"{self.name}: target={brief(self.target)}: expected none, the graph has no types "
                "of vertices"
            )


def time_field(fields: Mapping[str, Any], keys: Sequence[str], form: str, name: str) -> Any:
    """Return the one of ``keys`` that ``fields`` have. None: they have none of them.

    ``form`` makes the name in messages of a key. GraphError, naming the graph ``name``: two are
    present, or it has fractions.
    """
    present = [key for key in keys if fields.get(key) is not None]
    if len(present) > 1:
        first, second = map(form.format, present[:2])
        raise GraphError(f"{name}: expected one of {first} and {second}, got both")
    if not present:
        return None
    values, what = fields[present[0]], f"{name}: {form.format(present[0])}"
    if array_inputs.as_array(values, what).dtype.kind not in "iuM":
        kind = getattr(values, "dtype", array_inputs.type_name(values))
        raise GraphError(f"{what}: expected integers as times, got {kind}; time=None reads none")
    return values


def pyg_times(fields: Mapping[str, Any], num_edges: int, options: PeerOptions) -> tuple[Any, Any]:
    """Return times of vertices and of edges of homogeneous PyG data, None without.

    A field with a row for each edge, and not for each vertex, is of edges. GraphError: two are of
    edges, or the one that the user names is missing.
    """
    keys, name, form = list(options.edge_times), options.name, "data.{}"
    if not keys:
        return None, None
    rows = fields.get("num_nodes") or len(fields.get("x", ()))
    count = np.shape(fields.get(keys[0], ()))[:1]
    of_edges = count == (num_edges,) != (rows,)
    vertices = None if of_edges else time_field(fields, keys[:1], form, name)
    edges = time_field(fields, keys if of_edges else keys[1:], form, name)
    if options.needs_times and vertices is None and edges is None:
        raise GraphError(f"{name}: data.{keys[0]} is missing")
    return vertices, edges


@dataclass(frozen=True, kw_only=True)
class TypedFields:
    """Attributes of a graph with types, by the names of its library."""

    vertices: dict[str, dict[str, Any]]  #: attributes of each vertex type
    num_vertices: dict[str, int]  #: by vertex type
    edges: dict[Triple, Any]  #: sources and destinations of each edge type, ids within their types
    edge_fields: dict[Triple, dict[str, Any]]  #: further attributes of each edge type
    is_of_dgl: bool = False  #: whether messages name attributes as DGL does

    def form(self, of: str | Triple) -> str:
        """Return the form of names of a type's attributes, such as ``data['user'].{}``."""
        key = repr(of).replace("{", "{{").replace("}", "}}")
        if self.is_of_dgl:
            return f"{'nodes' if isinstance(of, str) else 'edges'}[{key}].data['{{}}']"
        return f"data[{key}].{{}}"

    def name(self, of: str | Triple, attribute: str) -> str:
        """Return the name in messages of an attribute of a vertex or edge type."""
        return self.form(of).format(attribute)


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


def has_types(graph: Any) -> bool:
    """Whether ``graph``, of PyG, DGL or OGB, has several types of vertices or edges."""
    if is_instance_of(graph, "torch_geometric", "data.HeteroData"):
        return len(graph.node_types) != 1 or len(graph.edge_types) != 1
    if is_instance_of(graph, "dgl", "DGLGraph"):
        return not graph.is_homogeneous
    is_data = is_instance_of(graph, "torch_geometric", "data.Data")
    return (is_data or isinstance(graph, dict)) and "edge_index_dict" in graph


def is_hetero_data(data: Any) -> bool:
    """Whether ``data`` is PyG's ``HeteroData``."""
    return is_instance_of(data, "torch_geometric", "data.HeteroData")


def is_heterograph(graph: Any) -> bool:
    """Whether ``graph`` is a heterogeneous graph of DGL, not a block of a mini-batch."""
    is_dgl = is_instance_of(graph, "dgl", "DGLGraph")
    return is_dgl and not graph.is_block and not graph.is_homogeneous


def hetero_fields(data: Any) -> TypedFields:
    """Return the attributes of PyG's ``HeteroData``.

    GraphError: a vertex type has no number of vertices, or an edge type no edges.
    """
    fields = {tuple(store._key): _edge_fields(store) for store in data.edge_stores}
    return TypedFields(
        vertices={store._key: dict(store) for store in data.node_stores},
        num_vertices={store._key: _num_vertices(store) for store in data.node_stores},
        edges={triple: values.pop("edge_index") for triple, values in fields.items()},
        edge_fields=fields,
    )


def _num_vertices(store: Any) -> int:
    x = store.get("x")
    # PyG does not count the rows of a list.
    if isinstance(x, (list, tuple)) and "num_nodes" not in store:
        return len(array_inputs.as_array(x, f"data[{store._key!r}].x"))
    # PyG guesses from the edges of other types where no attribute tells.
    tells = "num_nodes" in store or any(store.is_node_attr(key) for key in store)
    count = store.num_nodes if tells else None
    if count is None:
        raise GraphError(
            f"data[{store._key!r}]: it has no attribute with a row a vertex; num_nodes says how "
            "many vertices there are"
        )
    return int(count)


def _edge_fields(store: Any) -> dict[str, Any]:
    """Return the attributes of an edge type; ``adj_t`` becomes ``edge_index`` and its values."""
    fields, name = dict(store), f"data[{store._key}]"
    if fields.get("edge_index") is None and fields.get("adj_t") is not None:
        fields |= fields_of_adjacency(fields.pop("adj_t"), name)
    if fields.get("edge_index") is None:
        raise GraphError(f"{name}: edge_index is missing, and so is adj_t")
    return fields


def heterograph_fields(graph: Any) -> TypedFields:
    """Return the attributes of a heterogeneous DGL graph; GraphError: it is a batch's block."""
    if graph.is_block:
        raise GraphError("expected a graph, got a block of a mini-batch")
    # Graphs of DGL's formats csr and csc alone do not list edges by number.
    listed, triples = graph.formats("coo"), graph.canonical_etypes
    return TypedFields(
        vertices={name: dict(graph.nodes[name].data) for name in graph.ntypes},
        num_vertices={name: graph.num_nodes(name) for name in graph.ntypes},
        edges={triple: listed.edges(order="eid", etype=triple) for triple in triples},
        edge_fields={triple: dict(graph.edges[triple].data) for triple in triples},
        is_of_dgl=True,
    )


def dictionary_fields(data: Any) -> TypedFields:
    """Return the attributes of OGB's dictionaries by type, in a dictionary or in PyG's ``Data``.

    Attributes get PyG's names. GraphError: the edges are no dictionary by edge type, or the number
    of vertices of a type is missing.
    """
    of_types = {
        key.removesuffix("_dict"): dict(values)
        for key, values in dict(data if isinstance(data, dict) else data.to_dict()).items()
        if isinstance(values, Mapping)
    }
    edges = of_types.pop("edge_index", {})
    sizes = {name: int(number) for name, number in of_types.pop("num_nodes", {}).items()}
    if not edges or not all(isinstance(key, tuple) and len(key) == 3 for key in edges):
        raise GraphError(
            "data.edge_index_dict: expected edges by (source type, relation, destination type)"
        )
    for end in {end: None for source, _, destination in edges for end in (source, destination)}:
        if end not in sizes:
            raise GraphError(f"data.num_nodes_dict: {end!r} is missing, the type of ends of edges")
    vertices: dict[str, dict[str, Any]] = {name: {} for name in sizes}
    edge_fields: dict[Triple, dict[str, Any]] = {triple: {} for triple in edges}
    for key, values in of_types.items():
        for of, array in values.items():
            fields: Any = edge_fields.get(of) if isinstance(of, tuple) else vertices.get(of)
            if fields is not None:
                fields[OGB_FIELDS.get(key, key)] = array
    return TypedFields(vertices=vertices, num_vertices=sizes, edges=edges, edge_fields=edge_fields)
