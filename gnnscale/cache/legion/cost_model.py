"""Legion's cost model: link transactions for a division of the memory (eq. 2 to 8)."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gnnscale.cache.plan import CurvePoint
from gnnscale.core import Array, Int64Array


@dataclass(frozen=True, kw_only=True)
class PrefixSums:
    """Prefix sums of a sequence of nonnegative numbers: the sums of its first 0, 1, ... numbers.

    One in ``stride`` sums is stored, and the sums between are computed on demand: writing all sums
    for a hundred million vertices takes longer than the search that reads them.

    Example::

        sums = PrefixSums.of([5, 1, 2], stride=2)
        sums.at(2)  # 6
        sums.num_within(7)  # 2: the first three add up to 8
    """

    #: ``[⌈num_numbers / stride⌉ + 1]``, int64 for integers and float64 otherwise: the sums of the
    #: first 0, ``stride``, 2 · ``stride``, ... numbers, and last the sum of all
    sums: Array
    stride: int  #: numbers between two stored sums
    num_numbers: int  #: length of the sequence
    numbers: Callable[[slice], Array] = field(repr=False)  #: returns a slice of the sequence

    @classmethod
    def of(cls, numbers: Sequence[int], *, stride: int) -> "PrefixSums":
        """Return the prefix sums of ``numbers``, a short sequence held in memory."""
        values = np.array(numbers, np.int64)
        sums = np.concatenate([[0], np.cumsum(values)])
        stored = sums[[*range(0, len(values), stride), len(values)]]
        return cls(sums=stored, stride=stride, num_numbers=len(values), numbers=values.__getitem__)

    def between(self, first: int, last: int) -> Array:
        """Return the sums of the first n numbers, for each n from ``first`` to ``last``."""
        block = first // self.stride
        start = block * self.stride
        sums = np.empty(last - start + 1, self.sums.dtype)
        sums[0] = 0
        np.cumsum(self.numbers(slice(start, last)), out=sums[1:])
        sums += self.sums[block]
        return sums[first - start :]

    def at(self, num: int) -> Any:
        """Return the sum of the first ``num`` numbers."""
        return self.between(num, num)[0]

    def num_within(self, limit: int) -> int:
        """Return the largest n for which the first n numbers add up to at most ``limit``."""
        block = int(np.searchsorted(self.sums, limit, side="right")) - 1
        first = min(block * self.stride, self.num_numbers)
        sums = self.between(first, min(first + self.stride, self.num_numbers))
        return first + int(np.searchsorted(sums, limit, side="right")) - 1

    def at_least(self, num: Int64Array) -> Array:
        """Return lower bounds, from stored sums, of the sums of the first ``num`` numbers."""
        return self.sums[num // self.stride]

    def at_most(self, num: Int64Array) -> Array:
        """Return upper bounds, from stored sums, of the sums of the first ``num`` numbers."""
        return self.sums[-(-num // self.stride)]


@dataclass(frozen=True, kw_only=True)
class CliqueCost:
    """Link cost of a clique for any numbers of cached lists and rows; eq. 3 to 8 by prefix sums.

    Q_T and Q_F are the clique's vertices by descending reads of lists and of rows; caches hold the
    first vertices of each.
    """

    budget_bytes: int  #: B, bytes of all caches of the clique
    list_bytes: PrefixSums  #: prefix sums of the bytes of the lists in Q_T
    #: prefix sums of the reads of the lists in Q_T, a_T: traversed edges and offsets. The paper's
    #: a_T counts edges only, though N_TSUM counts both
    list_hotness: PrefixSums
    total_list_hotness: float  #: reads of the lists of all vertices
    row_bytes: int  #: bytes of a feature row, D·s of eq. 6
    #: prefix sums of the reads of the rows in Q_F, a_F; of their link bytes with ``row_ends``
    row_hotness: PrefixSums
    total_row_hotness: float  #: reads of the rows of all vertices
    n_tsum: float  #: N_TSUM, sampling transactions without a cache
    row_transactions: float  #: link requests of a missed row, ⌈D·s / CLS⌉ of eq. 8
    list_price: (
        float  #: link bytes of a sampling transaction; all transactions are equal in the paper
    )
    row_price: float  #: link bytes of a missed row
    #: bytes of the first 1, 2, ... rows of Q_F. None: all have ``row_bytes``
    row_ends: Int64Array | None = None

    def num_lists(self, topology_bytes: int) -> int:
        """Return how many of the first lists of Q_T fit into ``topology_bytes``, eq. 3."""
        return self.list_bytes.num_within(topology_bytes)

    def num_rows(self, feature_bytes: Any) -> Any:
        """Return how many of the first rows of Q_F fit into ``feature_bytes``, eq. 6."""
        if self.row_ends is not None:
            return np.searchsorted(self.row_ends, feature_bytes, side="right")
        return np.minimum(feature_bytes // self.row_bytes, self.row_hotness.num_numbers)

    def rows_size(self, num_rows: int) -> int:
        """Return the bytes of the first ``num_rows`` rows of Q_F."""
        if self.row_ends is None or not num_rows:
            return num_rows * self.row_bytes
        return int(self.row_ends[num_rows - 1])

    def n_t(self, list_hotness: Any) -> Any:
        """Return N_T, the sampling transactions over the link, eq. 4 and 5.

        ``list_hotness`` is the number of list reads that caches serve.
        """
        return self.n_tsum * (1 - list_hotness / max(self.total_list_hotness, 1))

    def rows_missed(self, row_hotness: Any) -> Any:
        """Return U_F, the row reads over the link if caches serve ``row_hotness`` reads, eq. 7."""
        return self.total_row_hotness - row_hotness

    def price(self, list_hotness: Any, row_hotness: Any) -> Any:
        """Return the link cost in bytes of all missed reads.

        ``list_hotness`` and ``row_hotness`` are the numbers of list and row reads that caches
        serve.
        """
        sampling = self.list_price * self.n_t(list_hotness)
        return sampling + self.row_price * self.rows_missed(row_hotness)

    def topology_bytes(self, alpha: float) -> int:
        """Return m_T, the bytes for lists if their share of the clique's memory is ``alpha``."""
        return min(int(alpha * self.budget_bytes), self.budget_bytes)

    def point(self, alpha: float) -> CurvePoint:
        """Return the transactions if lists get at most the share ``alpha`` of the memory, eq. 2.

        Rows get all memory that lists leave, as in the filled caches, not only 1 - ``alpha`` as in
        eq. 6.
        """
        num_lists = self.num_lists(self.topology_bytes(alpha))
        n_t = float(self.n_t(self.list_hotness.at(num_lists)))
        num_rows = int(self.num_rows(self.budget_bytes - self.list_bytes.at(num_lists)))
        n_f = float(self.row_transactions * self.rows_missed(self.row_hotness.at(num_rows)))
        return CurvePoint(alpha=alpha, n_t=n_t, n_f=n_f, n_total=n_t + n_f)


