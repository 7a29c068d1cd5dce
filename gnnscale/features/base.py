"""Base class of feature stores: gathered and aggregated rows, and the traffic of reading."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from gnnscale import ops
from gnnscale.core import Array, Float32Array, errors, stages
from gnnscale.graph import Graph
from gnnscale.sampling import Block


@dataclass(frozen=True, kw_only=True)
class Aggregation:
    """A layer's aggregation with the coefficients of one block.

    ``a[i] = dst_scale[i] * sum_e weights[e] * h[indices[e]]`` over edges e of destination i, then
    either ``a[i] + self_scale[i] * h[i]`` (``self_term="add"``) or ``h[i] ‖ a[i]`` (``"concat"``).
    """

    self_term: Literal["add", "concat"]  #: how the destination's row enters the result
    weights: Float32Array | None = None  #: ``[num_edges]`` float32. None: all are 1
    dst_scale: Float32Array | None = None  #: ``[num_dst]`` float32. None: all are 1
    self_scale: Float32Array | None = None  #: ``[num_dst]`` float32. None: all are 1

    def width(self, num_features: int) -> int:
        """Return the width of an aggregated row of ``num_features`` features."""
        return num_features * (2 if self.self_term == "concat" else 1)


def write_aggregated(
    rows: ops.Rows,
    block: Block,
    aggregation: Aggregation,
    *,
    out: torch.Tensor,
    ids: Array | None,
    num_threads: int,
    own_rows: ops.Rows | None = None,
) -> None:
    """Aggregate ``rows`` ``[n, f]`` over ``block``, as ``aggregation`` says, into ``out``.

    ``out`` is ``[num_dst, f]``, or ``[num_dst, 2 f]`` if ``self_term`` is ``"concat"``; float32 or
    bfloat16. ``ids`` has the index in ``rows`` of each source; None: source i has row i.
    ``own_rows`` has the rows that destinations add if ``self_term`` is ``"add"``; None: ``rows``.
    """
    adds_self = aggregation.self_term == "add"
    width = out.shape[1] if adds_self else out.shape[1] // 2
    if not adds_self:
        dst_ids = np.arange(block.num_dst, dtype=np.int32) if ids is None else ids[: block.num_dst]
        ops.gather(rows, dst_ids, out=out[:, :width], num_threads=num_threads)
    per_edge = ids is not None and block.edge_vertices is not None
    ops.aggregate(
        rows,
        block.indptr,
        block.indices,
        ids=block.edge_vertices if per_edge else ids,
        ids_per_edge=per_edge,
        weights=aggregation.weights,
        dst_scale=aggregation.dst_scale,
        self_rows=(rows if own_rows is None else own_rows) if adds_self else None,
        self_ids=ids if adds_self else None,
        self_scale=aggregation.self_scale,
        num_self=block.num_dst if adds_self else 0,
        out=out[:, out.shape[1] - width :],
        num_threads=num_threads,
    )


class FeatureStore(ABC):
    """Source of a feature row for every vertex. A cache is a store that wraps another store.

    Methods may be called from several threads at a time.
    """

    @property
    @abstractmethod
    def num_rows(self) -> int:
        """Number of rows, one for each vertex of the graph."""

    @property
    @abstractmethod
    def width(self) -> int:
        """Number of features of a row, f^0."""

    @property
    def columns(self) -> tuple[int, int] | None:
        """``(first, last + 1)`` of the graph's features that a row has. None: all features."""
        return None

    @property
    @abstractmethod
    def row_bytes(self) -> int:
        """Bytes of a row as it is stored, f^0·S_feat of eq. 7."""

    @property
    def reads_per_edge(self) -> bool:
        """Whether ``aggregate`` reads one row per edge, a source with several edges several times.

        False: ``aggregate`` reads one row per source of the block, so sources should be distinct.
        """
        return False

    @abstractmethod
    def gather(
        self, vertices: Array, *, dtype: torch.dtype, num_threads: int
    ) -> tuple[torch.Tensor, stages.Traffic]:
        """Return the rows of ``vertices``.

        Args:
            vertices: ``[n]`` int32 or int64 vertex ids.
            dtype: float32 or bfloat16.
            num_threads: threads to use; the result does not depend on it.

        Returns:
            ``[n, width]`` rows, and the traffic of reading them.
        """

    def aggregate(
        self,
        vertices: Array,
        block: Block,
        aggregation: Aggregation,
        *,
        dtype: torch.dtype,
        num_threads: int,
    ) -> tuple[torch.Tensor, stages.Traffic]:
        """Return the rows of ``vertices``, aggregated over ``block``.

        The base class gathers first, then aggregates. A store that aggregates while it reads
        returns equal values.

        Args:
            vertices: ``[num_src]`` vertex ids of the block's sources.
            dtype: float32 or bfloat16.
            num_threads: threads to use; the result does not depend on it.

        Returns:
            ``[num_dst, aggregation.width(width)]``, and the traffic of reading.
        """
        rows, traffic = self.gather(vertices, dtype=torch.float32, num_threads=num_threads)
        out = ops.empty((block.num_dst, aggregation.width(self.width)), dtype)
        local = Block(
            indptr=block.indptr,
            indices=block.indices,
            num_src=block.num_src,
            importance=block.importance,
        )
        write_aggregated(rows, local, aggregation, out=out, ids=None, num_threads=num_threads)
        return out, traffic


class WrappedStore(FeatureStore):
    """Base of the stores that change how the rows of another store, ``inner``, are read."""

    inner: FeatureStore

    @property
    def num_rows(self) -> int:
        """Number of rows of ``inner``."""
        return self.inner.num_rows

    @property
    def width(self) -> int:
        """Number of features of a row of ``inner``."""
        return self.inner.width

    @property
    def columns(self) -> tuple[int, int] | None:
        """``(first, last + 1)`` of the graph's features that a row has. None: all features."""
        return self.inner.columns

    @property
    def row_bytes(self) -> int:
        """Bytes of a row as ``inner`` stores it."""
        return self.inner.row_bytes


def check_store(store: FeatureStore, graph: Graph) -> None:
    """Raise GraphError unless ``store`` has a row per vertex, and columns that ``graph`` has."""
    graph.check_features()
    if graph.types is not None:  # each type has its own matrix, or learned rows
        return
    first, end = store.columns or (0, graph.num_features)
    inside = 0 <= first < end <= graph.num_features
    if not inside or (store.num_rows, store.width) != (graph.num_vertices, end - first):
        raise errors.GraphError(
            f"{graph.name}: expected a feature store of {graph.num_vertices:,} rows with "
            f"{graph.num_features:,} features, got {store.num_rows:,} rows of {store.width:,} "
            f"({type(store).__name__})"
        )
