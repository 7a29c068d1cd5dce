"""The native extension: operations on NumPy arrays and torch CPU tensors.

Only ``gnnscale.ops`` imports the extension, and the package uses it by that name. The extension is
not linked against torch: it sees plain buffers, and releases the GIL while it works.

No argument can corrupt memory: the extension checks type, shape, strides and length of every array,
and every offset and id that it follows. It refuses an argument by a ``TypeError`` or a
``ValueError`` of one line that begins with the argument's name, and a lack of memory by a
``MemoryError`` of this form. Arrays are used in place, without conversion; no other thread or
process may write to them meanwhile. A call that ends with an error may have written a part of its
outputs, unless the function says otherwise.

Conventions for arguments of all functions that say nothing else:

- *ids* of vertices, edges or rows are int32 or int64; an array of ids with gaps is copied;
- a graph has ``indptr`` ``[num_vertices + 1]`` int64 and ``indices`` ``[num_edges]`` ids; a block
  has ``indptr`` ``[num_dst + 1]`` int64 and ``indices`` ``[num_edges]`` int32 local ids of sources;
- ``x`` is ``[num_rows, f]``; a function that writes a tensor ``out`` and returns one returns it;
- at most ``num_threads`` threads are used, and the result does not depend on their number;
- ``seed`` and ``step`` are the run's, from 0 to 2^64 - 1.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from gnnscale.core.errors import GraphError
from gnnscale.graph import Graph

Array: TypeAlias = NDArray[Any]
Bytes: TypeAlias = NDArray[np.uint8]
Int16s: TypeAlias = NDArray[np.int16]
Int32s: TypeAlias = NDArray[np.int32]
Int64s: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float32]
#: Feature rows: a tensor, or an array with the name of its element type (float32, float16, bfloat16
#: or uint8). A bfloat16 array has 16-bit integers, since NumPy lacks the type. Some functions, as
#: their text says, also take rows of int8 and int4: an array of uint8 whose rows are the bytes that
#: ``artifact/feature_types.py`` describes; ``out`` then decides how many features a row has.
Rows: TypeAlias = torch.Tensor | tuple[Array, str]

# The process.

def simd_level() -> str:
    """Return the instruction set in use: ``baseline``, ``v3`` (AVX2) or ``v4`` (AVX-512).

    The kernels use the processor's highest set, but at most ``GNNSCALE_SIMD_LEVEL``.
    """

def supported_simd_level() -> str:
    """Return the highest instruction set that this processor has, named as by ``simd_level``."""

def keep_freed_memory() -> int:
    """Make this process's malloc keep freed memory for reuse (glibc; elsewhere a no-op).

    For processes that train: torch's activations then land on pages already present. Import does
    not call this function, which changes the whole process.

    Returns:
        Size in bytes up to which a freed block is kept: 1 GiB; 32 MiB, the maximum of mallopt(3),
        with glibc before 2.35; 0 if the C library has no such setting.
    """

def end_on_bus_error(*, descriptor: int, after: bytes, status: int) -> None:
    """Install a SIGBUS handler that writes the name of a lost mapped file and ends the process.

    SIGBUS means that a mapped file became shorter, or that its disk fails. Import does not call
    this function, which changes the whole process and its forked children.

    Args:
        descriptor: an open file, to which the name of the mapped file is written.
        after: up to 256 bytes to write after the name.
        status: exit status, 0 to 255.
    """

def flush_cache_lines(data: Bytes) -> bool:
    """Remove an array from the processor's caches, so that the next read comes from memory.

    Returns:
        Whether the processor has an instruction to remove lines, as x86-64 and 64-bit ARM have.
    """

def move_to_large_pages(data: Bytes) -> None:
    """Move an array to pages of 2 MiB, in which random reads find rows faster; its bytes stay.

    Linux 6.1 and later; elsewhere, or if the kernel has no large pages free, the array stays where
    it is. Takes one to three milliseconds for each MiB on small pages.
    """

# Sampling.

class TopologyError(ValueError):
    """Error of a topology with an offset or id out of range; ``ops.naming_graph`` adds its name."""

def damaged(graph: object, found: str) -> GraphError:
    """Return the GraphError for a damaged ``graph``, its path or name; ``found`` is the damage."""

class SampledHop(NamedTuple):
    """Block of a native sample: the sampled edges of one hop.

    Attributes:
        indptr: ``[num_dst + 1]`` int64 offsets.
        indices: ``[num_edges]`` int32 local ids of sources.
        num_src: number of sources.
        importance: ``[num_edges]`` float32, 1 / P(source sampled), of layer-wise sampling; or None.
        positions: ``[num_edges]`` int64 place of each edge in the graph's ``indices``, or None.
        edge_weights: ``[num_edges]`` float32, or None.
        edge_rows: ``[num_edges]`` uint32 rows of the edges' features, or None.
    """

    indptr: Array
    indices: Array
    num_src: int
    importance: Array | None = None
    positions: Array | None = None
    edge_weights: Array | None = None
    edge_rows: Array | None = None

#: ``input_vertices``, ids of all sampled vertices, seeds first; a block per hop, from the seeds
#: outwards; and the vertices that are sources of the last hop's edges.
Sampled: TypeAlias = tuple[Array, list[SampledHop], Array | None]

class TypedSample(NamedTuple):
    """Native sample of a graph with types.

    Attributes:
        input_vertices: ``[n]`` ids of all vertices, in the order of types.
        type_sizes: ``[num_hops + 1]`` number of vertices of each type: of the seeds, and after
            each hop.
        hops: for each hop, from the seeds outward, a block for each edge type, whose local ids
            count the vertices of its source type.
        edge_vertices: for each edge type ``[num_edges]`` ids of the sources of the last hop's
            edges; None: there is no hop.
        cutoffs: ``[n]`` int64 cut-off as of which each of ``input_vertices`` is reached; None: the
            seeds have no cut-offs.
        trees: ``[n]`` int32 number of the seed whose tree has each of ``input_vertices``; None:
            trees are merged.
    """

    input_vertices: Array
    type_sizes: list[tuple[int, ...]]
    hops: list[list[SampledHop]]
    edge_vertices: list[Array | None]
    cutoffs: Int64s | None
    trees: Int32s | None

class DiskLists:
    """Reader of adjacency lists in a file, of which memory holds some, such as ``Graph.lists``.

    Samplers draw positions of neighbors from vertex ids and degrees alone. A hop's positions in
    lists that memory lacks are sorted and read at once, each with the block around it, as
    ``RowReader`` reads rows of four or eight bytes.

    Several threads may use it: requests that arrive during a read are merged into the next read.
    A child of fork must open the file again.
    """

    def __init__(
        self,
        path: str,
        indptr: Array,
        indices: Array,
        held: Array,
        *,
        offset: int,
        depth: int = 64,
        max_gap_bytes: int,
        engine: Literal["auto", "io_uring", "threads"] = "auto",
        direct: bool = True,
    ) -> None:
        """Open the file, and read the lists of the vertices ``held`` into memory.

        Args:
            path: a regular file with the neighbors.
            indptr: ``[num_vertices + 1]`` offsets, read in place.
            indices: ``[num_edges]`` mapped neighbors, at most 2^33, of which only number and type
                are used.
            held: ``[k]`` ascending ids of the vertices whose lists memory holds.
            offset: bytes of the file before the first neighbor.
            depth, max_gap_bytes, engine, direct: as in ``RowReader``.

        Raises:
            ValueError: ``held`` do not ascend or are no vertices, or the file is too short.
            TopologyError: offsets of a list in memory are damaged.
            OSError: the file cannot be opened or read.
        """

    @property
    def num_bytes(self) -> int:
        """Bytes of memory of the lists in memory and of their index."""

    @property
    def engine(self) -> Literal["io_uring", "threads"]:
        """Engine that reads the file."""

    @property
    def direct(self) -> bool:
        """Whether reads go past the page cache."""

    def take_counters(self) -> dict[str, float]:
        """Return counters of the reads since the last call.

        Returns:
            ``hits``, neighbors found in memory; ``misses``, neighbors read from the file;
            ``waited_s``, seconds that threads waited for reads, summed over threads; ``requests``,
            ``bytes_read`` and ``busy_s`` as of ``RowReader.take_counters``.
        """

class NativeSampler:
    """Sampler of the in-neighbors of seeds, which several threads may call at once.

    Each concurrent call holds scratch space of the size of its batch, kept for the next call, and
    a table of four bytes per vertex if the table fits into the last-level cache; in
    ``reach_neighbors`` also a bit per vertex.

    Every method raises ``ValueError`` if a seed is not a vertex or appears twice, or if a hop has
    2^31 edges or more; and ``GraphError`` if the topology holds an offset or an id that is out of
    range. ``seeds`` are ``[n]`` ids of distinct vertices.
    """

    def __init__(self, graph: Graph) -> None:
        """Prepare to sample from ``graph``, whose arrays are used in place.

        From a graph with ``lists`` on disk, neighbors can only be sampled uniformly; an unreadable
        file raises ``OSError``.

        Offsets and ids are checked as they are read, batch by batch: a store may be damaged at any
        time while it is mapped.
        """

    def prepare_weights(self, *, num_threads: int) -> None:
        """Build the tables of edge weights by which neighbors are drawn by weight.

        Keeps an alias table of every list: eight bytes for every 16 edges, and for every vertex.
        Without this call, the first sample ``by_weight`` builds them.

        Raises:
            ValueError: the edges have no weights.
        """

    def sample_typed(
        self,
        seeds: Array,
        fanouts: list[list[int]],
        *,
        replace: bool,
        seed: int,
        step: int,
        num_threads: int,
        only_new: bool = False,
        by_weight: bool = False,
        labor: bool | None = None,
        edge_positions: bool = False,
        edge_weights: bool = False,
        edge_rows: bool = False,
        cutoffs: Array | None = None,
        rule: Literal["seed", "destination", "walk", "none"] = "seed",
        forward: bool = False,
        strict: bool = False,
        window: int | None = None,
        last: bool = False,
        disjoint: bool = False,
    ) -> TypedSample:
        """Return up to ``fanouts[h][r]`` in-neighbors by edge type ``r`` of vertices of hop ``h``.

        As ``sample_neighbors``, of a graph with any number of types; 0 leaves an edge type out.
        What vertex ``v`` draws by edge type ``r`` at hop ``h`` depends on ``(seed, step, h, v, r)``
        alone. ``labor`` keeps the neighbors of smallest random numbers, as ``sample_labor`` with
        this ``layer_dependency``; None: neighbors have no shared numbers.

        With ``cutoffs``, seeds and frontiers are units: vertices as of a cut-off ``c``. A unit
        draws from the edges of time ``t <= c`` of each list, and draws also depend on ``c``. Lists
        without times are not bounded. The graph needs times.

        Args:
            cutoffs: ``[n]`` int64 cut-off of each seed, not the smallest int64. None: there are
                none, and the arguments below are not used.
            rule: cut-off of a unit's sources: ``seed``, that of the unit; ``destination`` and
                ``walk``, the time of the edge; ``none``, which is for one hop, the smallest int64.
            forward: a ``walk`` keeps the cut-off of the seed, and a unit draws from edges of the
                time of the edge that reached it, or later; draws depend on that time, too.
            strict: bounds exclude edges of their time.
            window: a unit draws from ``t > c - window`` alone, or ``t >= c - window`` if
                ``strict``.
            last: take the newest edges, without draws.
            disjoint: units of different seeds differ, and have the edges that they would have if
                merged; seeds may repeat.
        """

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
        edge_rows: bool = False,
    ) -> Sampled:
        """Sample neighbors hop by hop; hop 1 expands the seeds.

        Args:
            fanouts: neighbors per vertex for each hop, -1 for all; at most 64 hops.
            replace: whether a neighbor may be drawn several times.
            only_new: whether a hop expands only the vertices that the previous hop reached first,
                as in PyG, so that these alone are its block's destinations. False: a hop expands
                every vertex reached so far.
            by_weight: whether neighbors are drawn one after the other with probability proportional
                to their edges' weights, not uniformly. Edges of weight 0 are never drawn, even with
                fan-out -1. The graph needs weights.
            edge_positions: whether to return each edge's position in the graph's ``indices``.
            edge_weights: whether to return the weight of each edge. The graph needs weights.
            edge_rows: whether to return the row of each edge's features. The graph needs features
                of edges.
        """

    def last_times(
        self,
        vertices: Array,
        cutoffs: Array,
        *,
        edge_type: int,
        strict: bool,
        num_threads: int,
    ) -> Array:
        """Return the time of the last edge to each vertex that is known at its cut-off, ``[n]``.

        The smallest int64 stands for a vertex without such an edge, or whose edges have no times.
        The graph needs times.

        Args:
            vertices: ``[n]`` destinations of the edge type, which may repeat.
            cutoffs: ``[n]`` int64, not the smallest int64.
            edge_type: number of the edge type; 0 without types.
            strict: edges of the time of the cut-off are not known.
        """

    def reach_neighbors(
        self,
        seeds: Array,
        fanouts: list[int] | tuple[int, ...],
        *,
        replace: bool,
        seed: int,
        step: int,
        num_threads: int,
    ) -> tuple[Array, list[Int64s]]:
        """Return the vertices that ``sample_neighbors`` would sample, without the edges.

        Returns:
            ``input_vertices``, and the ``indptr`` of each hop, from the seeds outwards.
        """

    def sample_labor(
        self,
        seeds: Array,
        fanouts: list[int] | tuple[int, ...],
        *,
        layer_dependency: bool,
        seed: int,
        step: int,
        num_threads: int,
        edge_positions: bool = False,
        edge_weights: bool = False,
        edge_rows: bool = False,
    ) -> Sampled:
        """Sample, for each vertex, the neighbors with the smallest random numbers (LABOR-0).

        A neighbor has the same random number in all lists; copies of a neighbor in one list have
        further numbers.

        Args:
            fanouts: neighbors per vertex for each hop, -1 for all; at most 64 hops.
            layer_dependency: whether all hops use the same random numbers.
            edge_positions, edge_weights, edge_rows: as in ``sample_neighbors``.
        """

    def reach_labor(
        self,
        seeds: Array,
        fanouts: list[int] | tuple[int, ...],
        *,
        layer_dependency: bool,
        seed: int,
        step: int,
        num_threads: int,
    ) -> tuple[Array, list[Int64s]]:
        """Return the vertices that ``sample_labor`` would sample, without the edges.

        Returns:
            ``input_vertices``, and the ``indptr`` of each hop, from the seeds outwards.
        """

    def time_relabelling(
        self,
        seeds: Array,
        fanouts: list[int] | tuple[int, ...],
        *,
        seed: int,
        step: int,
        num_threads: int,
    ) -> dict[str, float]:
        """Time sampling in which all threads relabel each hop together; the sample is dropped.

        Returns:
            Seconds of each phase that threads share: ``lists``, ``offsets``, ``pick``, ``count``
            and ``number``; and ``alone``, seconds of the work of a single thread.
        """

    def sample_layers(
        self,
        seeds: Array,
        layer_sizes: list[int] | tuple[int, ...],
        *,
        seed: int,
        step: int,
        edge_positions: bool = False,
        edge_weights: bool = False,
        edge_rows: bool = False,
    ) -> Sampled:
        """Sample ``layer_sizes[h]`` vertices per hop, by degree, for the whole batch (FastGCN).

        Returns:
            The result of ``sample_neighbors``, with each edge's importance (float32), and None for
            the last hop's sources.
        """

# Compressed sparse columns.

def expand_edges(indptr: Array, indices: Array, *, first_dst: int, out: Int64s) -> None:
    """Write source and destination of every edge of a block to ``out``, in the block's order.

    Args:
        first_dst: local id of the block's first destination.
        out: ``[2, num_edges]`` int64, each row contiguous: sources, then destinations.
    """

def transpose_block(
    indptr: Array,
    indices: Array,
    num_src: int,
    *,
    weights: Array | None = None,
    dst_scale: Array | None = None,
) -> tuple[Array, Array, Array]:
    """Return the transpose of a block: the destinations of every source, with weights.

    Returns:
        ``indptr [num_src + 1]`` int64, ``indices [num_edges]`` int32 destinations, ascending, and
        ``[num_edges]`` float32 ``weights[e] * dst_scale[dst]``, where a factor None is 1.
    """

def count_in_degrees(dst: Array, counts: Int64s, first: int = 0) -> None:
    """Add the number of occurrences of every id ``v`` in ``dst`` to ``counts[v - first]``."""

def csc_scatter(
    src: Array,
    dst: Array,
    bucket_of: Int32s,
    num_buckets: int,
    *,
    out: Array,
    first: int = 0,
    shift: int = 0,
    num_threads: int = 1,
) -> Int64s:
    """Copy edges to ``out``, sorted by the bucket of their destination; the sort is stable.

    Args:
        src: ``[num_edges]`` ids.
        bucket_of: int32 bucket of the edges to vertex ``v``, at ``(v - first) >> shift``.
        out: ``[2, num_edges]`` for sources and destinations in their new order, of the type of
            ``src``; each row contiguous.

    Returns:
        ``[num_buckets + 1]`` position in ``out`` of each bucket's start, and of the end.

    Raises:
        ValueError: a destination has no bucket; ``out`` is unchanged.
    """

def csc_fill(src: Array, dst: Array, first: int, last: int, cursor: Int64s, out: Array) -> None:
    """Append ``src[e]`` to the neighbors of ``dst[e]`` for edges with ``first <= dst < last``.

    Args:
        src: ``[num_edges]`` ids.
        cursor: ``[last - first]`` place in ``out`` of each vertex's next neighbor; advanced.
        out: neighbor lists, of the type of ``src``.
    """

def csc_sort(indptr: Int64s, indices: Array, drop_duplicates: bool, num_threads: int) -> Int64s:
    """Sort every list of neighbors in place; with ``drop_duplicates`` keep each neighbor once.

    Returns:
        The new ``indptr``; the first ``new_indptr[-1]`` entries of ``indices`` are valid.
    """

# Rows and activations.

def empty(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return an uninitialized CPU tensor in memory that freed tensors of earlier batches left.

    torch gives large CPU tensors fresh pages each time, which cost more than filling the tensor.
    """

