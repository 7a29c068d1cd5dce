"""Mini-batches of links as of their times, with negatives that exist and are no edges by then."""

import logging
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from gnnscale.core import Array, BoolArray, Int64Array, IntArray
from gnnscale.graph import Graph
from gnnscale.sampling.edge_batches import Candidates, draw_candidates
from gnnscale.sampling.minibatch import MiniBatch, SamplerConfig
from gnnscale.sampling.neighbor import FanoutSampling
from gnnscale.sampling.timed import TimedSampler
from gnnscale.sampling.timed_edges import UnitSampler, timed_sampler, unit_links

_LOG = logging.getLogger(__name__)
#: Draws for a negative, before all candidates of its edge are looked at.
_TRIES = 8


class KnownLinks:
    """Edges of a type by their ends, each with the first time from which it is known.

    Memory is 16 bytes for each pair of ends; 40 bytes an edge while they are sorted.
    """

    def __init__(self, src: IntArray, dst: IntArray, times: Int64Array, *, num_vertices: int):
        """Collect edges from ``src`` ``[n]`` to ``dst`` ``[n]``, global ids, of int64 ``times``."""
        self._num_vertices = num_vertices
        keys = src.astype(np.int64) * num_vertices + dst
        order = np.lexsort((times, keys))
        keys = keys[order]
        is_first = np.ones(len(keys), np.bool_)
        is_first[1:] = keys[1:] != keys[:-1]
        self._keys, self._first_times = keys[is_first], times[order][is_first]

    @classmethod
    def of(cls, graph: Graph, edge_type: int) -> "KnownLinks":
        """Collect the edges of a type of ``graph``, which has times; without types, of type 0."""
        assert graph.times is not None
        schema = graph.schema
        rows = np.repeat(np.arange(schema.num_rows), np.diff(graph.indptr))
        times = np.asarray(graph.times.edges)
        src = np.asarray(graph.indices)
        if graph.types is not None:
            is_of_type = schema.edge_type_of(rows) == edge_type
            rows, src, times = rows[is_of_type], src[is_of_type], times[is_of_type]
        return cls(src, schema.vertex_of(rows), times, num_vertices=schema.num_vertices)

    def contain(self, src: IntArray, dst: IntArray, times: Int64Array) -> BoolArray:
        """Return ``[n]``, whether the edge of ``src[i]`` to ``dst[i]`` is known at ``times[i]``."""
        keys = src.astype(np.int64) * self._num_vertices + dst
        if not len(self._keys):
            return np.zeros(len(keys), np.bool_)
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        known_edges: BoolArray = (self._keys[at] == keys) & (self._first_times[at] <= times)
        return known_edges

    def targets(self, source: int, earlier: int | None) -> Int64Array:
        """Return the destinations of edges of ``source`` that are known before a time.

        None: at any time.
        """
        first = source * self._num_vertices
        part = slice(*np.searchsorted(self._keys, [first, first + self._num_vertices]))
        targets = self._keys[part] - first
        return targets if earlier is None else targets[self._first_times[part] < earlier]


