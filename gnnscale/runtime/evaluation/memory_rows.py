"""Rows of a hidden layer in memory."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray

from gnnscale import ops
from gnnscale.feature import Aggregation, HostFeatures
from gnnscale.feature.aggregation import write_aggregated
from gnnscale.sampler import Block
from gnnscale.stages import Traffic

__all__ = ["MemoryRows"]


class MemoryRows(HostFeatures):
    """A layer's output in memory.

    Attributes:
        rows: ``[num_rows, width]`` those that are aggregated.
        own: ``[num_rows, width]`` what a destination adds in place of its row; None for its row.
    """

    def __init__(self, num_rows: int, width: int, *, num_parts: int = 1) -> None:
        """Make room for rows of ``width`` features, and for own ones where there are two parts."""
        # On large pages, where rows that are read in any order are found sooner.
        self._parts = [
            ops.empty((num_rows, width), torch.float32).numpy() for _ in range(num_parts)
        ]
        self.rows = self._parts[0]
        self.own = self._parts[1] if num_parts == 2 else None
        super().__init__(self.rows, "float32")

    def write(self, first: int, h: torch.Tensor) -> None:
        """Set rows from ``first`` on to ``h`` ``[n, num_parts * width]``."""
        for number, rows in enumerate(self._parts):
            begin = number * self.width
            rows[first : first + len(h)] = h[:, begin : begin + self.width].numpy()

    def aggregate(
        self,
        vertices: NDArray[Any],
        block: Block,
        aggregation: Aggregation,
        *,
        dtype: torch.dtype,
        num_threads: int,
    ) -> tuple[torch.Tensor, Traffic]:
        """Return the rows of ``vertices``, aggregated while they are read."""
        out = ops.empty((block.num_dst, aggregation.width(self.width)), dtype)
        own = None if self.own is None else (self.own, "float32")
        write_aggregated(
            self.stored,
            block,
            aggregation,
            out=out,
            ids=vertices,
            num_threads=num_threads,
            own_rows=own,
        )
        return out, Traffic()
