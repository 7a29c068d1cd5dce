"""Native operations on NumPy arrays and torch CPU tensors. The only importer of ``_native``.

The extension is not linked against torch: it sees plain buffers, and releases the GIL while it
works. bfloat16, which NumPy lacks, travels as its bits.

Nothing that is passed here can corrupt memory: the extension checks type, shape, strides and length
of every array, and every offset and id that leads somewhere. What it refuses is a ``TypeError`` or
a ``ValueError`` whose message begins with the name of the argument. Arrays are used in place,
nothing is converted; nobody else may write to them meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from gnnscale import _native
from gnnscale.errors import shown
from gnnscale.graph import Graph, GraphError

__all__ = [
    "NativeSampler",
    "Rows",
    "Sampled",
    "aggregate",
    "count_in_degrees",
    "csc_fill",
    "csc_sort",
    "edge_dot",
    "edge_softmax",
    "edge_softmax_backward",
    "empty",
    "expand_edges",
    "gather",
    "keep_freed_memory",
    "planted_partition_edges",
    "read_rows",
    "relu_dropout",
    "relu_dropout_backward",
    "rmat_edges",
    "simd_level",
    "transpose_block",
]

Array: TypeAlias = NDArray[Any]
#: Feature rows: a torch tensor, or a NumPy array with the name of its element type.
Rows: TypeAlias = "torch.Tensor | tuple[Array, str]"
#: A native sample; see ``NativeSampler.sample_neighbors``.
Sampled: TypeAlias = "tuple[Array, list[tuple[Array, Array, int, Array | None]], Array | None]"

_TORCH_NAMES = {
    torch.float32: "float32",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.uint8: "uint8",
}
#: Bytes of a tensor, more than any address space has.
_MAX_BYTES = 1 << 47


def simd_level() -> str:
    """Return the instruction set in use: ``baseline``, ``v3`` (AVX2) or ``v4`` (AVX-512)."""
    return str(_native.simd_level())


def _rows(name: str, rows: Any) -> tuple[Array, str]:
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
    return _rows(name, tensor)[0]


def _flat(name: str, tensor: Any) -> tuple[Array, str]:
    """Return the elements of a contiguous tensor in one axis, and the name of their type."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name}: {type(tensor).__name__}, allowed is a torch tensor")
    _check_dense(name, tensor)
    if not tensor.is_contiguous():
        raise ValueError(f"{name}: not contiguous")
    return _rows(name, tensor.view(-1))


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
    with _naming("shape", shape):
        memory = _native.empty(math.prod(shape) * dtype.itemsize)
    tensor: torch.Tensor = torch.from_numpy(memory)
    return tensor.view(dtype).view(shape)


@contextmanager
def _naming(name: str, value: Any) -> Iterator[None]:
    """Name the argument that asks for more memory than there is."""
    try:
        yield
    except MemoryError:
        raise MemoryError(f"{name}: {shown(value)}, there is not so much memory") from None


def keep_freed_memory() -> None:
    """Make this process's malloc keep freed memory for reuse (glibc; elsewhere a no-op).

    For processes that train: torch's activations then land on pages already present. Not done on
    import, since it is a setting of the whole process.
    """
    _native.keep_freed_memory()


