"""Native operations on torch CPU tensors: rows, activations and attention.

bfloat16, which NumPy lacks, travels to the extension as its bits. Arguments are checked as in
``native``.
"""

from __future__ import annotations

import math
import mmap
from typing import Any, TypeAlias

import numpy as np
import torch

from gnnscale import _native
from gnnscale.core.errors import shown
from gnnscale.ops.native import Array, contiguous, naming

__all__ = [
    "Rows",
    "add_rows",
    "aggregate",
    "as_pair",
    "edge_dot",
    "edge_softmax",
    "edge_softmax_backward",
    "empty",
    "gather",
    "gather_from_disk",
    "read_ahead",
    "relu_dropout",
    "relu_dropout_backward",
]

#: Feature rows: a torch tensor, or a NumPy array with the name of its element type.
Rows: TypeAlias = "torch.Tensor | tuple[Array, str]"

_TORCH_NAMES = {
    torch.float32: "float32",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.uint8: "uint8",
}
#: Pages that are asked for together: more than a disk's queue takes, and no more than any memory
#: holds until they are copied; and threads that ask, which wait more than they work.
_PAGES_AHEAD = 512
_WAITING_THREADS = 8
#: Bytes of a tensor, more than any address space has.
_MAX_BYTES = 1 << 47


def as_pair(name: str, rows: Any) -> tuple[Array, str]:
    """Return ``(array, name of its element type)`` of the argument ``name``."""
    if not isinstance(rows, torch.Tensor):
        return rows  # type: ignore[no-any-return]  # the extension judges it
    dtype = _TORCH_NAMES.get(rows.dtype)
    if dtype is None:
        raise TypeError(f"{name}: {rows.dtype}, allowed are {', '.join(_TORCH_NAMES.values())}")
    _check_dense(name, rows)
    bits = rows.view(torch.int16) if dtype == "bfloat16" else rows
    array: Array = bits.detach().numpy()
    return array, dtype


def _floats(name: str, tensor: Any) -> Array:
    """Return the memory of a float32 tensor as an array."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name}: {type(tensor).__name__}, allowed is a torch tensor")
    if tensor.dtype != torch.float32:
        raise TypeError(f"{name}: {tensor.dtype}, allowed is float32")
    return as_pair(name, tensor)[0]


def _flat(name: str, tensor: Any) -> tuple[Array, str]:
    """Return the elements of a contiguous tensor in one axis, and the name of their type."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name}: {type(tensor).__name__}, allowed is a torch tensor")
    _check_dense(name, tensor)
    if not tensor.is_contiguous():
        raise ValueError(f"{name}: not contiguous")
    return as_pair(name, tensor.view(-1))


def _check_dense(name: str, tensor: torch.Tensor) -> None:
    """Refuse what has no plain elements in the host's memory."""
    if tensor.layout != torch.strided or tensor.device.type != "cpu":
        raise TypeError(f"{name}: a {tensor.layout} tensor on {tensor.device}, allowed is the CPU")
    if tensor.is_neg():
        raise ValueError(f"{name}: a view that negates, allowed are elements as they are")


