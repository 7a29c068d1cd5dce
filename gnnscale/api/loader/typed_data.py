"""Data of a loader over a graph with types: PyG's ``HeteroData``, in and out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch

from gnnscale import ops
from gnnscale.api.loader.formats import Sampling
from gnnscale.api.loader.loader_data import AlignedRows, EdgeUse, read_weights
from gnnscale.core import Array, ConfigError, Int64Array, brief
from gnnscale.data.peer_fields import Triple, hetero_fields
from gnnscale.data.typed_arrays import edge_ends
from gnnscale.data.typed_edges import typed_topology
from gnnscale.graph import EdgeType, Graph, GraphSchema


@dataclass(frozen=True, kw_only=True)
class TypedLoaderData:
    """Topology and data of the user's ``HeteroData``."""

    graph: Graph  #: topology
    #: by vertex type its attributes with a row a vertex, by PyG's names
    rows: dict[str, dict[str, AlignedRows]]
    #: by edge type its attributes with a row an edge
    edge_rows: dict[Triple, dict[str, AlignedRows]]
    #: further attributes of vertex types, edge types and the graph, copied into every batch
    constants: dict[Any, dict[str, Any]] = field(default_factory=dict)


def read_hetero_data(data: Any, use: EdgeUse) -> TypedLoaderData:
    """Read PyG's ``HeteroData``; rows keep their types.

    GraphError: a type has no number of vertices, an attribute cannot be batched, an edge type has
    no ``edge_index`` or an id out of range, or lacks the sampling weights that ``use`` names.
    """
    fields = hetero_fields(data)
    sizes, triples = fields.num_vertices, list(fields.edges)
    schema = GraphSchema.of(sizes, triples)
    edges = [
        edge_ends(triple, index, sizes, f"data[{triple}].edge_index")
        for triple, index in fields.edges.items()
    ]
    rows: dict[str, dict[str, AlignedRows]] = {}
    constants: dict[Any, dict[str, Any]] = {None: dict(data._global_store)}
    for store in data.node_stores:
        name, is_row = store._key, store.is_node_attr
        rows[name], constants[name] = _divided(fields.vertices[name], is_row, sizes[name], "vertex")
    edge_rows: dict[Triple, dict[str, AlignedRows]] = {}
    for store, (src, _) in zip(data.edge_stores, edges, strict=True):
        triple, count = store._key, len(src)
        # What an adjacency matrix holds is of edges.
        is_row = partial(_is_edge_attribute, store)
        edge_rows[triple], constants[triple] = _divided(
            fields.edge_fields[triple], is_row, count, "edge"
        )
    weights = None
    if use.weight is not None:
        weights = [
            read_weights(edge_rows[triple], use.weight, f"data[{triple}]") for triple in triples
        ]
    graph = typed_topology(
        schema,
        edges,
        name="data",
        weights=weights,
        number_edges=use.numbered or any(edge_rows.values()),
    )
    return TypedLoaderData(graph=graph, rows=rows, edge_rows=edge_rows, constants=constants)


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
        if isinstance(values, (torch.Tensor, np.ndarray)) and is_row(name):
            rows[name] = AlignedRows.wrap(name, values, count, kind=kind)
        else:
            constants[name] = values
    return rows, constants


def seed_type(input_nodes: Any, schema: GraphSchema) -> tuple[int, Any]:
    """Return the number of the seeds' vertex type, and the seeds (None: all of the type).

    ConfigError: ``input_nodes`` names no vertex type.
    """
    names = [vertices.name for vertices in schema.vertex_types]
    name, nodes = (input_nodes, None) if isinstance(input_nodes, str) else (None, None)
    if isinstance(input_nodes, tuple) and len(input_nodes) == 2:
        name, nodes = input_nodes
    if name not in names:
        raise ConfigError(
            f"input_nodes={brief(input_nodes)}: expected a vertex type ({', '.join(names)}), or a "
            f"pair such as ({names[0]!r}, ids)"
        )
    return names.index(name), nodes


