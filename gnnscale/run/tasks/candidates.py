"""Candidates of link prediction, read from a file, and the edges that lead to them."""

from dataclasses import replace

import numpy as np

from gnnscale.core import ConfigError, IntArray, brief
from gnnscale.data.tables.selection import find_kinds
from gnnscale.data.tables.vertex_ids import read_ids
from gnnscale.graph import Graph
from gnnscale.run.tasks.edge_split import PARTS, EdgeSplit
from gnnscale.sampling.edge_batches import Candidates


def read_candidates(file: str, column: str | None, graph: Graph) -> Candidates:
    """Read the candidates in the file ``task.candidates``.

    ``column`` names the column with kinds of vertices; None: all candidates are of one kind.
    """
    kinds = find_kinds(file, column, graph, read_ids(graph), option="task.candidates")
    return Candidates.from_kinds(kinds)


def with_candidate_destinations(split: EdgeSplit, candidates: Candidates, file: str) -> EdgeSplit:
    """Return ``split`` with candidates as destinations of its edges, or raise ConfigError.

    Edges of an undirected graph are reversed if only their source is a candidate. In another graph,
    a mutual edge to a non-candidate is dropped: its reverse, in the same part, is predicted.
    """
    edges_by_part = {
        part: _orient(np.asarray(getattr(split, part)), candidates, split.undirected)
        for part in PARTS
    }
    if not split.undirected and not split.directed:
        edges_by_part = {
            part: _drop_mutual(edges, candidates) for part, edges in edges_by_part.items()
        }
    for part, edges in edges_by_part.items():
        missing = candidates.kinds[edges[:, 1]] < 0
        if missing.any():
            first = edges[int(missing.argmax()), 1]
            raise ConfigError(
                f"task.candidates={brief(file)}: expected all destinations of predicted edges, "
                f"{int(missing.sum())} of {len(edges)} {part} edges lead to another vertex, such "
                f"as number {first}"
            )
    return replace(
        split,
        train=edges_by_part["train"],
        valid=edges_by_part["valid"],
        test=edges_by_part["test"],
    )


def _orient(edges: IntArray, candidates: Candidates, undirected: bool) -> IntArray:
    """Return ``edges`` of an undirected graph with candidates as destinations."""
    is_candidate = candidates.kinds[edges] >= 0
    wrong = undirected & is_candidate[:, 0] & ~is_candidate[:, 1]
    return np.where(wrong[:, None], edges[:, ::-1], edges) if wrong.any() else edges


def _drop_mutual(edges: IntArray, candidates: Candidates) -> IntArray:
    """Return ``edges`` without edges to a non-candidate whose reverse leads to a candidate."""
    num_vertices = len(candidates.kinds)
    src, dst = edges.astype(np.int64).T
    is_candidate = candidates.kinds >= 0
    reversible = np.flatnonzero(~is_candidate[dst] & is_candidate[src])
    is_mutual = np.isin(dst[reversible] * num_vertices + src[reversible], src * num_vertices + dst)
    return np.delete(edges, reversible[is_mutual], axis=0) if is_mutual.any() else edges
