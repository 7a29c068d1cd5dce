"""Legion's cost model: transactions over the link for a division of the memory (eq. 2 to 8)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnscale.cache.cache_plan import CurvePoint
from gnnscale.cache.legion.prefix_sums import PrefixSums

__all__ = ["CliqueCost"]


@dataclass(frozen=True, kw_only=True)
class CliqueCost:
    """What the devices of one clique read over their links, whatever they cache.

    Prefix sums make each of equations 3 to 8 one binary search.

    Attributes:
        budget_bytes: B, memory of all caches of the clique.
        list_bytes: bytes of the first lists of Q_T.
        list_hotness: reads of these, sums of a_T: edges traversed and offsets. The paper's a_T has
            the edges alone, though N_TSUM has both.
        total_list_hotness: the sum over all vertices.
        row_bytes: bytes of a feature row, D·s of eq. 6.
        row_hotness: reads of the first rows of Q_F: sums of a_F.
        total_row_hotness: the sum over all vertices.
        n_tsum: N_TSUM, transactions of sampling without a cache.
        row_transactions: ⌈D·s / CLS⌉ of eq. 8.
        list_price, row_price: cost of a transaction of sampling and of a row, in bytes of the
            link's bandwidth. In the paper every transaction costs the same.
    """

    budget_bytes: int
    list_bytes: PrefixSums
    list_hotness: PrefixSums
    total_list_hotness: float
    row_bytes: int
    row_hotness: PrefixSums
    total_row_hotness: float
    n_tsum: float
    row_transactions: float
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
        """Return m_T, what lists get where they get ``alpha`` of the memory."""
        return min(int(alpha * self.budget_bytes), self.budget_bytes)

    def point(self, alpha: float) -> CurvePoint:
        """Return the transactions where lists get up to ``alpha`` of the memory, eq. 2.

        Rows get what the lists leave, as when caches are filled. In eq. 6 they get the rest of the
        memory, which is less where all lists fit into a part of theirs.
        """
        num_lists = self.num_lists(self.topology_bytes(alpha))
        n_t = float(self.n_t(self.list_hotness.at(num_lists)))
        num_rows = int(self.num_rows(self.budget_bytes - self.list_bytes.at(num_lists)))
        n_f = float(self.row_transactions * self.rows_missed(self.row_hotness.at(num_rows)))
        return CurvePoint(alpha=alpha, n_t=n_t, n_f=n_f, n_total=n_t + n_f)
