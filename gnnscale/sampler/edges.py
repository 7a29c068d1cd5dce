"""Mini-batches of edges whose labels are predicted: their ends are the seeds of a sampler."""

from dataclasses import dataclass, replace

import numpy as np

from gnnscale.core import Array, Float32Array, IntArray
from gnnscale.graph import Graph
from gnnscale.sampler import minibatch
from gnnscale.sampler.minibatch import Links, MiniBatch


class EdgeSampler(minibatch.OverSampler):
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
