"""A learned row for every vertex, which a model has in place of features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from gnnscale import ops
from gnnscale.core import Access, Array, Traffic
from gnnscale.features import Aggregation, FeatureStore
from gnnscale.features.base import write_aggregated
from gnnscale.nn.functional import gradient_of_rows
from gnnscale.nn.optim.sparse import RowOptimizer, RowSums
from gnnscale.sampling import Block


class LearnedEmbedding(nn.Module):
    """A table of weights, of which a step reads and updates the rows of its input vertices.

    The table is a parameter, so that it is saved and restored with the model, but never has a
    separate gradient: that would have a row for every vertex.
    """

    def __init__(
        self, weight: Tensor, optimizer: RowOptimizer, *, rate_factor: float = 1.0
    ) -> None:
        """Take the table ``weight`` ``[num_vertices, dim]`` float32, without a copy.

        Args:
            optimizer: updates rows.
            rate_factor: learning rate of rows, by that of the other weights.
        """
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)
        #: Vertices that a step has read, and the gradient ``[n, dim]`` of their rows; None before
        #: backward propagation.
        self.gradient: tuple[Array, RowSums] | None = None
        self._optimizer = optimizer
        self._rate_factor = rate_factor

    @property
    def state_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Names and shapes of what an optimizer of the weights keeps of the table, float32."""
        return self._optimizer.state_shapes(self.weight)

    def update(self, optimizer: torch.optim.Optimizer) -> None:
        """Update the rows that were read last, by their gradient; without one, nothing."""
        if self.gradient is None:
            return
        (vertices, gradients), self.gradient = self.gradient, None
        self._optimizer.update(
            optimizer,
            self.weight,
            vertices,
            gradients,
            rate=float(optimizer.param_groups[0]["lr"]) * self._rate_factor,
            num_threads=torch.get_num_threads(),
        )


class LearnedFeatureStore(FeatureStore):
    """Reads learned rows for one step at a time; backward propagation brings their gradient.

    It is for the thread that trains alone, and uses as many threads as torch does.
    """

    def __init__(self, rows: LearnedEmbedding) -> None:
        """Read ``rows``, which get the gradient."""
        self._rows = rows
        # What autograd has to see, so that it calls a backward: of no use otherwise.
        self._handle = torch.zeros((), requires_grad=True)

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self._rows.weight)

    @property
    def width(self) -> int:
        """Elements of a row."""
        return self._rows.weight.shape[1]

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return 4 * self.width

    @property
    def reads_per_edge(self) -> bool:
        """Whether rows are read in the order of the edges."""
        return True

    def gather(
        self, vertices: Array, *, dtype: torch.dtype, num_threads: int
    ) -> tuple[Tensor, Traffic]:
        """Return the rows of ``vertices``, which are distinct, ``[n, width]``."""
        rows: Tensor = _Gather.apply(self._handle, self._rows, vertices, dtype)  # type: ignore[no-untyped-call]
        return rows, self._read(vertices)

    def aggregate(
        self,
        vertices: Array,
        block: Block,
        aggregation: Aggregation,
        *,
        dtype: torch.dtype,
        num_threads: int,
    ) -> tuple[Tensor, Traffic]:
        """Return the rows of ``vertices``, which are distinct, aggregated while they are read."""
        rows: Tensor = _EmbeddingAggregate.apply(  # type: ignore[no-untyped-call]
            self._handle, self._rows, vertices, block, aggregation, dtype
        )
        return rows, self._read(vertices)

    def _read(self, vertices: Array) -> Traffic:
        return Traffic(rows=Access(host_bytes=len(vertices) * self.row_bytes))


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, handle: Tensor, rows: LearnedEmbedding, vertices: Array, dtype: torch.dtype
    ) -> Tensor:
        ctx.rows, ctx.vertices = rows, vertices
        out = ops.empty((len(vertices), rows.weight.shape[1]), dtype)
        return ops.gather(rows.weight, vertices, out=out, num_threads=torch.get_num_threads())

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, None, None, None]:
        ctx.rows.gradient = ctx.vertices, RowSums.of(grads[0].contiguous())
        return None, None, None, None


class _EmbeddingAggregate(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        handle: Tensor,
        rows: LearnedEmbedding,
        vertices: Array,
        block: Block,
        aggregation: Aggregation,
        dtype: torch.dtype,
    ) -> Tensor:
        ctx.rows, ctx.vertices, ctx.block, ctx.aggregation = rows, vertices, block, aggregation
        out = ops.empty((block.num_dst, aggregation.width(rows.weight.shape[1])), dtype)
        threads = torch.get_num_threads()
        write_aggregated(
            rows.weight, block, aggregation, out=out, ids=vertices, num_threads=threads
        )
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, None, None, None, None, None]:
        # The sums are taken while rows are updated: a table of them would be written and read.
        ctx.rows.gradient = ctx.vertices, gradient_of_rows(grads[0], ctx.block, ctx.aggregation)
        return None, None, None, None, None, None
