"""The aggregation of one block as a linear map, written to rows of its destinations."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from gnnscale import ops
from gnnscale.core import Array, Float32Array
from gnnscale.sampler import Block


@dataclass(frozen=True, kw_only=True)
class Aggregation:
    """A layer's aggregation with the coefficients of one block.

    ``a[i] = dst_scale[i] * sum_e weights[e] * h[indices[e]]``, and then either
    ``a[i] + self_scale[i] * h[i]`` (``self_term="add"``) or ``h[i] ‖ a[i]`` (``"concat"``).
    """

    self_term: Literal["add", "concat"]  #: what becomes of a destination's own row
    weights: Float32Array | None = None  #: ``[num_edges]`` float32, None for ones
    dst_scale: Float32Array | None = None  #: ``[num_dst]`` float32, None for ones
    self_scale: Float32Array | None = None  #: ``[num_dst]`` float32, None for ones

    def width(self, num_features: int) -> int:
        """Return the width of an aggregated row, of rows of ``num_features``."""
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
    """Aggregate ``rows`` over ``block``.

    Args:
        rows: ``[n, f]`` in any storage type.
        out: ``[num_dst, f]``, or ``[num_dst, 2 f]`` if the own row is concatenated; float32 or
            bfloat16.
        ids: ``[num_src]`` the row of each source; None if local ids are rows.
        num_threads: threads to use; the result does not depend on it.
        own_rows: ``[n, f]`` rows that destinations add; None for ``rows``.
    """
    adds_own = aggregation.self_term == "add"
    width = out.shape[1] if adds_own else out.shape[1] // 2
    if not adds_own:
        own = np.arange(block.num_dst, dtype=np.int32) if ids is None else ids[: block.num_dst]
        ops.gather(rows, own, out=out[:, :width], num_threads=num_threads)
    per_edge = ids is not None and block.edge_vertices is not None
    ops.aggregate(
        rows,
        block.indptr,
        block.indices,
        ids=block.edge_vertices if per_edge else ids,
        ids_per_edge=per_edge,
        weights=aggregation.weights,
        dst_scale=aggregation.dst_scale,
        self_rows=(rows if own_rows is None else own_rows) if adds_own else None,
        self_ids=ids if adds_own else None,
        self_scale=aggregation.self_scale,
        num_self=block.num_dst if adds_own else 0,
        out=out[:, out.shape[1] - width :],
        num_threads=num_threads,
    )