def gather(x: Rows, ids: Array, *, out: torch.Tensor, num_threads: int) -> torch.Tensor:
    """Copy rows ``ids`` of ``x``, also of int8 and int4, to ``out``, converted to ``out``'s type.

    Args:
        ids: ``[n]`` ids inside ``[0, num_rows)``.
        out: ``[n, f]`` float32 or bfloat16; may be a column slice of a wider matrix.
    """

def read_ahead(x: Rows, ids: Array, *, num_threads: int) -> None:
    """Ask the system to read rows ``ids`` of ``x``, a mapped file, without waiting for the disk.

    Rows may be of int8 and int4.
    """

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
    """Sum neighbors' rows over the edges of a block, in one pass and in the order of the edges.

    ``out[i] = dst_scale[i] * sum_e weights[e] * x[ids[indices[e]]] + self_scale[i] * self_rows[i]``
    for ``e`` in ``indptr[i]:indptr[i + 1]``; a missing factor is 1, a missing own row 0. With
    ``ids``, ``x`` is the whole feature matrix: load and aggregation in one pass. ``x`` and
    ``self_rows`` may be of int8 and int4.

    Args:
        out: ``[num_dst, f]`` float32 or bfloat16; sums are kept in float32.
        ids: ``[num_src]`` row of ``x`` of each source; None: the local id is the row.
        ids_per_edge: whether ``ids`` is ``[num_edges]``, the row of ``x`` that each edge reads.
        weights: ``[num_edges]`` float32.
        dst_scale: ``[num_dst]`` float32.
        self_rows: rows to add for destinations below ``num_self``.
        self_ids: row of ``self_rows`` of each such destination; None: its local id.
        self_scale: ``[num_self]`` float32.
        num_self: number of destinations with an own row.
        gate: ``[num_dst, f]`` of ``out``'s type; ``out`` is 0 if ``gate`` is not positive.
    """

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

    Rows are added in the order of ``e``: consecutive calls give the sum of one call with all edges.

    Args:
        x: ``[num_rows, f]``; ``f`` is a multiple of 16.
        ids: ``[num_edges]`` rows of ``x``.
        indptr: ``[n + 1]`` int64.
        out_ids: ``[n]`` int32 rows of ``out``, ascending.
        out: ``[num_out, f]`` float32.
        weights: ``[num_edges]`` float32; None for ones.
    """

def edge_dot(
    a: torch.Tensor, x: torch.Tensor, indptr: Array, indices: Array, *, out: Array, num_threads: int
) -> None:
    """Write ``<a[i], x[indices[e]]>`` for every edge ``e`` of destination ``i`` to ``out[e]``.

    Column ``j`` is added to partial sum ``j % 16``, and the partial sums in a tree of halves: every
    instruction set gives the same bits.

    Args:
        a: ``[num_dst, f]`` float32.
        x: ``[num_src, f]`` float32.
        out: ``[num_edges]`` float32, of any stride.
    """

def aggregate_max(
    x: torch.Tensor,
    indptr: Array,
    indices: Array,
    *,
    out: torch.Tensor,
    counts: torch.Tensor | None,
    num_threads: int,
) -> torch.Tensor:
    """Write each destination's maximum over its neighbors' rows to ``out``, 0 without neighbors.

    ``out[i] = max_e x[indices[e]]`` for ``e`` in ``indptr[i]:indptr[i + 1]``, column by column; a
    maximum with a NaN is NaN.

    Args:
        x: ``[num_src, f]`` float32 or bfloat16.
        out: ``[num_dst, f]`` of the type of ``x``.
        counts: ``[num_dst, f]`` float32 output: the number of edges with the maximum; or None.
    """

def aggregate_max_backward(
    x: torch.Tensor,
    largest: torch.Tensor,
    shares: torch.Tensor,
    indptr: Array,
    indices: Array,
    *,
    out: torch.Tensor,
    num_threads: int,
) -> torch.Tensor:
    """Write the gradient of the argument ``x`` of ``aggregate_max`` to ``out``.

    ``out[u] = sum_v shares[v] * (x[u] == largest[v])`` over the destinations ``v`` of ``u``, in
    their order.

    Args:
        x: ``[num_src, f]`` float32 or bfloat16, the argument of ``aggregate_max``.
        largest: ``[num_dst, f]`` of the type of ``x``, the maxima.
        shares: ``[num_dst, f]`` float32, the gradient of the maxima divided by ``counts``.
        indptr: ``[num_src + 1]`` offsets of the destinations of each source, as
            ``transpose_block`` makes them.
        indices: destinations.
        out: ``[num_src, f]`` float32 or bfloat16; sums are kept in float32.
    """

def pair_scores(
    own: torch.Tensor,
    z: torch.Tensor,
    attention: torch.Tensor,
    indptr: Array,
    indices: Array,
    *,
    out: torch.Tensor,
    slope: float,
    num_threads: int,
) -> torch.Tensor:
    """Write attention scores of edges to ``out`` (GATv2, Brody et al. 2022, eq. 7).

    ``out[e, k] = <attention[k], LeakyReLU(own[v, k] + z[u, k])>`` for the edge ``e`` from ``u`` to
    ``v``, where ``own[v, k]`` are columns ``k * width`` to ``(k + 1) * width - 1``. Columns are
    added in the order of ``edge_dot``.

    Args:
        own: ``[num_dst, num_heads * width]`` float32, contiguous.
        z: ``[num_src, num_heads * width]`` float32, contiguous.
        attention: ``[num_heads, width]`` float32, contiguous.
        out: ``[num_edges, num_heads]`` float32.
        slope: LeakyReLU's slope below 0, from -1 to 1.
    """

def pair_scores_backward(
    own: torch.Tensor,
    z: torch.Tensor,
    attention: torch.Tensor,
    indptr: Array,
    indices: Array,
    grad: torch.Tensor,
    *,
    slope: float,
    num_threads: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gradients of ``own``, ``z`` and ``attention``, arguments of ``pair_scores``.

    Sums have a fixed order, whatever the number of threads.

    Args:
        grad: ``[num_edges, num_heads]`` float32 gradient of the scores, contiguous.
    """