class HeteroFormat:
    """Maker of batches as PyG's ``HeteroData``.

    As in PyG, each hop expands only the vertices that the hop before has added.
    """

    def __init__(
        self, data: TypedLoaderData, sampling: Sampling, fanouts: list[list[int]], seed_type: int
    ) -> None:
        """Prepare to sample seeds of a type by ``fanouts`` of every hop and edge type."""
        from torch_geometric.data import HeteroData

        self._make = HeteroData
        self._data = data
        self._sampling = sampling
        self._fanouts = fanouts
        self._seed_type = seed_type
        self._sampler = ops.NativeSampler(data.graph)
        self._schema = data.graph.schema
        self._has_ids = data.graph.edge_ids is not None

    def batch(self, seeds: Array, input_ids: Int64Array, step: int) -> Any:
        """Return the batch of ``seeds``, of one type, with its ``input_id``.

        ``step`` fixes random choices.
        """
        sampling, schema = self._sampling, self._schema
        sampled = self._sampler.sample_typed(
            seeds,
            self._fanouts,
            replace=sampling.replace,
            seed=sampling.seed,
            step=step,
            num_threads=sampling.num_threads,
            only_new=True,
            by_weight=sampling.by_weight,
            edge_positions=self._has_ids,
        )
        batch = self._make()
        batch._global_store.update(self._data.constants[None])
        counts_by_type = list(zip(*sampled.type_sizes, strict=True))
        offset = 0
        for number, vertex_type in enumerate(schema.vertex_types):
            size = sampled.type_sizes[-1][number]
            first = schema.vertices(number).start
            n_id = self._sampling.empty((size,))
            np.subtract(sampled.input_vertices[offset : offset + size], first, out=n_id.numpy())
            offset += size
            self._add_vertices(batch[vertex_type.name], vertex_type.name, n_id)
            batch[vertex_type.name].num_sampled_nodes = np.diff(
                counts_by_type[number], prepend=0
            ).tolist()
        store = batch[schema.vertex_types[self._seed_type].name]
        store.input_id = torch.from_numpy(input_ids)
        store.batch_size = len(seeds)
        for number, edge_type in enumerate(schema.edge_types):
            hops = [hop[number] for hop in sampled.hops]
            firsts = [0, *counts_by_type[int(schema.destinations[number])]]
            self._add_edges(batch, edge_type, hops, firsts)
        return batch

    def _add_vertices(self, store: Any, name: str, n_id: torch.Tensor) -> None:
        store.update(self._data.constants[name])
        store.n_id = n_id
        for attribute, rows in self._data.rows[name].items():
            store[attribute] = self._sampling.take(rows, n_id.numpy())
        if not self._data.rows[name]:
            store.num_nodes = len(n_id)

    def _add_edges(
        self,
        batch: Any,
        edge_type: EdgeType,
        hops: Sequence[ops.SampledHop],
        firsts: Sequence[int],
    ) -> None:
        """Add the edges of a type; a hop's destinations begin with local id ``firsts[hop]``."""
        triple = (edge_type.source, edge_type.relation, edge_type.destination)
        store = batch[triple]
        store.update(self._data.constants[triple])
        counts = [len(hop.indices) for hop in hops]
        edge_index = self._sampling.empty((2, sum(counts)))
        done = 0
        for hop, count, first in zip(hops, counts, firsts, strict=False):
            out = edge_index.numpy()[:, done : done + count]
            ops.expand_edges(hop.indptr, hop.indices, first_dst=first, out=out)
            done += count
        store.edge_index = edge_index
        store.num_sampled_edges = counts
        ids = self._data.graph.edge_ids
        if ids is None:
            return
        positions = [hop.positions for hop in hops if hop.positions is not None]
        store.e_id = torch.from_numpy(ids[np.concatenate(positions)])
        for attribute, rows in self._data.edge_rows[triple].items():
            store[attribute] = self._sampling.take(rows, store.e_id.numpy())
