"""Parts balanced in vertices, edges and training vertices at once, with a low cut."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale import ops
from gnnscale.partition.edge_cut.undirected import Undirected

__all__ = ["LIMITS", "Improved", "balances", "improve", "max_weights"]

#: What parts may have of vertices, edges and training vertices, over their share.
LIMITS = (1.05, 1.05, 1.05)


@dataclass(frozen=True, kw_only=True)
class Improved:
    """Parts made better.

    Attributes:
        owner: ``[num_vertices]`` int32.
        cut: undirected edges between parts.
        within: whether no part has more than it may.
    """

    owner: NDArray[np.int32]
    cut: int
    within: bool


def max_weights(
    weights: NDArray[np.int64], shares: NDArray[np.float64], limits: tuple[float, ...] = LIMITS
) -> NDArray[np.int64]:
    """Return what each part may weigh: ``limits`` times its share, and never less than that.

    Args:
        weights: ``[num_vertices, num_weights]``.
        shares: ``[num_parts]``, of the whole.
        limits: over the share, for each weight.

    Returns:
        ``[num_parts, num_weights]``.
    """
    wanted = shares[:, None] / shares.sum() * weights.sum(axis=0)
    # A share's product may lie a little above the whole number that it stands for.
    least = np.ceil(np.round(wanted, 6))
    most = np.maximum(np.floor(np.array(limits) * wanted), least)
    return np.ascontiguousarray(most.astype(np.int64))


def balances(
    weights: NDArray[np.int64], owner: NDArray[np.integer[Any]], num_parts: int
) -> tuple[float, ...]:
    """Return the largest over the mean part, for each weight; 1 where all weigh nothing."""
    found = []
    for column in weights.T:
        parts = np.bincount(owner, column, num_parts)
        found.append(float(parts.max() / parts.mean()) if parts.any() else 1.0)
    return tuple(found)


def improve(
    graph: Undirected,
    owner: NDArray[np.int32],
    most: NDArray[np.int64],
    *,
    num_rounds: int,
    num_threads: int,
) -> Improved:
    """Balance parts by moving single vertices, then lower the cut.

    Args:
        graph: the graph.
        owner: ``[num_vertices]``; left as it is.
        most: ``[num_parts, 3]``, what parts may weigh.
        num_rounds: rounds that lower the cut, at most.
        num_threads: threads to use; the result does not depend on it.
    """
    moved = np.array(owner, np.int32)
    refined = ops.refine(
        graph.indptr,
        graph.indices,
        vertex_weights=graph.weights,
        max_weights=most,
        owner=moved,
        num_rounds=num_rounds,
        num_threads=num_threads,
    )
    return Improved(owner=moved, cut=refined.cut, within=refined.within)
