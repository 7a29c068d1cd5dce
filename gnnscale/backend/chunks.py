"""What a layer reads for many vertices with all neighbours, chunk by chunk in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gnnscale.backend.loading import in_degrees
from gnnscale.feature import FeatureStore
from gnnscale.graph import Graph
from gnnscale.model.layer import GraphLayer
from gnnscale.sampler import Block, NeighborSampler

__all__ = ["CHUNK_EDGES", "CHUNK_VERTICES", "Chunk", "ChunkLoader"]

#: Edges and vertices of a chunk, which bound what it needs.
CHUNK_EDGES = 1 << 20
CHUNK_VERTICES = 1 << 14

#: All neighbours of some vertices, and what a layer needs of them.
Chunk = tuple[Block, torch.Tensor]


class ChunkLoader:
    """Reads what layers need of all neighbours of vertices."""

    def __init__(self, graph: Graph, *, num_threads: int, uses_degrees: bool) -> None:
        """Prepare to read.

        Args:
            graph: whose neighbours are read.
            num_threads: threads of the native kernels; the result does not depend on it.
            uses_degrees: whether a layer needs degrees.
        """
        self._graph = graph
        self._sampler = NeighborSampler(graph, fanouts=[-1], num_threads=num_threads)
        self._degrees = in_degrees(graph) if uses_degrees else None

    def load(
        self,
        layer: GraphLayer,
        store: FeatureStore,
        vertices: NDArray[Any],
        *,
        chunk_edges: int = CHUNK_EDGES,
        chunk_vertices: int = CHUNK_VERTICES,
    ) -> Iterator[Chunk]:
        """Yield a block of all neighbours, and the layer's ``load`` result, for each chunk.

        Args:
            layer: that is loaded for.
            store: where rows are read.
            vertices: distinct ids, cut into chunks in their order.
            chunk_edges: about so many edges a chunk has; one more vertex may bring more.
            chunk_vertices: about so many vertices, at most.
        """
        for chunk in _cut(self._graph, vertices, chunk_edges, chunk_vertices):
            batch = self._sampler.sample(chunk, 0)
            degrees = None if self._degrees is None else self._degrees[batch.input_vertices]
            x, _ = layer.load(
                store,
                batch.input_vertices,
                batch.blocks[0],
                degrees,
                dtype=torch.float32,
                num_threads=self._sampler.num_threads,
            )
            yield batch.blocks[0], x


def _cut(
    graph: Graph, vertices: NDArray[Any], num_edges: int, num_vertices: int
) -> list[NDArray[Any]]:
    """Cut ``vertices`` so that a chunk has about ``num_edges`` in-edges, or ``num_vertices``."""
    degrees = graph.indptr[vertices + 1] - graph.indptr[vertices]
    cost = np.cumsum(np.maximum(degrees, max(num_edges // num_vertices, 1)))
    cuts = np.flatnonzero(np.diff(cost // num_edges)) + 1
    return np.split(vertices, cuts)
