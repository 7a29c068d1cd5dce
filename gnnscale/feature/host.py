"""Features in the host's memory, or mapped from its disk."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray

from gnnscale import ops
from gnnscale.feature.aggregation import Aggregation, write_aggregated
from gnnscale.feature.store import FeatureStore
from gnnscale.graph import Graph
from gnnscale.sampler import Block
from gnnscale.stages import Access, Traffic

__all__ = ["HostFeatures"]


class HostFeatures(FeatureStore):
    """The matrix of all features, which stays where it is.

    ``aggregate`` reads and aggregates in one pass (fused load-aggregate): the matrix of |V^0|
    gathered rows never exists. That is exact, since input features need no gradient.

    There is no cache, and so neither hits nor misses.
    """

    def __init__(
        self, features: NDArray[Any], dtype: str, *, columns: tuple[int, int] | None = None
    ) -> None:
        """Read ``features`` ``[num_vertices, f]``, of the element type named ``dtype``.

        Args:
            features: the whole matrix.
            dtype: one of ``FEATURE_DTYPES``.
            columns: ``(first, last + 1)`` of the columns that are read (P3); None for all.
        """
        self._columns = columns
        rows = features if columns is None else features[:, slice(*columns)]
        self._rows: tuple[NDArray[Any], str] = (rows, dtype)

    @classmethod
    def of(cls, graph: Graph, *, columns: tuple[int, int] | None = None) -> HostFeatures:
        """Return the store of a graph's own features, or of some of their columns."""
        return cls(graph.features, graph.feature_dtype, columns=columns)

    @property
    def stored(self) -> tuple[NDArray[Any], str]:
        """The matrix ``[num_rows, width]``, and the name of its element type."""
        return self._rows

    @property
    def columns(self) -> tuple[int, int] | None:
        """``(first, last + 1)`` of the columns that a row has; None for all."""
        return self._columns

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self._rows[0])

    @property
    def width(self) -> int:
        """Features of a row."""
        return int(self._rows[0].shape[1])

    @property
    def row_bytes(self) -> int:
        """Bytes of a row as it is stored."""
        return self.width * self._rows[0].itemsize

    def gather(
        self, vertices: NDArray[Any], *, dtype: torch.dtype, num_threads: int
    ) -> tuple[torch.Tensor, Traffic]:
        """Return the rows of ``vertices``, ``[n, width]``."""
        out = ops.empty((len(vertices), self.width), dtype)
        rows = ops.gather(self._rows, vertices, out=out, num_threads=num_threads)
        return rows, self._read(vertices)

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
        write_aggregated(
            self._rows, block, aggregation, out=out, ids=vertices, num_threads=num_threads
        )
        return out, self._read(vertices)

    def _read(self, vertices: NDArray[Any]) -> Traffic:
        return Traffic(rows=Access(host_bytes=len(vertices) * self.row_bytes))