class NativeSampler:
    """Samples the in-neighbours of seeds; safe to call from several threads at once.

    Each concurrent call holds scratch space of four bytes a vertex, kept for the next call.
    """

    def __init__(self, graph: Graph) -> None:
        """Prepare to sample from ``graph``, whose arrays stay where they are.

        Offsets and ids are checked as they are read, batch by batch: a store may be damaged, or
        become so while it is mapped.

        Raises:
            TypeError: an array is not of the type that it has to be.
            ValueError: the offsets are not those of so many ids.
        """
        if not isinstance(graph, Graph):
            raise TypeError(f"graph: {type(graph).__name__}, allowed is a Graph")
        self._sampler = _native.sampler(graph.indptr, graph.indices)
        self._graph = graph.path or graph.name

    def sample_neighbors(
        self,
        seeds: Array,
        fanouts: list[int] | tuple[int, ...],
        *,
        replace: bool,
        seed: int,
        step: int,
        num_threads: int,
        only_new: bool = False,
    ) -> Sampled:
        """Sample neighbours, hop 1 from the seeds.

        With ``only_new``, as PyG does, a hop expands only the vertices that the hop before it was
        the first to reach, and its block's destinations are these alone. Otherwise it expands
        every vertex reached so far.

        Args:
            seeds: ``[n]`` int32 or int64 distinct vertices.
            fanouts: neighbours a vertex for each hop, -1 for all; at most 64 hops.
            replace: draw with replacement.
            seed: of the run, from 0 to 2^64 - 1.
            step: likewise.
            num_threads: threads to use.
            only_new: see above.

        Returns:
            ``input_vertices``; from the seeds outwards, a block per hop as ``(indptr int64,
            indices int32, num_src, None)``; and the vertices that are the sources of the last
            hop's edges.

        Raises:
            ValueError: a seed is not a vertex, or appears twice; or a hop has 2^31 edges or more.
            GraphError: the topology holds an offset or an id that is none.
        """
        with self._naming_the_graph():
            result: Sampled = self._sampler.sample_neighbors(
                _contiguous(seeds), fanouts, replace, seed, step, num_threads, only_new
            )
        return result

    def sample_layers(
        self, seeds: Array, layer_sizes: list[int] | tuple[int, ...], *, seed: int, step: int
    ) -> Sampled:
        """Sample ``layer_sizes[h]`` vertices of hop ``h`` for the whole batch.

        Returns:
            As ``sample_neighbors``, with each edge's importance (float32) in place of None, and
            None in place of the last hop's sources.

        Raises:
            ValueError: as ``sample_neighbors``.
            GraphError: likewise.
        """
        with self._naming_the_graph():
            result: Sampled = self._sampler.sample_layers(
                _contiguous(seeds), layer_sizes, seed, step
            )
        return result

    @contextmanager
    def _naming_the_graph(self) -> Iterator[None]:
        try:
            yield
        except _native.TopologyError as error:
            raise GraphError(
                f"{self._graph}: damaged, {error}; gnnscale doctor store=DIR looks at all of it"
            ) from None


def _contiguous(ids: Any) -> Any:
    """Return an array without gaps; what is no array is for the extension to refuse."""
    return np.ascontiguousarray(ids) if isinstance(ids, np.ndarray) and ids.ndim == 1 else ids


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
    _native.gather(_rows("x", x), _contiguous(ids), _rows("out", out), num_threads)
    return out


