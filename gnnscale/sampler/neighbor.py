"""Neighbour sampling (GraphSAGE, Hamilton et al. 2017, Algorithm 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from gnnscale.config import MAX_COUNT, ConfigError, check_range
from gnnscale.graph import Graph
from gnnscale.ops import NativeSampler
from gnnscale.sampler.base import MAX_HOPS, SamplerConfig, to_minibatch, whole_numbers
from gnnscale.sampler.minibatch import MiniBatch, Reach

__all__ = ["NeighborSampler", "NeighborSampling", "check_fanouts"]

#: Fan-out with replacement, which is taken whatever the degree; native code has the same limit.
_MAX_REPLACED = 1 << 20


class NeighborSampler:
    """Keeps up to ``fanouts[h]`` in-neighbours of every vertex reached at hop ``h``.

    The neighbours of vertex ``v`` at hop ``h`` of step ``s`` depend on ``(seed, s, h, v)`` alone:
    any number of threads, and any split of the seeds over workers, gives the same answer.
    """

    def __init__(
        self,
        graph: Graph,
        *,
        fanouts: list[int],
        replace: bool = False,
        seed: int = 0,
        num_threads: int = 1,
    ) -> None:
        """Prepare to sample.

        Args:
            graph: whose in-neighbours are sampled.
            fanouts: neighbours a vertex, from the seeds outwards; -1 takes all.
            replace: draw with replacement (a fan-out of -1 still takes each once).
            seed: fixes every choice, together with the step.
            num_threads: threads of one call.
        """
        self._graph = graph
        self._native = NativeSampler(graph)
        self.fanouts = whole_numbers("fanouts", fanouts)
        self.replace = replace
        self.seed = seed
        self.num_threads = num_threads

    def sample(self, seeds: NDArray[Any], step: int) -> MiniBatch:
        """Return the mini-batch of ``seeds`` (distinct vertex ids) at ``step``."""
        sampled = self._native.sample_neighbors(
            seeds,
            self.fanouts,
            replace=self.replace,
            seed=self.seed,
            step=step,
            num_threads=self.num_threads,
            edge_weights=self._graph.edge_weights is not None,
        )
        weight_sums = self._graph.weight_sums
        return to_minibatch(len(seeds), sampled, seed=self.seed, step=step, weight_sums=weight_sums)

    def reach(self, seeds: NDArray[Any], step: int) -> Reach:
        """Return what the mini-batch of ``seeds`` at ``step`` reads, in less time."""
        vertices, indptrs = self._native.reach_neighbors(
            seeds,
            self.fanouts,
            replace=self.replace,
            seed=self.seed,
            step=step,
            num_threads=self.num_threads,
        )
        return Reach(input_vertices=vertices, indptrs=tuple(indptrs))


def check_fanouts(fanouts: list[int], *, replace: bool) -> None:
    """Refuse fan-outs that none of the samplers of neighbours can have.

    Raises:
        ConfigError: there are none or too many, or one is out of range.
    """
    if not fanouts:
        raise ConfigError("sampler.fanouts=[]: at least one hop is needed")
    check_range("number of sampler.fanouts", len(fanouts), 1, MAX_HOPS)
    max_fanout = _MAX_REPLACED if replace else MAX_COUNT
    for fanout in fanouts:
        if fanout != -1 and not 1 <= fanout <= max_fanout:
            raise ConfigError(
                f"sampler.fanouts={list(fanouts)}: {fanout} is not a fan-out; each must "
                f"be positive and at most {max_fanout:,}, or -1 for all neighbours"
            )


@dataclass(frozen=True, kw_only=True)
class NeighborSampling(SamplerConfig):
    """Neighbour sampling.

    Attributes:
        fanouts: neighbours a vertex, from the seeds outwards, one entry a layer; -1 takes all.
        replace: draw with replacement; a fan-out of -1 still takes each neighbour once.
    """

    fanouts: list[int]
    replace: bool = False

    def __post_init__(self) -> None:
        check_fanouts(self.fanouts, replace=self.replace)

    @property
    def num_layers(self) -> int:
        """Number of hops."""
        return len(self.fanouts)

    def sampler(self, graph: Graph, *, seed: int, num_threads: int) -> NeighborSampler:
        """Build the sampler for ``graph``."""
        return NeighborSampler(
            graph,
            fanouts=list(self.fanouts),
            replace=self.replace,
            seed=seed,
            num_threads=num_threads,
        )
