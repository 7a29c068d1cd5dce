"""The best division of a clique's memory between adjacency lists and feature rows."""

from __future__ import annotations

import math

import numpy as np

from gnnscale.cache.cache_plan import CurvePoint
from gnnscale.cache.hotness.slices import slices
from gnnscale.cache.legion.cost_model import CliqueCost

__all__ = ["best_num_lists", "curve", "grid_alpha"]

#: Δα of the paper's search (section 4.3.3).
_STEPS = 100


def curve(cost: CliqueCost) -> tuple[CurvePoint, ...]:
    """Return the cost model's answers for α in {0, 0.01, ..., 1}."""
    return tuple(cost.point(step / _STEPS) for step in range(_STEPS + 1))


def grid_alpha(cost: CliqueCost) -> float:
    """Return the α of the paper's search: the least N_total over steps of 0.01."""
    return min(curve(cost), key=lambda point: (point.n_total, point.alpha)).alpha


def best_num_lists(cost: CliqueCost) -> int:
    """Return how many lists of Q_T to keep for the lowest price, exactly.

    The price falls only where one more list fits, and rises in between as rows give way. So the
    best division is one that ends with a list, and each of these is looked at.
    """
    last = int(cost.num_lists(cost.budget_bytes))
    best, lowest = 0, math.inf
    for part in slices(last + 1):
        num_rows = cost.num_rows(cost.budget_bytes - cost.list_bytes[part])
        prices = cost.price(np.arange(part.start, part.stop), num_rows)
        at = int(np.argmin(prices))
        if prices[at] < lowest:
            best, lowest = part.start + at, prices[at]
    return best
