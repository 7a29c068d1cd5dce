"""Mini-batches of edges: their ends and negatives are the seeds that a sampler starts from."""

import hashlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from gnnscale import ops
from gnnscale.core import (
    Array,
    Float64Array,
    Int32Array,
    Int64Array,
    IntArray,
)
from gnnscale.graph import Graph, Relation
from gnnscale.sampling import minibatch, seed_order
from gnnscale.sampling.edge_removal import without_edges, without_typed_edges
from gnnscale.sampling.minibatch import Links, MiniBatch
from gnnscale.sampling.typed import TypedMiniBatch

#: Numbers that are drawn for weighted candidates: those below.
_DRAWS = 1 << 40


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """Candidate vertices for negatives, by kind; an edge's negatives have its destination's kind.

    Example: kinds [0, 1, 1, -1, 0] have ``vertices`` [0, 4, 1, 2] and ``offsets`` [0, 2, 4]; an
    edge to vertex 1 has negatives among vertices 1 and 2, and vertex 3 is never a negative.
    """

    kinds: Int32Array  #: ``[num_vertices]`` int32 kind of each vertex; -1 for no candidate
    vertices: Int64Array  #: ``[num_candidates]`` candidates by kind, ascending within a kind
    offsets: Int64Array  #: ``[num_kinds + 1]`` first position of each kind in ``vertices``
    #: ``[num_candidates]`` ends of each candidate's interval of the numbers from 0 that are drawn
    #: for its kind; None: all candidates of a kind are as likely
    ends: Int64Array | None = None

    @classmethod
    def from_kinds(cls, kinds: Int32Array) -> "Candidates":
        """Group vertices by their ``kinds`` ``[num_vertices]``, from 0 on; -1: never a negative."""
        vertices = np.flatnonzero(kinds >= 0)
        vertices = vertices[np.argsort(kinds[vertices], kind="stable")]
        counts = np.bincount(kinds[vertices], minlength=1)
        offsets = np.concatenate([[0], np.cumsum(counts)])
        return cls(kinds=kinds, vertices=vertices, offsets=offsets)

    def weighted(self, weights: Float64Array) -> "Candidates":
        """Return these candidates, drawn in proportion to ``weights`` ``[num_vertices]``, above 0.

        Probabilities are multiples of 2^-40.
        """
        ends = np.empty(len(self.vertices), np.int64)
        for first, last in itertools.pairwise(self.offsets.tolist()):
            sums = np.cumsum(weights[self.vertices[first:last]])
            ends[first:last] = np.ceil(sums / sums[-1:] * _DRAWS)
        return replace(self, ends=ends)

    @property
    def content(self) -> str:
        """Hex digest of ``kinds``, which tells different candidates apart."""
        return hashlib.blake2b(self.kinds.tobytes(), digest_size=16).hexdigest()

    def draw(
        self, edges: Array, destinations: IntArray, count: int, *, seed: int, step: int
    ) -> Int64Array:
        """Return ``[n, count]`` int64 negatives of the destinations' kinds, with replacement.

        ``edges`` ``[n]`` are row numbers of edges: these, the seed and the step fix the draws.
        ``destinations`` ``[n]`` are the edges' destinations, all of which must be candidates.
        """
        negatives = np.empty((len(edges), count), np.int64)
        kinds = self.kinds[destinations]
        for kind in np.unique(kinds):
            rows = np.flatnonzero(kinds == kind)
            inside = slice(self.offsets[kind], self.offsets[kind + 1])
            group = self.vertices[inside]
            limit = len(group) if self.ends is None else _DRAWS
            draws = ops.draw_negatives(edges[rows], count, limit, seed=seed, step=step)
            if self.ends is not None:
                draws = np.searchsorted(self.ends[inside], draws, side="right")
            negatives[rows] = group[draws]
        return negatives


def draw_candidates(
    candidates: Candidates | None,
    edges: Array,
    destinations: IntArray,
    count: int,
    *,
    num_vertices: int,
    seed: int,
    step: int,
) -> Int64Array:
    """Return ``[n, count]`` int64 negatives of the edges with row numbers ``edges`` ``[n]``.

    They are drawn by ``Candidates.draw``, or (None) uniformly from all ``num_vertices`` vertices.
    """
    if candidates is None:
        return ops.draw_negatives(edges, count, num_vertices, seed=seed, step=step)
    return candidates.draw(edges, destinations, count, seed=seed, step=step)