#: Number of steps of the paper's search, 1 / Δα (section 4.3.3).
_STEPS = 100


def curve(cost: CliqueCost) -> tuple[CurvePoint, ...]:
    """Return the cost model's link transactions for each share α of lists in {0, 0.01, ..., 1}."""
    return tuple(cost.point(step / _STEPS) for step in range(_STEPS + 1))


def best_num_lists(cost: CliqueCost) -> int:
    """Return the number of lists of Q_T to cache for the lowest price, by an exact search.

    Rows fill the memory that lists leave. The search is over numbers of lists: memory that adds no
    list to a cache cannot lower the price.
    """
    last = cost.num_lists(cost.budget_bytes)
    best, lowest = 0, math.inf
    for first, end in _promising(cost, last):
        num_rows = cost.num_rows(cost.budget_bytes - cost.list_bytes.between(first, end))
        fewest, largest = int(num_rows[-1]), int(num_rows[0])
        row_hotness = cost.row_hotness.between(fewest, largest)[num_rows - fewest]
        prices = cost.price(cost.list_hotness.between(first, end), row_hotness)
        cheapest = int(np.argmin(prices))
        if prices[cheapest] < lowest:
            best, lowest = first + cheapest, prices[cheapest]
    return best


def _promising(cost: CliqueCost, last: int) -> Iterator[tuple[int, int]]:
    """Yield ranges ``(first, last)``, ends included, of numbers of lists to cache.

    Some range contains the number of lowest price. ``last`` is the largest number of lists.
    """
    stride = cost.list_bytes.stride
    firsts = np.arange(0, last + 1, stride)
    max_rows = cost.num_rows(cost.budget_bytes - cost.list_bytes.at_least(firsts))
    upper_bounds = cost.price(
        cost.list_hotness.at_least(firsts), cost.row_hotness.at_least(max_rows)
    )
    lists = cost.list_hotness.at_most(np.minimum(firsts + stride, last))
    lower_bounds = cost.price(lists, cost.row_hotness.at_most(max_rows))
    for first in firsts[lower_bounds <= upper_bounds.min()].tolist():
        yield first, min(first + stride, last)
