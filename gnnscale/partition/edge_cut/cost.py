"""What edge-cut partitioners will take: constants measured from Cora to R-MAT products."""

from __future__ import annotations

import math

import numpy as np

from gnnscale.graph import Graph
from gnnscale.partition.edge_cut.multilevel import NUM_STARTS, SMALL_EDGES, edge_budget, num_cycles
from gnnscale.partition.partitioner import Forecast

__all__ = ["forecast_metis", "forecast_mtkahypar", "one_way_share"]

#: Edges looked at to guess how many have no reverse.
_SAMPLED = 1000
#: What an interpreter holds that has started to partition: with Mt-KaHyPar, pymetis, DGL.
_CHILD_BYTES = {"mtkahypar": 62_000_000, "metis": 45_000_000, "dgl": 293_000_000}
#: Bytes of this process for a vertex: weights, owners, the clusters that it is in; and what
#: clustering and refinement take before and after coarse graphs are held.
_VERTEX_BYTES = 40
_SCRATCH_BYTES = 130
#: Coarse graphs that are held together, over the largest; 8 bytes an entry, two for an edge.
_COARSE = 3
_COARSE_BYTES = 16
#: Bytes of Mt-KaHyPar's process, for the square root of the number of undirected edges: what
#: graphs of up to ``SMALL_EDGES`` of them were seen to follow.
_MTKAHYPAR_BYTES = 140_000
#: Bytes of METIS's process for a vertex and an undirected edge. pymetis's counts with 64 bits, and
#: takes half as much for graphs with strong communities.
_METIS_BYTES = {"metis": (100, 280), "dgl": (300, 80)}
#: Seconds: Mt-KaHyPar, likewise; and for an undirected edge a cycle of ours in the processor's
#: cache and outside of it, and METIS.
_MTKAHYPAR_S = 6e-3
_CYCLE_S = 0.25e-6
_LARGE_CYCLE_S = 2e-6
_METIS_S = 1.8e-6


def one_way_share(graph: Graph) -> float:
    """Return roughly which share of the edges has no reverse, from a sample of them."""
    if not graph.num_edges:
        return 0.0
    edges = np.linspace(0, graph.num_edges - 1, min(_SAMPLED, graph.num_edges), dtype=np.int64)
    dst = np.searchsorted(graph.indptr, edges, side="right") - 1
    missing = 0
    for source, vertex in zip(graph.indices[edges], dst, strict=True):
        missing += not np.any(graph.indices[_list_of(graph, int(source))] == vertex)
    return missing / len(edges)


def _list_of(graph: Graph, vertex: int) -> slice:
    """Return where the neighbours of ``vertex`` are; nowhere for what is no vertex."""
    if not 0 <= vertex < graph.num_vertices:
        return slice(0, 0)
    return slice(int(graph.indptr[vertex]), int(graph.indptr[vertex + 1]))


def _undirected(graph: Graph) -> tuple[int, int]:
    """Return how many undirected edges there will be, and the bytes of their copy."""
    share = one_way_share(graph)
    entries = int(graph.num_edges * (1 + share))
    copied = entries * graph.indices.itemsize + graph.indptr.nbytes if share else 0
    return entries // 2, copied


def forecast_mtkahypar(graph: Graph, num_threads: int) -> Forecast:
    """Return what ``MtKaHyPar.assign`` takes: this process and the library's at the same time.

    Args:
        graph: the graph; of its edges a sample is read.
        num_threads: threads to use.
    """
    edges, copied = _undirected(graph)
    ours = graph.topology_bytes + copied + _VERTEX_BYTES * graph.num_vertices
    levels = _COARSE * _COARSE_BYTES * min(edges, edge_budget(edges))
    scratch = _SCRATCH_BYTES * graph.num_vertices
    library = _CHILD_BYTES["mtkahypar"]
    cycles = num_cycles(2 * edges) * edges * 2 / min(num_threads, 2)
    if edges <= SMALL_EDGES:
        library += int(_MTKAHYPAR_BYTES * math.sqrt(edges))
        more = max(library, levels, scratch)
        seconds = NUM_STARTS * (_MTKAHYPAR_S * math.sqrt(edges) + 2 * _CYCLE_S * cycles)
    else:
        more = max(library + levels, scratch)
        seconds = _LARGE_CYCLE_S * cycles
    return Forecast(memory_bytes=ours + more, seconds=0.5 + seconds)


def forecast_metis(graph: Graph, tool: str) -> Forecast:
    """Return what ``Metis.assign`` takes: this process and METIS's at the same time.

    Args:
        graph: the graph; of its edges a sample is read.
        tool: ``dgl`` or ``metis``.
    """
    edges, copied = _undirected(graph)
    per_vertex, per_edge = _METIS_BYTES[tool]
    ours = graph.topology_bytes + copied + 56 * graph.num_vertices
    child = _CHILD_BYTES[tool] + per_vertex * graph.num_vertices + per_edge * edges
    return Forecast(memory_bytes=ours + child, seconds=2 + _METIS_S * edges)
