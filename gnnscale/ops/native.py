"""Native operations on NumPy arrays: topology, sampling and synthetic graphs.

This package alone imports the extension ``_native``. The extension is not linked against torch: it
sees plain buffers, and releases the GIL while it works.

Nothing that is passed here can corrupt memory: the extension checks type, shape, strides and length
of every array, and every offset and id that leads somewhere. What it refuses is a ``TypeError`` or
a ``ValueError`` whose message begins with the name of the argument. Arrays are used in place,
nothing is converted; nobody else may write to them meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gnnscale import _native
from gnnscale.core.errors import GraphError, shown
from gnnscale.graph import Graph

__all__ = [
    "Array",
    "NativeSampler",
    "Sampled",
    "SampledHop",
    "contiguous",
    "count_in_degrees",
    "csc_fill",
    "csc_scatter",
    "csc_sort",
    "expand_edges",
    "keep_freed_memory",
    "naming",
    "naming_graph",
    "planted_partition_edges",
    "rmat_draws",
    "rmat_edges",
    "rmat_numbering",
    "simd_level",
    "supported_simd_level",
    "transpose_block",
]

Array: TypeAlias = NDArray[Any]


class SampledHop(NamedTuple):
    """A block of a native sample.

    Attributes:
        indptr: ``[num_dst + 1]`` int64 offsets.
        indices: ``[num_edges]`` int32 local ids of sources.
        num_src: number of sources.
        importance: ``[num_edges]`` float32, of layer-wise sampling; else None.
        positions: ``[num_edges]`` int64 place of each edge in the graph's ``indices``, or None.
        edge_weights: ``[num_edges]`` float32, or None.
    """

    indptr: Array
    indices: Array
    num_src: int
    importance: Array | None = None
    positions: Array | None = None
    edge_weights: Array | None = None


#: A native sample; see ``NativeSampler.sample_neighbors``.
Sampled: TypeAlias = "tuple[Array, list[SampledHop], Array | None]"


def simd_level() -> str:
    """Return the instruction set in use: ``baseline``, ``v3`` (AVX2) or ``v4`` (AVX-512).

    It is the highest one that this processor has, and at most ``GNNSCALE_SIMD_LEVEL``.
    """
    return str(_native.simd_level())


def supported_simd_level() -> str:
    """Return the highest instruction set that this processor has."""
    return str(_native.supported_simd_level())


@contextmanager
def naming(name: str, value: Any) -> Iterator[None]:
    """Name the argument that asks for more memory than there is."""
    try:
        yield
    except MemoryError:
        raise MemoryError(f"{name}: {shown(value)}, there is not so much memory") from None


def keep_freed_memory() -> int:
    """Make this process's malloc keep freed memory for reuse (glibc; elsewhere a no-op).

    For processes that train: torch's activations then land on pages already present. Not done on
    import, since it is a setting of the whole process.

    Returns:
        Bytes up to which a freed block is kept: 1 GiB, with glibc before 2.35 the 32 MiB that it
        allows at most (mallopt(3)), 0 where the C library has no such setting.
    """
    return int(_native.keep_freed_memory())


@contextmanager
def naming_graph(graph: object) -> Iterator[None]:
    """Say of a damaged topology which graph it is of: ``graph``, a path or a name.

    Raises:
        GraphError: native code came across an offset or an id that is none.
    """
    try:
        yield
    except _native.TopologyError as error:
        raise GraphError(
            f"{graph}: damaged, {error}; gnnscale doctor store=DIR looks at all of it"
        ) from None


class NativeSampler:
    """Samples the in-neighbours of seeds; safe to call from several threads at once.

    Each concurrent call holds scratch space of the size of its batch, kept for the next call, and
    a table of four bytes a vertex where that stays in the last-level cache. ``reach_neighbors``
    also takes a bit a vertex.
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
        self._sampler = _native.sampler(graph.indptr, graph.indices, graph.edge_weights)
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
        by_weight: bool = False,
        edge_positions: bool = False,
        edge_weights: bool = False,
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
            by_weight: draw neighbours one after the other with probability proportional to the
                weights of their edges, in place of all alike. Edges of weight 0 are never drawn,
                not even with a fan-out of -1. The graph needs weights.
            edge_positions: tell the place of each edge.
            edge_weights: tell the weight of each edge. The graph needs weights.

        Returns:
            ``input_vertices``; from the seeds outwards, a block per hop; and the vertices that are
            the sources of the last hop's edges.

        Raises:
            ValueError: a seed is not a vertex, or appears twice; a hop has 2^31 edges or more; or
                the graph has no weights.
            GraphError: the topology holds an offset or an id that is none.
        """
        with naming_graph(self._graph):
            vertices, hops, edge_vertices = self._sampler.sample_neighbors(
                contiguous(seeds),
                fanouts,
                replace,
                seed,
                step,
                num_threads,
                only_new,
                by_weight,
                edge_positions,
                edge_weights,
            )
        return vertices, [SampledHop(*hop) for hop in hops], edge_vertices

    def reach_neighbors(
        self,
        seeds: Array,
        fanouts: list[int] | tuple[int, ...],
        *,
        replace: bool,
        seed: int,
        step: int,
        num_threads: int,
    ) -> tuple[Array, list[NDArray[np.int64]]]:
        """Sample as ``sample_neighbors`` does, for those who need no edges.

        Returns:
            Its ``input_vertices``, and the ``indptr`` of each hop, from the seeds outwards.

        Raises:
            ValueError: as ``sample_neighbors``.
            GraphError: likewise.
        """
        with naming_graph(self._graph):
            vertices, indptrs = self._sampler.reach_neighbors(
                contiguous(seeds), fanouts, replace, seed, step, num_threads
            )
        return vertices, indptrs

    def time_relabelling(
        self,
        seeds: Array,
        fanouts: list[int] | tuple[int, ...],
        *,
        seed: int,
        step: int,
        num_threads: int,
    ) -> dict[str, float]:
        """Sample neighbours with every hop relabelled by all threads at once, and drop them.

        Returns:
            Seconds of each phase that threads share: ``lists``, ``offsets``, ``pick``, ``count``
            and ``number``; and of all that one thread does ``alone``.

        Raises:
            ValueError: as ``sample_neighbors``.
            GraphError: likewise.
        """
        with naming_graph(self._graph):
            seconds: dict[str, float] = self._sampler.time_relabelling(
                contiguous(seeds), fanouts, seed, step, num_threads
            )
        return seconds

    def sample_layers(
        self,
        seeds: Array,
        layer_sizes: list[int] | tuple[int, ...],
        *,
        seed: int,
        step: int,
        edge_positions: bool = False,
        edge_weights: bool = False,
    ) -> Sampled:
        """Sample ``layer_sizes[h]`` vertices of hop ``h`` for the whole batch.

        Returns:
            As ``sample_neighbors``, with each edge's importance (float32), and None in place of the
            last hop's sources.

        Raises:
            ValueError: as ``sample_neighbors``.
            GraphError: likewise.
        """
        with naming_graph(self._graph):
            vertices, hops, edge_vertices = self._sampler.sample_layers(
                contiguous(seeds), layer_sizes, seed, step, edge_positions, edge_weights
            )
        return vertices, [SampledHop(*hop) for hop in hops], edge_vertices


def contiguous(ids: Any) -> Any:
    """Return an array without gaps; what is no array is for the extension to refuse."""
    return np.ascontiguousarray(ids) if isinstance(ids, np.ndarray) and ids.ndim == 1 else ids


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


def count_in_degrees(dst: Array, counts: NDArray[np.int64], first: int = 0) -> None:
    """Add the number of occurrences of every id in ``dst`` to ``counts``, in place.

    Args:
        dst: ``[num_edges]`` int32 or int64.
        counts: of the ids from ``first`` on.
        first: see ``counts``.

    Raises:
        ValueError: an id has no entry in ``counts``; some may have been counted by then.
    """
    _native.count_in_degrees(dst, counts, first)


def csc_scatter(
    src: Array,
    dst: Array,
    bucket_of: NDArray[np.int32],
    num_buckets: int,
    *,
    out: Array,
    first: int = 0,
    shift: int = 0,
    num_threads: int = 1,
) -> NDArray[np.int64]:
    """Copy edges bucket by bucket, in order of arrival within each.

    Args:
        src: ``[num_edges]`` int32 or int64.
        dst: the same.
        bucket_of: int32 bucket of the edges to vertex ``v``, at ``(v - first) >> shift``.
        num_buckets: all buckets are below this.
        out: ``[2, num_edges]`` for sources and destinations in their new order, of the type of
            ``src``; each row contiguous.
        first: see ``bucket_of``.
        shift: likewise.
        num_threads: threads at most; the result is the same for any number.

    Returns:
        ``[num_buckets + 1]`` where each bucket starts.

    Raises:
        ValueError: a destination has no bucket; ``out`` is as it was.
    """
    if not isinstance(out, np.ndarray):
        raise TypeError(f"out: {type(out).__name__}, allowed is int32 or int64")
    if out.ndim != 2 or len(out) != 2:
        raise ValueError(f"out: shape {list(out.shape)}, allowed is [2, num_edges]")
    result: NDArray[np.int64] = _native.csc_scatter(
        src, dst, bucket_of, num_buckets, first, shift, out[0], out[1], num_threads
    )
    return result


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
    with naming("num_edges", num_edges):
        result = _native.rmat_edges(num_vertices, num_edges, a, b, c, seed, num_threads)
    return result


def rmat_draws(
    num_vertices: int,
    a: float,
    b: float,
    c: float,
    seed: int,
    first: int,
    num_draws: int,
    num_threads: int,
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Draw R-MAT edges one by one, as ``rmat_edges`` does before it makes them distinct.

    Args:
        num_vertices: number of vertices.
        a: see ``rmat_edges``, as ``b``, ``c`` and ``seed``.
        b: likewise.
        c: likewise.
        seed: likewise.
        first: number of the first draw.
        num_draws: how many.
        num_threads: threads to use.

    Returns:
        ``(src, dst)``, ``[num_draws]`` int32 each, ``src < dst`` in the recursion's numbering,
        which ``rmat_numbering`` turns into the graph's; or both 0 where a loop was drawn.
    """
    result: tuple[NDArray[np.int32], NDArray[np.int32]]
    with naming("num_draws", num_draws):
        result = _native.rmat_draws(num_vertices, a, b, c, seed, first, num_draws, num_threads)
    return result


def rmat_numbering(num_vertices: int, seed: int) -> NDArray[np.int32]:
    """Return the number in the graph, ``[num_vertices]``, of each vertex of an R-MAT recursion."""
    numbering: NDArray[np.int32]
    with naming("num_vertices", num_vertices):
        numbering = _native.rmat_numbering(num_vertices, seed)
    return numbering


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
    with naming("num_edges", num_edges):
        result = _native.planted_partition_edges(community, weight, num_edges, within, seed)
    return result