def adam_rows(
    x: torch.Tensor,
    means: torch.Tensor,
    squares: torch.Tensor,
    ids: Array,
    gradients: Rows,
    indptr: Array,
    indices: Array,
    *,
    rate: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    num_threads: int,
    weights: Array | None = None,
    self_rows: Rows | None = None,
    self_scale: Array | None = None,
    num_self: int = 0,
) -> None:
    """Update rows ``ids`` of a table, in place, by one step of lazy Adam; other rows stay.

    ``m += (g - m) (1 - beta1)``, ``v += (g g - v) (1 - beta2)``, and then
    ``x -= rate m / (sqrt(v) + epsilon)``: as ``torch.optim.SparseAdam``. The gradient g of row
    ``ids[i]`` is summed over edges in float32, as ``aggregate`` sums rows for destination ``i``.

    Args:
        x: ``[num_rows, f]`` float32 table, contiguous like both moments.
        means: ``[num_rows, f]`` float32, m of each element.
        squares: ``[num_rows, f]`` float32, v of each element.
        ids: ``[n]`` distinct rows of ``x``.
        gradients: ``[any number, f]`` rows to sum.
        indptr: ``[n + 1]`` int64 offsets of the edges of each row.
        indices: ``[num_edges]`` int32 rows of ``gradients``.
        rate: learning rate, with the corrections of both moments' bias.
        weights: ``[num_edges]`` float32.
        self_rows: rows that are added to the first ``num_self`` sums.
        self_scale: ``[num_self]`` float32 factors of ``self_rows``.
        num_self: number of ``ids`` with a row in ``self_rows``.
    """

