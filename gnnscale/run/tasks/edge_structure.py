"""Structure of a graph's edges: copies, mutual edges, undirected and bipartite graphs."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from gnnscale import ops
from gnnscale.core import BoolArray, Int64Array, track, usable_cores
from gnnscale.core.sorted_sets import distinct
from gnnscale.graph import EdgeData, Graph, Relation
from gnnscale.graph.time_order import list_slices

_LOG = logging.getLogger(__name__)
_SLICE_EDGES = 1 << 22
#: Maximum share of a bipartite graph's edges at a vertex that is both source and destination.
_MAX_STRAY_SHARE = 0.01
#: Share of the predicted edges from which on a warning tells that another edge type has them.
_MIN_SHARED = 0.5
#: Stands for the edge before the first.
NO_EDGE = (-1, -1)


@dataclass(frozen=True, kw_only=True)
class MutualCounts:
    """Numbers of a graph's edges without loops: all, copies, and edges with a reverse."""

    edges: int = 0  #: edges, copies included
    copies: int = 0  #: edges with the source and the destination of an earlier edge
    mutual: int = 0  #: distinct edges whose reverse is an edge too

    def plus(self, proper: BoolArray, once: BoolArray, mutual: BoolArray) -> "MutualCounts":
        """Return the counts with ``n`` more edges, flagged by ``[n]`` masks.

        An edge is ``proper`` if it is no loop, ``once`` if it is no copy of the previous edge, and
        ``mutual`` if the graph has its reverse.
        """
        return MutualCounts(
            edges=self.edges + int(np.count_nonzero(proper)),
            copies=self.copies + int(np.count_nonzero(proper & ~once)),
            mutual=self.mutual + int(np.count_nonzero(proper & once & mutual)),
        )

    def describe(self, name: str, *, directed: bool) -> str:
        """Return a log line: shares of copies and mutual edges, and the rule that splits them.

        The edges are those of ``name``.
        """
        rule = "an edge, its reverse and its copies are in one part"
        if directed:
            rule = (
                "task.directed=true divides an edge and its reverse independently, and the "
                "reverse of a held-out edge may send messages"
            )
        mutual = self.mutual / max(self.edges - self.copies, 1)
        copies = self.copies / max(self.edges, 1)
        return (
            f"task=links: of {self.edges:,} edges of {name} {copies:.1%} are copies, and "
            f"{mutual:.1%} of the others have their reverse; {rule}"
        )


def by_source(graph: Graph) -> Graph:
    """Return the graph with lists sorted by source, and without times and data of edges.

    A graph without times, whose lists are so, returns itself; another copies its ``indices``.
    """
    if graph.times is None:
        return graph
    indptr, indices = np.ascontiguousarray(graph.indptr), np.array(graph.indices)
    ops.csc_sort(indptr, indices, False, usable_cores())
    return replace(graph, indices=indices, edges=EdgeData(), times=None, rows=None, lists=None)


def first_copies(graph: Graph) -> BoolArray | None:
    """Return a mask ``[num_edges]`` of the first edge from each source in each list.

    None: copies follow one another, as the graph has no times.
    """
    if graph.times is None:
        return None
    is_first = np.ones(graph.num_edges, np.bool_)
    for _, ends in list_slices(graph.indptr):
        src = np.asarray(graph.indices[ends[0] : ends[-1]])
        lists = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
        order = np.lexsort((src, lists))
        repeats = (np.diff(src[order]) == 0) & (np.diff(lists[order]) == 0)
        is_first[ends[0] + order[1:][repeats]] = False
    return is_first


def is_undirected(graph: Graph, edge_type: int = 0) -> bool:
    """Whether every edge of a type has its reverse in the type, by sums of hashes.

    Lists must be sorted by source. The answer is wrong with a chance of 2^-50.
    """
    if not graph.schema.joins_one_type(edge_type):
        return False
    forth = back = 0
    last = NO_EDGE
    for src, dst in edges_of_type(graph, edge_type, "looking for reverse edges"):
        once = is_no_copy(src, dst, last)
        rising, falling = once & (src < dst), once & (src > dst)
        forth += _hashes(src[rising], dst[rising])
        back += _hashes(dst[falling], src[falling])
        last = src[-1], dst[-1]
    return (forth - back) % 2**64 == 0


