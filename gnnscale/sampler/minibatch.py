"""The record that passes from the sampler to the loader and the model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Block", "Links", "MiniBatch", "Reach"]


@dataclass(frozen=True, kw_only=True)
class Block:
    """One layer of a mini-batch as a bipartite graph, in compressed sparse columns.

    Destination vertices are the first ``num_dst`` of the ``num_src`` source vertices. The messages
    for destination ``i`` come from ``indices[indptr[i]:indptr[i + 1]]``.

    Attributes:
        indptr: ``[num_dst + 1]`` int64 offsets.
        indices: ``[num_edges]`` int32 local ids of source vertices.
        num_src: number of source vertices, destinations included.
        importance: ``[num_edges]`` float32, 1 / (probability that the edge was kept), or None where
            every neighbour of a vertex was equally likely (neighbour sampling).
        edge_weights: ``[num_edges]`` float32 weights of the edges, where the graph has weights and
            they did not decide already which neighbours were drawn.
        weight_sums: ``[num_src]`` float32 sums of the weights of all in-edges in the whole graph,
            where it has weights.
        edge_vertices: ``[num_edges]`` the sources as vertices of the graph, where the sampler knows
            them: whoever reads features of the input block needs no look-up of local ids.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    num_src: int
    importance: NDArray[np.float32] | None = None
    edge_vertices: NDArray[np.integer] | None = None
    edge_weights: NDArray[np.float32] | None = None
    weight_sums: NDArray[np.float32] | None = None

    @property
    def edge_factors(self) -> NDArray[np.float32] | None:
        """``[num_edges]`` float32, what a message counts in a sum; None for ones.

        That is the product of importance and weight, of those that there are.
        """
        if self.importance is None or self.edge_weights is None:
            return self.edge_weights if self.importance is None else self.importance
        return self.importance * self.edge_weights

    @property
    def num_dst(self) -> int:
        """Number of destination vertices."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """Number of sampled edges."""
        return len(self.indices)

    @property
    def num_bytes(self) -> int:
        """Bytes of its arrays."""
        optional = (self.importance, self.edge_vertices, self.edge_weights, self.weight_sums)
        arrays = [self.indptr, self.indices, *(each for each in optional if each is not None)]
        return sum(each.nbytes for each in arrays)


@dataclass(frozen=True, kw_only=True)
class Links:
    """The edges that a mini-batch predicts, each with the vertices that it is told apart from.

    Attributes:
        sources: ``[n]`` int32 places of the edges' sources among the seeds.
        destinations: ``[n, 1 + k]`` int32 places of their destinations, and of k others each.
    """

    sources: NDArray[np.int32]
    destinations: NDArray[np.int32]

    @property
    def num_bytes(self) -> int:
        """Bytes of its arrays."""
        return self.sources.nbytes + self.destinations.nbytes


@dataclass(frozen=True, kw_only=True)
class MiniBatch:
    """A sampled computation graph of one step: one block per layer, inputs first.

    ``blocks[0]`` reads the input features and ``blocks[-1]`` writes the seeds' embeddings. Every
    layer's vertices are a prefix of ``input_vertices``; the seeds are its first ``num_seeds``.

    Attributes:
        step: the global step that, with the run's seed, fixed every random choice.
        seed: the run's seed.
        num_seeds: how many vertices the model has output rows of.
        input_vertices: ``[blocks[0].num_src]`` global vertex ids.
        blocks: from the input layer to the output layer.
        links: the edges between seeds that are predicted; None where the seeds themselves are.
    """

    seed: int
    step: int
    num_seeds: int
    input_vertices: NDArray[np.integer]
    blocks: tuple[Block, ...]
    links: Links | None = None

    @property
    def seeds(self) -> NDArray[np.integer]:
        """Global ids of the seeds, in the order of the model's output rows."""
        return self.input_vertices[: self.num_seeds]

    @property
    def num_bytes(self) -> int:
        """Bytes of its arrays."""
        links = 0 if self.links is None else self.links.num_bytes
        return self.input_vertices.nbytes + links + sum(block.num_bytes for block in self.blocks)

    @property
    def num_edges(self) -> int:
        """Edges over all layers, the numerator of MTEPS (HyScale-GNN eq. 5)."""
        return sum(block.num_edges for block in self.blocks)

    @property
    def num_vertices(self) -> int:
        """Vertices over all layers 0..L, the numerator of NVTPS (HitGNN eq. 3)."""
        return self.num_seeds + sum(block.num_src for block in self.blocks)


@dataclass(frozen=True, kw_only=True)
class Reach:
    """What a mini-batch reads of the graph: all but its edges.

    Attributes:
        input_vertices: as in ``MiniBatch``.
        indptrs: offsets of the blocks, from the seeds outwards. Hop ``h`` reads the lists of the
            first ``len(indptrs[h]) - 1`` input vertices.
    """

    input_vertices: NDArray[np.integer]
    indptrs: tuple[NDArray[np.int64], ...]

    @classmethod
    def of(cls, batch: MiniBatch) -> Reach:
        """Return what ``batch`` reads."""
        indptrs = tuple(block.indptr for block in reversed(batch.blocks))
        return cls(input_vertices=batch.input_vertices, indptrs=indptrs)

    @property
    def num_edges(self) -> int:
        """Edges over all hops."""
        return sum(int(indptr[-1]) for indptr in self.indptrs)

    @property
    def num_lists(self) -> int:
        """Lists that are read, over all hops."""
        return sum(len(indptr) - 1 for indptr in self.indptrs)
