"""Mini-batches without the edges of their last hop, whose rows were aggregated beforehand."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale.graph import Graph
from gnnscale.sampler.base import Sampler, SamplerConfig
from gnnscale.sampler.minibatch import Block, MiniBatch
from gnnscale.sampler.neighbor import NeighborSampler, NeighborSampling

__all__ = ["LeavingOutLastHop", "WithoutLastHop", "without_last_hop"]


class WithoutLastHop:
    """Samples all hops but the last, and puts a first block without edges in their place.

    So ``input_vertices`` are V^1: the destinations of the first layer, whose rows are ready.
    """

    def __init__(self, outer: Sampler) -> None:
        """Prepare to sample.

        Args:
            outer: samples the hops before the last; none for a model of one layer.
        """
        self._outer = outer

    @property
    def num_threads(self) -> int:
        """Threads of one call; may be changed between calls."""
        return self._outer.num_threads

    @num_threads.setter
    def num_threads(self, num_threads: int) -> None:
        self._outer.num_threads = num_threads

    def sample(self, seeds: NDArray[Any], step: int) -> MiniBatch:
        """Return the mini-batch of ``seeds`` (distinct vertex ids) at ``step``."""
        batch = self._outer.sample(seeds, step)
        num_vertices = len(batch.input_vertices)
        first = Block(
            indptr=np.zeros(num_vertices + 1, np.int64),
            indices=np.empty(0, np.int32),
            num_src=num_vertices,
        )
        return replace(batch, blocks=(first, *batch.blocks))


@dataclass(frozen=True, kw_only=True)
class LeavingOutLastHop(SamplerConfig):
    """Neighbour sampling without its last hop.

    Attributes:
        whole: the sampling of all hops, the last of which takes all neighbours.
    """

    whole: NeighborSampling

    @property
    def num_layers(self) -> int:
        """Number of layers, that of the hop that is left out included."""
        return self.whole.num_layers

    def sampler(self, graph: Graph, *, seed: int, num_threads: int) -> WithoutLastHop:
        """Build the sampler for ``graph``."""
        whole = self.whole
        return WithoutLastHop(
            NeighborSampler(
                graph,
                fanouts=list(whole.fanouts[:-1]),
                replace=whole.replace,
                seed=seed,
                num_threads=num_threads,
            )
        )


def without_last_hop(sampler: SamplerConfig) -> LeavingOutLastHop | None:
    """Return the sampling of the same vertices without the last hop's edges.

    None where that hop does not take all neighbours.
    """
    if isinstance(sampler, NeighborSampling) and sampler.fanouts[-1] == -1:
        return LeavingOutLastHop(whole=sampler)
    return None