def find_relation(graph: Graph, edge_type: int) -> Relation:
    """Return an edge type with those that have exactly its edges in reverse, copies apart.

    A warning names edge types that send messages and have half of the edges or more, in either
    direction. Lists must be sorted by source.
    """
    schema = graph.schema
    pairs = list(zip(schema.sources.tolist(), schema.destinations.tolist(), strict=True))
    ends, name = pairs[edge_type], str(schema.edge_types[edge_type])
    similar = [n for n, pair in enumerate(pairs) if n != edge_type and set(pair) == set(ends)]
    count, reverses = _count_distinct(graph, edge_type) if similar else 0, list[int]()
    for number in similar if count else ():
        turned = pairs[number] == ends[::-1]
        shared = _count_shared(graph, edge_type, number, turned=turned)
        if turned and shared == count == _count_distinct(graph, number):
            reverses.append(number)
            continue
        if pairs[number] == ends == ends[::-1]:
            shared = max(shared, _count_shared(graph, edge_type, number, turned=False))
        if shared >= _MIN_SHARED * count:
            _LOG.warning(
                f"task.edge_type={name}: {shared / count:.0%} of its edges are also edges of type "
                f"{schema.edge_types[number]}, which send messages and may reveal held-out edges"
            )
    return Relation(edge_type, tuple(reverses))


def _count_distinct(graph: Graph, edge_type: int) -> int:
    """Return the number of edges of a type, without copies."""
    return sum(int(once.sum()) for _, _, once in _distinct_edges(graph, edge_type))


def _count_shared(graph: Graph, edge_type: int, other: int, *, turned: bool) -> int:
    """Return how many edges of ``edge_type``, without copies, are edges of ``other`` too.

    ``turned``: edges of ``other`` are compared in reverse.
    """
    count = 0
    for src, dst, once in _distinct_edges(graph, edge_type):
        ends = (src, dst) if turned else (dst, src)
        count += int((once & has_reverse(graph, *ends, other)).sum())
    return count


def _distinct_edges(
    graph: Graph, edge_type: int
) -> Iterator[tuple[Int64Array, Int64Array, BoolArray]]:
    """Yield sources and destinations of edges of a type, and a mask without copies."""
    last = NO_EDGE
    for src, dst in edges_of_type(graph, edge_type, "looking for reverse edges"):
        yield src, dst, is_no_copy(src, dst, last)
        last = src[-1], dst[-1]


def is_bipartite(graph: Graph) -> bool:
    """Whether all edges of a graph without types join two disjoint sets of vertices.

    A graph whose sources and destinations are disjoint is bipartite; up to 1 % of its edges may be
    at a vertex that is both. If they are not disjoint, a graph of at most 4 million edges is tested
    for an undirected two-coloring. Forests, for which a two-coloring means nothing, and larger
    graphs count as not bipartite. Loops are ignored.
    """
    sends, receives = np.zeros((2, graph.num_vertices), np.bool_)
    for src, dst in edges_of_type(graph, 0, "looking for two kinds of vertices"):
        proper = src != dst
        sends[src[proper]] = receives[dst[proper]] = True
    if _leads_one_way(graph, sends & receives):
        return True
    return graph.num_edges <= _SLICE_EDGES and _two_colorable(graph)


def _leads_one_way(graph: Graph, both: BoolArray) -> bool:
    """Whether at most 1 % of edges, loops apart, have a vertex flagged in ``both`` ``[n]``."""
    max_stray = _MAX_STRAY_SHARE * graph.num_edges
    # Each such vertex is an end of two edges or more, and an edge has two ends.
    if np.count_nonzero(both) > max_stray:
        return False
    stray = 0
    for src, dst in edges_of_type(graph, 0, "looking for edges between vertices of a kind"):
        stray += int(np.count_nonzero((src != dst) & (both[src] | both[dst])))
    return stray <= max_stray


def _two_colorable(graph: Graph) -> bool:
    """Whether the graph, undirected, has a cycle and is bipartite."""
    # A bipartite graph's double cover has each component twice.
    num = graph.num_vertices
    src = np.asarray(graph.indices, np.int64)
    dst = np.repeat(np.arange(num), np.diff(graph.indptr))
    src, dst = src[src != dst], dst[src != dst]
    components = _num_components(src, dst, num)
    if _num_components(src, dst + num, 2 * num, mirrored=num) != 2 * components:
        return False
    pairs = distinct(np.minimum(src, dst) * num + np.maximum(src, dst))
    return len(pairs) > num - components


