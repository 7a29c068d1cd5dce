"""Neighbor sampling: uniform or by edge weights, and of all neighbors in the last hop."""

from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, get_args

import numpy as np

from gnnscale.core import (
    MAX_COUNT,
    Array,
    ConfigError,
    brief,
    check_choice,
    check_range,
)
from gnnscale.core.config.untrusted import names
from gnnscale.graph import Graph
from gnnscale.ops import NativeSampler
from gnnscale.sampling import minibatch
from gnnscale.sampling.cutoff_edges import CutoffEdges
from gnnscale.sampling.time_rule import Rule, TimeRule, check_strategy
from gnnscale.sampling.timed import TimedSampler
from gnnscale.sampling.typed import Draws, TypedSampler

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
        self.fanouts = minibatch.whole_numbers("fanouts", fanouts)
        self.replace = replace
        self.seed = seed
        self.num_threads = num_threads
        if self._by_weight:
            minibatch.prepare_weights(self._native, graph, num_threads=num_threads)

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


def check_fanouts(
    fanouts: list[int], *, replace: bool, option: str = "sampler.fanouts", least: int = 1
) -> None:
    """Raise ConfigError unless ``fanouts`` are 1 to 16 numbers, each -1 or from ``least`` on.

    The maximum is 2^31 - 1, or 2^20 with ``replace``. ``option`` has them.
    """
    if not fanouts:
        raise ConfigError(f"{option}=[]: at least one hop is needed")
    check_range(f"number of {option}", len(fanouts), 1, minibatch.MAX_HOPS)
    max_fanout = _MAX_REPLACED if replace else MAX_COUNT
    for fanout in fanouts:
        if fanout != -1 and not least <= fanout <= max_fanout:
            none = ", or 0 for none" if least == 0 else ""
            raise ConfigError(
                f"{option}={list(fanouts)}: {fanout} is not a fan-out; each must be positive and "
                f"at most {max_fanout:,}, or -1 for all neighbors{none}"
            )


