"""Edges between parts, and the vertices at their ends, counted in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale import ops
from gnnscale.graph import Graph, GraphError
from gnnscale.hardware import usable_cores
from gnnscale.ops import naming_graph

__all__ = ["MAX_SEEN_BYTES", "cut_matrix", "halo_sizes"]

_SLICE_EDGES = 1 << 20
#: What ``halo_sizes`` may hold to know which part has seen which vertex.
MAX_SEEN_BYTES = 512 << 20


def cut_matrix(
    graph: Graph,
    owner: NDArray[np.int16],
    num_parts: int,
    advance: Callable[[int], None] = lambda num_edges: None,
) -> NDArray[np.int64]:
    """Count the edges from each part to each part.

    Args:
        graph: the graph.
        owner: ``[num_vertices]``, below 0 where no part has a vertex; its edges are not counted.
        num_parts: K.
        advance: called with the number of edges looked at since the last call.

    Returns:
        ``[K, K]``, of row i and column j the edges from a source of part i to a destination of
        part j.

    Raises:
        GraphError: an id in the graph is out of range.
    """
    with naming_graph(graph.path or graph.name):
        counts = ops.count_cut(
            graph.indptr, graph.indices, owner, num_parts, num_threads=usable_cores()
        )
    advance(graph.num_edges)
    return counts


def halo_sizes(
    graph: Graph,
    owner: NDArray[np.int16],
    num_parts: int,
    advance: Callable[[int], None] = lambda num_edges: None,
    *,
    max_bytes: int = MAX_SEEN_BYTES,
) -> tuple[NDArray[np.int64], int]:
    """Count the vertices outside a part that send messages into it: its halo of one hop.

    Args:
        graph: the graph.
        owner: ``[num_vertices]``, below 0 where no part has a vertex.
        num_parts: K.
        advance: called with the number of edges looked at since the last call.
        max_bytes: memory to use; the edges are read once for every so many bytes of
            ``K * num_vertices``.

    Returns:
        ``[K]`` sizes of the halos; and how many vertices any part has, its halo included.

    Raises:
        GraphError: an id in the graph is out of range.
    """
    sizes = np.zeros(num_parts, np.int64)
    anywhere = owner >= 0
    step = max(1, min(num_parts, max_bytes // max(1, graph.num_vertices)))
    for first in range(0, num_parts, step):
        last = min(first + step, num_parts)
        seen = np.zeros((last - first, graph.num_vertices), np.bool_)
        for sources, destinations in _edge_slices(graph):
            part = owner[destinations]
            outside = (part >= first) & (part < last) & (part != owner[sources])
            seen[part[outside] - first, sources[outside]] = True
            advance(len(sources))
        sizes[first:last] = np.count_nonzero(seen, axis=1)
        anywhere |= seen.any(axis=0)
    return sizes, int(np.count_nonzero(anywhere))


def num_passes(graph: Graph, num_parts: int, max_bytes: int = MAX_SEEN_BYTES) -> int:
    """Return how often ``halo_sizes`` reads the edges."""
    step = max(1, min(num_parts, max_bytes // max(1, graph.num_vertices)))
    return -(-num_parts // step)


def _edge_slices(graph: Graph) -> Iterator[tuple[NDArray[Any], NDArray[np.int64]]]:
    """Yield sources and destinations of the edges, slice by slice."""
    for first in range(0, graph.num_edges, _SLICE_EDGES):
        sources = np.asarray(graph.indices[first : first + _SLICE_EDGES])
        last = first + len(sources)
        if sources.min() < 0 or sources.max() >= graph.num_vertices:
            bad = sources[(sources < 0) | (sources >= graph.num_vertices)][0]
            raise GraphError(
                f"{graph.name}: neighbour {bad} is out of range, the graph has "
                f"{graph.num_vertices} vertices"
            )
        begin = int(np.searchsorted(graph.indptr, first, side="right")) - 1
        end = int(np.searchsorted(graph.indptr, last, side="left"))
        bounds = np.clip(graph.indptr[begin : end + 1], first, last)
        yield sources, np.repeat(np.arange(begin, end), np.diff(bounds))
