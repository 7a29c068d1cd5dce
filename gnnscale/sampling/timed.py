"""Sampling as of cut-offs: rules of time, a sampler by them, and seeds that are rows of a task."""

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from gnnscale.core import (
    Array,
    ConfigError,
    Int32Array,
    Int64Array,
    IntArray,
    brief,
    check_choice,
)
from gnnscale.graph import NO_TIME, Graph
from gnnscale.ops import NativeSampler, SampledHop, TypedSample
from gnnscale.sampling.cutoff_edges import CutoffEdges
from gnnscale.sampling.minibatch import (
    BatchRows,
    MiniBatch,
    prepare_weights,
    to_minibatch,
)
from gnnscale.sampling.typed import (
    Draws,
    Fanouts,
    TypedMiniBatch,
    ends_of,
    fanouts_by_type,
    typed_blocks,
)

#: Bound of a source reached over an edge: its seed's cut-off, the edge's time, or a walk in time.
Rule = Literal["seed", "destination", "walk"]
Bound = Literal["inclusive", "strict"]
Direction = Literal["backward", "forward"]
Strategy = Literal["uniform", "last"]


@dataclass(frozen=True, kw_only=True)
class TimeRule:
    """Rule of the edges that sampling may reach: of time t, as of the cut-off c of a destination.

    Edges have t <= c if the bound is inclusive, t < c if it is strict. With a window w they also
    have t > c - w, or t >= c - w if the bound is strict: an interval of length w. Lists without
    times have no bounds.

    Attributes:
        rule: cut-off of a source. ``seed``: its destination's, hence that of the seed.
            ``destination``: the time of the edge. ``walk``: times along the walk from a seed do
            not ascend (``backward``: the cut-off is the time of the edge), or do not descend
            (``forward``: the cut-off is the seed's, and times are those of the edge before or
            later); strictly so if the bound is strict.
        bound: whether the time of the cut-off itself is allowed. None: ``strict`` for
            ``destination``, else ``inclusive``.
        direction: direction of ``walk``.
        window: length of the allowed interval in the graph's unit of time, at least 1. None: all
            of the past.
        strategy: ``uniform`` draws among the allowed edges; ``last`` takes the newest.
    """

    rule: Rule = "seed"
    bound: Bound | None = None
    direction: Direction = "backward"
    window: int | None = None
    strategy: Strategy = "uniform"

    def __post_init__(self) -> None:
        check_choice("sampler.time", self.rule, get_args(Rule))
        check_choice("sampler.bound", self.bound or "strict", get_args(Bound))
        check_choice("sampler.direction", self.direction, get_args(Direction))
        check_choice("sampler.strategy", self.strategy, get_args(Strategy))
        if self.direction == "forward" and self.rule != "walk":
            raise ConfigError(
                f"sampler.direction=forward: expected sampler.time=walk, got {self.rule}"
            )
        check_window(self.window)

    @property
    def is_strict(self) -> bool:
        """Whether edges of the time of the cut-off are left out."""
        return (self.bound or ("strict" if self.rule == "destination" else "inclusive")) == "strict"

    def intervals(self, cutoffs: Int64Array) -> Int64Array | None:
        """Return the lowest and highest allowed time ``[2, n]`` as of ``cutoffs`` ``[n]``.

        None: the lowest is the time of the edge by which a vertex is reached.
        """
        if self.direction == "forward":
            return None
        intervals = np.empty((2, len(cutoffs)), np.int64)
        intervals[1] = cutoffs - int(self.is_strict)
        intervals[0] = NO_TIME
        if self.window is not None:
            # Saturated: a difference below the least int64 is the least.
            least = NO_TIME + self.window
            lowest = np.maximum(cutoffs, least) - self.window
            intervals[0] = lowest + int(not self.is_strict)
        return intervals

    @property
    def native(self) -> dict[str, Any]:
        """Arguments of ``NativeSampler.sample_typed``."""
        return {
            "rule": self.rule,
            "forward": self.direction == "forward",
            "strict": self.is_strict,
            "window": self.window,
            "last": self.strategy == "last",
        }