@dataclass(frozen=True, kw_only=True)
class FanoutSampling(minibatch.SamplerConfig):
    """Base of the options of samplers with fan-outs.

    Attributes:
        fanouts: neighbors per vertex, from the seeds outwards, one entry a layer; -1 takes all,
            but none of weight 0 when drawing by weight. In a graph with types each edge type gets
            as many.
        edge_fanouts: fan-outs of some edge types, such as ``{user-buys-item: [0, 5]}``, in place
            of ``fanouts``; 0 takes no neighbor. None: there are none.
        time: rule of the edges that sampling may reach: ``seed`` (known at the cut-off of the
            seed), ``destination`` (known before the vertex that they reach), ``walk`` (in the
            order of time along the walk from a seed), or ``none`` (all). None: ``seed`` if the
            task has cut-offs, else ``none``.
        bound: ``inclusive`` allows edges of the time of the bound itself, ``strict`` does not.
            None: ``strict`` for ``destination`` and for predicted edges, else ``inclusive``.
        direction: direction of ``walk``, ``backward`` or ``forward`` in time.
        window: length of time before a cut-off from which edges are taken, in the graph's unit.
            None: all of the past.
        strategy: ``uniform`` draws among the allowed edges as the sampler does, ``last`` takes the
            newest.
        check_times: check in each mini-batch that no edge breaks the rule, which reads the whole
            lists of all destinations: hundreds of times the time of sampling.
    """

    fanouts: list[int]
    edge_fanouts: dict[str, list[int]] | None = field(default=None, metadata=names("text"))
    time: str | None = None
    bound: str | None = None
    direction: str = "backward"
    window: int | None = None
    strategy: str = "uniform"
    check_times: bool = False

    def __post_init__(self) -> None:
        check_fanouts(self.fanouts, replace=self._replaces)
        check_choice("sampler.time", self.time or "none", ("none", *get_args(Rule)))
        check_strategy(self.strategy, draws=self._draws, replace=self._replaces)
        if self.time != "none":
            self.time_rule(has_cutoffs=True)
        elif self.time_options:
            raise ConfigError(
                f"{self.time_options[0]}: expected a rule of time, got sampler.time=none"
            )
        for name, numbers in (self.edge_fanouts or {}).items():
            option = f"sampler.edge_fanouts.{brief(name)}"
            check_fanouts(numbers, replace=self._replaces, option=option, least=0)
            if len(numbers) != len(self.fanouts):
                raise ConfigError(
                    f"{option}={list(numbers)}: expected a number for each of {len(self.fanouts)} "
                    f"hops of sampler.fanouts, got {len(numbers)}"
                )

    @property
    def time_options(self) -> tuple[str, ...]:
        """Chosen options, as ``sampler.window=5``, that a rule of time reads."""
        defaults = {field.name: field.default for field in fields(FanoutSampling)}
        names = ("bound", "direction", "window", "strategy", "check_times")
        values = {name: getattr(self, name) for name in names}
        return tuple(
            f"sampler.{name}={str(value).lower()}"
            for name, value in values.items()
            if value != defaults[name]
        )

    def time_rule(self, *, has_cutoffs: bool) -> TimeRule | None:
        """Return the rule of time of a task that ``has_cutoffs``; None: all edges are taken.

        ConfigError: a rule is chosen, and the task has no cut-offs.
        """
        if self.time == "none" or (self.time is None and not has_cutoffs):
            return None
        if not has_cutoffs:
            raise ConfigError(
                f"sampler.time={self.time}: expected none for a task without cut-offs; rows of a "
                "task table have cut-offs"
            )
        options: dict[str, Any] = {"rule": self.time or "seed", "bound": self.bound}
        options |= {"direction": self.direction, "window": self.window}
        options |= {"strategy": self.strategy}
        return TimeRule(**options)

    def timed_sampler(
        self,
        graph: Graph,
        rule: TimeRule,
        *,
        seed: int,
        num_threads: int,
        left_out: CutoffEdges | None = None,
    ) -> TimedSampler:
        """Build the sampler for ``graph`` as of cut-offs; ConfigError: ``graph`` has no times.

        ``left_out`` is as in ``TimedSampler``.
        """
        return TimedSampler(
            graph,
            fanouts=self.fanouts_for(graph),
            rule=rule,
            draws=self._draws,
            replace=self._replaces,
            seed=seed,
            num_threads=num_threads,
            left_out=left_out,
            checks=self.check_times,
        )

    @property
    def _replaces(self) -> bool:
        return False

    @property
    def _draws(self) -> Draws:
        return "uniform"

    @property
    def num_layers(self) -> int:
        """Number of hops."""
        return len(self.fanouts)

    @property
    def is_full_neighborhood(self) -> bool:
        """Whether the last of ``fanouts`` takes all neighbors."""
        return self.fanouts[-1] == -1

    def lists_for(self, graph: Graph) -> dict[str, list[int]]:
        """Return the fan-outs of each edge type of ``graph``; ConfigError: one is not of it."""
        chosen = self.edge_fanouts or {}
        types = [] if graph.types is None else [str(edges) for edges in graph.types.edge_types]
        for name in chosen:
            if name not in types:
                allowed = f"allowed are {', '.join(types)}" if types else "edges have no types"
                raise ConfigError(
                    f"sampler.edge_fanouts: {brief(name)} is no edge type of {graph.name}, "
                    f"{allowed}"
                )
        return {name: list(chosen.get(name, self.fanouts)) for name in types}

    def fanouts_for(self, graph: Graph) -> Any:
        """Return ``fanouts`` for the sampler of ``graph``: a list, or with types one for each."""
        lists = self.lists_for(graph)
        return lists or list(self.fanouts)


@dataclass(frozen=True, kw_only=True)
class _ReplacedSampling(FanoutSampling):
    """Base of the options of samplers that may draw with replacement.

    Attributes:
        replace: draw with replacement; a fan-out of -1 still takes each neighbor once.
    """

    replace: bool = False

    @property
    def _replaces(self) -> bool:
        return self.replace

    def _options(self, graph: Graph, seed: int, num_threads: int) -> dict[str, Any]:
        options = {"fanouts": self.fanouts_for(graph), "replace": self.replace}
        return options | {"seed": seed, "num_threads": num_threads}


@dataclass(frozen=True, kw_only=True)
class NeighborSampling(_ReplacedSampling):
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

    def sampler(self, graph: Graph, *, seed: int, num_threads: int) -> minibatch.Sampler:
        """Build the sampler for ``graph``."""
        options = self._options(graph, seed, num_threads)
        return (
            NeighborSampler(graph, **options)
            if graph.types is None
            else TypedSampler(graph, **options)
        )


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
class WeightedSampling(_ReplacedSampling):
    """Neighbor sampling by weight."""

    @property
    def _draws(self) -> Draws:
        return "weight"

    def sampler(self, graph: Graph, *, seed: int, num_threads: int) -> minibatch.Sampler:
        """Build the sampler for ``graph``, whose edges have weights."""
        options = self._options(graph, seed, num_threads)
        if graph.types is not None:
            return TypedSampler(graph, draws=self._draws, **options)
        return WeightedSampler(graph, **options)


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
