"""The best division of a clique's memory between adjacency lists and feature rows."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from gnnscale.cache.cache_plan import CurvePoint
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
    best division is one that ends with a list, and each of these that may be it is looked at.
    """
    last = cost.num_lists(cost.budget_bytes)
    best, lowest = 0, math.inf
    for first, end in _promising(cost, last):
        num_rows = cost.num_rows(cost.budget_bytes - cost.list_bytes.between(first, end))
        fewest, most = int(num_rows[-1]), int(num_rows[0])
        row_hotness = cost.row_hotness.between(fewest, most)[num_rows - fewest]
        prices = cost.price(cost.list_hotness.between(first, end), row_hotness)
        at = int(np.argmin(prices))
        if prices[at] < lowest:
            best, lowest = first + at, prices[at]
    return best


def _promising(cost: CliqueCost, last: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of numbers of lists, ends included, outside of which none is the cheapest.

    Within a range the price is at least that of the last one's lists and the first one's rows. A
    range is left out where some other division is sure to be cheaper than that.
    """
    every = cost.list_bytes.every
    firsts = np.arange(0, last + 1, every)
    most_rows = cost.num_rows(cost.budget_bytes - cost.list_bytes.at_least(firsts))
    reached = cost.price(cost.list_hotness.at_least(firsts), cost.row_hotness.at_least(most_rows))
    lists = cost.list_hotness.at_most(np.minimum(firsts + every, last))
    bounds = cost.price(lists, cost.row_hotness.at_most(most_rows))
    for first in firsts[bounds <= reached.min()].tolist():
        yield first, min(first + every, last)
