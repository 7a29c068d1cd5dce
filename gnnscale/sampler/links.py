"""Mini-batches of edges: their ends and negatives are the seeds that a sampler starts from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale import ops
from gnnscale.graph import Graph
from gnnscale.sampler.base import Sampler, SamplerConfig
from gnnscale.sampler.exclude import without_edges
from gnnscale.sampler.minibatch import Links, MiniBatch
from gnnscale.sampler.seed_order import SeedOrder

__all__ = ["LinkSampler", "LinkSampling", "StepEdges"]


class StepEdges:
    """The edges that all devices together train in a step, by the order of the run.

    They are fixed by seed and epoch, so that every device knows what the others train.
    """

    def __init__(self, order: SeedOrder) -> None:
        """Ask ``order``, whose seeds are numbers of edges."""
        self._order = order
        self._epoch: tuple[int, list[NDArray[Any]]] = (-1, [])

    def __call__(self, step: int) -> NDArray[Any]:
        """Return the numbers ``[n]`` of the edges of ``step``."""
        number, place = divmod(step, self._order.steps_per_epoch)
        epoch, steps = self._epoch
        if epoch != number:
            steps = [each.seeds for each in self._order.epoch(number)]
            self._epoch = (number, steps)
        return steps[place]


class LinkSampler:
    """Samples for edges what another sampler samples for vertices.

    A seed is the number of an edge. Each edge gets ``num_negatives`` vertices in place of its
    destination, drawn uniformly; one may be a neighbour by chance. Messages along the edges that
    any device predicts in the same step are left out, so that the answer does not depend on how
    they are shared out.
    """

    def __init__(
        self,
        sampler: Sampler,
        edges: NDArray[np.integer],
        *,
        num_vertices: int,
        num_negatives: int,
        undirected: bool,
        seed: int,
        step_edges: Callable[[int], NDArray[Any]],
    ) -> None:
        """Sample with ``sampler``.

        Args:
            sampler: of vertices.
            edges: ``[num_edges, 2]`` sources and destinations.
            num_vertices: of the graph.
            num_negatives: vertices drawn for each edge.
            undirected: whether an edge's reverse tells of it, and is left out with it.
            seed: of the run.
            step_edges: returns the edges that all devices predict in a step.
        """
        self._sampler = sampler
        self._edges = edges
        self._num_vertices = num_vertices
        self._num_negatives = num_negatives
        self._undirected = undirected
        self._seed = seed
        self._step_edges = step_edges

    @property
    def num_threads(self) -> int:
        """Threads of one call."""
        return self._sampler.num_threads

    @num_threads.setter
    def num_threads(self, count: int) -> None:
        self._sampler.num_threads = count

    def sample(self, seeds: NDArray[Any], step: int) -> MiniBatch:
        """Return the mini-batch of edges ``seeds`` ``[n]`` at ``step``."""
        edges = np.asarray(self._edges[seeds])
        negatives = ops.draw_negatives(
            seeds, self._num_negatives, self._num_vertices, seed=self._seed, step=step
        )
        ends = np.concatenate([edges.astype(np.int64), negatives], axis=1)
        vertices, places = np.unique(ends, return_inverse=True)
        batch = self._sampler.sample(vertices.astype(edges.dtype), step)
        # A rehearsal may train edges that the order has not in this step.
        numbers = np.union1d(self._step_edges(step), seeds)
        rows = places.reshape(ends.shape).astype(np.int32)
        links = Links(
            sources=np.ascontiguousarray(rows[:, 0]),
            destinations=np.ascontiguousarray(rows[:, 1:]),
        )
        return replace(self._without(batch, np.asarray(self._edges[numbers])), links=links)

    def _without(self, batch: MiniBatch, edges: NDArray[np.integer]) -> MiniBatch:
        """Return ``batch`` without messages along ``edges`` ``[n, 2]``."""
        src, dst = edges[:, 0], edges[:, 1]
        if self._undirected:
            src, dst = np.concatenate([src, dst]), np.concatenate([dst, src])
        return without_edges(batch, src, dst)


@dataclass(frozen=True, kw_only=True)
class LinkSampling(SamplerConfig):
    """Sampling for edges, by the options for vertices.

    Attributes:
        vertices: how neighbours are picked.
        edges: ``[num_edges, 2]`` the edges that are trained.
        num_negatives: vertices drawn for each of them.
        undirected: whether an edge's reverse tells of it.
        order: of the numbers of edges.
    """

    vertices: SamplerConfig
    edges: NDArray[np.integer]
    num_negatives: int
    undirected: bool
    order: SeedOrder

    @property
    def num_layers(self) -> int:
        """Number of hops."""
        return self.vertices.num_layers

    def sampler(self, graph: Graph, *, seed: int, num_threads: int) -> LinkSampler:
        """Build the sampler for ``graph``, which has no edges but those that send messages."""
        return LinkSampler(
            self.vertices.sampler(graph, seed=seed, num_threads=num_threads),
            self.edges,
            num_vertices=graph.num_vertices,
            num_negatives=self.num_negatives,
            undirected=self.undirected,
            seed=seed,
            step_edges=StepEdges(self.order),
        )
