"""Edges that send no messages as of their own times, such as those whose labels are predicted."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from gnnscale.core import Array, BoolArray, Int64Array, IntArray
from gnnscale.core.sorted_sets import distinct
from gnnscale.ops import SampledHop, TypedSample

#: Arrays of a hop with an entry for each edge.
_PER_EDGE = ("indices", "importance", "positions", "edge_weights", "edge_rows")


class CutoffEdges:
    """Set of edges, without which a unit is sampled whose cut-off is an edge's time.

    As of its own time an edge sends no message, in either direction and along no edge type. Edges
    between its ends of earlier times do.
    """

    def __init__(self, ends: IntArray, times: Int64Array, *, num_vertices: int) -> None:
        """Collect edges with ``ends`` ``[n, 2]``, global ids, and int64 ``times`` ``[n]``."""
        self._num_vertices = num_vertices
        keys = self._pairs(np.asarray(ends[:, 0]), np.asarray(ends[:, 1]))
        self._known_pairs, self._known_times = distinct(keys), distinct(np.asarray(times))
        pairs = np.searchsorted(self._known_pairs, keys)
        self._keys = distinct(pairs * len(self._known_times) + self._time_numbers(times))

    def _pairs(self, src: IntArray, dst: IntArray) -> Int64Array:
        """Return a number for each unordered pair of vertices."""
        low, high = np.minimum(src, dst).astype(np.int64), np.maximum(src, dst)
        return low * self._num_vertices + high

    def _time_numbers(self, times: Int64Array) -> Int64Array:
        return np.searchsorted(self._known_times, np.asarray(times))

    def contains(self, src: IntArray, dst: IntArray, times: Int64Array) -> BoolArray:
        """Return ``[n]``, whether an edge of ``times[i]`` between both vertices is in the set."""
        pairs, known_edges = self._pairs(src, dst), self._known_pairs
        if not len(known_edges):
            return np.zeros(len(pairs), np.bool_)
        numbers = np.minimum(np.searchsorted(known_edges, pairs), len(known_edges) - 1)
        moments = np.minimum(self._time_numbers(times), len(self._known_times) - 1)
        keys = numbers * len(self._known_times) + moments
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        is_known = (known_edges[numbers] == pairs) & (self._known_times[moments] == times)
        contained: BoolArray = is_known & (self._keys[at] == keys)
        return contained

    def removed(
        self, sampled: TypedSample, edge_times: Int64Array, ends: Sequence[tuple[int, int]]
    ) -> TypedSample:
        """Return ``sampled``, with positions of edges, without the set's edges at their times.

        ``edge_times`` are those of the graph's edges, ``ends`` the source and destination type of
        each edge type.
        """
        sizes = sampled.type_sizes[-1]
        firsts = np.concatenate([[0], np.cumsum(sizes)]).tolist()
        hops, edge_vertices = [], list(sampled.edge_vertices)
        for number, hop in enumerate(sampled.hops):
            relations = []
            for edge_type, relation in enumerate(hop):
                first_source, first_destination = (firsts[of] for of in ends[edge_type])
                is_left = self._is_left(
                    relation, sampled, edge_times, first_source, first_destination
                )
                relations.append(_without(relation, is_left))
                last = edge_vertices[edge_type] if number == len(sampled.hops) - 1 else None
                if last is not None and is_left.any():
                    edge_vertices[edge_type] = last[~is_left]
            hops.append(relations)
        return sampled._replace(hops=hops, edge_vertices=edge_vertices)

    def _is_left(
        self,
        relation: SampledHop,
        sampled: TypedSample,
        edge_times: Int64Array,
        first_source: int,
        first_destination: int,
    ) -> BoolArray:
        """Return ``[num_edges]``, which edges of a hop are left out."""
        assert sampled.cutoffs is not None
        assert relation.positions is not None
        owners = np.repeat(np.arange(len(relation.indptr) - 1), np.diff(relation.indptr))
        cutoffs = sampled.cutoffs[first_destination + owners]
        is_left = np.asarray(edge_times[relation.positions] == cutoffs)
        at = np.flatnonzero(is_left)
        sources = sampled.input_vertices[first_source + relation.indices[at]]
        destinations = sampled.input_vertices[first_destination + owners[at]]
        is_left[at] = self.contains(sources, destinations, cutoffs[at])
        return is_left


def _without(relation: SampledHop, is_left: BoolArray) -> SampledHop:
    """Return a hop without the edges ``is_left``."""
    if not is_left.any():
        return relation
    counts = np.concatenate([[0], np.cumsum(is_left)])
    arrays: dict[str, Array] = {
        name: values[~is_left]
        for name in _PER_EDGE
        if (values := getattr(relation, name)) is not None
    }
    changed: dict[str, Any] = {"indptr": relation.indptr - counts[relation.indptr], **arrays}
    return relation._replace(**changed)
