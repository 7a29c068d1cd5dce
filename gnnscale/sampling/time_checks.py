"""Checks of mini-batches against a rule of time, hop by hop, from the graph's lists alone."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gnnscale.core import Array, GraphError, Int64Array, IntArray
from gnnscale.graph import NO_TIME, Graph
from gnnscale.sampling.minibatch import Block, MiniBatch
from gnnscale.sampling.time_rule import TimeRule
from gnnscale.sampling.typed import TypedMiniBatch, ends_of

#: Entries of lists that are compared at a time.
_ENTRIES = 1 << 22


@dataclass
class _Units:
    """Input vertices of one type, as of cut-offs."""

    vertices: IntArray
    cutoffs: Int64Array
    #: int64 time since which each counts edges, at the least; ``NO_TIME``: none
    since: Int64Array


@dataclass
class _Entries:
    """Sampled edges, or entries of lists, to a range of destinations."""

    destinations: Int64Array  #: positions among the units
    sources: Int64Array  #: vertices
    cutoffs: Int64Array  #: of the sources
    times: Int64Array  #: of entries


def check_times(graph: Graph, batch: MiniBatch, rule: TimeRule) -> None:
    """Raise GraphError, which names edge, time and bound, if an edge of ``batch`` breaks ``rule``.

    An edge between sampled units is allowed if the list of its destination has its source, at a
    time that the rule allows as of the destination's cut-off, and that gives the source the cut-off
    which it has. All lists of all destinations are read, in every block.

    Args:
        graph: graph from which the batch was sampled.
        batch: mini-batch of a ``TimedSampler``.
        rule: rule of the sampler.
    """
    units = _units(batch)
    for block in reversed(batch.blocks):
        relations = (block,) if isinstance(block, Block) else block.relations
        since_times = [of_type.since.copy() for of_type in units]
        for number, (source, destination) in enumerate(ends_of(graph.schema)):
            check = _Check(graph, rule, number, units[source], units[destination])
            for sources, times in check.edges(relations[number]):
                np.maximum.at(since_times[source], sources, times)
        if rule.direction == "forward":
            for of_type, since in zip(units, since_times, strict=True):
                of_type.since = since


def _units(batch: MiniBatch) -> list[_Units]:
    cutoffs = batch.cutoffs
    if cutoffs is None:
        raise GraphError("check_times: expected a mini-batch with cut-offs, got one without")
    sizes = batch.type_sizes if isinstance(batch, TypedMiniBatch) else (len(cutoffs),)
    bounds = np.cumsum(sizes)[:-1]
    parts = zip(np.split(batch.input_vertices, bounds), np.split(cutoffs, bounds), strict=True)
    return [_Units(*part, np.full(len(part[0]), NO_TIME)) for part in parts]


@dataclass
class _Check:
    """Check of the edges of one type in a block."""

    graph: Graph
    rule: TimeRule
    edge_type: int
    source: _Units
    destination: _Units

    def edges(self, block: Block) -> Iterator[tuple[Array, Int64Array]]:
        """Check a part of the block's edges at a time.

        Yields:
            Positions of sources, and the earliest time at which each edge may be reached.
        """
        begins, ends = self._lists(block.num_dst)
        sizes = np.concatenate([[0], np.cumsum(ends - begins)])
        first = 0
        while first < block.num_dst:
            fitting = int(np.searchsorted(sizes, sizes[first] + _ENTRIES, side="right")) - 1
            last = min(max(fitting, first + 1), block.num_dst)
            edges, positions = self._sampled(block, first, last)
            yield positions, self._earliest(edges, self._allowed(first, begins, ends, last))
            first = last

    def _lists(self, num_dst: int) -> tuple[Int64Array, Int64Array]:
        schema = self.graph.schema
        rows = schema.rows(self.edge_type)
        start = schema.vertices(int(schema.destinations[self.edge_type])).start
        vertices = self.destination.vertices[:num_dst].astype(np.int64)
        numbers = rows.start + (vertices - start) * rows.step
        return self.graph.indptr[numbers], self.graph.indptr[numbers + 1]

    def _sampled(self, block: Block, first: int, last: int) -> tuple[_Entries, Array]:
        """Return sampled edges to destinations ``first`` to ``last``, and positions of sources."""
        counts = np.diff(block.indptr[first : last + 1])
        positions = block.indices[block.indptr[first] : block.indptr[last]]
        sources = self.source.vertices[positions].astype(np.int64)
        none = np.full(len(sources), NO_TIME)
        to = np.repeat(np.arange(first, last), counts)
        return _Entries(to, sources, self.source.cutoffs[positions], none), positions

    def _allowed(self, first: int, begins: Array, ends: Array, last: int) -> _Entries:
        """Return the entries of the lists of destinations that the rule allows."""
        counts = (ends - begins)[first:last]
        to = np.repeat(np.arange(first, last), counts)
        offsets = np.cumsum(counts) - counts
        offsets_of_lists = np.arange(len(to)) + np.repeat(begins[first:last] - offsets, counts)
        times = self._times[offsets_of_lists]
        cutoffs, since = self.destination.cutoffs[to], self.destination.since[to]
        allowed = (times == NO_TIME) | self._allows(times, cutoffs, since)
        to, times, cutoffs = to[allowed], times[allowed], cutoffs[allowed]
        sources = self.graph.indices[offsets_of_lists[allowed]].astype(np.int64)
        if self.rule.rule != "seed" and self.rule.direction == "backward":
            cutoffs = np.where(times == NO_TIME, cutoffs, times)
        return _Entries(to, sources, cutoffs, np.maximum(times, self.destination.since[to]))

    def _allows(self, times: Array, cutoffs: Array, since: Array) -> Array:
        window = self.rule.window
        least = np.iinfo(np.int64).min
        if window is None:
            oldest = np.full(len(cutoffs), least)
        else:
            oldest = np.where(cutoffs < least + window, least, cutoffs - np.int64(window))
        if self.rule.is_strict:
            return (times < cutoffs) & (times >= oldest) & (times > since)
        return (times <= cutoffs) & (times > oldest) & (times >= since)

    @property
    def _times(self) -> Int64Array:
        times = self.graph.times
        if times is None:
            raise GraphError(f"{self.graph.name}: expected a graph with times")
        return times.edges

    def _earliest(self, edges: _Entries, allowed: _Entries) -> Int64Array:
        """Return for each edge the least time of the allowed entries that it may be."""
        columns = [
            np.concatenate([getattr(part, name) for part in (allowed, edges)])
            for name in ("destinations", "sources", "cutoffs")
        ]
        order = np.lexsort(columns)
        changes = [np.diff(column[order]) != 0 for column in columns]
        groups = np.empty(len(order), np.int64)
        groups[order] = np.concatenate([[0], np.cumsum(np.any(changes, axis=0))])[: len(order)]
        last = np.iinfo(np.int64).max
        earliest = np.full(len(order), last)
        has_entry = np.zeros(len(order), bool)
        split = len(allowed.sources)
        has_entry[groups[:split]] = True
        np.minimum.at(earliest, groups[:split], allowed.times)
        lacking = np.flatnonzero(~has_entry[groups[split:]])
        if len(lacking):
            self._refuse(edges, int(lacking[0]))
        return earliest[groups[split:]]

    def _refuse(self, edges: _Entries, number: int) -> None:
        to, u = int(edges.destinations[number]), int(edges.sources[number])
        begins, ends = self._lists(to + 1)
        entries = slice(int(begins[to]), int(ends[to]))
        times = self._times[entries][self.graph.indices[entries] == u].tolist()
        bounds = [f"{'<' if self.rule.is_strict else '<='} {self.destination.cutoffs[to]}"]
        if self.rule.window is not None:
            bounds.append(f"within {self.rule.window}")
        if self.destination.since[to] != NO_TIME:
            bounds.append(f"since {self.destination.since[to]}")
        listed_times = ", ".join("none" if time == NO_TIME else str(time) for time in times[:3])
        raise GraphError(
            f"sampler.time={self.rule.rule}: edge {u} to {self.destination.vertices[to]} of time "
            f"{listed_times or 'unknown, as the graph has no such edge'}, with cut-off "
            f"{edges.cutoffs[number]} of the source: expected a time {', '.join(bounds)}"
        )