def check_window(window: Any) -> None:
    """Raise ConfigError unless ``window`` is None, or a whole number of at least 1."""
    if window is None:
        return
    is_whole = isinstance(window, int) and not isinstance(window, bool)
    if not is_whole or not 1 <= window <= np.iinfo(np.int64).max:
        raise ConfigError(
            f"sampler.window={brief(window)}: expected a whole number of at least 1, or null for "
            "all of the past"
        )


class TimedSampler:
    """Sampler of in-neighbors as of cut-offs: seeds and frontiers are units (vertex, cut-off).

    The neighbors that vertex ``v`` gets by edge type ``r`` at hop ``h`` of step ``s`` as of cut-off
    ``c`` depend on ``(seed, s, h, v, r, c)`` alone; with forward walks also on the time of the edge
    by which the unit was reached. Any number of threads and any split of the seeds give the same.
    """

    def __init__(
        self,
        graph: Graph,
        *,
        fanouts: Fanouts,
        rule: TimeRule,
        draws: Draws = "uniform",
        replace: bool = False,
        seed: int = 0,
        num_threads: int = 1,
        left_out: CutoffEdges | None = None,
        checks: bool = False,
    ) -> None:
        """Prepare to draw up to a fan-out of allowed neighbors of a unit at each hop.

        Args:
            graph: graph with times.
            fanouts: as of ``TypedSampler``; without types one list.
            rule: allowed edges.
            draws: how neighbors are drawn among the allowed ones.
            replace: draw with replacement.
            seed: determines all draws, with the step.
            num_threads: threads of a call, which change its speed only.
            left_out: edges without messages as of their own times, which a strict bound leaves out
                anyway. None: there are none.
            checks: check every mini-batch of merged trees by ``check_times``, which reads all lists
                of its vertices once more.

        Raises:
            ConfigError: the graph has no times; or ``rule`` takes the newest edges, and neighbors
                are drawn with replacement or otherwise than uniformly; or as of ``TypedSampler``.
        """
        if graph.times is None:
            raise ConfigError(
                f"sampler.time={rule.rule}: expected a graph with times, and {graph.name} has none"
            )
        check_strategy(rule.strategy, draws=draws, replace=replace)
        self._graph = graph
        self._native = NativeSampler(graph)
        self.fanouts = fanouts_by_type(graph.schema, fanouts)
        if draws == "weight":
            prepare_weights(self._native, graph, num_threads=num_threads)
        self.rule = rule
        self.num_threads = num_threads
        self.seed = seed
        self._draws = draws
        self._replace = replace
        self._left_out = None if rule.is_strict else left_out
        self._checks = checks

    def sample_units(
        self, vertices: Array, cutoffs: Int64Array, step: int, *, disjoint: bool = False
    ) -> MiniBatch:
        """Return the mini-batch of units at ``step``: a ``TypedMiniBatch`` if there are types.

        Args:
            vertices: ``[n]`` vertex ids of any types.
            cutoffs: ``[n]`` int64 cut-offs; all units (vertex, cut-off) are distinct unless
                ``disjoint``.
            step: determines all draws, with the seed.
            disjoint: build a tree for each seed, in place of one frontier of distinct units.
        """
        return self.sample_trees(vertices, cutoffs, step, disjoint=disjoint)[0]

    def sample_trees(
        self, vertices: Array, cutoffs: Int64Array, step: int, *, disjoint: bool = True
    ) -> tuple[MiniBatch, Array | None]:
        """Return ``sample_units``, and ``[num_inputs]`` int32 numbers of trees.

        A tree has the number of its seed. None: ``disjoint`` is false.
        """
        has_weights = self._graph.edge_weights is not None
        sampled = self._native.sample_typed(
            vertices,
            self.fanouts,
            replace=self._replace,
            seed=self.seed,
            step=step,
            num_threads=self.num_threads,
            by_weight=self._draws == "weight",
            labor={"labor_hop": False, "labor_batch": True}.get(self._draws),
            edge_weights=has_weights and self._draws != "weight",
            edge_rows=self._graph.edge_rows is not None,
            edge_positions=self._left_out is not None,
            cutoffs=cutoffs,
            disjoint=disjoint,
            **self.rule.native,
        )
        times = self._graph.times
        if self._left_out is not None and times is not None:
            sampled = self._left_out.removed(sampled, times.edges, ends_of(self._graph.schema))
        batch = self._batch(sampled, len(vertices), step)
        if self._checks and not disjoint:
            from gnnscale.sampling.time_checks import check_times  # imports this module

            check_times(self._graph, batch, self.rule)
        return batch, sampled.trees

    def _batch(self, sampled: TypedSample, num_seeds: int, step: int) -> MiniBatch:
        if self._graph.types is None:
            hops: list[SampledHop] = [hop[0] for hop in sampled.hops]
            plain = to_minibatch(
                num_seeds,
                (sampled.input_vertices, hops, sampled.edge_vertices[0]),
                seed=self.seed,
                step=step,
                num_threads=self.num_threads,
            )
            return replace(
                plain,
                cutoffs=sampled.cutoffs,
                intervals=self.rule.intervals(np.asarray(sampled.cutoffs)),
            )
        return TypedMiniBatch(
            seed=self.seed,
            step=step,
            num_seeds=num_seeds,
            input_vertices=sampled.input_vertices,
            type_sizes=sampled.type_sizes[-1],
            seed_sizes=sampled.type_sizes[0],
            blocks=typed_blocks(sampled),
            ends=ends_of(self._graph.schema),
            cutoffs=sampled.cutoffs,
        )