@dataclass(frozen=True, kw_only=True)
class TimedCandidates:
    """Candidates for negatives of an edge: they exist at its time, and are no edge by then."""

    known_edges: KnownLinks  #: edges of the predicted type
    #: ``[num_vertices]`` times from which vertices exist. None: always
    vertex_times: Int64Array | None
    candidates: Candidates | None  #: negatives of each kind. None: all vertices
    num_vertices: int

    def exist(self, vertices: IntArray, times: Int64Array) -> BoolArray:
        """Return whether each of ``vertices`` exists at its time, for arrays of one shape."""
        if self.vertex_times is None:
            return np.ones(vertices.shape, np.bool_)
        exists: BoolArray = np.asarray(self.vertex_times)[vertices] <= times
        return exists

    def of_kind(self, destination: int) -> Int64Array:
        """Return the ascending candidates of the kind of ``destination``."""
        if self.candidates is None:
            return np.arange(self.num_vertices)
        kind = self.candidates.kinds[destination]
        return self.candidates.vertices[slice(*self.candidates.offsets[kind : kind + 2])]

    def draw(
        self, rows: Array, ends: IntArray, times: Int64Array, count: int, *, seed: int, step: int
    ) -> Int64Array:
        """Return ``[n, count]`` negatives of the edges with numbers ``rows`` ``[n]``.

        Draws that do not exist, or are edges by then, are repeated. An edge all of whose candidates
        are such has its first draws as negatives, of which the log warns once.

        Args:
            rows: numbers of the edges: these, the seed and the step fix the draws.
            ends: ``[n, 2]`` sources and destinations.
            times: ``[n]`` times of the edges.
        """
        draws = draw_candidates(
            self.candidates,
            rows,
            ends[:, 1],
            count * _TRIES,
            num_vertices=self.num_vertices,
            seed=seed,
            step=step,
        ).reshape(len(rows), _TRIES, count)
        negatives: Int64Array = draws[:, 0].copy()
        is_open = ~self._allowed(ends[:, :1], negatives, times[:, None])
        for number in range(1, _TRIES):
            rows_open, slots = np.nonzero(is_open)
            tried = draws[rows_open, number, slots]
            allowed = self._allowed(ends[rows_open, 0], tried, times[rows_open])
            negatives[rows_open[allowed], slots[allowed]] = tried[allowed]
            is_open[rows_open, slots] = ~allowed
        for row in np.flatnonzero(is_open.any(axis=1)):
            self._search(negatives[row], is_open[row], ends[row], times[row], draws[row])
        return negatives

    def _allowed(self, sources: IntArray, vertices: IntArray, times: Int64Array) -> BoolArray:
        src, of = np.broadcast_to(sources, vertices.shape), np.broadcast_to(times, vertices.shape)
        known_edges = self.known_edges.contain(src.ravel(), vertices.ravel(), of.ravel())
        allowed: BoolArray = self.exist(vertices, times) & ~known_edges.reshape(vertices.shape)
        return allowed

    def _search(
        self,
        negatives: Int64Array,
        is_open: BoolArray,
        ends: IntArray,
        time: np.int64,
        draws: Int64Array,
    ) -> None:
        """Write allowed candidates, chosen by the last draws, to the open ones of ``negatives``."""
        group = self.of_kind(int(ends[1]))
        allowed = group[self._allowed(ends[:1], group, np.full(1, time))]
        if not len(allowed):
            _warn_of_none()
            return
        negatives[is_open] = allowed[draws[-1][is_open] % len(allowed)]


@cache
def _warn_of_none() -> None:
    """Warn, once in a process, of an edge all of whose candidates are edges or do not exist."""
    _LOG.warning(
        "negatives: an edge has no candidate that exists at its time and is no edge by then; it "
        "gets others"
    )


class TimedLinkSampler(UnitSampler):
    """Sampler for link prediction as of the times of edges: messages are of earlier edges alone.

    A seed is a row number of ``edges`` ``[num_edges, 2]``. Its ends and its negatives are units of
    the edge's time.
    """

    def __init__(
        self,
        sampler: TimedSampler,
        edges: IntArray,
        times: Int64Array,
        *,
        negatives: TimedCandidates,
        num_negatives: int,
        seed: int,
    ) -> None:
        """Sample by ``sampler`` around ``edges`` as of ``times`` ``[num_edges]``.

        ``seed`` and step fix the ``num_negatives`` negatives of an edge.
        """
        super().__init__(sampler)
        self._edges = edges
        self._times = times
        self._negatives = negatives
        self._num_negatives = num_negatives
        self._seed = seed

    def sample(self, seeds: Array, step: int) -> MiniBatch:
        """Return the mini-batch that predicts the edges of row numbers ``seeds`` ``[n]``."""
        edges, times = np.asarray(self._edges[seeds]), np.asarray(self._times[seeds])
        negatives = self._negatives.draw(
            np.asarray(seeds), edges, times, self._num_negatives, seed=self._seed, step=step
        )
        ends = np.concatenate([edges, negatives.astype(edges.dtype)], axis=1)
        units, links = unit_links(ends, times)
        return replace(self._timed.sample_units(*units, step), links=links)


@dataclass(frozen=True, kw_only=True)
class TimedLinkSampling(SamplerConfig):
    """Configuration of ``TimedLinkSampler``; ``vertices`` has a rule of time and a strict bound."""

    vertices: FanoutSampling
    edges: IntArray
    times: Int64Array
    edge_type: int
    num_negatives: int
    candidates: Candidates | None = None

    @property
    def num_layers(self) -> int:
        """Number of hops."""
        return self.vertices.num_layers

    def sampler(self, graph: Graph, *, seed: int, num_threads: int) -> TimedLinkSampler:
        """Build the sampler for ``graph``, which has times."""
        return TimedLinkSampler(
            timed_sampler(self.vertices, graph, seed=seed, num_threads=num_threads),
            self.edges,
            self.times,
            negatives=timed_candidates(graph, self.edge_type, self.candidates),
            num_negatives=self.num_negatives,
            seed=seed,
        )


def timed_candidates(
    graph: Graph, edge_type: int, candidates: Candidates | None
) -> TimedCandidates:
    """Return the negatives of edges of a type of ``graph``, among ``candidates``."""
    return TimedCandidates(
        known_edges=KnownLinks.of(graph, edge_type),
        vertex_times=None if graph.times is None else graph.times.vertices,
        candidates=candidates,
        num_vertices=graph.num_vertices,
    )
