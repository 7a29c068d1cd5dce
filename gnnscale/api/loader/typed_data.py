"""Data of a loader: the topology and the attributes of a graph with types."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch

from gnnscale.api.loader.loader_data import (
    AlignedRows,
    EdgeUse,
    has_rows,
    read_weights,
    rows_of_frame,
    with_dgl_name,
)
from gnnscale.api.loader.trees import time_fields
from gnnscale.core import IntArray
from gnnscale.data.peer_fields import Triple, TypedFields, hetero_fields, heterograph_fields
from gnnscale.data.time_inputs import TypedTimes, read_typed_times
from gnnscale.data.typed_arrays import edge_ends
from gnnscale.data.typed_edges import typed_topology
from gnnscale.graph import Graph, GraphSchema


@dataclass(frozen=True, kw_only=True)
class TypedLoaderData:
    """Topology and data of the user's graph, a ``HeteroData`` or a DGL heterograph."""

    graph: Graph  #: topology
    #: by vertex type its attributes with a row a vertex, by the names of the graph's library
    rows: dict[str, dict[str, AlignedRows]]
    #: by edge type its attributes with a row an edge
    edge_rows: dict[Triple, dict[str, AlignedRows]]
    #: further attributes of vertex types, edge types and (None) the graph, copied into every batch
    constants: dict[Any, dict[str, Any]] = field(default_factory=dict)
    is_of_dgl: bool = False  #: whether names of attributes are DGL's
    id_dtype: torch.dtype = torch.int64  #: type of ids of a DGL graph


def read_hetero_data(data: Any, use: EdgeUse) -> TypedLoaderData:
    """Read PyG's ``HeteroData``; rows keep their types.

    GraphError: a type has no number of vertices, an attribute cannot be batched, an edge type has
    no ``edge_index`` or an id out of range, or lacks the sampling weights that ``use`` names.
    """
    fields = hetero_fields(data)
    edges = _edge_ends(fields)
    rows: dict[str, dict[str, AlignedRows]] = {}
    constants: dict[Any, dict[str, Any]] = {None: dict(data._global_store)}
    for store in data.node_stores:
        name = store._key
        rows[name], constants[name] = _divided(
            fields.vertices[name], store.is_node_attr, fields.num_vertices[name], "vertex"
        )
    edge_rows: dict[Triple, dict[str, AlignedRows]] = {}
    for store, (src, _) in zip(data.edge_stores, edges, strict=True):
        triple = store._key
        # What an adjacency matrix holds is of edges.
        is_row = partial(_is_edge_attribute, store)
        edge_rows[triple], constants[triple] = _divided(
            fields.edge_fields[triple], is_row, len(src), "edge"
        )
    graph = _topology(fields, edges, edge_rows, use)
    return TypedLoaderData(graph=graph, rows=rows, edge_rows=edge_rows, constants=constants)


def read_heterograph(graph: Any, use: EdgeUse) -> TypedLoaderData:
    """Read a heterogeneous DGL graph; rows keep their types.

    GraphError: an attribute is not on the CPU, or an edge type lacks the sampling weights that
    ``use`` names.
    """
    fields = heterograph_fields(graph)
    edge_rows = {
        triple: rows_of_frame(frame, graph.num_edges(triple), kind="edge")
        for triple, frame in fields.edge_fields.items()
    }
    names = {name for rows in edge_rows.values() for name in rows}
    return TypedLoaderData(
        graph=_topology(fields, _edge_ends(fields), edge_rows, with_dgl_name(use, names)),
        rows={
            name: rows_of_frame(frame, fields.num_vertices[name], kind="vertex")
            for name, frame in fields.vertices.items()
        },
        edge_rows=edge_rows,
        is_of_dgl=True,
        id_dtype=graph.idtype,
    )


def _edge_ends(fields: TypedFields) -> list[tuple[IntArray, IntArray]]:
    """Return sources and destinations of each edge type; GraphError: an id is out of range."""
    return [
        edge_ends(triple, ends, fields.num_vertices, fields.name(triple, "edge_index"))
        for triple, ends in fields.edges.items()
    ]


def _topology(
    fields: TypedFields,
    edges: Sequence[tuple[IntArray, IntArray]],
    edge_rows: Mapping[Triple, dict[str, AlignedRows]],
    use: EdgeUse,
) -> Graph:
    weights = None
    if use.weight is not None:
        weights = [
            read_weights(rows, use.weight, f"data[{triple}]") for triple, rows in edge_rows.items()
        ]
    schema = GraphSchema.of(fields.num_vertices, list(fields.edges))
    return typed_topology(
        schema,
        edges,
        name="data",
        weights=weights,
        number_edges=use.numbered or any(edge_rows.values()),
        times=None if use.time is None else _times(schema, fields, edges, use.time),
    )


def _times(
    schema: GraphSchema,
    fields: TypedFields,
    edges: Sequence[tuple[IntArray, IntArray]],
    time_attr: str,
) -> TypedTimes | None:
    """Return the times ``time_attr`` of the types of vertices, or of edges, that have it."""
    of_vertices, of_edges = time_fields(time_attr, fields.vertices, fields.edge_fields)
    num_edges = [len(src) for src, _ in edges]
    return read_typed_times(schema, of_vertices, of_edges, num_edges, unit=None, name="data")


def _is_edge_attribute(store: Any, name: str) -> bool:
    return name not in store or bool(store.is_edge_attr(name))


def _divided(
    fields: Mapping[str, Any], is_row: Callable[[str], bool], count: int, kind: str
) -> tuple[dict[str, AlignedRows], dict[str, Any]]:
    """Return the attributes of a type that have a row for each vertex or edge, and the others."""
    rows, constants = {}, {}
    for name, values in fields.items():
        if name in ("num_nodes", "n_id", "e_id"):
            continue
        if isinstance(values, (torch.Tensor, np.ndarray)) and has_rows(is_row, name, values):
            rows[name] = AlignedRows.wrap(name, values, count, kind=kind)
        else:
            constants[name] = values
    return rows, constants
