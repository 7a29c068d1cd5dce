"""Mini-batches of edges: their ends and negatives are the seeds that a sampler starts from."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale.core import Array, BoolArray, Float32Array, Int64Array, IntArray
from gnnscale.graph import Graph
from gnnscale.sampling import minibatch, seed_order
from gnnscale.sampling.candidates import Candidates, draw_candidates
from gnnscale.sampling.minibatch import Block, Links, MiniBatch

#: Arrays of a block with an entry for each edge.
_PER_EDGE = ("indices", "importance", "edge_vertices", "edge_weights", "edge_rows")


def without_edges(batch: MiniBatch, sources: IntArray, destinations: IntArray) -> MiniBatch:
    """Return ``batch`` without messages along some edges, in any of its layers.

    Edge i leads from ``sources[i]`` to ``destinations[i]``, global ids ``[n]``. Only the lists of
    destinations are read.
    """
    if not len(sources):
        return batch
    edges = _EdgeSet(sources, destinations)
    expanded = batch.input_vertices[: batch.blocks[0].num_dst]
    rows = np.flatnonzero(_among(expanded.astype(np.int64, copy=False), edges.destinations))
    blocks = tuple(_without(block, batch.input_vertices, rows, edges) for block in batch.blocks)
    return replace(batch, blocks=blocks)


class _EdgeSet:
    """A set of edges for look-ups by both ends."""

    def __init__(self, sources: IntArray, destinations: IntArray) -> None:
        src, dst = (np.asarray(ends, np.int64) for ends in (sources, destinations))
        #: More than any id, so that a pair of ids is one number.
        self._base = int(max(src.max(), dst.max())) + 1
        self.destinations = np.unique(dst)
        self._keys = np.unique(src * self._base + dst)

    def contains(self, src: IntArray, dst: IntArray) -> BoolArray:
        """Return which edges from ``src`` ``[n]`` to ``dst`` ``[n]`` are in the set."""
        src, dst = src.astype(np.int64), dst.astype(np.int64)
        known = (src < self._base) & (dst < self._base)
        return known & _among(src * self._base + dst, self._keys)


def _among(values: Int64Array, known: Int64Array) -> BoolArray:
    """Return which of ``values`` are among ``known``, which ascend."""
    places = np.minimum(np.searchsorted(known, values), len(known) - 1)
    found: BoolArray = known[places] == values
    return found


def _without(block: Block, vertices: IntArray, rows: NDArray[np.intp], edges: _EdgeSet) -> Block:
    """Return ``block`` without ``edges``, whose destinations are ``rows``."""
    rows = rows[rows < block.num_dst]
    lengths = block.indptr[rows + 1] - block.indptr[rows]
    # The places of these rows' edges: runs that begin at the rows' offsets.
    skipped = np.cumsum(lengths) - lengths
    places = np.arange(lengths.sum()) + np.repeat(block.indptr[rows] - skipped, lengths)
    owners = np.repeat(rows, lengths)
    out = edges.contains(vertices[block.indices[places]], vertices[owners])
    if not out.any():
        return block
    removed = np.bincount(owners[out] + 1, minlength=block.num_dst + 1)
    kept: dict[str, Any] = {
        name: np.delete(values, places[out])
        for name in _PER_EDGE
        if (values := getattr(block, name)) is not None
    }
    return replace(block, indptr=block.indptr - np.cumsum(removed), **kept)


@dataclass(frozen=True, kw_only=True)
class LinkSeeds:
    """What a mini-batch of edges is sampled from."""

    vertices: IntArray  #: ``[n]`` the seeds: ends and negatives, each once, ascending
    links: Links  #: the edges, by places among the seeds
    #: ends ``[m]`` of the edges whose messages are left out
    sources: IntArray
    destinations: IntArray


class StepEdges:
    """The edges that all devices together train in a step.

    Seed and epoch fix them, so every device knows what the others train.
    """

    def __init__(self, order: seed_order.SeedOrder) -> None:
        """Read ``order``, whose seeds are numbers of edges."""
        self._order = order
        self._epoch: tuple[int, list[Array]] = (-1, [])

    def __call__(self, step: int) -> Array:
        """Return the numbers ``[n]`` of the edges of ``step``."""
        number, place = divmod(step, self._order.steps_per_epoch)
        epoch, steps = self._epoch
        if epoch != number:
            steps = [each.seeds for each in self._order.epoch(number)]
            self._epoch = (number, steps)
        return steps[place]


class LinkSampler(minibatch.WrappingSampler):
    """Samples for edges with a sampler of vertices.

    A seed is the number of an edge. Each edge gets ``num_negatives`` vertices in place of its
    destination, drawn uniformly among its candidates; one may be a neighbour by chance. Messages
    along the edges that any device predicts in the same step are left out, so the answer does not
    depend on how the edges are split among devices.
    """

    def __init__(
        self,
        sampler: minibatch.Sampler,
        edges: IntArray,
        *,
        num_vertices: int,
        num_negatives: int,
        candidates: Candidates | None = None,
        leave_out_reverses: bool,
        seed: int,
        step_edges: Callable[[int], Array],
    ) -> None:
        """Sample with ``sampler``.

        Args:
            sampler: of vertices.
            edges: ``[num_edges, 2]`` sources and destinations.
            num_vertices: of the graph.
            num_negatives: vertices drawn for each edge.
            candidates: vertices that are drawn; None for all.
            leave_out_reverses: whether an edge's reverse reveals it, and sends no message either.
            seed: of the run.
            step_edges: returns the edges that all devices predict in a step.
        """
        super().__init__(sampler)
        self._edges = edges
        self._num_vertices = num_vertices
        self._num_negatives = num_negatives
        self._candidates = candidates
        self._leave_out_reverses = leave_out_reverses
        self._seed = seed
        self._step_edges = step_edges

    def sample(self, seeds: Array, step: int) -> MiniBatch:
        """Return the mini-batch of edges ``seeds`` ``[n]`` at ``step``."""
        drawn = self.draw(seeds, step)
        batch = self._sampler.sample(drawn.vertices, step)
        return replace(without_edges(batch, drawn.sources, drawn.destinations), links=drawn.links)

    def draw(self, seeds: Array, step: int) -> LinkSeeds:
        """Return what the mini-batch of edges ``seeds`` ``[n]`` is sampled from at ``step``."""
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
        ends = np.concatenate([edges.astype(np.int64), negatives], axis=1)
        vertices, places = np.unique(ends, return_inverse=True)
        rows = places.reshape(ends.shape).astype(np.int32)
        links = Links(
            sources=np.ascontiguousarray(rows[:, 0]), destinations=np.ascontiguousarray(rows[:, 1:])
        )
        # A rehearsal may train edges that the order has not in this step.
        numbers = np.union1d(self._step_edges(step), seeds)
        left_out = np.asarray(self._edges[numbers])
        src, dst = left_out[:, 0], left_out[:, 1]
        if self._leave_out_reverses:
            src, dst = np.concatenate([src, dst]), np.concatenate([dst, src])
        return LinkSeeds(
            vertices=vertices.astype(edges.dtype), links=links, sources=src, destinations=dst
        )


@dataclass(frozen=True, kw_only=True)
class LinkSampling(minibatch.SamplerConfig):
    """Sampling for edges, by the options for vertices."""

    vertices: minibatch.SamplerConfig
    edges: IntArray
    num_negatives: int
    candidates: Candidates | None = None
    leave_out_reverses: bool
    order: seed_order.SeedOrder

    @property
    def num_layers(self) -> int:
        """Number of hops."""
        return self.vertices.num_layers

    def sampler(self, graph: Graph, *, seed: int, num_threads: int) -> LinkSampler:
        """Build the sampler for ``graph``, whose edges are those that send messages."""
        return LinkSampler(
            self.vertices.sampler(graph, seed=seed, num_threads=num_threads),
            self.edges,
            num_vertices=graph.num_vertices,
            num_negatives=self.num_negatives,
            candidates=self.candidates,
            leave_out_reverses=self.leave_out_reverses,
            seed=seed,
            step_edges=StepEdges(self.order),
        )


class EdgeSampler(minibatch.WrappingSampler):
    """Samples for labelled edges with a sampler of vertices.

    A seed is the row of an edge. All edges send messages, the predicted ones too: what they carry
    is known when their label is not.
    """

    def __init__(
        self, sampler: minibatch.Sampler, ends: IntArray, features: Float32Array | None
    ) -> None:
        """Sample with ``sampler``.

        Args:
            sampler: of vertices.
            ends: ``[num_rows, 2]`` source and destination of each edge.
            features: ``[num_rows, num_edge_features]``, None without.
        """
        super().__init__(sampler)
        self._ends = ends
        self._features = features

    def sample(self, seeds: Array, step: int) -> MiniBatch:
        """Return the mini-batch of edges ``seeds`` ``[n]`` at ``step``."""
        vertices, links = edge_links(np.asarray(self._ends[seeds]), seeds, self._features)
        return replace(self._sampler.sample(vertices, step), links=links)


def edge_links(
    ends: IntArray, rows: IntArray, features: Float32Array | None
) -> tuple[IntArray, Links]:
    """Return the ends ``[m]`` of edges, each once and ascending, and the edges by places in them.

    Args:
        ends: ``[n, 2]`` sources and destinations.
        rows: ``[n]`` of their features and labels.
        features: ``[num_rows, num_edge_features]`` of all edges, None without.
    """
    vertices, places = np.unique(ends, return_inverse=True)
    places = places.reshape(ends.shape).astype(np.int32)
    links = Links(
        sources=np.ascontiguousarray(places[:, 0]),
        destinations=np.ascontiguousarray(places[:, 1:]),
        rows=np.asarray(rows),
        features=None if features is None else np.asarray(features[rows]),
    )
    return vertices, links


@dataclass(frozen=True, kw_only=True)
class EdgeSampling(minibatch.SamplerConfig):
    """Sampling for labelled edges, by the options for vertices."""

    vertices: minibatch.SamplerConfig
    ends: IntArray
    features: Float32Array | None

    @property
    def num_layers(self) -> int:
        """Number of hops."""
        return self.vertices.num_layers

    def sampler(self, graph: Graph, *, seed: int, num_threads: int) -> EdgeSampler:
        """Build the sampler for ``graph``."""
        vertices = self.vertices.sampler(graph, seed=seed, num_threads=num_threads)
        return EdgeSampler(vertices, self.ends, self.features)
