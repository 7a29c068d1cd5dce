"""Feature stores in host memory: plain rows, or rows of which the first layer is aggregated."""

from __future__ import annotations

import mmap
from typing import Any

import torch

from gnnscale import ops
from gnnscale.core import Access, Array, Float32Array, Traffic, find_memory
from gnnscale.features.base import Aggregation, FeatureStore, write_aggregated
from gnnscale.graph import Graph
from gnnscale.graph.sharded import ShardedFeatures
from gnnscale.sampling import Block


class HostFeatures(FeatureStore):
    """The matrix of all features, which stays where it is.

    ``aggregate`` reads and aggregates in one pass (fused load-aggregate): the matrix of |V^0|
    gathered rows never exists. That is exact, since input features need no gradient.

    If the matrix exceeds memory, ``aggregate`` gathers first: a row that many edges read is then
    read from the disk once.

    There is no cache, and so neither hits nor misses.
    """

    def __init__(
        self,
        features: Array,
        dtype: str,
        *,
        num_features: int | None = None,
        columns: tuple[int, int] | None = None,
        from_disk: bool = False,
    ) -> None:
        """Read ``features`` ``[num_vertices, f]``, of the element type named ``dtype``.

        Args:
            num_features: f of int8 and int4, whose rows are bytes; None for the columns of
                ``features``.
            columns: ``(first, last + 1)`` of the columns that are read (P3); None for all.
            from_disk: whether most rows are not in memory when they are read.
        """
        self._from_disk = from_disk
        self._columns = columns
        rows = features if columns is None else features[:, slice(*columns)]
        self._rows: tuple[Array, str] = (rows, dtype)
        self._width = int(rows.shape[1]) if num_features is None else num_features

    @classmethod
    def of(cls, graph: Graph, *, columns: tuple[int, int] | None = None) -> HostFeatures:
        """Return the store of a graph's own features, or of some of their columns.

        Raises:
            GraphError: the graph's store has the rows of one part alone.
        """
        if isinstance(graph.features, ShardedFeatures):
            raise graph.features.refused()
        from_disk = read_from_disk(graph)
        return cls(
            graph.features,
            graph.feature_dtype,
            num_features=graph.num_features if columns is None else None,
            columns=columns,
            from_disk=from_disk,
        )

    @property
    def stored(self) -> tuple[Array, str]:
        """The matrix ``[num_rows, width]``, or of bytes, and the name of its element type."""
        return self._rows

    @property
    def columns(self) -> tuple[int, int] | None:
        """``(first, last + 1)`` of the columns that a row has; None for all."""
        return self._columns

    @property
    def from_disk(self) -> bool:
        """Whether most rows are not in memory when they are read."""
        return self._from_disk

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self._rows[0])

    @property
    def width(self) -> int:
        """Features of a row."""
        return self._width

    @property
    def stored_width(self) -> int:
        """Columns of the matrix: features, or bytes of a row of int8 or int4."""
        return int(self._rows[0].shape[1])

    @property
    def row_bytes(self) -> int:
        """Bytes of a row as it is stored."""
        return self.stored_width * self._rows[0].itemsize

    @property
    def reads_per_edge(self) -> bool:
        """Whether rows are read in the order of the edges, as they are unless from the disk."""
        return not self._from_disk

    def gather(
        self, vertices: Array, *, dtype: torch.dtype, num_threads: int
    ) -> tuple[torch.Tensor, Traffic]:
        """Return the rows of ``vertices``, ``[n, width]``."""
        out = ops.empty((len(vertices), self.width), dtype)
        gather = ops.gather_from_disk if self._from_disk else ops.gather
        rows = gather(self._rows, vertices, out=out, num_threads=num_threads)
        return rows, self._read(vertices)

    def aggregate(
        self,
        vertices: Array,
        block: Block,
        aggregation: Aggregation,
        *,
        dtype: torch.dtype,
        num_threads: int,
    ) -> tuple[torch.Tensor, Traffic]:
        """Return the rows of ``vertices``, aggregated while they are read."""
        if self._from_disk:
            return super().aggregate(
                vertices, block, aggregation, dtype=dtype, num_threads=num_threads
            )
        out = ops.empty((block.num_dst, aggregation.width(self.width)), dtype)
        write_aggregated(
            self._rows, block, aggregation, out=out, ids=vertices, num_threads=num_threads
        )
        return out, self._read(vertices)

    def _read(self, vertices: Array) -> Traffic:
        return Traffic(rows=Access(host_bytes=len(vertices) * self.row_bytes))


def read_from_disk(graph: Graph) -> bool:
    """Whether a graph's features are mapped and, with its topology, do not fit into memory.

    If so, the system is advised that they are read at random places. For each row that it does not
    have, it would otherwise read what lies around it too, up to megabytes, and have to give up as
    many other rows.
    """
    source: Any = graph.features
    while hasattr(source, "base"):
        source = source.base
    if not isinstance(source, mmap.mmap):
        return False
    if graph.feature_bytes + graph.mapped_bytes <= find_memory().available:
        return False
    source.madvise(mmap.MADV_RANDOM)
    return True


class PreaggregatedFeatures(FeatureStore):
    """A store that wraps another: it reads aggregated rows that the other would compute.

    Each row is that over all neighbours of its vertex, whatever the block has of them. So the
    block may have no edges. Rows that are not aggregated come from the other store.
    """

    def __init__(self, rows: Float32Array, inner: FeatureStore) -> None:
        """Read aggregated rows from ``rows``.

        Args:
            rows: ``[num_vertices, w]`` float32, w being the width of an aggregated row.
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
        self, vertices: Array, *, dtype: torch.dtype, num_threads: int
    ) -> tuple[torch.Tensor, Traffic]:
        """Return the rows of ``vertices`` as the other store has them, ``[n, width]``."""
        return self._inner.gather(vertices, dtype=dtype, num_threads=num_threads)

    def aggregate(
        self,
        vertices: Array,
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