def adagrad_rows(
    x: torch.Tensor,
    sums: Array,
    ids: Array,
    gradients: Rows,
    indptr: Array,
    indices: Array,
    *,
    rate: float,
    epsilon: float,
    num_threads: int,
    weights: Array | None = None,
    self_rows: Rows | None = None,
    self_scale: Array | None = None,
    num_self: int = 0,
) -> None:
    """Update rows ``ids`` of a table, in place, by one step of row-wise Adagrad; other rows stay.

    ``s += mean of g g over the row``, and then ``x -= rate / (sqrt(s) + epsilon) g``. Further
    arguments are as in ``adam_rows``.

    Args:
        sums: ``[num_rows]`` float32, s of each row.
        rate: learning rate.
    """

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
    """Apply ReLU to ``x``, then dropout with ``p`` rounded to 1/65536, in one pass and in place.

    Whether an element is dropped depends on ``(seed, step, layer, vertex, column)`` alone: neither
    on the row's place nor on other rows.

    Args:
        x: ``[n, f]`` contiguous float32 or bfloat16.
        vertices: ``[n]`` ids, the vertex of each row; they may repeat.
        p: probability from 0 to 1 that an element is dropped.
        layer: number of the layer with output ``x``, from 0 to 2^64 - 1.

    Returns:
        The factor 1 / (1 - p) by which remaining elements were multiplied.
    """

def relu_dropout_backward(
    y: torch.Tensor, grad: torch.Tensor, *, scale: float, num_threads: int
) -> torch.Tensor:
    """Return ``grad * scale`` if ``y``, the output of ``relu_dropout``, is positive, else 0."""

def edge_softmax(
    indptr: Array, scores: torch.Tensor, *, bias: Array | None, num_threads: int
) -> torch.Tensor:
    """Return the softmax of ``scores`` over each destination's edges, by head.

    ``scores`` and the result are ``[num_edges, num_heads]`` float32. ``bias`` ``[num_edges]``
    float32 multiplies the exponentials: the importance of a sampled edge.
    """

def edge_softmax_backward(
    indptr: Array, alpha: torch.Tensor, grad: torch.Tensor, *, num_threads: int
) -> torch.Tensor:
    """Return the gradient of ``edge_softmax``'s scores, from ``grad`` of its result ``alpha``."""

# Synthetic graphs, and draws of link prediction.

def rmat_edges(
    num_vertices: int, num_edges: int, a: float, b: float, c: float, seed: int, num_threads: int
) -> tuple[Int32s, Int32s]:
    """Draw distinct undirected R-MAT edges (Chakrabarti, Zhan and Faloutsos, SDM 2004).

    ``a``, ``b`` and ``c`` are the probabilities of three quadrants. Vertices, at least 2, are
    numbered at random, so that ids say nothing about degrees; ``num_edges`` is at most half of all
    possible edges.

    Returns:
        ``(src, dst)``, ``[num_edges]`` int32 each, ``src < dst``.
    """

def rmat_draws(
    num_vertices: int,
    a: float,
    b: float,
    c: float,
    seed: int,
    first: int,
    num_draws: int,
    num_threads: int,
) -> tuple[Int32s, Int32s]:
    """Return draws ``first`` to ``first + num_draws - 1`` of R-MAT edges, before deduplication.

    Returns:
        ``(src, dst)``, ``[num_draws]`` int32 each, ``src < dst`` in the recursion's numbering,
        which ``rmat_numbering`` maps to ids of the graph; both 0 for a drawn loop.
    """

def rmat_numbering(num_vertices: int, seed: int) -> Int32s:
    """Return the id in the graph, ``[num_vertices]``, of each vertex of an R-MAT recursion."""

def planted_partition_edges(
    community: Int32s, weight: Floats, num_edges: int, within: float, seed: int
) -> tuple[Int32s, Int32s]:
    """Draw edges of a degree-corrected planted partition (Karrer and Newman, 2011).

    One end is drawn by ``weight``; the other by ``weight`` among the same community with
    probability ``within``, else among all. There are no loops; edges may repeat.

    Args:
        community: ``[num_vertices]`` int32; each community has at least two vertices.
        weight: ``[num_vertices]`` float32, positive.
        within: probability that an edge is drawn inside a community.

    Returns:
        ``(src, dst)``, ``[num_edges]`` int32 each.
    """

def draw_negatives(
    edges: Array, count: int, num_vertices: int, *, seed: int, step: int, num_threads: int = 1
) -> Int64s:
    """Draw ``count`` negative vertices for each edge number in ``edges``, ``[n]``, uniformly.

    Every draw is a pure function of ``(seed, step, edge, index)``.

    Returns:
        ``[n, count]`` int64, below ``num_vertices``.
    """

def draw_of_pairs(
    first: Array, second: Array, *, seed: int, num_threads: int = 1
) -> NDArray[np.float64]:
    """Return ``[n]`` float64 in (0, 1), each a function of ``first[i]``, ``second[i]`` and seed."""

# Partitions.

def count_cut(
    indptr: Int64s, indices: Array, owner: Int16s, num_parts: int, *, num_threads: int
) -> Int64s:
    """Count the edges within each part and between each two parts.

    Args:
        owner: ``[num_vertices]`` int16, the part of each vertex; -1 for no part.
        num_parts: K, at most 1024.

    Returns:
        ``[K, K]`` int64: edges with a source of part ``i`` and a destination of part ``j``. Edges
        with an end of no part do not count.
    """

def hops_from(
    indptr: Int64s, indices: Array, vertices: Array, num_hops: int, hops: Bytes, *, num_threads: int
) -> int:
    """Lower ``hops`` to the fewest hops from ``vertices``, from in-neighbor to in-neighbor.

    Later calls with the same ``num_hops`` may add vertices; the cost is that of the hops that get
    lower.

    Args:
        vertices: ``[n]`` ids of the type of ``indices``, 0 hops away.
        num_hops: L, the maximum number of hops; at most 254.
        hops: ``[num_vertices]`` uint8, 255 for vertices not reached yet; updated in place.

    Returns:
        Number of vertices that this call reached first.
    """

