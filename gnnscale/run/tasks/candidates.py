"""Reading of the candidates of link prediction, and of edges whose destinations they are."""

from dataclasses import replace

import numpy as np

from gnnscale.core import ConfigError, IntArray, shown
from gnnscale.data.tables.selection import find_kinds
from gnnscale.data.tables.vertex_ids import read_ids
from gnnscale.graph import Graph
from gnnscale.run.tasks.edge_split import PARTS, EdgeSplit
from gnnscale.sampling.candidates import Candidates


def read_candidates(file: str, column: str | None, graph: Graph) -> Candidates:
    """Read the candidates of ``task.candidates``, with their kinds if ``column`` names them.

    Raises:
        ConfigError, GraphError: as ``find_kinds``.
    """
    kinds = find_kinds(file, column, graph, read_ids(graph), option="task.candidates")
    return Candidates.from_kinds(kinds)


def with_candidate_destinations(split: EdgeSplit, candidates: Candidates, file: str) -> EdgeSplit:
    """Return ``split`` with edges whose destinations are candidates.

    A pair of an undirected graph has no direction: it is turned if its source alone is a candidate.
    A mutual edge of another graph that leads to another vertex is left out, as its reverse, which
    is in the same part, is predicted.

    Args:
        split: divided edges.
        candidates: of the same graph.
        file: that names them, for errors.

    Raises:
        ConfigError: an edge leads to a vertex that is no candidate.
    """
    turned = {
        part: _turned(np.asarray(getattr(split, part)), candidates, split.undirected)
        for part in PARTS
    }
    if not split.undirected and not split.directed:
        turned = {part: _once(edges, candidates) for part, edges in turned.items()}
    for part, edges in turned.items():
        missing = candidates.kinds[edges[:, 1]] < 0
        if missing.any():
            first = edges[int(missing.argmax()), 1]
            raise ConfigError(
                f"task.candidates={shown(file)}: expected all destinations of predicted edges, "
                f"{int(missing.sum())} of {len(edges)} {part} edges lead to another vertex, such "
                f"as number {first}"
            )
    return replace(split, train=turned["train"], valid=turned["valid"], test=turned["test"])


def _turned(edges: IntArray, candidates: Candidates, undirected: bool) -> IntArray:
    is_candidate = candidates.kinds[edges] >= 0
    wrong = undirected & is_candidate[:, 0] & ~is_candidate[:, 1]
    return np.where(wrong[:, None], edges[:, ::-1], edges) if wrong.any() else edges


def _once(edges: IntArray, candidates: Candidates) -> IntArray:
    """Return ``edges`` but those to another vertex whose reverses lead to a candidate."""
    num_vertices = len(candidates.kinds)
    src, dst = edges.astype(np.int64).T
    others = np.flatnonzero((candidates.kinds[dst] < 0) & (candidates.kinds[src] >= 0))
    mutual = np.isin(dst[others] * num_vertices + src[others], src * num_vertices + dst)
    return np.delete(edges, others[mutual], axis=0) if mutual.any() else edges
