"""Feature stores in host memory: feature rows, and precomputed first-layer aggregates."""

import mmap
from typing import Any

import torch

from gnnscale import ops
from gnnscale.core import Access, Array, Float32Array, Traffic, read_memory
from gnnscale.features.base import Aggregation, FeatureStore, WrappedStore, write_aggregated
from gnnscale.graph import Graph, ShardedFeatures
from gnnscale.sampling import Block


class HostFeatures(FeatureStore):
    """Feature matrix of all vertices, or some of its columns, in host memory or a mapped file.

    ``aggregate`` reads and aggregates in one pass (fused load-aggregate), so the matrix of the
    |V^0| gathered rows never exists; input features need no gradient. If the matrix exceeds memory,
    ``aggregate`` gathers first: a row of many edges is then read from the disk once. The store has
    no cache and reports neither hits nor misses.
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

        ``num_features`` is needed for int8 and int4, whose rows are bytes. ``columns`` are
        ``(first, last + 1)`` of the columns to read (P3); None: all columns. ``from_disk``: the
        features, mapped, exceed memory.
        """
        self.from_disk = from_disk  #: whether most rows are on the disk when they are read
        self._columns = columns
        rows = features if columns is None else features[:, slice(*columns)]
        #: The matrix ``[num_rows, stored_width]``, and the name of its element type.
        self.stored: tuple[Array, str] = (rows, dtype)
        #: Columns of the matrix: features, or the bytes of an int8 or int4 row.
        self.stored_width = int(rows.shape[1])
        self._width = self.stored_width if num_features is None else num_features

    @classmethod
    def of(cls, graph: Graph, *, columns: tuple[int, int] | None = None) -> "HostFeatures":
        """Return the store of ``columns`` (None: all) of ``graph``; GraphError: it is sharded."""
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
    def columns(self) -> tuple[int, int] | None:
        """``(first, last + 1)`` of the graph's features that a row has. None: all features."""
        return self._columns

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self.stored[0])

    @property
    def width(self) -> int:
        """Number of features of a row."""
        return self._width

    @property
    def row_bytes(self) -> int:
        """Bytes of a row as it is stored."""
        return self.stored_width * self.stored[0].itemsize

    @property
    def reads_per_edge(self) -> bool:
        """Whether ``aggregate`` reads one row per edge: True unless rows are read from the disk."""
        return not self.from_disk

    def gather(
        self, vertices: Array, *, dtype: torch.dtype, num_threads: int
    ) -> tuple[torch.Tensor, Traffic]:
        """Return the rows ``[n, width]`` of ``vertices``, and the traffic."""
        out = ops.empty((len(vertices), self.width), dtype)
        gather = ops.gather_from_disk if self.from_disk else ops.gather
        rows = gather(self.stored, vertices, out=out, num_threads=num_threads)
        return rows, self.traffic(vertices)

    def aggregate(
        self,
        vertices: Array,
        block: Block,
        aggregation: Aggregation,
        *,
        dtype: torch.dtype,
        num_threads: int,
    ) -> tuple[torch.Tensor, Traffic]:
        """Return the rows of ``vertices``, aggregated over ``block``, and the traffic."""
        if self.from_disk:
            return super().aggregate(
                vertices, block, aggregation, dtype=dtype, num_threads=num_threads
            )
        out = ops.empty((block.num_dst, aggregation.width(self.width)), dtype)
        write_aggregated(
            self.stored, block, aggregation, out=out, ids=vertices, num_threads=num_threads
        )
        return out, self.traffic(vertices)

    def traffic(self, vertices: Array) -> Traffic:
        """Return the traffic of reading the rows of ``vertices``."""
        return Traffic(rows=Access(host_bytes=len(vertices) * self.row_bytes))


def read_from_disk(graph: Graph) -> bool:
    """Whether a graph's features are mapped and, with the topology, exceed the available memory.

    If so, advise the system of random access. It would otherwise read megabytes around each row,
    and evict as many other rows for them.
    """
    files, num_bytes = [], graph.mapped_bytes
    for matrix in graph.matrices:
        source: Any = None if matrix is None else matrix.rows
        while hasattr(source, "base"):
            source = source.base
        if matrix is not None and isinstance(source, mmap.mmap):
            files.append(source)
            num_bytes += matrix.rows.nbytes
    if not files or num_bytes <= read_memory().available:
        return False
    for file in files:
        file.madvise(mmap.MADV_RANDOM)
    return True


class PreaggregatedFeatures(WrappedStore):
    """Store of precomputed first-layer aggregates; ``gather`` reads the raw rows of ``inner``.

    Each aggregate covers all neighbors of its vertex, so ``aggregate`` ignores the block's edges,
    and the block may have none.
    """

    def __init__(self, rows: Float32Array, inner: FeatureStore) -> None:
        """Read aggregates from ``rows``, ``[num_vertices, w]``, and raw rows from ``inner``."""
        self._rows = rows
        self.inner = inner

    @property
    def row_bytes(self) -> int:
        """Bytes of an aggregate, which a mini-batch reads for each destination."""
        return int(self._rows.shape[1]) * self._rows.itemsize

    def gather(
        self, vertices: Array, *, dtype: torch.dtype, num_threads: int
    ) -> tuple[torch.Tensor, Traffic]:
        """Return the raw rows ``[n, width]`` of ``vertices`` from ``inner``, and the traffic."""
        return self.inner.gather(vertices, dtype=dtype, num_threads=num_threads)

    def aggregate(
        self,
        vertices: Array,
        block: Block,
        aggregation: Aggregation,
        *,
        dtype: torch.dtype,
        num_threads: int,
    ) -> tuple[torch.Tensor, Traffic]:
        """Return the precomputed aggregates of the destinations of ``block``, ``[num_dst, w]``."""
        destinations = vertices[: block.num_dst]
        out = ops.empty((len(destinations), self._rows.shape[1]), dtype)
        ops.gather((self._rows, "float32"), destinations, out=out, num_threads=num_threads)
        return out, Traffic(rows=Access(host_bytes=len(destinations) * self.row_bytes))