def pagraph_stream(
    indptr: Int64s,
    indices: Array,
    vertices: Array,
    *,
    num_parts: int,
    num_hops: int,
    max_walked: int,
    max_sampled: int,
    seed: int,
    num_threads: int,
) -> tuple[Int16s, Bytes, int]:
    """Assign training vertices to parts, one after the other (PaGraph, Algorithm 1, equation 1).

    A vertex ``v`` goes to the part ``i`` with the largest ``|TV_i & IN(v)| * (TV_avg - |TV_i|) /
    |PV_i|``, and its in-neighborhood ``IN(v)`` joins the part. ``TV_i`` are the part's training
    vertices, ``PV_i`` all its vertices. Equal scores go to the part with the fewest training
    vertices, then the fewest vertices, then the lowest number. A part is full if a further vertex
    would leave it more than one vertex ahead of another part at the end.

    ``|PV_i|`` is exact. The overlap ``|TV_i & IN(v)|`` is exact if the paths from ``v`` have at
    most ``max_walked`` edges in all, or if there are at most ``max_sampled`` training vertices.
    Otherwise it is counted among S = ``max_sampled`` training vertices, drawn uniformly without
    replacement: an unbiased estimate, with a relative standard error of
    ``sqrt((1 - p) / (p S) * (1 - S / N))`` for an overlap of a share ``p`` of N training vertices.

    Args:
        vertices: ``[n]`` training vertices in the order of the stream, of the type of ``indices``.
        num_parts: K, at most 1024.
        num_hops: L, the length of the paths that make up a neighborhood; 1 to 254.
        max_walked: edges that may be walked for an overlap; 0 to 2^31 - 1.
        max_sampled: S. Estimates take S / 8 bytes for each training vertex with an inexact
            overlap, and 64 or, if L > 2, 128 bytes per vertex.

    Returns:
        ``[n]`` int16, the part of each training vertex; ``[K, num_vertices]`` uint8, the hops at
        which each part reaches a vertex, 255: never; and the number of inexact overlaps.
    """

# Edge-cut partitions, of graphs with both directions of every edge. An offset, an id, a weight or a
# label that is out of range is a ValueError.

class UndirectedLists(NamedTuple):
    """Neighbor lists without loops and duplicates, in both directions of every edge.

    Attributes:
        indptr: ``[num_vertices + 1]`` int64.
        indices: ``[2 * undirected edges]``, of the input's type, each list ascending.
        num_loops: number of dropped loops.
        num_duplicates: number of dropped copies of entries of a list.
        num_one_way: number of edges to which the reverse edge was added.
    """

    indptr: Int64s
    indices: Array
    num_loops: int
    num_duplicates: int
    num_one_way: int

def make_undirected(indptr: Int64s, indices: Array, num_threads: int) -> UndirectedLists:
    """Return a topology without loops and duplicates, with the reverse of every edge.

    Lists that already are undirected and simple are returned themselves, after one pass with 8
    bytes per vertex. Otherwise the result is a copy; two copies exist for a moment if edges are
    both dropped and added.
    """

def write_metis(
    fd: int,
    indptr: Int64s,
    indices: Array,
    *,
    vertex_weights: Int64s | None = None,
    edge_weights: Int32s | None = None,
    num_threads: int,
) -> int:
    """Write a graph to the open file descriptor ``fd`` in the text format of METIS's manual.

    Args:
        fd: descriptor of the file, at the place to write to.
        vertex_weights: ``[num_vertices]``; None: the file has no vertex weights.
        edge_weights: ``[len(indices)]``; None: the file has no edge weights.
        num_threads: threads to use; each holds some MiB of text.

    Returns:
        The number of bytes written.

    Raises:
        OSError: the file cannot be written.
    """

class Refined(NamedTuple):
    """Result of ``refine``: cuts, the weight of undirected edges between parts.

    Attributes:
        cut_before: cut before the call.
        cut_balanced: cut after vertices were moved for balance.
        cut: final cut, after moves that lower it; never above ``cut_balanced``.
        within: whether no part exceeds ``max_weights``.
    """

    cut_before: int
    cut_balanced: int
    cut: int
    within: bool

def refine(
    indptr: Int64s,
    indices: Array,
    *,
    vertex_weights: Int64s,
    max_weights: Int64s,
    owner: Int32s,
    edge_weights: Int32s | None = None,
    labels: Int32s | None = None,
    num_clusters: int = 0,
    num_rounds: int,
    num_threads: int,
) -> Refined:
    """Move vertices between parts, in place, for balance and then for a lower cut.

    First, while a part exceeds ``max_weights``, the moves with the least added cut per balance
    gained. Then rounds of moves that fit and lower the cut, best first, and of hill climbing if its
    table of connections is small (2^24 entries).

    Args:
        vertex_weights: ``[num_vertices, num_weights]``, from 0 to 2^31, up to 8 weights.
        max_weights: ``[num_parts, num_weights]``, maximum weights of each part.
        owner: ``[num_vertices]``, the part of each vertex, changed in place.
        edge_weights: ``[len(indices)]``, positive; None for 1 each.
        labels: ``[num_vertices]``, the cluster of each vertex: a cluster, with one owner, moves as
            a whole, without hill climbing; None: vertices move one by one.
        num_clusters: number of clusters in ``labels``.
        num_rounds: maximum number of rounds of the second phase.
    """

def find_clusters(
    indptr: Int64s,
    indices: Array,
    *,
    vertex_weights: Int64s,
    max_weights: Int64s,
    edge_weights: Int32s | None = None,
    owner: Int32s | None = None,
    num_rounds: int,
) -> tuple[Int32s, int]:
    """Cluster closely connected vertices by size-constrained label propagation.

    Meyerhenke, Sanders and Schulz, SEA 2014. Takes some 50 bytes per vertex.

    Args:
        vertex_weights: ``[num_vertices, num_weights]``.
        max_weights: ``[num_weights]``, maximum weights of a cluster of several vertices.
        edge_weights: ``[len(indices)]``, positive; None for 1 each.
        owner: ``[num_vertices]``, the part of each vertex, so that no cluster spans parts; or None.
        num_rounds: number of rounds, in each of which every vertex may change its cluster.

    Returns:
        ``(labels, num_clusters)``: ``[num_vertices]``, the cluster of each vertex, from 0.
    """

class Contracted(NamedTuple):
    """Graph with a vertex for each cluster, from ``contract``.

    Attributes:
        indptr: ``[num_clusters + 1]`` int64.
        indices: int32, both directions of every edge.
        edge_weights: int32, the weight of each entry of ``indices``.
        vertex_weights: ``[num_clusters, num_weights]`` int64.
    """

    indptr: Int64s
    indices: Int32s
    edge_weights: Int32s
    vertex_weights: Int64s

def contract(
    indptr: Int64s,
    indices: Array,
    *,
    vertex_weights: Int64s,
    edge_weights: Int32s | None = None,
    labels: Int32s,
    num_clusters: int,
    threshold: int = 1,
    num_threads: int,
) -> Contracted:
    """Return the graph of clusters, with the summed weights of their vertices and edges.

    Arguments are as in ``refine``. With a ``threshold`` above 1, a lighter edge stays with the
    probability ``weight / threshold``, and then has the weight ``threshold``: cuts keep their
    weight on average, and at most about ``total weight / threshold`` edges stay. The choice is a
    function of the clusters' numbers.
    """

# Caches. The caches of several devices that read each other's memory are one list. Their rows
# are numbered cache by cache; the *slot* of a vertex is the number of its row, or -1 if no cache
# has the row. Slots and vertices are checked as they are read, and may lie in shared memory.

