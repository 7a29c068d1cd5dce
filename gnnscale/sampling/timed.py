"""Sampling as of cut-offs: a sampler by a rule of time, and seeds that are rows of a task."""

from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from gnnscale.core import Array, ConfigError, Int32Array, Int64Array, IntArray
from gnnscale.graph import Graph
from gnnscale.ops import NativeSampler, SampledHop, TypedSample
from gnnscale.sampling.cutoff_edges import CutoffEdges
from gnnscale.sampling.minibatch import (
    BatchRows,
    MiniBatch,
    prepare_weights,
    to_minibatch,
)
from gnnscale.sampling.time_checks import check_times
from gnnscale.sampling.time_rule import TimeRule, check_strategy
from gnnscale.sampling.typed import (
    Draws,
    Fanouts,
    TypedMiniBatch,
    ends_of,
    fanouts_by_type,
    typed_blocks,
)


class TimedSampler:
    """Sampler of in-neighbors as of cut-offs: seeds and frontiers are units (vertex, cut-off).

    The neighbors that vertex ``v`` gets by edge type ``r`` at hop ``h`` of step ``s`` as of cut-off
    ``c`` depend on ``(seed, s, h, v, r, c)`` alone; with forward walks also on the time of the edge
    by which the unit was reached. Any number of threads and any split of the seeds give the same.

    The first sample makes codes of all times, two bytes an edge, unless lists are on disk: searches
    read a cache line of codes in place of several of times.
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
        self.checks = checks

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
        sampled = self._sampled(vertices, cutoffs, step, disjoint=disjoint, **self.rule.native)
        times = self._graph.times
        if self._left_out is not None and times is not None:
            sampled = self._left_out.removed(sampled, times.edges, ends_of(self._graph.schema))
        batch = self._batch(sampled, len(vertices), step)
        if self.checks and not disjoint:
            check_times(self._graph, batch, self.rule)
        return batch, sampled.trees

    def sample_last(self, vertices: Array, cutoffs: Int64Array, step: int) -> MiniBatch:
        """Return the mini-batch of one hop, whose sources are vertices: they have no cut-offs.

        Arguments are those of ``sample_units``. Sources that are no seeds are ``NO_TIME`` in
        ``MiniBatch.cutoffs``.
        """
        sampled = self._sampled(vertices, cutoffs, step, **self.rule.native | {"rule": "none"})
        return self._batch(sampled, len(vertices), step)

    def _sampled(
        self, vertices: Array, cutoffs: Int64Array, step: int, **options: Any
    ) -> TypedSample:
        has_weights = self._graph.edge_weights is not None
        return self._native.sample_typed(
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
            **options,
        )

    def last_times(self, vertices: IntArray, cutoffs: Int64Array, *, edge_type: int) -> Int64Array:
        """Return the time of each unit's newest edge of one type that the rule allows, ``[n]``.

        ``NO_TIME``: there is none, or the edges have no times.

        Args:
            vertices: ``[n]`` ids of the type's destinations.
            cutoffs: ``[n]`` int64 cut-offs.
            edge_type: number of the edge type in the schema.
        """
        return self._native.last_times(
            vertices,
            cutoffs,
            edge_type=edge_type,
            strict=self.rule.is_strict,
            num_threads=self.num_threads,
        )

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
            return replace(plain, cutoffs=sampled.cutoffs, time_rule=self.rule)
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


class CutoffSampler(Protocol):
    """Sampler of units, as ``TimedSampler`` is."""

    num_threads: int  #: threads of one call; may be changed between calls

    def sample_units(self, vertices: Array, cutoffs: Int64Array, step: int) -> MiniBatch:
        """Return the mini-batch of distinct units: ``[n]`` ids as of int64 ``cutoffs`` ``[n]``."""


class RowSampler:
    """Sampler whose seeds are row numbers of a task: units of a vertex and a cut-off.

    Example:
        >>> sampler = RowSampler(timed, rows.vertices, rows.cutoffs)
        >>> batch = sampler.sample(np.array([4, 2, 4]), step=0)
        >>> batch.rows.numbers, batch.seeds[batch.rows.positions] == rows.vertices[[4, 2, 4]]
    """

    def __init__(self, sampler: CutoffSampler, vertices: IntArray, cutoffs: Int64Array) -> None:
        """Sample rows by ``sampler``: ``[num_rows]`` vertices as of int64 ``cutoffs``."""
        self._units = sampler
        self._vertices = vertices
        self._cutoffs = cutoffs

    @property
    def num_threads(self) -> int:
        """Number of threads of one call; may be changed between calls."""
        return self._units.num_threads

    @num_threads.setter
    def num_threads(self, num_threads: int) -> None:
        self._units.num_threads = num_threads

    def sample(self, seeds: Array, step: int) -> MiniBatch:
        """Return the mini-batch of rows ``seeds`` at ``step``; rows of one unit share its output.

        ``MiniBatch.rows`` has the position of each row among the seeds, which are in the order of
        vertex ids, hence of types, and then of cut-offs.
        """
        rows = np.asarray(seeds)
        units, positions = distinct_units(self._vertices[rows], self._cutoffs[rows])
        batch = self._units.sample_units(*units, step)
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
