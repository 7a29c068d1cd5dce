"""Learned embeddings: a trained row for each vertex, instead of features."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gnnscale import ops
from gnnscale.core import Access, Array, Traffic
from gnnscale.features import Aggregation, FeatureStore, write_aggregated
from gnnscale.nn.functional import gradient_of_rows
from gnnscale.nn.optim.update_rules import RowOptimizer, RowSums
from gnnscale.sampling import Block


class LearnedEmbedding(nn.Module):
    """Table of learned rows; a step reads and updates the rows of its input vertices only.

    The table is a parameter, so that checkpoints contain it. It has no ``grad``, which would have a
    row for every vertex; ``gradient`` has the rows of the last step.
    """

    def __init__(
        self,
        weight: Tensor,
        optimizer: RowOptimizer,
        *,
        rate_factor: float = 1.0,
        decays: bool = False,
    ) -> None:
        """Use ``weight`` ``[num_vertices, dim]`` float32 as the table, not copied.

        ``optimizer`` updates the rows of a step, at ``rate_factor`` times the rate of other
        weights. With ``decays``, these rows have the weight decay of other weights.
        """
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)
        #: Vertices of the last step, and the gradient ``[n, dim]`` of their rows; None before
        #: backward propagation.
        self.gradient: tuple[Array, RowSums] | None = None
        self._optimizer = optimizer
        self._rate_factor, self._decays = rate_factor, decays

    @property
    def state_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Shapes of the optimizer's float32 state of the table, by name."""
        return self._optimizer.state_shapes(self.weight)

    def update(self, optimizer: torch.optim.Optimizer) -> None:
        """Update the last step's rows by ``gradient``, if any, and reset it to None.

        ``optimizer`` gives the rate and keeps the state.
        """
        if self.gradient is None:
            return
        (vertices, gradients), self.gradient = self.gradient, None
        self._optimizer.update(
            optimizer,
            self.weight,
            vertices,
            gradients,
            rate=float(optimizer.param_groups[0]["lr"]) * self._rate_factor,
            decays=self._decays,
            num_threads=torch.get_num_threads(),
        )


class LearnedFeatureStore(FeatureStore):
    """Store of learned rows; backward propagation writes ``LearnedEmbedding.gradient``.

    Only the training thread may read the store, one step at a time, with torch's threads.
    """

    def __init__(self, rows: LearnedEmbedding, *, repeats: bool = False) -> None:
        """Read from ``rows``; ``repeats``: whether vertices of a ``gather`` may repeat."""
        self._rows = rows
        self._repeats = repeats
        # Autograd calls backward only for functions of a tensor that requires a gradient.
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
        """Whether ``aggregate`` reads one row per edge, rather than one per source: always."""
        return True

    def gather(
        self, vertices: Array, *, dtype: torch.dtype, num_threads: int
    ) -> tuple[Tensor, Traffic]:
        """Return rows ``[n, width]`` of ``vertices`` and the bytes read.

        The vertices are distinct unless the store ``repeats``.
        """
        read, positions = (
            np.unique(vertices, return_inverse=True) if self._repeats else (vertices, None)
        )
        rows: Tensor = _Gather.apply(self._handle, self._rows, read, dtype)  # type: ignore[no-untyped-call]
        if positions is not None:
            rows = rows.index_select(0, torch.from_numpy(positions))
        return rows, self._read(read)

    def aggregate(
        self,
        vertices: Array,
        block: Block,
        aggregation: Aggregation,
        *,
        dtype: torch.dtype,
        num_threads: int,
    ) -> tuple[Tensor, Traffic]:
        """Return an aggregated row per destination, from distinct ``vertices``, and bytes read."""
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
        # The optimizer computes the sums row by row, so that they are never stored.
        ctx.rows.gradient = ctx.vertices, gradient_of_rows(grads[0], ctx.block, ctx.aggregation)
        return None, None, None, None, None, None
