"""How high edges rank among others: mean reciprocal rank, and Hits@k (as OGB counts them)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["hits_at", "mean_reciprocal_rank", "ranks"]


def ranks(scores: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the rank of each edge among its candidates, from 1.

    An edge shares the places of candidates with the same score, and gets the mean of them.

    Args:
        scores: ``[n, 1 + k]`` of the edges in the first column, of k candidates each in the others.

    Returns:
        ``[n]`` float64.
    """
    edge, others = scores[:, :1], scores[:, 1:]
    above = np.count_nonzero(others > edge, axis=1)
    equal = np.count_nonzero(others == edge, axis=1)
    # A score that is no number ranks last, not first.
    lost = np.isnan(edge[:, 0]) * others.shape[1]
    found: NDArray[np.float64] = 1 + np.maximum(above + equal / 2, lost)
    return found


def mean_reciprocal_rank(found: NDArray[np.float64]) -> float:
    """Return the mean of 1 / rank over ``found`` ``[n]``."""
    return float(np.mean(1 / found))


def hits_at(found: NDArray[np.float64], k: int) -> float:
    """Return the share of ranks ``found`` ``[n]`` that are at most ``k``."""
    return float(np.mean(found <= k))