@dataclass(frozen=True, kw_only=True)
class LinkSeeds:
    """Seeds that a mini-batch of edges passes to a vertex sampler, and its edges to predict.

    Also the edges along which no messages are sent, since a device predicts them in this step.
    """

    vertices: IntArray  #: ``[n]`` the seeds: ends and negatives, each once, ascending
    links: Links  #: the edges, by positions among the seeds
    sources: IntArray  #: ``[m]`` sources of the edges without messages
    destinations: IntArray  #: ``[m]`` destinations of the edges without messages


class StepEdges:
    """Callable that returns the row numbers of the edges that all devices predict in a step."""

    def __init__(self, order: seed_order.SeedOrder) -> None:
        """Take each step's edges from ``order``, whose seeds are row numbers of edges."""
        self._order = order
        self._epoch: tuple[int, list[Array]] = (-1, [])

    def __call__(self, step: int) -> Array:
        """Return row numbers ``[n]`` of the edges of ``step``, counted over all epochs from 0."""
        number, index = divmod(step, self._order.steps_per_epoch)
        epoch, steps = self._epoch
        if epoch != number:
            steps = [step_seeds.seeds for step_seeds in self._order.epoch(number)]
            self._epoch = (number, steps)
        return steps[index]


class LinkSampler(minibatch.WrappingSampler):
    """Sampler for link prediction: a vertex sampler starts from ends of edges and negatives.

    A seed is a row number of ``edges`` ``[num_edges, 2]``. Each edge gets ``num_negatives``
    vertices as false destinations, drawn uniformly among its candidates (None: all vertices); one
    may be a neighbor by chance. No messages are sent along ``step_edges(step)``, the edges that any
    device predicts in this step, and with ``drop_reverses`` none along their reverses: a mini-batch
    does not depend on how the edges are split among devices.

    In a graph with types, the edges are of the edge type of ``relation``. None of its reverses
    sends messages along the step's edges. Ids ascend, and so do the types: the seeds of a
    ``TypedMiniBatch``, type after type, are in the order of the ids.
    """

    def __init__(
        self,
        sampler: minibatch.Sampler,
        edges: IntArray,
        *,
        num_vertices: int,
        num_negatives: int,
        candidates: Candidates | None = None,
        drop_reverses: bool,
        relation: Relation | None = None,
        seed: int,
        step_edges: Callable[[int], Array],
    ) -> None:
        """Wrap the vertex sampler ``sampler``; ``seed`` and step fix the negatives.

        ``step_edges(step)`` returns the rows of ``edges`` that all devices predict in a step. They
        send no messages, nor do their reverses with ``drop_reverses``. ``relation`` None: the graph
        has one edge type.
        """
        super().__init__(sampler)
        self._edges = edges
        self._num_vertices = num_vertices
        self._num_negatives = num_negatives
        self._candidates = candidates
        self._leave_out_reverses = drop_reverses
        self._relation = relation or Relation()
        self._seed = seed
        self._step_edges = step_edges

    def sample(self, seeds: Array, step: int) -> MiniBatch:
        """Return the mini-batch that predicts the edges of row numbers ``seeds`` ``[n]``.

        No messages are sent along edges that any device predicts in ``step``.
        """
        link_seeds = self.draw(seeds, step)
        batch = self._sampler.sample(link_seeds.vertices, step)
        ends = link_seeds.sources, link_seeds.destinations
        if isinstance(batch, TypedMiniBatch):
            batch = without_typed_edges(batch, *ends, self._relation)
        else:
            batch = without_edges(batch, *ends)
        return replace(batch, links=link_seeds.links)

    def draw(self, seeds: Array, step: int) -> LinkSeeds:
        """Draw negatives of the edges of row numbers ``seeds`` ``[n]``.

        Return ends and negatives as vertex seeds, the links by positions among these, and the edges
        along which no messages are sent.
        """
        edges = np.asarray(self._edges[seeds])
        negatives = draw_candidates(
            self._candidates,
            seeds,
            edges[:, 1],
            self._num_negatives,
            num_vertices=self._num_vertices,
            seed=self._seed,
            step=step,
        )
        vertices, links = edge_links(np.concatenate([edges.astype(np.int64), negatives], axis=1))
        # A profiling run may train edges that the order does not have in this step.
        numbers = np.union1d(self._step_edges(step), seeds)
        dropped = np.asarray(self._edges[numbers])
        src, dst = dropped[:, 0], dropped[:, 1]
        if self._leave_out_reverses:
            src, dst = np.concatenate([src, dst]), np.concatenate([dst, src])
        return LinkSeeds(
            vertices=vertices.astype(edges.dtype), links=links, sources=src, destinations=dst
        )