def _num_components(
    src: Int64Array, dst: Int64Array, num_vertices: int, *, mirrored: int | None = None
) -> int:
    """Return the number of weak components, with edges ``src + mirrored`` to ``dst - mirrored``."""
    from scipy import sparse  # a slow import, which workers do not need
    from scipy.sparse import csgraph

    if mirrored is not None:
        src, dst = np.concatenate([src, src + mirrored]), np.concatenate([dst, dst - mirrored])
    ones = np.ones(len(src), np.bool_)
    matrix = sparse.coo_array((ones, (src, dst)), shape=(num_vertices, num_vertices))
    number, _ = csgraph.connected_components(matrix, directed=False)
    return int(number)


def has_reverse(graph: Graph, src: Int64Array, dst: Int64Array, edge_type: int = 0) -> BoolArray:
    """Return a mask ``[n]`` of edges whose reverse ``graph`` has among the edges of a type.

    Neighbors must be sorted by id; ``dst`` are of the source type of ``edge_type``, ``src`` of its
    destination type.
    """
    rows = src if graph.types is None else graph.types.rows_of(edge_type, src)
    first = graph.indptr[rows].astype(np.int64)
    end = graph.indptr[rows + 1].astype(np.int64)
    last = end.copy()
    searching = np.flatnonzero(first < last)
    while len(searching):
        middle = (first[searching] + last[searching]) // 2
        is_less = graph.indices[middle] < dst[searching]
        first[searching[is_less]] = middle[is_less] + 1
        last[searching[~is_less]] = middle[~is_less]
        searching = searching[first[searching] < last[searching]]
    has_edge: BoolArray = first < end
    inside = np.flatnonzero(has_edge)
    has_edge[inside] = graph.indices[first[inside]] == dst[inside]
    return has_edge


def _hashes(low: Int64Array, high: Int64Array) -> int:
    """Return the sum of hashes of ``n`` pairs of vertices, modulo 2^64."""
    return int(ops.draw_of_pairs(low, high, seed=0).view(np.uint64).sum(dtype=np.uint64))


def edge_slices(
    graph: Graph, task: str, rows: slice | None = None
) -> Iterator[tuple[Int64Array, Int64Array, slice]]:
    """Yield sources, rows and slice of ``indices`` of 4 million edges, with progress.

    The row of an edge is its list: without types, its destination. ``rows``, of step 1, restricts
    the lists; None: all.
    """
    indptr = np.asarray(graph.indptr)
    first, end = 0, graph.num_edges
    if rows is not None:
        first, end = int(indptr[rows.start]), int(indptr[rows.stop])
    with track(task, total=end - first, unit="edges") as advance:
        while first < end:
            last = min(first + _SLICE_EDGES, end)
            low = int(np.searchsorted(indptr, first, side="right")) - 1
            high = int(np.searchsorted(indptr, last, side="left"))
            inside = np.clip(indptr[low : high + 1], first, last)
            numbers = np.repeat(np.arange(low, high, dtype=np.int64), np.diff(inside))
            yield graph.indices[first:last].astype(np.int64), numbers, slice(first, last)
            advance(last - first)
            first = last


def edges_of_type(
    graph: Graph, edge_type: int, task: str
) -> Iterator[tuple[Int64Array, Int64Array]]:
    """Yield sources and destinations, global ids, of at most 4 million edges of an edge type.

    The edges are in the order of ``indices``. A graph without types has the type 0.
    """
    schema = graph.types
    if schema is None:
        for src, dst, _ in edge_slices(graph, task):
            yield src, dst
        return
    destination = int(schema.destinations[edge_type])
    first, end = schema.first_rows[destination : destination + 2].tolist()
    stride, offset = schema.rows(edge_type).step, schema.rows(edge_type).start - first
    for src, rows, _ in edge_slices(graph, task, slice(first, end)):
        is_of_type = (rows - first) % stride == offset
        if is_of_type.any():
            dst = schema.vertex_of(rows[is_of_type]).astype(np.int64, copy=False)
            yield src[is_of_type], dst


def is_no_copy(src: Int64Array, dst: Int64Array, last: tuple[int, int]) -> BoolArray:
    """Return a mask ``[n]``: an edge differs from the previous one, and the first from ``last``.

    These are no copies if lists are sorted by source; ``first_copies`` has those of others.
    """
    once: BoolArray = np.empty(len(src), np.bool_)
    once[0] = (src[0], dst[0]) != last
    once[1:] = (src[1:] != src[:-1]) | (dst[1:] != dst[:-1])
    return once
