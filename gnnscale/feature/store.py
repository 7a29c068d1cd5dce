"""The protocol of feature stores: rows, and rows aggregated over a block, with their traffic."""

from abc import ABC, abstractmethod

import torch

from gnnscale import ops
from gnnscale.core import Array, errors, stages
from gnnscale.feature.aggregation import Aggregation, write_aggregated
from gnnscale.graph import Graph
from gnnscale.sampler import Block


class FeatureStore(ABC):
    """A row of features for every vertex. A cache is a store that wraps a store.

    It may be called from several threads at once.
    """

    @property
    @abstractmethod
    def num_rows(self) -> int:
        """Number of rows, one for each vertex of the graph."""

    @property
    @abstractmethod
    def width(self) -> int:
        """Features of a row, f^0."""

    @property
    def columns(self) -> tuple[int, int] | None:
        """``(first, last + 1)`` of the graph's features that a row has; None for all of them."""
        return None

    @property
    @abstractmethod
    def row_bytes(self) -> int:
        """Bytes of a row as it is stored, f^0·S_feat of eq. 7."""

    @property
    def reads_per_edge(self) -> bool:
        """Whether ``aggregate`` reads a row for each edge, however often a source stands there.

        Others read the rows of the block's sources, which then had better be distinct.
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
            ``[n, width]``, and what reading them moved.
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

        A store that cannot aggregate while it reads gathers first; the values are the same.

        Args:
            vertices: ``[num_src]`` vertex ids of the block's sources.
            dtype: float32 or bfloat16.
            num_threads: threads to use; the result does not depend on it.

        Returns:
            ``[num_dst, aggregation.width(width)]``, and what reading moved.
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


def check_store(store: FeatureStore, graph: Graph) -> None:
    """Refuse a store whose rows are not those of the graph.

    Raises:
        GraphError: it has another number of rows, or rows of another width.
    """
    first, end = store.columns or (0, graph.num_features)
    inside = 0 <= first < end <= graph.num_features
    if not inside or (store.num_rows, store.width) != (graph.num_vertices, end - first):
        raise errors.GraphError(
            f"{graph.name}: its feature store ({type(store).__name__}) has {store.num_rows:,} rows "
            f"of {store.width:,} features, the graph has {graph.num_vertices:,} vertices with "
            f"{graph.num_features:,}"
        )