class RankedSlots:
    """Immutable map from vertices to slots, for static caches; several threads may use it.

    A bitmap of the cached vertices, with a count before each 64 bits, gives a vertex's rank among
    the cached vertices (Jacobson, "Space-efficient static trees and graphs", FOCS 1989). The rank
    is the slot if all rows lie in ascending order of their vertices; otherwise a table of the
    cached vertices has the slots. The map takes 1/4 byte per vertex, and with a table 4 bytes per
    cached vertex: small enough to stay in the processor's caches.
    """

    def __init__(self, num_vertices: int, members: Sequence[Array]) -> None:
        """Number the rows of all caches, one cache after the other.

        Args:
            num_vertices: number of vertices of the graph.
            members: for each cache ``k`` of at most 1024, ``[n_k]`` ids of the vertices whose rows
                the cache has, in the order of its rows; at most 2^31 - 1 in all. A vertex with
                several rows has the slot of the last row.
        """

    @property
    def starts(self) -> Int64s:
        """``[K + 1]`` int64, the slot of each cache's first row, and the number of all rows."""

    @property
    def num_bytes(self) -> int:
        """Bytes of memory of the map."""

def gather_cached(
    host: Rows,
    caches: Sequence[Rows],
    slots: Int32s | RankedSlots,
    vertices: Array,
    *,
    out: Rows,
    num_threads: int,
) -> Int64s:
    """Copy rows of ``vertices`` to ``out``, each from the cache that has it, or else from ``host``.

    ``out`` equals that of ``gather`` from ``host``, bit for bit, if caches hold copies of its rows.

    Args:
        host: ``[num_vertices, f]``, also of int8 and int4.
        caches: at most 1024 arrays ``[rows of the cache, f]`` of the type of ``host``, with at most
            2^31 - 1 rows in all.
        slots: ``[num_vertices]`` int32 slots, -1 for vertices without a slot; or the
            ``RankedSlots`` of caches with the same numbers of rows.
        vertices: ``[n]`` ids inside ``[0, num_vertices)``.
        out: ``[n, f]`` float32 or bfloat16; may be a column slice of a wider matrix.

    Returns:
        ``[len(caches) + 1]`` int64: the number of rows from each cache and, last, from the host.
    """

def count_slots(
    slots: Int32s | RankedSlots,
    vertices: Array,
    starts: Int64s,
    *,
    weights: Int64s | None = None,
    num_threads: int,
) -> Int64s:
    """Count how many of ``vertices`` each cache holds, as ``gather_cached`` would count reads.

    Args:
        slots: as for ``gather_cached``, with these ``starts``.
        starts: ``[K + 1]`` int64, ascending from 0: cache ``k`` of K, at most 1024, has slots from
            ``starts[k]`` to ``starts[k + 1] - 1``.
        weights: ``[n + 1]`` int64 offsets, such as the ``indptr`` of a block: vertex ``i`` counts
            ``weights[i + 1] - weights[i]`` times. None counts each once.

    Returns:
        ``[K + 1]`` int64: the count of each cache and, last, of vertices that no cache holds.
    """

def count_uses(vertices: Array, counts: Int32s, *, num_threads: int) -> None:
    """Add 1 to ``counts[v]`` for every ``v`` in ``vertices``.

    No other call may add to the same counts meanwhile. Counts saturate at 2^31 - 1.

    Args:
        vertices: ``[n]`` ids inside ``[0, num_vertices)``; they may repeat.
        counts: ``[num_vertices]`` int32, updated in place.
    """

def count_reads(indptr: Int64s, vertices: Array, counts: Int32s, *, num_threads: int) -> None:
    """Add ``indptr[i + 1] - indptr[i]`` to ``counts[vertices[i]]``, as ``count_uses`` adds 1.

    ``indptr`` ``[n + 1]``, ascending from 0, holds the offsets of a block's destinations.
    Descending offsets are refused before anything is counted.
    """

def copy_rows(
    source: Rows, vertices: Array, target: Rows, slots_of_target: Array, *, num_threads: int
) -> None:
    """Copy row ``vertices[i]`` of ``source`` to row ``slots_of_target[i]`` of ``target``.

    Args:
        source: ``[num_vertices, f]``, also of int8 and int4.
        vertices: ``[n]`` ids inside ``[0, num_vertices)``; they may repeat.
        target: ``[num_slots, f]`` of the type of ``source``, in other memory.
        slots_of_target: ``[n]`` distinct rows of ``target``, inside ``[0, num_slots)``.
    """

#: Hits in the cache, hits in the batch before, misses, positions and slots to copy: the result of
#: ``NativeReplacement.advance``.
Replacing: TypeAlias = tuple[int, int, int, Int32s, Int32s]

class NativeReplacement:
    """Replacement of rows in a cache by the batches to come (Belady's MIN with bypass).

    Batches are expected and served in the same order. After a batch is served, its rows are on the
    device anyway: of the batch's and the cache's rows, the cache keeps the ``capacity`` rows that
    an expected batch reads soonest. Rows that are read equally soon, or by no expected batch, are
    chosen by descending priority, then by ascending vertex.

    With ``match`` (FastGL, Match) the rows of a batch stay on the device until the next batch is
    served. A row that the next batch also reads therefore gets a slot only if a slot is free.

    Slots 0 to ``capacity - 1`` are the cache's. With ``match``, slot ``capacity + i`` is row ``i``
    of the batch before, if the cache lacks that row.

    Several threads may call the methods, one after the other. The object takes 8 bytes per vertex,
    12 per slot, and 8 to 9 per row of the expected batches.
    """

    def __init__(self, priority: Int32s, *, capacity: int, match: bool) -> None:
        """Begin with an empty cache of ``capacity`` slots.

        Args:
            priority: ``[num_vertices]`` int32 priority of each row, used in place.
            capacity: number of slots; at most ``num_vertices``.
            match: whether the rows of the batch before can be read again.
        """

    @property
    def slots(self) -> Int32s:
        """``[num_vertices]`` int32, the slot of each vertex, or -1; a read-only view."""

    def expect(self, vertices: Array, *, num_threads: int) -> None:
        """Append the next batch, ``[n]`` ids of distinct vertices, which are copied.

        Raises:
            ValueError: a vertex is out of range or comes twice; the batch is not appended then.
        """

    def look_up(self, *, num_threads: int) -> Int32s:
        """Return ``[n]`` int32, the slots of the oldest expected batch's vertices, or -1."""

    def advance(self, *, num_threads: int) -> Replacing:
        """Serve the oldest expected batch, and choose the cache's new rows.

        Returns:
            The numbers of the batch's rows that were in the cache, in the batch before, and in
            neither; then ``positions, slots`` ``[m]`` int32: the caller copies row
            ``positions[k]`` of the batch to slot ``slots[k]``.
        """

# Planning caches. Vertex ``v`` takes ``bytes_per_vertex + bytes_per_entry * (offsets[v + 1] -
# offsets[v])`` bytes: a feature row ``bytes_per_vertex`` alone, an adjacency list 8 and 4 (Legion,
# equation 3). Both are from 0 to 2^31 - 1, and ``offsets`` are ``[num_vertices + 1]`` from 0.

def hottest(
    hotness: Array,
    tie_break: Array | None = None,
    *,
    capacity: int,
    bytes_per_vertex: int,
    offsets: Int64s | None = None,
    bytes_per_entry: int = 0,
    max_bytes: int | None = None,
    only_hot: bool = False,
    num_threads: int,
) -> Array:
    """Return the hottest vertices that fit into ``capacity`` bytes, and one more at most.

    The call needs up to 8 bytes of memory per vertex with the result, 16 with int64 ids. All
    vertices together take less than 2^63 bytes.

    Args:
        hotness: ``[num_vertices]`` float32, int32 or int64, not negative.
        tie_break: ``[num_vertices]`` int32 or int64, not negative, orders equal hotness; or None.
        capacity: bytes; may exceed the bytes of all vertices.
        max_bytes: maximum bytes of a vertex; larger vertices are left out. None: no limit.
        only_hot: whether vertices of hotness 0 are left out.

    Returns:
        ``[n]`` ids, int32, or int64 for 2^31 vertices or more, by descending hotness, then
        descending ``tie_break``, then ascending id: each vertex whose predecessors take less than
        ``capacity`` bytes.
    """

