"""Neighbor sampling: uniform or by edge weights, and of all neighbors in the last hop."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from gnnscale.core import MAX_COUNT, Array, ConfigError, check_range, progress
from gnnscale.graph import Graph
from gnnscale.ops import NativeSampler
from gnnscale.sampling import minibatch

#: Largest fan-out with replacement, as in native code: so many are drawn whatever the degree.
_MAX_REPLACED = 1 << 20


class _FanoutSampler:
    """Base of the samplers that draw up to ``fanouts[h]`` neighbors at hop ``h``."""

    _by_weight: ClassVar[bool] = False

    def __init__(
        self,
        graph: Graph,
        *,
        fanouts: list[int],
        replace: bool = False,
        seed: int = 0,
        num_threads: int = 1,
    ) -> None:
        """Prepare to draw up to ``fanouts[h]`` neighbors of a vertex at hop h; -1 takes all.

        A sampler by weight reads all edge weights here, and -1 takes no neighbor of weight 0.
        ConfigError: it samples by weight, and the graph has no weights.
        """
        self._graph = graph
        self._native = NativeSampler(graph)
        if self._by_weight and graph.edge_weights is None:
            raise ConfigError(
                f"sampler=weighted: edges of {graph.path or graph.name} have no weights to draw "
                "neighbors by; sampler=neighbor draws all alike"
            )
        self.fanouts = minibatch.whole_numbers("fanouts", fanouts)
        self.replace = replace
        self.seed = seed
        self.num_threads = num_threads
        if self._by_weight:
            with progress.track(f"reading the weights of {graph.name}"):
                self._native.prepare_weights(num_threads=num_threads)

    def _sample(self, seeds: Array, step: int, **options: bool) -> minibatch.MiniBatch:
        sampled = self._native.sample_neighbors(
            seeds,
            self.fanouts,
            step=step,
            edge_rows=self._graph.edge_rows is not None,
            **self._choices(),
            **options,
        )
        return minibatch.to_minibatch(
            len(seeds),
            sampled,
            seed=self.seed,
            step=step,
            weight_sums=self._graph.weight_sums,
            num_threads=self.num_threads,
        )

    def _choices(self) -> dict[str, Any]:
        return {"replace": self.replace, "seed": self.seed, "num_threads": self.num_threads}


class NeighborSampler(_FanoutSampler):
    """Sampler of up to ``fanouts[h]`` in-neighbors, drawn uniformly, of each vertex of hop ``h``.

    The neighbors of vertex ``v`` at hop ``h`` of step ``s`` depend on ``(seed, s, h, v)`` alone:
    any number of threads, and any split of the seeds over workers, gives the same answer.
    """

    def sample(self, seeds: Array, step: int) -> minibatch.MiniBatch:
        """Return the mini-batch of ``seeds`` (distinct vertex ids) at ``step``."""
        return self._sample(seeds, step, edge_weights=self._graph.edge_weights is not None)

    def reach(self, seeds: Array, step: int) -> minibatch.InputFrontier:
        """Return the input vertices and block offsets of ``sample(seeds, step)``.

        This is faster than ``sample``, since no edges are stored.
        """
        vertices, indptrs = self._native.reach_neighbors(
            seeds, self.fanouts, step=step, **self._choices()
        )
        return minibatch.InputFrontier(input_vertices=vertices, indptrs=tuple(indptrs))


def check_fanouts(fanouts: list[int], *, replace: bool) -> None:
    """Raise ConfigError unless ``fanouts`` are 1 to 16 numbers, each -1 or from 1 to a maximum.

    The maximum is 2^31 - 1, or 2^20 with ``replace``.
    """
    if not fanouts:
        raise ConfigError("sampler.fanouts=[]: at least one hop is needed")
    check_range("number of sampler.fanouts", len(fanouts), 1, minibatch.MAX_HOPS)
    max_fanout = _MAX_REPLACED if replace else MAX_COUNT
    for fanout in fanouts:
        if fanout != -1 and not 1 <= fanout <= max_fanout:
            raise ConfigError(
                f"sampler.fanouts={list(fanouts)}: {fanout} is not a fan-out; each must "
                f"be positive and at most {max_fanout:,}, or -1 for all neighbors"
            )


@dataclass(frozen=True, kw_only=True)
class _FanoutSampling(minibatch.SamplerConfig):
    """Base of the options of samplers with fan-outs.

    Attributes:
        fanouts: neighbors per vertex, from the seeds outwards, one entry a layer; -1 takes all,
            but none of weight 0 when drawing by weight.
        replace: draw with replacement; a fan-out of -1 still takes each neighbor once.
    """

    fanouts: list[int]
    replace: bool = False

    def __post_init__(self) -> None:
        check_fanouts(self.fanouts, replace=self.replace)

    @property
    def num_layers(self) -> int:
        return len(self.fanouts)

    def _options(self, seed: int, num_threads: int) -> dict[str, Any]:
        options = {"fanouts": list(self.fanouts), "replace": self.replace}
        return options | {"seed": seed, "num_threads": num_threads}


@dataclass(frozen=True, kw_only=True)
class NeighborSampling(_FanoutSampling):
    """Neighbor sampling.

    Attributes:
        memory_bytes: bytes for adjacency lists in training, over all workers of a machine: lists
            with the most reads per byte are in memory, and single neighbors in other lists are read
            from the disk. None: all lists are mapped, unless they exceed the memory.
    """

    memory_bytes: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.memory_bytes is not None:
            check_range("sampler.memory_bytes", self.memory_bytes, 0, 1 << 60)

    @property
    def is_full_neighborhood(self) -> bool:
        """Whether the last of ``fanouts`` takes all neighbors."""
        return self.fanouts[-1] == -1

    def sampler(self, graph: Graph, *, seed: int, num_threads: int) -> NeighborSampler:
        """Build the sampler for ``graph``."""
        return NeighborSampler(graph, **self._options(seed, num_threads))


class WeightedSampler(_FanoutSampler):
    """Sampler of up to ``fanouts[h]`` in-neighbors of a vertex with probability by edge weight.

    Neighbors are drawn one after the other, each with probability proportional to its edge's weight
    among the remaining neighbors. An alias table of every list (Vose, 1991) selects a block of 16
    edges, and an edge of the block; repeated draws are rejected. If a list has at most 4 times as
    many neighbors as are drawn, more than 512 are drawn, or too many draws are rejected, the edges
    of the smallest exponential times ``-log(u) / w`` are taken instead (Efraimidis and Spirakis,
    2006): the same distribution. Draws for vertex ``v`` at hop ``h`` of step ``s`` depend on
    ``(seed, s, h, v)`` and the weights alone. The tables take 2 bytes an edge and 32 a vertex, in
    each process that samples.

    The draws account for the weights: blocks have no ``edge_weights``, and a mean over the drawn
    neighbors counts all alike. Blocks have ``weight_sums``: the sum of ``w_u h_u`` over all
    neighbors is estimated by the sum of all weights times that mean. With replacement the mean is
    unbiased. Without, it is biased towards edges of small weight, the more the larger a part of the
    neighbors is drawn; ``sampler=neighbor`` over the same graph weights every edge instead.
    """

    _by_weight: ClassVar[bool] = True

    def sample(self, seeds: Array, step: int) -> minibatch.MiniBatch:
        """Return the mini-batch of ``seeds`` (distinct vertex ids) at ``step``."""
        return self._sample(seeds, step, by_weight=True)


@dataclass(frozen=True, kw_only=True)
class WeightedSampling(_FanoutSampling):
    """Neighbor sampling by weight."""

    def sampler(self, graph: Graph, *, seed: int, num_threads: int) -> WeightedSampler:
        """Build the sampler for ``graph``, whose edges have weights."""
        return WeightedSampler(graph, **self._options(seed, num_threads))


class TruncatedSampler(minibatch.WrappingSampler):
    """Sampler whose first block has no edges, because aggregates of the last hop are precomputed.

    The wrapped sampler samples the other hops.
    """

    def sample(self, seeds: Array, step: int) -> minibatch.MiniBatch:
        """Return the mini-batch of distinct ``seeds`` at ``step``; its first block has no edges."""
        batch = self._sampler.sample(seeds, step)
        num_vertices = len(batch.input_vertices)
        first = minibatch.Block(
            indptr=np.zeros(num_vertices + 1, np.int64),
            indices=np.empty(0, np.int32),
            num_src=num_vertices,
        )
        return replace(batch, blocks=(first, *batch.blocks))


@dataclass(frozen=True, kw_only=True)
class TruncatedSampling(minibatch.SamplerConfig):
    """Configuration of ``TruncatedSampler``: all hops of the sampler ``whole`` but the last."""

    whole: minibatch.SamplerConfig

    @property
    def num_layers(self) -> int:
        """Number of layers, including the dropped hop."""
        return self.whole.num_layers

    def sampler(self, graph: Graph, *, seed: int, num_threads: int) -> TruncatedSampler:
        """Build the sampler for ``graph``, which samples by ``whole`` without its last fan-out."""
        outer: Any = self.whole.sampler(graph, seed=seed, num_threads=num_threads)
        outer.fanouts = outer.fanouts[:-1]
        return TruncatedSampler(outer)


def without_last_hop(sampler: minibatch.SamplerConfig) -> TruncatedSampling | None:
    """Return ``sampler`` with an empty last hop; None: its last hop does not take all neighbors."""
    return TruncatedSampling(whole=sampler) if sampler.is_full_neighborhood else None