@dataclass(frozen=True, kw_only=True)
class LinkSampling(minibatch.SamplerConfig):
    """Configuration of ``LinkSampler``; ``vertices`` configures its vertex sampler."""

    vertices: minibatch.SamplerConfig
    edges: IntArray
    num_negatives: int
    candidates: Candidates | None = None
    drop_reverses: bool
    order: seed_order.SeedOrder
    relation: Relation = field(default_factory=Relation)

    @property
    def num_layers(self) -> int:
        """Number of hops."""
        return self.vertices.num_layers

    def sampler(self, graph: Graph, *, seed: int, num_threads: int) -> LinkSampler:
        """Build the sampler; all edges of ``graph`` but those predicted in a step send messages."""
        return LinkSampler(
            self.vertices.sampler(graph, seed=seed, num_threads=num_threads),
            self.edges,
            num_vertices=graph.num_vertices,
            num_negatives=self.num_negatives,
            candidates=self.candidates,
            drop_reverses=self.drop_reverses,
            relation=self.relation,
            seed=seed,
            step_edges=StepEdges(self.order),
        )


class EdgeSampler(minibatch.WrappingSampler):
    """Sampler for labels of edges: a vertex sampler starts from the edges' ends.

    A seed is the row of an edge in ``ends`` ``[num_rows, 2]`` and in ``features`` ``[num_rows,
    num_edge_features]``. All edges send messages, including predicted edges: their features are
    known when their labels are not.
    """

    def __init__(self, sampler: minibatch.Sampler, ends: IntArray, features: Array | None) -> None:
        """Wrap the vertex sampler ``sampler``.

        Rows of ``ends`` ``[n, 2]`` and of ``features`` (None: there are none) are edges.
        """
        super().__init__(sampler)
        self._ends = ends
        self._features = features

    def sample(self, seeds: Array, step: int) -> MiniBatch:
        """Return the mini-batch of the labeled edges of row numbers ``seeds`` ``[n]``."""
        vertices, links = edge_links(np.asarray(self._ends[seeds]), seeds, self._features)
        return replace(self._sampler.sample(vertices, step), links=links)


def edge_links(
    ends: IntArray, rows: IntArray | None = None, features: Array | None = None
) -> tuple[IntArray, Links]:
    """Return the distinct vertices ``[m]`` in ``ends``, ascending, and links that index these.

    ``ends`` are ``[n, 2]``, or ``[n, 1 + k]`` with negatives. The links have the edges' row numbers
    ``rows`` ``[n]``, and a float32 copy of these rows of ``features``.
    """
    vertices, inverse = np.unique(ends, return_inverse=True)
    positions = inverse.reshape(ends.shape).astype(np.int32)
    links = Links(
        sources=np.ascontiguousarray(positions[:, 0]),
        destinations=np.ascontiguousarray(positions[:, 1:]),
        rows=None if rows is None else np.asarray(rows),
        features=None if features is None else np.asarray(features[rows], np.float32),
    )
    return vertices, links


@dataclass(frozen=True, kw_only=True)
class EdgeSampling(minibatch.SamplerConfig):
    """Configuration of ``EdgeSampler``; ``vertices`` configures its vertex sampler."""

    vertices: minibatch.SamplerConfig
    ends: IntArray
    features: Array | None

    @property
    def num_layers(self) -> int:
        """Number of hops."""
        return self.vertices.num_layers

    def sampler(self, graph: Graph, *, seed: int, num_threads: int) -> EdgeSampler:
        """Build the sampler for ``graph``."""
        vertices = self.vertices.sampler(graph, seed=seed, num_threads=num_threads)
        return EdgeSampler(vertices, self.ends, self.features)
