"""Structure of a graph's edges: copies, mutual edges, undirected and bipartite graphs."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gnnscale import ops
from gnnscale.core import BoolArray, Int64Array, track
from gnnscale.core.sorted_sets import distinct
from gnnscale.graph import Graph

_SLICE_EDGES = 1 << 22
#: Maximum share of a bipartite graph's edges at a vertex that is both source and destination.
_MAX_STRAY_SHARE = 0.01
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

    def describe(self, graph: Graph, *, directed: bool) -> str:
        """Return a log line: shares of copies and mutual edges, and the rule that splits them."""
        rule = "an edge, its reverse and its copies are in one part"
        if directed:
            rule = (
                "task.directed=true divides an edge and its reverse independently, and the "
                "reverse of a held-out edge may send messages"
            )
        mutual = self.mutual / max(self.edges - self.copies, 1)
        copies = self.copies / max(self.edges, 1)
        return (
            f"task=links: of {self.edges:,} edges of {graph.name} {copies:.1%} are copies, and "
            f"{mutual:.1%} of the others have their reverse; {rule}"
        )


def is_undirected(graph: Graph) -> bool:
    """Whether every edge has its reverse, by sums of hashes (wrong with a chance of 2^-50)."""
    forth = back = 0
    last = NO_EDGE
    for src, dst, _ in edge_slices(graph, "looking for reverse edges"):
        once = is_no_copy(src, dst, last)
        rising, falling = once & (src < dst), once & (src > dst)
        forth += _hashes(src[rising], dst[rising])
        back += _hashes(dst[falling], src[falling])
        last = src[-1], dst[-1]
    return (forth - back) % 2**64 == 0


def is_bipartite(graph: Graph) -> bool:
    """Whether all edges join two disjoint sets of vertices.

    A graph whose sources and destinations are disjoint is bipartite; up to 1 % of its edges may be
    at a vertex that is both. If they are not disjoint, a graph of at most 4 million edges is tested
    for an undirected two-coloring. Forests, for which a two-coloring means nothing, and larger
    graphs count as not bipartite. Loops are ignored.
    """
    sends, receives = np.zeros((2, graph.num_vertices), np.bool_)
    for src, dst, _ in edge_slices(graph, "looking for two kinds of vertices"):
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
    for src, dst, _ in edge_slices(graph, "looking for edges between vertices of a kind"):
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


def has_reverse(graph: Graph, src: Int64Array, dst: Int64Array) -> BoolArray:
    """Return a mask ``[n]`` of edges whose reverse ``graph`` has; its neighbors must be sorted."""
    first = graph.indptr[src].astype(np.int64)
    end = graph.indptr[src + 1].astype(np.int64)
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


def edge_slices(graph: Graph, task: str) -> Iterator[tuple[Int64Array, Int64Array, slice]]:
    """Yield sources, destinations and slice of ``indices`` of 4 million edges, with progress."""
    indptr = np.asarray(graph.indptr)
    first = 0
    with track(task, total=graph.num_edges, unit="edges") as advance:
        while first < graph.num_edges:
            last = min(first + _SLICE_EDGES, graph.num_edges)
            low = int(np.searchsorted(indptr, first, side="right")) - 1
            high = int(np.searchsorted(indptr, last, side="left"))
            inside = np.clip(indptr[low : high + 1], first, last)
            dst = np.repeat(np.arange(low, high, dtype=np.int64), np.diff(inside))
            yield graph.indices[first:last].astype(np.int64), dst, slice(first, last)
            advance(last - first)
            first = last


def is_no_copy(src: Int64Array, dst: Int64Array, last: tuple[int, int]) -> BoolArray:
    """Return a mask ``[n]``: an edge differs from the previous one, and the first from ``last``."""
    once: BoolArray = np.empty(len(src), np.bool_)
    once[0] = (src[0], dst[0]) != last
    once[1:] = (src[1:] != src[:-1]) | (dst[1:] != dst[:-1])
    return once
