"""Legion's cost model: transactions over the link for a division of the memory (eq. 2 to 8)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gnnscale.cache.plan import CurvePoint
from gnnscale.core import Array, Int64Array


@dataclass(frozen=True, kw_only=True)
class PrefixSums:
    """The sums of the first 0, 1, ... of a sequence of numbers, each at least 0.

    One in ``every`` sums is kept, and those between are computed on demand: to write all of them
    for a hundred million vertices takes longer than the search that reads them.
    """

    #: ``[⌈num_numbers / every⌉ + 1]`` int64, float64 for others than integers, the sums of the
    #: first 0, ``every``, 2 · ``every``, ... numbers, and last the sum of all
    kept: Array
    every: int  #: numbers from one kept sum to the next
    num_numbers: int  #: how many numbers there are
    numbers: Callable[[slice], Array] = field(repr=False)  #: returns those of a slice

    @classmethod
    def of(cls, numbers: Sequence[int], *, every: int) -> PrefixSums:
        """Return the sums of a few numbers, those of a model that is written by hand."""
        values = np.array(numbers, np.int64)
        sums = np.concatenate([[0], np.cumsum(values)])
        kept = sums[[*range(0, len(values), every), len(values)]]
        return cls(kept=kept, every=every, num_numbers=len(values), numbers=values.__getitem__)

    def between(self, first: int, last: int) -> Array:
        """Return ``[last - first + 1]`` sums: those of the first ``first`` to ``last`` numbers."""
        block = first // self.every
        start = block * self.every
        sums = np.empty(last - start + 1, self.kept.dtype)
        sums[0] = 0
        np.cumsum(self.numbers(slice(start, last)), out=sums[1:])
        sums += self.kept[block]
        return sums[first - start :]

    def at(self, num: int) -> Any:
        """Return the sum of the first ``num`` numbers."""
        return self.between(num, num)[0]

    def num_within(self, limit: int) -> int:
        """Return how many of the first numbers add up to ``limit`` at most."""
        block = int(np.searchsorted(self.kept, limit, side="right")) - 1
        first = min(block * self.every, self.num_numbers)
        sums = self.between(first, min(first + self.every, self.num_numbers))
        return first + int(np.searchsorted(sums, limit, side="right")) - 1

    def at_least(self, num: Int64Array) -> Array:
        """Return a kept sum for each of ``num`` that is not above the sum of so many numbers."""
        return self.kept[num // self.every]

    def at_most(self, num: Int64Array) -> Array:
        """Return a kept sum for each of ``num`` that is not below the sum of so many numbers."""
        return self.kept[-(-num // self.every)]


@dataclass(frozen=True, kw_only=True)
class CliqueCost:
    """What the devices of a clique read over their links, whatever they cache.

    Prefix sums make each of equations 3 to 8 one binary search.
    """

    budget_bytes: int  #: B, memory of all caches of the clique
    list_bytes: PrefixSums  #: bytes of the first lists of Q_T
    #: reads of these, sums of a_T: edges traversed and offsets. The paper's a_T has the edges
    #: alone, though N_TSUM has both
    list_hotness: PrefixSums
    total_list_hotness: float  #: the sum over all vertices
    row_bytes: int  #: bytes of a feature row, D·s of eq. 6
    row_hotness: PrefixSums  #: reads of the first rows of Q_F: sums of a_F
    total_row_hotness: float  #: the sum over all vertices
    n_tsum: float  #: N_TSUM, transactions of sampling without a cache
    row_transactions: float  #: ⌈D·s / CLS⌉ of eq. 8
    #: list_price, row_price: cost of a transaction of sampling and of a row, in bytes of the link's
    #: bandwidth. In the paper every transaction costs the same
    list_price: float
    row_price: float

    def num_lists(self, topology_bytes: int) -> int:
        """Return how many lists of Q_T fit into ``topology_bytes``, eq. 3."""
        return self.list_bytes.num_within(topology_bytes)

    def num_rows(self, feature_bytes: Any) -> Any:
        """Return how many rows of Q_F fit into ``feature_bytes``, eq. 6."""
        return np.minimum(feature_bytes // self.row_bytes, self.row_hotness.num_numbers)

    def n_t(self, list_hotness: Any) -> Any:
        """Return the transactions of sampling with lists of so much hotness cached, eq. 4 and 5."""
        cached = list_hotness / max(self.total_list_hotness, 1)
        return self.n_tsum * (1 - cached)

    def rows_missed(self, row_hotness: Any) -> Any:
        """Return U_F, the rows that cross the link with rows of so much hotness cached, eq. 7."""
        return self.total_row_hotness - row_hotness

    def price(self, list_hotness: Any, row_hotness: Any) -> Any:
        """Return what sampling and reading cost on the link, in bytes of its bandwidth."""
        sampling = self.list_price * self.n_t(list_hotness)
        return sampling + self.row_price * self.rows_missed(row_hotness)

    def topology_bytes(self, alpha: float) -> int:
        """Return m_T, the memory of lists at ``alpha``."""
        return min(int(alpha * self.budget_bytes), self.budget_bytes)

    def point(self, alpha: float) -> CurvePoint:
        """Return the transactions if lists get up to ``alpha`` of the memory, eq. 2.

        Rows get what the lists leave, as when caches are filled. In eq. 6 they get the rest of the
        memory, which is less if all lists fit into a part of theirs.
        """
        num_lists = self.num_lists(self.topology_bytes(alpha))
        n_t = float(self.n_t(self.list_hotness.at(num_lists)))
        num_rows = int(self.num_rows(self.budget_bytes - self.list_bytes.at(num_lists)))
        n_f = float(self.row_transactions * self.rows_missed(self.row_hotness.at(num_rows)))
        return CurvePoint(alpha=alpha, n_t=n_t, n_f=n_f, n_total=n_t + n_f)


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

    The price falls only if one more list fits, and rises in between as rows give way. So the best
    division ends with a list, and each such division that may be the best is tried.
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
    """Yield ranges of numbers of lists, ends included, outside of which no number is the cheapest.

    Within a range the price is at least that of the last one's lists and the first one's rows. A
    range is left out if some other division is sure to be cheaper than that.
    """
    every = cost.list_bytes.every
    firsts = np.arange(0, last + 1, every)
    most_rows = cost.num_rows(cost.budget_bytes - cost.list_bytes.at_least(firsts))
    reached = cost.price(cost.list_hotness.at_least(firsts), cost.row_hotness.at_least(most_rows))
    lists = cost.list_hotness.at_most(np.minimum(firsts + every, last))
    bounds = cost.price(lists, cost.row_hotness.at_most(most_rows))
    for first in firsts[bounds <= reached.min()].tolist():
        yield first, min(first + every, last)
