"""Seed edges of a loader for link prediction, and their labels, as PyG describes them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from gnnscale.api.loader.loader_data import AlignedRows
from gnnscale.api.loader.negatives import Negatives
from gnnscale.api.loader.trees import ALWAYS, SeedTrees
from gnnscale.core import Array, ConfigError, GraphError, Int64Array, IntArray, brief
from gnnscale.data.array_inputs import as_array, vertex_ids
from gnnscale.data.peer_fields import Triple, hetero_fields, is_hetero_data
from gnnscale.data.peers import pyg_fields
from gnnscale.graph import Graph, GraphSchema


@dataclass(frozen=True, kw_only=True)
class SeedEdges:
    """Edges whose ends are the seeds of mini-batches, by ids within their vertex types."""

    triple: Triple | None  #: edge type. None: the graph has no types
    sources: IntArray  #: ``[n]``
    destinations: IntArray  #: ``[n]``
    source_ids: slice  #: global ids of the source type
    destination_ids: slice  #: global ids of the destination type
    labels: AlignedRows | None = None  #: ``[n, ...]``
    #: ``[n]`` int64 times of the edges. None: they have none
    times: Int64Array | None = None

    def local_ends(
        self, sources: IntArray, destinations: IntArray
    ) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Return distinct global ids of edges' ends, and both ends by local ids.

        As in PyG, the seeds of each type ascend, and local ids count them from 0.
        """
        if self.source_ids == self.destination_ids:
            ids, local = np.unique(np.concatenate([sources, destinations]), return_inverse=True)
            return (ids + self.source_ids.start, local[: len(sources)], local[len(sources) :])
        src_ids, src = np.unique(sources, return_inverse=True)
        dst_ids, dst = np.unique(destinations, return_inverse=True)
        seeds = (src_ids + self.source_ids.start, dst_ids + self.destination_ids.start)
        return np.concatenate(seeds), src, dst

    def tree_ends(
        self, sources: IntArray, destinations: IntArray
    ) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Return ``local_ends`` of trees: global ids of all ends, sources first, with repeats."""
        src, dst = np.arange(len(sources)), np.arange(len(destinations))
        if self.source_ids == self.destination_ids:
            dst += len(src)
        seeds = (sources + self.source_ids.start, destinations + self.destination_ids.start)
        return np.concatenate(seeds), src, dst


def trees_of_ends(
    times: Int64Array | None, num_edges: int, *, num_sources: int, num_destinations: int
) -> SeedTrees:
    """Return the trees of a batch's sources and destinations, edges first, then negatives.

    As in PyG, both ends of edge ``j``, and of every ``num_edges``-th negative, are in trees of
    number ``j`` as of its time in ``times`` ``[num_edges]``. None: trees are not bounded.
    """
    ends = (num_sources, num_destinations)
    numbers = np.concatenate([np.arange(count) % num_edges for count in ends])
    cutoffs = np.full(len(numbers), ALWAYS) if times is None else times[numbers]
    return SeedTrees(cutoffs=cutoffs, numbers=numbers)


def read_seed_edges(data: Any, edge_label_index: Any, schema: GraphSchema) -> SeedEdges:
    """Read the seed edges of a graph of PyG, or of a ``Graph``.

    They are ``[2, n]`` or None (all edges); of a ``HeteroData`` an edge type, or a pair of an edge
    type and such edges. ConfigError: the edge type is missing or unknown. GraphError: the edges
    have another shape, or an id is out of range.
    """
    triple, index, number = None, edge_label_index, 0
    if is_hetero_data(data):
        triples = [(edges.source, edges.relation, edges.destination) for edges in schema.edge_types]
        triple, index = _edge_type(edge_label_index, triples)
        number = triples.index(triple)
    types = int(schema.sources[number]), int(schema.destinations[number])
    ids = [schema.vertices(vertex_type) for vertex_type in types]
    ends = _all_edges(data, triple) if index is None else as_array(index, "edge_label_index")
    if index is not None and (ends.ndim != 2 or len(ends) != 2):
        raise GraphError(f"edge_label_index: expected [2, num_edges], got {list(ends.shape)}")
    sources, destinations = (
        vertex_ids(values, vertices.stop - vertices.start, f"edge_label_index: {end}")
        for values, vertices, end in zip(ends, ids, ("sources", "destinations"), strict=True)
    )
    return SeedEdges(
        triple=triple,
        sources=sources,
        destinations=destinations,
        source_ids=ids[0],
        destination_ids=ids[1],
    )


def _edge_type(edge_label_index: Any, triples: Sequence[Triple]) -> tuple[Triple, Any]:
    """Return the edge type, and its seed edges (None: all), of a loader of a graph with types."""
    pair = (edge_label_index, None)
    if isinstance(edge_label_index, (tuple, list)) and len(edge_label_index) == 2:
        pair = (edge_label_index[0], edge_label_index[1])
    names = pair[0] if isinstance(pair[0], (tuple, list)) else ()
    if tuple(names) in triples:
        return triples[triples.index(tuple(names))], pair[1]
    raise ConfigError(
        f"edge_label_index={brief(edge_label_index)}: expected an edge type "
        f"({', '.join(map(str, triples))}), or a pair of an edge type and its edges"
    )


def _all_edges(data: Any, triple: Triple | None) -> Any:
    """Return sources and destinations of all edges (of a type), in the order of their ids."""
    if isinstance(data, Graph):
        return data.indices, np.repeat(np.arange(data.num_vertices), np.diff(data.indptr))
    if triple is not None:
        return hetero_fields(data).edges[triple]
    return pyg_fields(data, "data")["edge_index"]


def read_edge_labels(
    edge_label: Any, num_edges: int, negatives: Negatives | None
) -> AlignedRows | None:
    """Read the labels ``[num_edges, ...]`` of seed edges.

    As in PyG, 1 is added if negatives, which have label 0, would share the smallest label 0.
    ConfigError: there are labels beside triplets. GraphError: they are no labels of these edges.
    """
    if edge_label is None:
        return None
    if negatives is not None and negatives.is_triplet:
        raise ConfigError(
            "edge_label: expected None with triplets, whose batches have src_index, dst_pos_index "
            "and dst_neg_index"
        )
    if isinstance(edge_label, np.ndarray):
        edge_label = torch.from_numpy(edge_label)
    is_tensor = isinstance(edge_label, torch.Tensor) and edge_label.numel() > 0
    if negatives is not None and is_tensor and edge_label.min() == 0:
        edge_label = edge_label + 1
    return AlignedRows.wrap("edge_label", edge_label, num_edges, kind="edge")


def label_rows(labels: AlignedRows | None, rows: Array, num_negatives: int | None) -> Any:
    """Return labels of the seed edges ``rows`` and of negatives after them; None: there are none.

    ``num_negatives`` is None for a loader without negatives. Else edges without labels have 1.0.
    """
    if labels is None and num_negatives is None:
        return None
    if labels is None:
        values = torch.ones(len(rows))
    else:
        values = labels.take(rows, num_threads=1, pinned=False)
    if num_negatives is None:
        return values
    return torch.cat([values, values.new_zeros((num_negatives, *values.shape[1:]))])