def check_strategy(strategy: str, *, draws: Draws, replace: bool) -> None:
    """Raise ConfigError if the newest edges are taken, and draws are not uniform or repeat."""
    if strategy != "last":
        return
    if draws != "uniform":
        raise ConfigError(
            f"sampler.strategy=last: expected uniform with draws by {draws.split('_')[0]}; "
            "sampler=neighbor takes the newest edges"
        )
    if replace:
        raise ConfigError("sampler.strategy=last: expected uniform with sampler.replace=true")


class RowSampler:
    """Sampler whose seeds are row numbers of a task: units of a vertex and a cut-off.

    Example:
        >>> sampler = RowSampler(timed, rows.vertices, rows.cutoffs)
        >>> batch = sampler.sample(np.array([4, 2, 4]), step=0)
        >>> batch.rows.numbers, batch.seeds[batch.rows.positions] == rows.vertices[[4, 2, 4]]
    """

    def __init__(self, sampler: TimedSampler, vertices: IntArray, cutoffs: Int64Array) -> None:
        """Sample rows by ``sampler``: ``[num_rows]`` vertices as of int64 ``cutoffs``."""
        self._timed = sampler
        self._vertices = vertices
        self._cutoffs = cutoffs

    @property
    def num_threads(self) -> int:
        """Number of threads of one call; may be changed between calls."""
        return self._timed.num_threads

    @num_threads.setter
    def num_threads(self, num_threads: int) -> None:
        self._timed.num_threads = num_threads

    def sample(self, seeds: Array, step: int) -> MiniBatch:
        """Return the mini-batch of rows ``seeds`` at ``step``; rows of one unit share its output.

        ``MiniBatch.rows`` has the position of each row among the seeds, which are in the order of
        vertex ids, hence of types, and then of cut-offs.
        """
        rows = np.asarray(seeds)
        units, positions = distinct_units(self._vertices[rows], self._cutoffs[rows])
        batch = self._timed.sample_units(*units, step)
        return replace(batch, rows=BatchRows(numbers=rows, positions=positions))


def distinct_units(
    vertices: IntArray, cutoffs: Int64Array
) -> tuple[tuple[IntArray, Int64Array], Int32Array]:
    """Return the distinct units of ``[n]`` vertices and cut-offs, and each one's int32 position.

    Units are in the order of vertices, then of cut-offs.
    """
    order = np.lexsort((cutoffs, vertices))
    sorted_vertices, sorted_cutoffs = vertices[order], cutoffs[order]
    is_new = np.ones(len(order), bool)
    is_new[1:] = (np.diff(sorted_vertices) != 0) | (sorted_cutoffs[1:] != sorted_cutoffs[:-1])
    positions = np.empty(len(order), np.int32)
    positions[order] = np.cumsum(is_new) - 1
    return (sorted_vertices[is_new], sorted_cutoffs[is_new]), positions
