"""Seed edges of a loader for link prediction, and their negatives, as PyG describes them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from gnnscale import ops
from gnnscale.api.loader.loader_data import AlignedRows
from gnnscale.core import MAX_COUNT, Array, ConfigError, GraphError, Int64Array, IntArray, brief
from gnnscale.data.array_inputs import as_array, is_instance_of, vertex_ids
from gnnscale.data.peer_fields import Triple, hetero_fields, is_hetero_data
from gnnscale.data.peers import pyg_fields
from gnnscale.graph import Graph, GraphSchema

#: Numbers that are drawn for weighted negatives: those below.
_DRAWS = 1 << 40


@dataclass(frozen=True, kw_only=True)
class Negatives:
    """Rule by which a mini-batch gets edges that are no positives; one may exist by chance."""

    is_triplet: bool  #: whether positives get destinations, not the batch new pairs of vertices
    amount: float  #: negatives for each positive
    num_sources: int  #: number of vertices of the source type
    num_destinations: int  #: number of vertices of the destination type
    #: ends of each vertex's interval of the numbers that are drawn. None: all are as likely
    source_ends: Int64Array | None = None
    destination_ends: Int64Array | None = None

    def pairs(self, num_edges: int, *, seed: int, step: int) -> tuple[Int64Array, Int64Array]:
        """Return sources and destinations of the negatives of ``num_edges`` positives.

        They are a function of ``seed`` and ``step``.
        """
        numbers = 2 * np.arange(math.ceil(num_edges * self.amount))
        ends = (
            (numbers, self.num_sources, self.source_ends),
            (numbers + 1, self.num_destinations, self.destination_ends),
        )
        sources, destinations = (
            _draw(keys, 1, limit, intervals, seed=seed, step=step)[:, 0]
            for keys, limit, intervals in ends
        )
        return sources, destinations

    def destinations(self, rows: IntArray, *, seed: int, step: int) -> Int64Array:
        """Return ``[n, amount]`` negative destinations of the seed edges ``rows`` ``[n]``.

        Those of an edge are a function of ``seed``, ``step`` and its row alone.
        """
        limit, intervals = self.num_destinations, self.destination_ends
        return _draw(rows, int(self.amount), limit, intervals, seed=seed, step=step)


def _draw(
    keys: IntArray, count: int, limit: int, ends: Int64Array | None, *, seed: int, step: int
) -> Int64Array:
    """Draw ``[len(keys), count]`` ids below ``limit``, by the intervals that end at ``ends``."""
    limit = limit if ends is None else _DRAWS
    draws = ops.draw_negatives(keys, count, limit, seed=seed, step=step)
    return draws if ends is None else np.searchsorted(ends, draws, side="right")


def read_negatives(neg_sampling: Any, num_sources: int, num_destinations: int) -> Negatives | None:
    """Read PyG's ``NegativeSampling``, its mode, or a dictionary or tuple of its arguments.

    ConfigError: it is none of these, or the amount is not above 0, or no whole number for triplets,
    or weights are not those of the vertices.
    """
    if neg_sampling is None:
        return None
    names = ("mode", "amount", "src_weight", "dst_weight")
    values = neg_sampling
    if is_instance_of(values, "torch_geometric", "sampler.NegativeSampling"):
        values = {name: getattr(values, name) for name in names}
    elif isinstance(values, tuple):
        values = dict(zip(names, values, strict=False))
    elif not isinstance(values, Mapping):
        values = {"mode": values}
    mode = getattr(values.get("mode"), "value", values.get("mode"))
    if mode not in ("binary", "triplet") or not set(values) <= set(names):
        raise ConfigError(
            f"neg_sampling={brief(neg_sampling)}: expected None, 'binary', 'triplet', or a "
            "dictionary of mode, amount, src_weight and dst_weight"
        )
    amount = values.get("amount", 1)
    is_number = isinstance(amount, (int, float, np.number)) and not isinstance(amount, bool)
    if not is_number or not 0 < amount <= MAX_COUNT:
        raise ConfigError(f"neg_sampling: amount={brief(amount)}: expected a number above 0")
    if mode == "triplet" and amount != int(amount):
        raise ConfigError(
            f"neg_sampling: amount={amount}: expected a whole number of destinations for each edge"
        )
    return Negatives(
        is_triplet=mode == "triplet",
        amount=float(amount),
        num_sources=num_sources,
        num_destinations=num_destinations,
        source_ends=_intervals(values.get("src_weight"), num_sources, "src_weight"),
        destination_ends=_intervals(values.get("dst_weight"), num_destinations, "dst_weight"),
    )


def _intervals(weights: Any, num_vertices: int, name: str) -> Int64Array | None:
    """Return the ends of intervals whose lengths are in proportion to ``weights``."""
    if weights is None:
        return None
    values = as_array(weights, f"neg_sampling: {name}")
    if values.shape != (num_vertices,):
        raise ConfigError(
            f"neg_sampling: {name}: expected a number for each of {num_vertices} vertices, got "
            f"{list(values.shape)}"
        )
    sums = np.cumsum(values, dtype=np.float64)
    if not ((values >= 0).all() and 0 < sums[-1] < np.inf):
        raise ConfigError(f"neg_sampling: {name}: expected finite numbers from 0 on, not all 0")
    ends: Int64Array = np.ceil(sums / sums[-1] * _DRAWS).astype(np.int64)
    return ends


@dataclass(frozen=True, kw_only=True)
class SeedEdges:
    """Edges whose ends are the seeds of mini-batches, by ids within their vertex types."""

    triple: Triple | None  #: edge type. None: the graph has no types
    sources: IntArray  #: ``[n]``
    destinations: IntArray  #: ``[n]``
    source_ids: slice  #: global ids of the source type
    destination_ids: slice  #: global ids of the destination type
    labels: AlignedRows | None = None  #: ``[n, ...]``

    @property
    def sizes(self) -> tuple[int, int]:
        """Numbers of vertices of the source and of the destination type."""
        ids = (self.source_ids, self.destination_ids)
        return ids[0].stop - ids[0].start, ids[1].stop - ids[1].start

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
