"""Rows of the first layer's aggregation, computed before training (PaGraph's DGL+PP)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gnnscale import ops
from gnnscale.feature.aggregation import Aggregation
from gnnscale.feature.store import FeatureStore
from gnnscale.sampler import Block
from gnnscale.stages import Access, Traffic

__all__ = ["PreaggregatedFeatures"]


class PreaggregatedFeatures(FeatureStore):
    """A store that wraps a store: an aggregated row is read, where the other would make it.

    Each row is that over all neighbours of its vertex, whatever the block says of them. So the
    block may have no edges. Rows that are not aggregated come from the other store.
    """

    def __init__(self, rows: NDArray[np.float32], inner: FeatureStore) -> None:
        """Read aggregated rows from ``rows``.

        Args:
            rows: ``[num_vertices, w]`` float32, w being the width of an aggregated row.
            inner: the graph's features.
        """
        self._rows = rows
        self._inner = inner

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return self._inner.num_rows

    @property
    def width(self) -> int:
        """Features of a row that is not aggregated."""
        return self._inner.width

    @property
    def row_bytes(self) -> int:
        """Bytes of an aggregated row, which is what a mini-batch reads of each vertex."""
        return int(self._rows.shape[1]) * self._rows.itemsize

    def gather(
        self, vertices: NDArray[Any], *, dtype: torch.dtype, num_threads: int
    ) -> tuple[torch.Tensor, Traffic]:
        """Return the rows of ``vertices`` as the other store has them, ``[n, width]``."""
        return self._inner.gather(vertices, dtype=dtype, num_threads=num_threads)

    def aggregate(
        self,
        vertices: NDArray[Any],
        block: Block,
        aggregation: Aggregation,
        *,
        dtype: torch.dtype,
        num_threads: int,
    ) -> tuple[torch.Tensor, Traffic]:
        """Return the ready rows of the destinations of ``block``, ``[num_dst, w]``."""
        own = vertices[: block.num_dst]
        out = ops.empty((len(own), self._rows.shape[1]), dtype)
        ops.gather((self._rows, "float32"), own, out=out, num_threads=num_threads)
        return out, Traffic(rows=Access(host_bytes=len(own) * self.row_bytes))
