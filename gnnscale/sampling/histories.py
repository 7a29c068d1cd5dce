"""Sampling of all allowed neighbors, in which vertices of equal history are sampled once."""

from collections.abc import Sequence
from copy import copy
from dataclasses import replace

import numpy as np

from gnnscale.core import Array, BoolArray, Int32Array, Int64Array, IntArray
from gnnscale.graph import NO_TIME, Graph
from gnnscale.sampling.minibatch import Block, MiniBatch
from gnnscale.sampling.time_rule import TimeRule
from gnnscale.sampling.timed import TimedSampler
from gnnscale.sampling.typed import TypedBlock, TypedMiniBatch

#: Odd factors, whose products with vertices and cut-offs make words that differ, almost always.
_ODD, _ODD2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
#: Cut-off of a vertex of which no edge is known: before any time, with room for a strict bound.
_BEFORE_ALL = NO_TIME + 2


class HistorySampler:
    """Sampler of all allowed neighbors, which shares them between cut-offs where they are equal.

    Between two edges to a vertex, its neighbors are the same as of every cut-off. So the last hop
    expands the vertex once for all of these, as of the time of the last edge, and its sources are
    vertices: mini-batches of many cut-offs share most of their work. Outputs are those of
    ``TimedSampler`` if a model's inputs are features alone, and no ages or degrees.

    Example: edges to vertex 3 have times 10 and 20, and vertex 3 is a neighbor of seeds with the
    cut-offs 12, 15 and 31. The last hop has (3, 10) and (3, 20), in place of three units.
    """

    def __init__(self, graph: Graph, sampler: TimedSampler) -> None:
        """Sample ``graph`` by ``sampler``, which takes all neighbors of at least two hops.

        Its rule hands on the cut-offs of seeds, without a window.
        """
        self._graph = graph
        self._outer, self._last = copy(sampler), copy(sampler)
        self._outer.fanouts, self._last.fanouts = sampler.fanouts[:-1], sampler.fanouts[-1:]

    @property
    def num_threads(self) -> int:
        """Number of threads of one call; may be changed between calls."""
        return self._outer.num_threads

    @num_threads.setter
    def num_threads(self, num_threads: int) -> None:
        self._outer.num_threads = self._last.num_threads = num_threads

    def sample_units(self, vertices: Array, cutoffs: Int64Array, step: int) -> MiniBatch:
        """Return the mini-batch of distinct units, with all neighbors that the rule allows.

        Args:
            vertices: ``[n]`` vertex ids, of any types.
            cutoffs: ``[n]`` int64 cut-offs.
            step: number of the step; no neighbors are drawn.
        """
        outer = self._outer.sample_units(vertices, cutoffs, step)
        units, ids = self._merged(outer)
        last = self._last.sample_last(*units, step)
        if isinstance(outer, TypedMiniBatch):
            assert isinstance(last, TypedMiniBatch)
            inner = _renumbered(outer.blocks[0], ids, last.seed_sizes, outer.ends)
            blocks = (*last.blocks, inner, *outer.blocks[1:])
            sizes = outer.seed_sizes
            return replace(last, num_seeds=outer.num_seeds, seed_sizes=sizes, blocks=blocks)
        block = _with_sources(outer.blocks[0], ids[0], last.num_seeds)
        return replace(
            last, num_seeds=outer.num_seeds, blocks=(*last.blocks, block, *outer.blocks[1:])
        )

    def _merged(self, batch: MiniBatch) -> tuple[tuple[IntArray, Int64Array], list[Int32Array]]:
        """Return the distinct units of the inputs of ``batch``, and by type the number of each.

        Destinations of the first block stay the first units of their types.
        """
        cutoffs = np.array(batch.cutoffs)
        if isinstance(batch, TypedMiniBatch):
            sizes, kept = batch.type_sizes, batch.blocks[0].dst_sizes
        else:
            sizes, kept = (len(cutoffs),), (batch.blocks[0].num_dst,)
        vertices, firsts, numbers = batch.input_vertices, [], []
        ends = np.cumsum([0, *sizes]).tolist()
        for number, num_kept in enumerate(kept):
            first, end = ends[number : number + 2]
            inner = slice(first + num_kept, end)
            cutoffs[inner] = self._last_known(number, vertices[inner], cutoffs[inner])
            of_type = slice(first, end)
            representatives, local = first_of_equal(vertices[of_type], cutoffs[of_type])
            firsts.append(representatives + first)
            numbers.append(local)
        units = np.concatenate(firsts)
        return (vertices[units], cutoffs[units]), numbers

    def _last_known(self, vertex_type: int, vertices: IntArray, cutoffs: Int64Array) -> Int64Array:
        """Return the first cut-off with the same known edges to each of ``vertices``, ``[n]``."""
        schema, strict = self._graph.schema, self._last.rule.is_strict
        first_cutoffs = np.full(len(vertices), _BEFORE_ALL)
        for number in np.flatnonzero(schema.destinations == vertex_type).tolist():
            if self._last.fanouts[0][number] != 0:
                times = self._last.last_times(vertices, cutoffs, edge_type=number)
                np.maximum(first_cutoffs, times + int(strict), out=first_cutoffs)
        return first_cutoffs


def shares_histories(rule: TimeRule, num_hops: int) -> bool:
    """Return whether units that ``rule`` allows in ``num_hops`` have histories in common.

    Those of a window, or of bounds that edges hand on, have not.
    """
    return rule.rule == "seed" and rule.window is None and num_hops > 1


def first_of_equal(vertices: IntArray, cutoffs: Int64Array) -> tuple[IntArray, Int32Array]:
    """Return the index of the first of each distinct unit, ascending, and each unit's position.

    ``vertices`` and ``cutoffs`` are ``[n]``; positions ``[n]`` are among the distinct units.
    """
    words = (
        vertices.astype(np.uint64) * _ODD ^ np.ascontiguousarray(cutoffs).view(np.uint64) * _ODD2
    )
    order = np.argsort(words)
    is_new = _differ(vertices[order]) | _differ(cutoffs[order])
    if (is_new & ~_differ(words[order])).any():  # different units of one word
        order = np.lexsort((cutoffs, vertices))
        is_new = _differ(vertices[order]) | _differ(cutoffs[order])
    firsts = np.minimum.reduceat(order, np.flatnonzero(is_new)) if len(order) else order
    ranks = np.empty(len(firsts), np.int32)
    ranks[np.argsort(firsts)] = np.arange(len(firsts), dtype=np.int32)
    positions = np.empty(len(order), np.int32)
    positions[order] = ranks[np.cumsum(is_new) - 1]
    return np.sort(firsts), positions


def _differ(values: Array) -> BoolArray:
    """Return for each of ``values`` ``[n]`` whether it differs from the one before; True first."""
    differs = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=differs[1:])
    return differs


def _with_sources(block: Block, ids: Int32Array, num_src: int) -> Block:
    """Return ``block`` with source ``i`` as ``ids[i]`` of ``num_src``."""
    return replace(block, indices=ids[block.indices], num_src=num_src, edge_vertices=None)


def _renumbered(
    block: TypedBlock,
    ids: Sequence[Int32Array],
    src_sizes: tuple[int, ...],
    ends: Sequence[tuple[int, int]],
) -> TypedBlock:
    """Return ``block`` with source ``i`` of type ``t`` as ``ids[t][i]`` of ``src_sizes[t]``."""
    relations = tuple(
        _with_sources(relation, ids[source], src_sizes[source])
        for relation, (source, _) in zip(block.relations, ends, strict=True)
    )
    return replace(block, relations=relations, src_sizes=src_sizes)