class Shared(NamedTuple):
    """Assignment of vertices to the members of a clique, from ``share_out``.

    Attributes:
        member: ``[n]`` int16, the member of each vertex of ``order``; -1: no member had room. A
            later, smaller vertex may still find room.
        bytes: ``[K]`` int64, the bytes of each member's vertices.
        reads: ``[K, K]`` int64, at ``[j, k]`` the summed hotness to member ``j`` of member ``k``'s
            vertices; None unless hotness is int32.
    """

    member: Int16s
    bytes: Int64s
    reads: Int64s | None

def share_out(
    order: Array,
    local: Sequence[Array],
    *,
    capacities: Int64s,
    bytes_per_vertex: int,
    offsets: Int64s | None = None,
    bytes_per_entry: int = 0,
    num_threads: int,
) -> Shared:
    """Share vertices out among the members of a clique (Legion, Algorithm 1).

    In the given order, a vertex goes to the member with room to which the vertex is hottest; of
    equals, to the member with the most bytes left, then to the lowest. Algorithm 1 has no limit of
    bytes; with sufficient capacities the result is Algorithm 1's.

    Args:
        order: ``[n]`` ids of distinct vertices; a repeated vertex takes bytes twice.
        local: for each of K members, at most 1024, ``[num_vertices]`` int32 or float32 hotness of
            the vertices to the member, not negative.
        capacities: ``[K]`` bytes of each member.
    """

def running_sums(
    order: Array,
    values: Array | None = None,
    *,
    every: int,
    bytes_per_vertex: int = 0,
    offsets: Int64s | None = None,
    bytes_per_entry: int = 0,
    falling: bool = False,
    num_threads: int,
) -> Array:
    """Return sums over the first 0, ``every``, 2 · ``every``, ... and all vertices of ``order``.

    A vertex adds its value plus its bytes.

    Args:
        order: ``[n]`` ids of vertices.
        values: ``[num_vertices]`` int32 or float32; None for bytes alone, which needs ``offsets``.
        every: number of vertices from one sum to the next.
        falling: whether values never rise along the order, which is not checked: between a first
            and a last vertex of equal value, values are not read.

    Returns:
        ``[⌈n / every⌉ + 1]`` int64, or float64 for float32 values; the first sum is 0, the last
        the sum of all.
    """

def split_by_member(
    order: Array, member: Int16s, *, num_members: int, num_threads: int
) -> list[Array]:
    """Return the vertices of each of ``num_members`` (up to 1024) members of a clique, in order.

    ``member`` ``[n]`` int16 is the member of each vertex of ``order``; -1: no member.
    """

def scatter_to_neighbors(
    indptr: Int64s, indices: Array, values: Array, out: Array, *, num_threads: int
) -> None:
    """Add every vertex's value to each of its in-neighbors: ``out[u] += values[v]``.

    Each sum is taken in the order of the edges, so that the result has the same bits for any number
    of threads. A neighbor that a list has twice gets the value twice. The call needs 32 MiB of
    memory, for large graphs 2 bytes per vertex.

    Args:
        indptr: ``[num_vertices + 1]`` int64, at most 2^32 vertices.
        values: ``[num_vertices]`` float32 or float64. Lists of vertices of value 0 are not read.
        out: ``[num_vertices]`` of the type of ``values``, updated in place; not ``values`` itself.
    """

# Input of a streaming kernel on an FPGA. The kernel reads the rows of a block's sources one after
# the other, and adds each to the destinations of its edges in a buffer on the chip. The buffer
# holds a tile of the destinations, so there is a list of edges for each tile, in 512-bit words of
# eight edges. Backward, the kernel reads the transpose. Feature rows come in words of 16 columns:
# the first words of all rows, then the second words, and so on.

class EdgeTiles(NamedTuple):
    """The edges of all tiles of destinations, in the order in which a kernel reads them.

    In each tile the edges are sorted by source, and every source has at least one entry. A null
    edge, of destination 0x7fffffff and weight 0, is the entry of a source without an edge in the
    tile; null edges also fill the tile's last word.

    Attributes:
        edges: ``[num_words * 8]`` uint64. The low 32 bits are the destination within its tile (31
            bits) and, above it, whether the entry is the first entry of its source; the high 32
            bits are the float32 weight.
        tiles: ``[num_tiles, 3]`` int64: the first word of the tile's edges, the number of its
            words, and the number of its destination rows.
    """

    edges: NDArray[np.uint64]
    tiles: Int64s

class ArrangedBlock(NamedTuple):
    """Edges of a block in the order in which a kernel on an FPGA reads them.

    Attributes:
        sources: ``[num_sources]`` int32 local ids of the block's sources, in the order in which the
            kernel reads their rows; first the wanted destinations, unless there are several banks
            and own rows are not concatenated.
        forward: from ``sources`` to the wanted destinations.
        backward: the transpose, from rows of the wanted destinations to ``sources``; None if
            ``backward_tile_rows`` is None.
    """

    sources: Int32s
    forward: EdgeTiles
    backward: EdgeTiles | None

def arrange_block(
    indptr: Int64s,
    indices: Int32s,
    num_src: int,
    *,
    destinations: Int32s,
    weights: Floats | None = None,
    dst_scale: Floats | None = None,
    self_scale: Floats | None = None,
    self_term: Literal["add", "concat"] | None,
    tile_rows: int,
    backward_tile_rows: int | None,
    num_banks: int = 1,
) -> ArrangedBlock:
    """Return the edges of a block in the order in which a kernel on an FPGA reads them.

    Only edges to ``destinations`` count; ``v`` is a position in ``destinations``. An edge weighs
    ``weights[e] * dst_scale[dst]``; a missing factor is 1. An own edge, from a wanted destination
    to itself, weighs ``self_scale[dst]`` if own rows are added, and 1 if they are concatenated. A
    concatenation has two slots of rows, own rows in slot 0 and the neighbors' sums in slot 1;
    otherwise there is slot 0 alone.

    *Sources.* First ``destinations``; then, for ``j = 0, 1, ...`` and ``x = 0, 1, ...``, neighbor
    ``j`` of ``v = (x - j) mod V``, if that neighbor exists and is not yet a source.

    *Forward.* Tile ``t`` has the destinations from ``t * tile_rows`` on. The destination of an edge
    is ``slot * stride + v - t * tile_rows``; ``stride`` is the number of the tile's destinations,
    rounded up to a multiple of 16. The edges of one source are sorted by ``v``; with equal ``v``
    the own edge comes first, and then the list's edges in order.

    *Backward.* Rows ``(slot, v)``, slot 0 first, take the place of sources. A tile has
    ``backward_tile_rows`` positions ``p`` in ``sources``, and the destination of an edge is
    ``p - t * backward_tile_rows``. The edges of one row are sorted by ``p``.

    *Banks.* With several banks, row ``i`` of the buffer is in bank ``i mod num_banks``, and entry
    ``i`` of a list is dealt to lane ``i mod num_banks``. Sources with several edges are then spread
    among sources with one edge, in the order above; destinations too, unless own rows are
    concatenated. The next source with one edge is, if possible, a source whose edge leads to the
    bank of its lane. The edges of each source, forward, and of each row, backward, are ordered in
    the same way. If no edge leads to the lane's bank, the lane gets a null edge, provided that the
    kernel waits for the row anyway, since fewer than ``num_banks`` entries have been dealt for each
    source before; that the list has more than ``num_banks / 2`` entries for each source; and that
    these null edges are at most a quarter of the entries.

    The cost is linear in the edges and the written entries, of which there are less than 2^31. One
    thread is used.

    Args:
        num_src: number of the block's sources, of which its destinations are the first.
        destinations: ``[V]`` int32 local ids of the wanted destinations, distinct, in the kernel's
            order.
        weights: ``[num_edges]`` float32, of any stride; None for ones.
        dst_scale: ``[num_dst]`` float32; None for ones.
        self_scale: ``[num_dst]`` float32, which counts if ``self_term`` is ``"add"``; None for
            ones.
        self_term: whether a destination's own row is added or concatenated, as in ``Aggregation``;
            None: the own row is left out.
        tile_rows: destinations of a tile, from 1 to 2^30.
        backward_tile_rows: sources of a tile of the transpose, from 1 to 2^30; None for no
            transpose.
        num_banks: lanes of the kernel, and banks of its buffer, from 1 to 256.
    """