def read_rows(fd: int, ids: Array, *, out: torch.Tensor, num_threads: int) -> None:
    """Read rows ``ids`` of a file of nothing but rows, without mapping it.

    Args:
        fd: descriptor of the file.
        ids: ``[n]`` int32 or int64, at least 0.
        out: ``[n, f]`` float32, contiguous; a row of the file has its width.
        num_threads: threads to use.

    Raises:
        OSError: a row could not be read whole.
    """
    _native.read_rows(fd, _contiguous(ids), _floats("out", out), num_threads)


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
    own = None if self_rows is None else _rows("self_rows", self_rows)
    mask = None if gate is None else _rows("gate", gate)
    _native.aggregate(
        _rows("x", x), ids, indptr, indices, weights, ids_per_edge, dst_scale, own, self_ids,
        self_scale, num_self, mask, _rows("out", out), num_threads,
    )  # fmt: skip
    return out


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

    Args:
        a: ``[num_dst, f]`` float32.
        x: ``[num_src, f]`` float32.
        indptr: ``[num_dst + 1]`` int64.
        indices: ``[num_edges]`` int32.
        out: ``[num_edges]`` float32, of any stride.
        num_threads: threads to use.
    """
    _native.edge_dot(_rows("a", a), _rows("x", x), indptr, indices, out, num_threads)


def expand_edges(indptr: Array, indices: Array, *, first_dst: int, out: NDArray[np.int64]) -> None:
    """Write the two ends of every edge of a block, in the order of its edges.

    Args:
        indptr: ``[num_dst + 1]`` int64.
        indices: ``[num_edges]`` int32 local ids of sources.
        first_dst: local id of the block's first destination.
        out: ``[2, num_edges]`` int64, each row contiguous: sources, then destinations.
    """
    if not isinstance(out, np.ndarray):
        raise TypeError(f"out: {type(out).__name__}, allowed is int64")
    if out.ndim != 2 or len(out) != 2:
        raise ValueError(f"out: shape {list(out.shape)}, allowed is [2, number of indices]")
    _native.expand_edges(indptr, indices, first_dst, out[0], out[1])


def transpose_block(
    indptr: Array,
    indices: Array,
    num_src: int,
    *,
    weights: Array | None = None,
    dst_scale: Array | None = None,
) -> tuple[Array, Array, Array]:
    """Turn a block around: the destinations of every source.

    Returns:
        ``indptr [num_src + 1]`` int64, ``indices [num_edges]`` int32 destinations, ascending, and
        ``[num_edges]`` float32 ``weights[e] * dst_scale[dst]``.
    """
    result: tuple[Array, Array, Array]
    result = _native.transpose_block(indptr, indices, num_src, weights, dst_scale)
    return result


def relu_dropout(x: torch.Tensor, *, p: float, key: int, num_threads: int) -> float:
    """ReLU, then dropout with probability ``p`` rounded to 1/65536, in one pass and in place.

    Args:
        x: contiguous float32 or bfloat16.
        p: probability from 0 to 1 that an element is dropped.
        key: fixes the random bits; the result depends on nothing else.
        num_threads: threads to use.

    Returns:
        The factor that kept elements were multiplied with, 1 / (1 - p).
    """
    scale: float = _native.relu_dropout(_flat("x", x), p, key, num_threads)
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


def count_in_degrees(dst: Array, counts: NDArray[np.int64]) -> None:
    """Add the number of occurrences of every id in ``dst`` to ``counts``, in place.

    Raises:
        ValueError: an id is negative or beyond ``counts``; some may have been counted by then.
    """
    _native.count_in_degrees(dst, counts)


def csc_fill(
    src: Array, dst: Array, first: int, last: int, cursor: NDArray[np.int64], out: Array
) -> None:
    """Append ``src[e]`` to the neighbours of ``dst[e]`` for edges with ``first <= dst < last``.

    Args:
        src: ``[num_edges]`` int32 or int64.
        dst: the same.
        first: first destination of the range.
        last: end of the range.
        cursor: ``[last - first]`` where each vertex's next neighbour goes in ``out``; moved on.
        out: neighbour lists, of the type of ``src``.

    Raises:
        ValueError: a neighbour would go outside of ``out``; some may have been written by then.
    """
    _native.csc_fill(src, dst, first, last, cursor, out)


def csc_sort(
    indptr: NDArray[np.int64], indices: Array, drop_duplicates: bool, num_threads: int
) -> NDArray[np.int64]:
    """Sort every neighbour list in place; with ``drop_duplicates`` keep each neighbour once.

    Returns:
        The new ``indptr``; the first ``new_indptr[-1]`` entries of ``indices`` are valid.
    """
    result: NDArray[np.int64] = _native.csc_sort(indptr, indices, drop_duplicates, num_threads)
    return result


def rmat_edges(
    num_vertices: int, num_edges: int, a: float, b: float, c: float, seed: int, num_threads: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Draw distinct undirected R-MAT edges (Chakrabarti, Zhan and Faloutsos, SDM 2004).

    Vertices are numbered at random, so that ids tell nothing about degrees.

    Returns:
        ``(src, dst)``, ``[num_edges]`` int32 each, ``src < dst``.

    Raises:
        ValueError: fewer than 2 vertices, or more edges than half of all possible.
        MemoryError: there is not so much memory.
    """
    result: tuple[NDArray[np.int32], NDArray[np.int32]]
    with _naming("num_edges", num_edges):
        result = _native.rmat_edges(num_vertices, num_edges, a, b, c, seed, num_threads)
    return result


def planted_partition_edges(
    community: NDArray[np.int32],
    weight: NDArray[np.float32],
    num_edges: int,
    within: float,
    seed: int,
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Draw edges of a degree-corrected planted partition (Karrer and Newman, 2011).

    One end is drawn by ``weight``; the other by ``weight`` among the same community with
    probability ``within``, else among all. There are no loops; edges may repeat.

    Args:
        community: ``[num_vertices]`` int32, each of at least two vertices.
        weight: ``[num_vertices]`` float32, positive.
        num_edges: number of undirected edges.
        within: probability that an edge is drawn inside a community.
        seed: fixes the answer.

    Returns:
        ``(src, dst)``, ``[num_edges]`` int32 each.

    Raises:
        ValueError: a community has but one vertex, or a weight is not positive.
        MemoryError: there is not so much memory.
    """
    result: tuple[NDArray[np.int32], NDArray[np.int32]]
    with _naming("num_edges", num_edges):
        result = _native.planted_partition_edges(community, weight, num_edges, within, seed)
    return result