def empty(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor that is not initialised, in memory that earlier batches have given back.

    torch gives large CPU tensors fresh pages each time, which costs more than filling them.

    Raises:
        ValueError: a size is negative, or all together are beyond any memory.
        MemoryError: there is not so much memory.
    """
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"dtype: {type(dtype).__name__}, allowed are torch's")
    if not isinstance(shape, tuple) or not all(type(size) is int for size in shape):
        raise TypeError(f"shape: {shown(shape)}, allowed is a tuple of whole numbers")
    # Sizes that are beyond memory by themselves are so beside a 0, too: strides would overflow.
    num_bytes = math.prod(max(size, 1) for size in shape) * dtype.itemsize
    if min(shape, default=0) < 0 or num_bytes > _MAX_BYTES:
        raise ValueError(f"shape: {shown(shape)}, allowed are sizes from 0 to 2^47 bytes in all")
    with naming("shape", shape):
        memory = _native.empty(math.prod(shape) * dtype.itemsize)
    tensor: torch.Tensor = torch.from_numpy(memory)
    return tensor.view(dtype).view(shape)


def gather(x: Rows, ids: Array, *, out: torch.Tensor, num_threads: int) -> torch.Tensor:
    """Copy rows ``ids`` of ``x`` to ``out``, converting to its type.

    Args:
        x: ``[num_rows, f]`` float32, float16, bfloat16 or uint8.
        ids: ``[n]`` int32 or int64, inside ``[0, num_rows)``.
        out: ``[n, f]`` float32 or bfloat16; may be a column slice of a wider matrix.
        num_threads: threads to use.

    Returns:
        ``out``.
    """
    _native.gather(as_pair("x", x), contiguous(ids), as_pair("out", out), num_threads)
    return out


def gather_from_disk(x: Rows, ids: Array, *, out: torch.Tensor, num_threads: int) -> torch.Tensor:
    """Do as ``gather`` does, where most rows of ``x``, a mapped file, are not in memory.

    Rows are asked for some way ahead of those that are copied. A thread that touches a row waits
    for the disk, and so would have but one on its way.
    """
    ids = contiguous(ids)
    if not isinstance(ids, np.ndarray) or ids.ndim != 1 or len(ids) <= _PAGES_AHEAD:
        read_ahead(x, ids, num_threads=_WAITING_THREADS)
        return gather(x, ids, out=out, num_threads=num_threads)
    ahead = _rows_ahead(x, ids)
    read_ahead(x, ids[:ahead], num_threads=_WAITING_THREADS)
    for first in range(0, len(ids), ahead):
        last = first + ahead
        read_ahead(x, ids[last : last + ahead], num_threads=_WAITING_THREADS)
        # The last part has all rows of out that are left, so that too many are refused.
        part = out[first:last] if last < len(ids) else out[first:]
        gather(x, ids[first:last], out=part, num_threads=num_threads)
    return out


def _rows_ahead(x: Rows, ids: Array) -> int:
    """Return how many rows ``_PAGES_AHEAD`` pages have: many of each where ``ids`` rise slowly."""
    if (ids[1:] < ids[:-1]).any():
        return _PAGES_AHEAD
    num_bytes = (int(ids[-1]) - int(ids[0]) + 1) * as_pair("x", x)[0].strides[0]
    return _PAGES_AHEAD * max(1, len(ids) * mmap.PAGESIZE // max(num_bytes, 1))


def read_ahead(x: Rows, ids: Array, *, num_threads: int) -> None:
    """Ask the system to read rows ``ids`` of ``x``, a mapped file, and do not wait for them.

    Args:
        x: as in ``gather``.
        ids: likewise.
        num_threads: threads that ask.
    """
    _native.read_ahead(as_pair("x", x), contiguous(ids), num_threads)


def aggregate(
    x: Rows,
    indptr: Array,
    indices: Array,
    *,
    out: torch.Tensor,
    num_threads: int,
    ids: Array | None = None,
    ids_per_edge: bool = False,
    weights: Array | None = None,
    dst_scale: Array | None = None,
    self_rows: Rows | None = None,
    self_ids: Array | None = None,
    self_scale: Array | None = None,
    num_self: int = 0,
    gate: torch.Tensor | None = None,
) -> torch.Tensor:
    """Sum neighbours' rows over the edges of a block, in one pass and in the order of the edges.

    ``out[i] = dst_scale[i] * sum_e weights[e] * x[ids[indices[e]]] + self_scale[i] * self_rows[i]``
    where ``e`` runs over ``indptr[i]:indptr[i + 1]``; what is not given counts as 1, the own row as
    0. With ``ids``, ``x`` is the whole feature matrix: load and aggregation in one.

    Args:
        x: ``[num_rows, f]`` float32, float16, bfloat16 or uint8.
        indptr: ``[num_dst + 1]`` int64.
        indices: ``[num_edges]`` int32.
        out: ``[num_dst, f]`` float32 or bfloat16; sums are kept in float32.
        num_threads: threads to use; the result does not depend on it.
        ids: ``[num_src]`` int32 or int64 rows of ``x``; None if local ids are rows.
        ids_per_edge: ``ids`` is ``[num_edges]``: the row of ``x`` that each edge reads.
        weights: ``[num_edges]`` float32.
        dst_scale: ``[num_dst]`` float32.
        self_rows: rows to add for destinations below ``num_self``.
        self_ids: rows of ``self_rows``; None if destinations are rows.
        self_scale: ``[num_self]`` float32.
        num_self: number of destinations with an own row.
        gate: ``[num_dst, f]`` of ``out``'s type; ``out`` is 0 where ``gate`` is not positive.

    Returns:
        ``out``.
    """
    own = None if self_rows is None else as_pair("self_rows", self_rows)
    mask = None if gate is None else as_pair("gate", gate)
    _native.aggregate(
        as_pair("x", x), ids, indptr, indices, weights, ids_per_edge, dst_scale, own, self_ids,
        self_scale, num_self, mask, as_pair("out", out), num_threads,
    )  # fmt: skip
    return out


def add_rows(
    x: Rows,
    ids: Array,
    indptr: Array,
    *,
    out_ids: Array,
    out: torch.Tensor,
    num_threads: int,
    weights: Array | None = None,
) -> None:
    """Add ``weights[e] * x[ids[e]]`` to ``out[out_ids[i]]`` for ``e`` in ``indptr[i]:indptr[i+1]``.

    In the order of ``e``: calls one after the other sum as one call does that has all edges.

    Args:
        x: ``[num_rows, f]`` float32, float16, bfloat16 or uint8; ``f`` is a multiple of 16.
        ids: ``[num_edges]`` int32 or int64 rows of ``x``.
        indptr: ``[n + 1]`` int64.
        out_ids: ``[n]`` int32 rows of ``out``, rising.
        out: ``[num_out, f]`` float32.
        num_threads: threads to use; the result does not depend on it.
        weights: ``[num_edges]`` float32; None for ones.
    """
    _native.add_rows(
        as_pair("x", x), contiguous(ids), indptr, weights, out_ids, as_pair("out", out), num_threads
    )


def edge_dot(
    a: torch.Tensor,
    x: torch.Tensor,
    indptr: Array,
    indices: Array,
    *,
    out: Array,
    num_threads: int,
) -> None:
    """Write ``<a[i], x[indices[e]]>`` for every edge ``e`` of destination ``i`` to ``out[e]``.

    Column ``j`` is added to partial sum ``j % 16``, and these in a tree of halves: every
    instruction set gives the same bits.

    Args:
        a: ``[num_dst, f]`` float32.
        x: ``[num_src, f]`` float32.
        indptr: ``[num_dst + 1]`` int64.
        indices: ``[num_edges]`` int32.
        out: ``[num_edges]`` float32, of any stride.
        num_threads: threads to use.
    """
    _native.edge_dot(as_pair("a", a), as_pair("x", x), indptr, indices, out, num_threads)


def relu_dropout(
    x: torch.Tensor,
    vertices: Array,
    *,
    p: float,
    seed: int,
    step: int,
    layer: int,
    num_threads: int,
) -> float:
    """ReLU, then dropout with probability ``p`` rounded to 1/65536, in one pass and in place.

    What is dropped of a row depends on ``(seed, step, layer, vertex, column)`` alone: neither on
    the row's place nor on the other rows.

    Args:
        x: ``[n, f]`` contiguous float32 or bfloat16.
        vertices: ``[n]`` int32 or int64, the vertex of each row; they may repeat.
        p: probability from 0 to 1 that an element is dropped.
        seed: of the run, from 0 to 2^64 - 1.
        step: of the run, from 0 to 2^64 - 1.
        layer: whose output ``x`` is, from 0 to 2^64 - 1.
        num_threads: threads to use.

    Returns:
        The factor that kept elements were multiplied with, 1 / (1 - p).
    """
    scale: float = _native.relu_dropout(
        as_pair("x", x), contiguous(vertices), p, seed, step, layer, num_threads
    )
    return scale


def relu_dropout_backward(
    y: torch.Tensor, grad: torch.Tensor, *, scale: float, num_threads: int
) -> torch.Tensor:
    """Return ``grad * scale`` where ``y``, the output of ``relu_dropout``, is positive, else 0."""
    gradient = _flat("grad", grad)
    out = empty(tuple(grad.shape), grad.dtype)
    _native.relu_dropout_backward(_flat("y", y), gradient, _flat("out", out), scale, num_threads)
    return out


def edge_softmax(
    indptr: Array, scores: torch.Tensor, *, bias: Array | None, num_threads: int
) -> torch.Tensor:
    """Softmax of ``scores`` ``[num_edges, num_heads]`` float32 over each destination's edges.

    ``bias`` ``[num_edges]`` float32 multiplies the exponentials: the importance of an edge that was
    kept with a known probability.
    """
    given = _floats("scores", scores)
    alpha = empty(given.shape, torch.float32)
    _native.edge_softmax(indptr, given, bias, _floats("out", alpha), num_threads)
    return alpha


def edge_softmax_backward(
    indptr: Array, alpha: torch.Tensor, grad: torch.Tensor, *, num_threads: int
) -> torch.Tensor:
    """Return the gradient of ``edge_softmax``'s scores from that of its result."""
    given = _floats("alpha", alpha)
    out = empty(given.shape, torch.float32)
    _native.edge_softmax_backward(
        indptr, given, _floats("grad", grad), _floats("out", out), num_threads
    )
    return out