def gather_columns(
    x: Rows | Array,
    ids: Array,
    *,
    num_columns_words: int | None = None,
    out: Floats | None = None,
    num_threads: int,
) -> Floats:
    """Return rows ``ids`` of ``x`` as float32 in words of 16 columns, first words first.

    ``out[c, i, l] = x[ids[i], 16 c + l]``, and 0 beyond the last column.

    Args:
        x: ``[num_rows, f]``; rows may have gaps between them. Only a NumPy array of bfloat16 needs
            the name of its type.
        ids: ``[k]`` ids inside ``[0, num_rows)``.
        num_columns_words: words of a row, at least ``⌈f / 16⌉``; None: ``⌈f / 16⌉``.
        out: ``[words of a row, k, 16]`` float32, contiguous, to write to in place of a new array;
            its shape then determines the number of words.

    Returns:
        ``[words of a row, k, 16]`` float32: ``out`` if given.
    """

# Tables from ids to their positions in the list of the ids. A table never changes, and several
# threads may use it.

class IntegerIds:
    """Table from integer ids to their positions in a list.

    A hash table of 16 bytes a slot, of which at most half are taken; if the ids lie in a range of
    at most eight times their number, a table of 4 bytes for each number of the range.
    """

    def __init__(self, ids: Int64s) -> None:
        """Make the table of the list ``ids``, ``[num_ids]`` int64."""

    @property
    def repeated(self) -> tuple[int, int] | None:
        """Position of an id, and of its repetition, the first in the list; None: no repetition.

        After a repeated id the table has no further ids.
        """

    @property
    def num_bytes(self) -> int:
        """Bytes of memory of the table."""

    def find(self, wanted: Int64s, *, num_threads: int) -> tuple[Array, int]:
        """Return the position in the list of each id in ``wanted``, and the first unknown id.

        Returns:
            ``[num_wanted]`` positions, int32 if sufficient, else int64, -1 for an id that the list
            lacks; and the index in ``wanted`` of the first such id, -1 if there is none.
        """

class TextIds:
    """Table from text ids, compared byte by byte, to their positions in a list.

    Text ``i`` has the bytes from ``offsets[i]`` to ``offsets[i + 1]``, as in Arrow's large_string.
    The table has a copy of the texts.
    """

    def __init__(self, offsets: Int64s, data: Bytes) -> None:
        """Make the table of ``[num_ids + 1]`` offsets, from 0 to the length of ``data``."""

    @property
    def repeated(self) -> tuple[int, int] | None:
        """Position of an id, and of its repetition, the first in the list; None: no repetition."""

    @property
    def num_bytes(self) -> int:
        """Bytes of memory of the table."""

    def find(self, offsets: Int64s, data: Bytes, *, num_threads: int) -> tuple[Array, int]:
        """Return positions of texts, and the first unknown index, as ``IntegerIds.find``."""

# Files that are larger than memory.

class RowReader:
    """Reader of rows of a file in the background, past the page cache if the file system can.

    The rows of a submission are sorted by their position in the file, a repeated row is read once,
    and adjacent rows become one request. Submissions are read in order: while the last rows of a
    submission are in flight, the next submission's rows follow. A row that has arrived is copied to
    its slot, so that only ``depth`` requests take memory beside the pools. With io_uring a row of
    whole blocks is read directly into its slot, if the slot is aligned to a block.

    The engine ``io_uring`` has one thread, which leaves ``depth`` reads to the kernel; ``threads``
    has up to 32 threads, with a read each. Containers and hardened kernels may forbid io_uring.

    Several threads may call the methods. A child of fork must open the file again.
    """

    def __init__(
        self,
        path: str,
        *,
        offset: int,
        num_rows: int,
        row_bytes: int,
        depth: int = 64,
        max_gap_bytes: int,
        max_request_bytes: int = 262144,
        engine: Literal["auto", "io_uring", "threads"] = "auto",
        direct: bool = True,
    ) -> None:
        """Open the file, and start the engine that reads its rows.

        Args:
            path: a regular file.
            offset: bytes before the first row; the rows follow, one after the other.
            num_rows: number of rows in the file, at most 2^33.
            row_bytes: bytes of a row, at most 2^20.
            depth: maximum number of reads in flight, 1 to 1024.
            max_gap_bytes: maximum unwanted bytes between two rows of one request, at most 2^24.
                The bytes that a disk reads in the time of a request, less those of the request, are
                the best choice (``DiskRates`` of ``gnnscale.features.disk``). Gaps count between
                the blocks that are read; rows in the same or in adjacent blocks are always one
                request.
            max_request_bytes: maximum bytes of a request, at most 2^24; a longer row is a request
                by itself. Requests in flight may take 256 MiB together.
            engine: ``auto`` is io_uring for direct reads if this process may use it, else threads,
                which were faster with the page cache.
            direct: whether reads go past the page cache if the file system can. False: reads use
                the page cache, which then drops the data.

        Raises:
            OSError: the file cannot be opened, or ``engine="io_uring"`` cannot be used.
            ValueError: the file is shorter than its rows.
        """

    @property
    def engine(self) -> Literal["io_uring", "threads"]:
        """Engine that reads the file."""

    @property
    def direct(self) -> bool:
        """Whether reads go past the page cache."""

    def submit(self, rows: Array, pool: Rows, slots: Int32s) -> int:
        """Begin to read row ``rows[i]`` of the file into row ``slots[i]`` of ``pool``; do not wait.

        ``rows`` and ``slots`` are copied, and ``pool`` is referred to until its rows are written;
        no other code may use these rows meanwhile.

        Args:
            rows: ``[n]`` ids inside ``[0, num_rows)``, in any order; they may repeat.
            pool: ``[num_slots, f]``, each row of ``row_bytes`` bytes.
            slots: ``[n]`` int32 inside ``[0, num_slots)``. A slot with two rows gets either row, or
                parts of both.

        Returns:
            A ticket, the number of the submission for ``wait``.
        """

    def wait(self, ticket: int) -> None:
        """Wait until all rows of a submission are in their slots, and forget the ticket.

        Raises:
            OSError: a read failed, the file has become too short, or the reader was closed before.
                Other submissions are not affected.
            ValueError: there is no such ticket, or ``wait`` has already returned for it.
        """

    def is_done(self, ticket: int) -> bool:
        """Return whether ``wait`` would return, or raise, at once."""

    def take_counters(self) -> dict[str, float]:
        """Return counters of the reads since the last call.

        Returns:
            ``requests``; ``bytes_read``, with gaps and alignment; ``bytes_wanted``, of the distinct
            rows of each submission; ``bytes_copied`` to slots; ``busy_s``, seconds with at least
            one read in flight.
        """

    def close(self) -> None:
        """Wait for the reads in flight, and drop the reads that have not begun."""

# Sums over the processes of one machine, for gnnscale.distributed.shm_allreduce.

class SharedSum:
    """Part of one process in all-reduce sums over processes, in memory that all processes map.

    Each element is summed by one process, in the order of ranks: all get the same bits.
    """

    def __init__(self, memory: Bytes, *, rank: int, size: int) -> None:
        """Take part as rank ``rank`` of ``size`` processes.

        Args:
            memory: ``[num_bytes(size)]`` uint8, the same memory in every process, aligned to 64
                bytes; zeros before the first process takes part.
        """

    @staticmethod
    def num_bytes(size: int) -> int:
        """Return the bytes of memory that ``size`` processes, at most 1024, share."""

    def add(self, values: Array, poll: Callable[[], object]) -> None:
        """Replace ``values`` by their sums over all processes, which pass equal lengths and types.

        Args:
            values: ``[n]`` float32, float64, or int64, whose sums wrap around.
            poll: called ten times a second while waiting for other processes, after Python has
                handled signals. An exception of ``poll`` ends this sum, and all later sums, in all
                processes.

        Raises:
            RuntimeError: a process has left or passes another length or type, or another thread of
                this process is in the midst of a sum.
        """

    def leave(self) -> None:
        """Let sums fail from now on in all processes that wait for this process."""
