"""Neighbour sampling by the weights of edges, in place of all neighbours alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from gnnscale.config import ConfigError
from gnnscale.graph import Graph
from gnnscale.ops import NativeSampler
from gnnscale.sampler.base import SamplerConfig, to_minibatch, whole_numbers
from gnnscale.sampler.minibatch import MiniBatch
from gnnscale.sampler.neighbor import check_fanouts

__all__ = ["WeightedSampler", "WeightedSampling"]


class WeightedSampler:
    """Draws up to ``fanouts[h]`` in-neighbours of a vertex with probability by edge weight.

    Neighbours are drawn one after the other, each with probability proportional to its edge's
    weight among those that are left: the ``k`` smallest of exponential times ``-log(u) / w``
    (Efraimidis and Spirakis, 2006). Edges of weight 0 are never drawn. What is drawn for vertex
    ``v`` at hop ``h`` of step ``s`` depends on ``(seed, s, h, v)`` and the weights alone.

    The weights are spent on the choice: blocks have no ``edge_weights``, and a mean over what was
    drawn counts all alike. Blocks have ``weight_sums``, by which a sum is rescaled: the sum of
    ``w_u h_u`` over all neighbours is estimated by the sum of all weights times that mean. With
    replacement the mean is unbiased. Without, it leans to edges of small weight, the more the
    larger a part of the neighbours is drawn; ``sampler=neighbor`` over the same graph weights
    every edge instead.
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
            graph: whose in-neighbours are sampled; with ``edge_weights``.
            fanouts: neighbours a vertex, from the seeds outwards; -1 takes all whose weight is not
                0.
            replace: draw with replacement (a fan-out of -1 still takes each once).
            seed: fixes every choice, together with the step.
            num_threads: threads of one call.

        Raises:
            ConfigError: the graph's edges have no weights.
        """
        self._native = NativeSampler(graph)
        if graph.edge_weights is None:
            raise ConfigError(
                f"sampler=weighted: edges of {graph.path or graph.name} have no weights to draw "
                "neighbours by; sampler=neighbor draws all alike"
            )
        self._graph = graph
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
            by_weight=True,
        )
        weight_sums = self._graph.weight_sums
        return to_minibatch(len(seeds), sampled, seed=self.seed, step=step, weight_sums=weight_sums)


@dataclass(frozen=True, kw_only=True)
class WeightedSampling(SamplerConfig):
    """Neighbour sampling by weight.

    Attributes:
        fanouts: neighbours a vertex, from the seeds outwards, one entry a layer; -1 takes all whose
            weight is not 0.
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

    def sampler(self, graph: Graph, *, seed: int, num_threads: int) -> WeightedSampler:
        """Build the sampler for ``graph``, whose edges have weights."""
        return WeightedSampler(
            graph,
            fanouts=list(self.fanouts),
            replace=self.replace,
            seed=seed,
            num_threads=num_threads,
        )
