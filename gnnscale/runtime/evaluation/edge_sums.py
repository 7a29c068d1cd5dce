"""Sums over the edges of some destinations, of rows that come one stretch after the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gnnscale import ops
from gnnscale.feature import Aggregation
from gnnscale.sampler import Block

#: Bytes of an edge that waits for its row: this, its weight, destination and place in order, and
#: the block's.
EDGE_BYTES = 40


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Destinations whose neighbours' rows are to be aggregated."""

    block: Block  #: all their neighbours
    vertices: NDArray[Any]  #: ``[num_src]`` rows of the block's sources, destinations first
    aggregation: Aggregation  #: the layer's coefficients

    @property
    def edge_rows(self) -> NDArray[Any]:
        """``[num_edges]`` the row that each edge reads."""
        known = self.block.edge_vertices
        return self.vertices[self.block.indices] if known is None else known


class EdgeSums:
    """Sums of the rows that edges read, in the order of the edges.

    That is the order of the rows, since lists are sorted.
    """

    def __init__(self, wanted: Wanted, *, num_rows: int, stretch: int, columns: int) -> None:
        """Order the edges by the stretch that they read.

        Args:
            columns: of a row, a multiple of 16.
        """
        self.block = wanted.block  #: the edges
        num_dst = wanted.block.num_dst
        #: ``[num_dst, columns]`` float32, complete once each stretch was added
        self.out = ops.empty((num_dst, columns), torch.float32).zero_()
        self.destinations = wanted.vertices[:num_dst].copy()  #: ``[num_dst]`` their rows
        self.aggregation = wanted.aggregation  #: coefficients, of which weights are in the sums
        rows, weights = wanted.edge_rows, wanted.aggregation.weights
        dst = np.repeat(np.arange(num_dst, dtype=np.int32), np.diff(wanted.block.indptr))
        num_stretches = -(-num_rows // stretch)
        ends = np.array([len(rows)])
        if num_stretches > 1:
            number = (rows // stretch).astype(np.uint16 if num_stretches < 1 << 16 else np.int64)
            order = np.argsort(number, kind="stable")
            rows, dst = rows[order] - number[order] * rows.dtype.type(stretch), dst[order]
            weights = None if weights is None else weights[order]
            ends = np.cumsum(np.bincount(number, minlength=num_stretches))
        self._rows, self._weights = rows, weights
        #: Where each stretch's edges end.
        self._ends = [0, *ends.tolist()]
        # A run of edges has one destination and one stretch.
        begins = np.diff(dst, prepend=-1) != 0
        begins[ends[ends < len(rows)]] = True
        starts = np.flatnonzero(begins)
        self._starts = np.append(starts, len(rows))
        self._dst = dst[starts]

    def add(self, *, number: int, rows: NDArray[np.float32], num_threads: int) -> None:
        """Add what edges read of ``rows``, those of stretch ``number``."""
        begin, end = self._ends[number : number + 2]
        if begin == end:
            return
        first, last = np.searchsorted(self._starts, [begin, end])
        ops.add_rows(
            (rows, "float32"),
            self._rows[begin:end],
            self._starts[first : last + 1] - begin,
            weights=None if self._weights is None else self._weights[begin:end],
            out_ids=self._dst[first:last],
            out=self.out,
            num_threads=num_threads,
        )
