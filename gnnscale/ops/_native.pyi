"""The native extension: operations on NumPy arrays and torch CPU tensors.

``gnnscale.ops`` alone imports it, and the package uses it by that name. The extension is not linked
against torch: it sees plain buffers, and releases the GIL while it works.

Nothing that is passed here can corrupt memory: the extension checks type, shape, strides and length
of every array, and every offset and id that leads somewhere. What it refuses is a ``TypeError`` or
a ``ValueError`` of one line that begins with the name of the argument; what needs more memory than
there is is a ``MemoryError`` of that form. Arrays are used in place, nothing is converted; nobody
else may write to them meanwhile. If a call ends with an error, some of what it writes to may have
been written, unless the function says otherwise.

What a function does not say of its arguments holds everywhere:

- *ids* are int32 or int64, whatever they are of; an array of ids with gaps is copied;
- a graph has ``indptr`` ``[num_vertices + 1]`` int64 and ``indices`` ``[num_edges]`` ids; a block
  has ``indptr`` ``[num_dst + 1]`` int64 and ``indices`` ``[num_edges]`` int32 local ids of sources;
- ``x`` is ``[num_rows, f]``, and ``out`` is what a function returns that is given one;
- ``num_threads`` threads are used at most, and the result does not depend on it;
- ``seed`` and ``step`` are those of the run, from 0 to 2^64 - 1.
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
#: or uint8). NumPy has no bfloat16: its array is of 16-bit whole numbers. Functions whose text
#: names them take rows of int8 and int4 too: an array of uint8 whose rows are the bytes that
#: ``artifact/feature_types.py`` describes; ``out`` decides how many features a row has.
Rows: TypeAlias = torch.Tensor | tuple[Array, str]

# The process.

def simd_level() -> str:
    """Return the instruction set in use: ``baseline``, ``v3`` (AVX2) or ``v4`` (AVX-512).

    It is the highest one that this processor has, and at most ``GNNSCALE_SIMD_LEVEL``.
    """

def supported_simd_level() -> str:
    """Return the highest instruction set that this processor has."""

def keep_freed_memory() -> int:
    """Make this process's malloc keep freed memory for reuse (glibc; elsewhere a no-op).

    For processes that train: torch's activations then land on pages already present. Not done on
    import, since it is a setting of the whole process.

    Returns:
        Bytes up to which a freed block is kept: 1 GiB, with glibc before 2.35 the 32 MiB that it
        allows at most (mallopt(3)), 0 if the C library has no such setting.
    """

def end_on_bus_error(*, descriptor: int, after: bytes, status: int) -> None:
    """End this process, from now on, if the system has no page of a mapped file that it reads.

    Such a file became shorter, or its disk fails. Not done on import, since it is a setting of the
    whole process, and of those that it forks.

    Args:
        descriptor: an open file, into which the name of the mapped file is written.
        after: up to 256 bytes that follow the name there.
        status: exit status, 0 to 255.
    """

def flush_cache_lines(data: Bytes) -> bool:
    """Remove an array from the processor's caches, so that it is read from memory next.

    Returns:
        Whether the processor has an instruction for that (x86-64 and 64-bit ARM have).
    """

# Sampling.

class TopologyError(ValueError):
    """A topology holds an offset or an id that is out of range; see ``ops.naming_graph``."""

def damaged(graph: object, found: str) -> GraphError:
    """Return the error of a graph, by its path or its name, in which ``found`` was found."""

class SampledHop(NamedTuple):
    """A block of a native sample.

    Attributes:
        indptr: ``[num_dst + 1]`` int64 offsets.
        indices: ``[num_edges]`` int32 local ids of sources.
        num_src: number of sources.
        importance: ``[num_edges]`` float32, of layer-wise sampling; else None.
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

#: ``input_vertices``; from the seeds outwards, a block per hop; and the vertices that are the
#: sources of the last hop's edges.
Sampled: TypeAlias = tuple[Array, list[SampledHop], Array | None]

class DiskLists:
    """Reads neighbours of a file, of which memory holds some lists; ``Graph.lists`` is one.

    Samplers draw places of neighbours by numbers of vertices and degrees alone. Those of a hop that
    are in lists which memory lacks are sorted by place and read at once, each with the block around
    it, as ``RowReader`` reads rows of four or eight bytes.

    It may be used by several threads: what they want while others' neighbours are read is read at
    once afterwards. A child of fork must open the file again.
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
        """Open the file, and read the lists of ``held``.

        Args:
            path: a regular file, which has the neighbours.
            indptr: ``[num_vertices + 1]`` offsets, which are read in place.
            indices: ``[num_edges]`` the neighbours as they are mapped, whose number and type count;
                they are not read. At most 2^33.
            held: ``[k]`` ascending vertices whose lists memory holds.
            offset: bytes of the file before the first neighbour.
            depth, max_gap_bytes, engine, direct: as in ``RowReader``.

        Raises:
            ValueError: ``held`` do not ascend or are no vertices, or the file is too short.
            TopologyError: offsets of a list that is held are damaged.
            OSError: the file cannot be opened or read.
        """

    @property
    def num_bytes(self) -> int:
        """Memory of the lists that are held, and of what finds them."""

    @property
    def engine(self) -> Literal["io_uring", "threads"]:
        """What reads."""

    @property
    def direct(self) -> bool:
        """Whether reads go past the page cache."""

    def take_counters(self) -> dict[str, float]:
        """Return what was read since the last call.

        Returns:
            ``hits`` and ``misses``, neighbours that were in memory and that were read; ``waited_s``
            that all threads together waited for them; ``requests``, ``bytes_read`` and ``busy_s``
            as ``RowReader.take_counters`` has them.
        """

class NativeSampler:
    """Samples the in-neighbours of seeds; safe to call from several threads at once.

    Each concurrent call holds scratch space of the size of its batch, kept for the next call, and
    a table of four bytes a vertex if that stays in the last-level cache. ``reach_neighbors`` also
    takes a bit a vertex.

    Every method raises ``ValueError`` if a seed is not a vertex or appears twice, or if a hop has
    2^31 edges or more; and ``GraphError`` if the topology holds an offset or an id that is out of
    range. ``seeds`` are ``[n]`` ids of distinct vertices.
    """

    def __init__(self, graph: Graph) -> None:
        """Prepare to sample from ``graph``, whose arrays stay where they are.

        Of a graph with ``lists``, only neighbours that are drawn uniformly can be sampled. A file
        that cannot be read is then an ``OSError``.

        Offsets and ids are checked as they are read, batch by batch: a store may be damaged, or
        become so while it is mapped.
        """

    def prepare_weights(self, *, num_threads: int) -> None:
        """Read the weights of edges, to draw neighbours by weight.

        Keeps an alias table of every list: eight bytes for every 16 edges, and for every vertex.
        The first sample ``by_weight`` does so if nobody has.

        Raises:
            ValueError: the edges have no weights.
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
        """Sample neighbours, hop 1 from the seeds.

        Args:
            fanouts: neighbours a vertex for each hop, -1 for all; at most 64 hops.
            only_new: a hop expands only the vertices that the hop before it was the first to
                reach, as in PyG, and its block's destinations are these alone. Otherwise it expands
                every vertex reached so far.
            by_weight: draw neighbours one after the other with probability proportional to the
                weights of their edges, in place of all alike. Edges of weight 0 are never drawn,
                not even with a fan-out of -1. The graph needs weights.
            edge_weights: report the weight of each edge. The graph needs weights.
            edge_rows: report the row of features of each edge. The graph needs such features.
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
        """Sample as ``sample_neighbors`` does, for those who need no edges.

        Returns:
            Its ``input_vertices``, and the ``indptr`` of each hop, from the seeds outwards.
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
        """Sample each vertex's neighbours of the smallest random numbers (LABOR-0).

        A neighbour has the same number in all lists, and each of its copies that follow it in a
        list one more.

        Args:
            fanouts: neighbours a vertex for each hop, -1 for all; at most 64 hops.
            layer_dependency: all hops draw by the same numbers.
            edge_weights: report the weight of each edge. The graph needs weights.
            edge_rows: report the row of features of each edge. The graph needs such features.
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
        """Sample as ``sample_labor`` does, for those who need no edges.

        Returns:
            As ``reach_neighbors``.
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
        """Sample neighbours with every hop relabelled by all threads at once, and drop them.

        Returns:
            Seconds of each phase that threads share: ``lists``, ``offsets``, ``pick``, ``count``
            and ``number``; and of all that one thread does ``alone``.
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
        """Sample ``layer_sizes[h]`` vertices of hop ``h`` for the whole batch.

        Returns:
            As ``sample_neighbors``, with each edge's importance (float32), and None in place of the
            last hop's sources.
        """

# Compressed sparse columns.

def expand_edges(indptr: Array, indices: Array, *, first_dst: int, out: Int64s) -> None:
    """Write the two ends of every edge of a block, in the order of its edges.

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
    """Turn a block around: the destinations of every source.

    Returns:
        ``indptr [num_src + 1]`` int64, ``indices [num_edges]`` int32 destinations, ascending, and
        ``[num_edges]`` float32 ``weights[e] * dst_scale[dst]``; what is None counts as 1.
    """

def count_in_degrees(dst: Array, counts: Int64s, first: int = 0) -> None:
    """Add the number of occurrences of every id in ``dst`` to ``counts``, of ids from ``first``."""

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
    """Copy edges bucket by bucket, in order of arrival within each.

    Args:
        src: ``[num_edges]`` ids.
        bucket_of: int32 bucket of the edges to vertex ``v``, at ``(v - first) >> shift``.
        out: ``[2, num_edges]`` for sources and destinations in their new order, of the type of
            ``src``; each row contiguous.

    Returns:
        ``[num_buckets + 1]`` where each bucket starts.

    Raises:
        ValueError: a destination has no bucket; ``out`` is as it was.
    """

def csc_fill(src: Array, dst: Array, first: int, last: int, cursor: Int64s, out: Array) -> None:
    """Append ``src[e]`` to the neighbours of ``dst[e]`` for edges with ``first <= dst < last``.

    Args:
        src: ``[num_edges]`` ids.
        cursor: ``[last - first]`` place in ``out`` of each vertex's next neighbour; moved on.
        out: neighbour lists, of the type of ``src``.
    """

def csc_sort(indptr: Int64s, indices: Array, drop_duplicates: bool, num_threads: int) -> Int64s:
    """Sort every neighbour list in place; with ``drop_duplicates`` keep each neighbour once.

    Returns:
        The new ``indptr``; the first ``new_indptr[-1]`` entries of ``indices`` are valid.
    """

# Rows and activations.

def empty(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor that is not initialised, in memory that earlier batches have given back.

    torch gives large CPU tensors fresh pages each time, which costs more than filling them.
    """

def gather(x: Rows, ids: Array, *, out: torch.Tensor, num_threads: int) -> torch.Tensor:
    """Copy rows ``ids`` of ``x``, also of int8 and int4, to ``out``, converting to its type.

    Args:
        ids: ``[n]`` ids inside ``[0, num_rows)``.
        out: ``[n, f]`` float32 or bfloat16; may be a column slice of a wider matrix.
    """

def read_ahead(x: Rows, ids: Array, *, num_threads: int) -> None:
    """Ask the system to read rows ``ids`` of ``x``, a mapped file, and do not wait for them.

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
    """Sum neighbours' rows over the edges of a block, in one pass and in the order of the edges.

    ``out[i] = dst_scale[i] * sum_e weights[e] * x[ids[indices[e]]] + self_scale[i] * self_rows[i]``
    for ``e`` in ``indptr[i]:indptr[i + 1]``; what is not given counts as 1, the own row as 0. With
    ``ids``, ``x`` is the whole feature matrix: load and aggregation in one. ``x`` and ``self_rows``
    may be of int8 and int4.

    Args:
        out: ``[num_dst, f]`` float32 or bfloat16; sums are kept in float32.
        ids: ``[num_src]`` rows of ``x``; None if local ids are rows.
        ids_per_edge: ``ids`` is ``[num_edges]``: the row of ``x`` that each edge reads.
        weights: ``[num_edges]`` float32.
        dst_scale: ``[num_dst]`` float32.
        self_rows: rows to add for destinations below ``num_self``.
        self_ids: rows of ``self_rows``; None if destinations are rows.
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

    In the order of ``e``: calls one after the other sum as one call does that has all edges.

    Args:
        x: ``[num_rows, f]``; ``f`` is a multiple of 16.
        ids: ``[num_edges]`` rows of ``x``.
        indptr: ``[n + 1]`` int64.
        out_ids: ``[n]`` int32 rows of ``out``, rising.
        out: ``[num_out, f]`` float32.
        weights: ``[num_edges]`` float32; None for ones.
    """

def edge_dot(
    a: torch.Tensor, x: torch.Tensor, indptr: Array, indices: Array, *, out: Array, num_threads: int
) -> None:
    """Write ``<a[i], x[indices[e]]>`` for every edge ``e`` of destination ``i`` to ``out[e]``.

    Column ``j`` is added to partial sum ``j % 16``, and these in a tree of halves: every
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
    """Write the maxima of neighbours' rows to ``out``, zeros without neighbours.

    ``out[i] = max_e x[indices[e]]`` for ``e`` in ``indptr[i]:indptr[i + 1]``, column by column; a
    NaN stays.

    Args:
        x: ``[num_src, f]`` float32 or bfloat16.
        out: ``[num_dst, f]`` of the type of ``x``.
        counts: ``[num_dst, f]`` float32; how many edges have the maximum is written to it.
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
    """Write the gradient of the rows that ``aggregate_max`` read to ``out``.

    ``out[u] = sum_v shares[v] * (x[u] == largest[v])`` over the destinations ``v`` of ``u``, in
    their order.

    Args:
        x: ``[num_src, f]`` float32 or bfloat16, what maxima were taken of.
        largest: ``[num_dst, f]`` of the same type, the maxima.
        shares: ``[num_dst, f]`` float32, the gradient of the maxima over ``counts``.
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
    """Write scores of edges by both ends' rows to ``out`` (GATv2, Brody et al. 2022, eq. 7).

    ``out[e, k] = <attention[k], LeakyReLU(own[v, k] + z[u, k])>`` for the edge ``e`` from ``u`` to
    ``v``, where ``own[v, k]`` are columns ``k * width`` to ``(k + 1) * width - 1``. These are added
    in the order of ``edge_dot``.

    Args:
        own: ``[num_dst, num_heads * width]`` float32, contiguous.
        z: ``[num_src, num_heads * width]`` float32, contiguous.
        attention: ``[num_heads, width]`` float32, contiguous.
        out: ``[num_edges, num_heads]`` float32.
        slope: of LeakyReLU, from -1 to 1.
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
    """Return the gradients of ``own``, ``z`` and ``attention`` from that of ``pair_scores``.

    Sums have a fixed order, whatever the number of threads.

    Args:
        grad: ``[num_edges, num_heads]`` float32, contiguous.
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
    """Update rows ``ids`` of a table by one step of lazy Adam, and leave all others.

    ``m += (g - m) (1 - beta1)``, ``v += (g g - v) (1 - beta2)``, and then
    ``x -= rate m / (sqrt(v) + epsilon)``: as ``torch.optim.SparseAdam``. The gradient g of row
    ``ids[i]`` is summed over edges, as ``aggregate`` does it for destination ``i``, in float32.

    Args:
        x: ``[num_rows, f]`` float32, contiguous like both moments.
        means: ``[num_rows, f]`` float32, m of each element.
        squares: ``[num_rows, f]`` float32, v of each element.
        ids: ``[n]`` distinct rows.
        gradients: ``[any number, f]`` rows that are summed.
        indptr: ``[n + 1]`` int64 offsets of the edges of each row.
        indices: ``[num_edges]`` int32 rows of ``gradients``.
        rate: learning rate, with the corrections of both moments' bias.
        weights: ``[num_edges]`` float32.
        self_rows: rows that are added to the first ``num_self`` sums.
        self_scale: ``[num_self]`` float32.
        num_self: number of ``ids`` that have such a row.
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
    """Update rows ``ids`` of a table by one step of row-wise Adagrad, and leave all others.

    ``s += mean of g g over the row``, and then ``x -= rate / (sqrt(s) + epsilon) g``. All but the
    following is as in ``adam_rows``.

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
    """ReLU, then dropout with probability ``p`` rounded to 1/65536, in one pass and in place.

    What is dropped of a row depends on ``(seed, step, layer, vertex, column)`` alone: neither on
    the row's place nor on the other rows.

    Args:
        x: ``[n, f]`` contiguous float32 or bfloat16.
        vertices: ``[n]`` ids, the vertex of each row; they may repeat.
        p: probability from 0 to 1 that an element is dropped.
        layer: whose output ``x`` is, from 0 to 2^64 - 1.

    Returns:
        The factor that kept elements were multiplied with, 1 / (1 - p).
    """

def relu_dropout_backward(
    y: torch.Tensor, grad: torch.Tensor, *, scale: float, num_threads: int
) -> torch.Tensor:
    """Return ``grad * scale`` if ``y``, the output of ``relu_dropout``, is positive, else 0."""

def edge_softmax(
    indptr: Array, scores: torch.Tensor, *, bias: Array | None, num_threads: int
) -> torch.Tensor:
    """Softmax of ``scores`` ``[num_edges, num_heads]`` float32 over each destination's edges.

    ``bias`` ``[num_edges]`` float32 multiplies the exponentials: the importance of an edge that was
    kept with a known probability.
    """

def edge_softmax_backward(
    indptr: Array, alpha: torch.Tensor, grad: torch.Tensor, *, num_threads: int
) -> torch.Tensor:
    """Return the gradient of ``edge_softmax``'s scores from that of its result ``alpha``."""

# Synthetic graphs, and draws of link prediction.

def rmat_edges(
    num_vertices: int, num_edges: int, a: float, b: float, c: float, seed: int, num_threads: int
) -> tuple[Int32s, Int32s]:
    """Draw distinct undirected R-MAT edges (Chakrabarti, Zhan and Faloutsos, SDM 2004).

    ``a``, ``b`` and ``c`` are the probabilities of three quadrants. There are at least 2 vertices,
    numbered at random, so that ids say nothing about degrees; and at most half of all possible
    edges.

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
    """Draw R-MAT edges one by one, from number ``first``, as ``rmat_edges`` does at first.

    Returns:
        ``(src, dst)``, ``[num_draws]`` int32 each, ``src < dst`` in the recursion's numbering,
        which ``rmat_numbering`` turns into the graph's; or both 0 if a loop was drawn.
    """

def rmat_numbering(num_vertices: int, seed: int) -> Int32s:
    """Return the number in the graph, ``[num_vertices]``, of each vertex of an R-MAT recursion."""

def planted_partition_edges(
    community: Int32s, weight: Floats, num_edges: int, within: float, seed: int
) -> tuple[Int32s, Int32s]:
    """Draw edges of a degree-corrected planted partition (Karrer and Newman, 2011).

    One end is drawn by ``weight``; the other by ``weight`` among the same community with
    probability ``within``, else among all. There are no loops; edges may repeat.

    Args:
        community: ``[num_vertices]`` int32, each of at least two vertices.
        weight: ``[num_vertices]`` float32, positive.
        within: probability that an edge is drawn inside a community.

    Returns:
        ``(src, dst)``, ``[num_edges]`` int32 each.
    """

def draw_negatives(
    edges: Array, count: int, num_vertices: int, *, seed: int, step: int, num_threads: int = 1
) -> Int64s:
    """Draw ``count`` vertices for each of ``[n]`` edge numbers, uniformly and independently.

    Every draw is a pure function of ``(seed, step, edge, index)``.

    Returns:
        ``[n, count]`` int64, below ``num_vertices``.
    """

def draw_of_pairs(
    first: Array, second: Array, *, seed: int, num_threads: int = 1
) -> NDArray[np.float64]:
    """Draw ``[n]`` float64 in (0, 1), each a function of a pair of vertices and the seed."""

# Partitions.

def count_cut(
    indptr: Int64s, indices: Array, owner: Int16s, num_parts: int, *, num_threads: int
) -> Int64s:
    """Count the edges inside of parts and between them.

    Args:
        owner: ``[num_vertices]`` int16, the part of each vertex; -1 for no part.
        num_parts: K, at most 1024.

    Returns:
        ``[K, K]`` int64: edges whose source is of part ``i`` and whose destination is of part
        ``j``. Those with an end of no part are left out.
    """

def hops_from(
    indptr: Int64s, indices: Array, vertices: Array, num_hops: int, hops: Bytes, *, num_threads: int
) -> int:
    """Mark the fewest hops at which vertices are reached, from in-neighbour to in-neighbour.

    Labels only fall. So vertices may be added later, with the same ``num_hops``, and that costs
    no more than what improves.

    Args:
        vertices: ``[n]`` of the type of ``indices``, 0 hops away.
        num_hops: L, the most hops to walk; at most 254.
        hops: ``[num_vertices]`` uint8, 255 for what was not reached yet; updated in place.

    Returns:
        Number of vertices that were 255 and are reached now.
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
    |PV_i|``, and its in-neighbourhood ``IN(v)`` joins the part. ``TV_i`` are the part's training
    vertices, ``PV_i`` all its vertices. Equal scores go to the part with the fewest training
    vertices, then the fewest vertices, then the lowest number. A part is full once more would
    leave it more than one vertex ahead of another at the end.

    ``|PV_i|`` is exact. So is the overlap ``|TV_i & IN(v)|`` if the paths from ``v`` have at most
    ``max_walked`` edges in all, or if there are at most ``max_sampled`` vertices. Else it is
    counted among S = ``max_sampled`` of them, drawn uniformly without replacement. For an overlap
    of a share ``p`` of all N training vertices this is unbiased, with a relative standard error of
    ``sqrt((1 - p) / (p S) * (1 - S / N))``.

    Args:
        vertices: ``[n]`` training vertices in the order of the stream, of the type of ``indices``.
        num_parts: K, at most 1024.
        num_hops: L, the length of the paths that make up a neighbourhood; 1 to 254.
        max_walked: edges that may be walked for an overlap; 0 to 2^31 - 1.
        max_sampled: S. The bits take S / 8 bytes for each vertex that is not walked, and 64 or,
            if L > 2, 128 bytes a vertex.

    Returns:
        ``[n]`` int16, the part of each of ``vertices``; and ``[K, num_vertices]`` uint8, the hops
        at which each part reaches a vertex, 255 if it does not; and the number of overlaps that
        were not exact.
    """

# Edge-cut partitions, of graphs with both directions of every edge. An offset, an id, a weight or a
# label that is out of range is a ValueError.

class UndirectedLists(NamedTuple):
    """Neighbour lists without loops and duplicates, in both directions of every edge.

    Attributes:
        indptr: ``[num_vertices + 1]`` int64.
        indices: ``[2 * undirected edges]``, of the type given, each list ascending.
        num_loops: entries dropped since they were loops.
        num_duplicates: further entries dropped since they stood there before.
        num_one_way: edges whose reverse was added.
    """

    indptr: Int64s
    indices: Array
    num_loops: int
    num_duplicates: int
    num_one_way: int

def make_undirected(indptr: Int64s, indices: Array, num_threads: int) -> UndirectedLists:
    """Return the undirected simple graph below a topology.

    Lists that are such already are returned as they are, found so in one pass with 8 bytes a
    vertex. Otherwise the result is a copy, and two for a moment if something is dropped as well as
    added.
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
        vertex_weights: ``[num_vertices]``; None leaves them out.
        edge_weights: the same of ``[len(indices)]``.
        num_threads: threads to use; each holds some MiB of text.

    Returns:
        The number of bytes.

    Raises:
        OSError: the file cannot be written.
    """

class Refined(NamedTuple):
    """What became of a cut, the weight of undirected edges between parts.

    Attributes:
        cut_before: as it was.
        cut_balanced: after vertices were moved for balance.
        cut: after moves that lower it; never above ``cut_balanced``.
        within: no part weighs more than it may.
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

    First, while a part weighs more than it may, the moves that cost least cut for what they bring.
    Then rounds of moves that fit and lower the cut, best first, and of hill climbing if its table
    of connections is small (2^24 entries).

    Args:
        vertex_weights: ``[num_vertices, num_weights]``, from 0 to 2^31, up to 8 weights.
        max_weights: ``[num_parts, num_weights]``, what parts may weigh.
        owner: ``[num_vertices]``, changed in place.
        edge_weights: ``[len(indices)]``, positive; None for 1 each.
        labels: ``[num_vertices]``, the cluster of each vertex: clusters move as wholes, each of one
            owner, and climb no hills; None for single vertices.
        num_rounds: maximum of rounds of the second phase.
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
    """Put vertices that are much connected into clusters by size-constrained label propagation.

    Meyerhenke, Sanders and Schulz, SEA 2014. Takes some 50 bytes a vertex.

    Args:
        vertex_weights: ``[num_vertices, num_weights]``.
        max_weights: ``[num_weights]``, what a cluster of several vertices may weigh.
        edge_weights: ``[len(indices)]``, positive; None for 1 each.
        owner: ``[num_vertices]``, parts that clusters are to stay within, or None.
        num_rounds: how often every vertex may go to another cluster.

    Returns:
        ``(labels, num_clusters)``: ``[num_vertices]``, clusters numbered from 0.
    """

class Contracted(NamedTuple):
    """A graph of clusters.

    Attributes:
        indptr: ``[num_clusters + 1]`` int64.
        indices: int32, both directions of every edge.
        edge_weights: int32, of each.
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
    """Make each cluster one vertex, with the weights of its vertices and edges added up.

    Arguments are those of ``refine``. With a ``threshold`` above 1, lighter edges stay with the
    probability of their weight over it and then weigh as much: cuts keep their weight on average,
    and there are at most about as many edges as all weigh over the threshold. Which ones stay is a
    function of the clusters' numbers.
    """

# Caches. The caches of several devices that read each other's memory are one list. Their rows are
# numbered one cache after the other; the *slot* of a vertex is the number of its row, or -1 if no
# cache has it. Slots and vertices are checked as they are read, and may lie in shared memory.

class RankedSlots:
    """The slot of every vertex whose row lies in a cache, for caches that stay as they are.

    A bitmap of the cached vertices, with the number of them before each 64 of its bits, gives a
    vertex's rank among them (Jacobson, "Space-efficient static trees and graphs", FOCS 1989). That
    is its slot if all rows lie in ascending order of their vertices; otherwise a table of the
    cached vertices alone has the slots. So it takes 1/4 byte a vertex, and 4 a cached one if there
    is a table. What is read most stays in the processor's caches.

    It never changes, and may be used by several threads.
    """

    def __init__(self, num_vertices: int, members: Sequence[Array]) -> None:
        """Number the rows of all members, one member after the other.

        Args:
            num_vertices: of the graph.
            members: a list of at most 1024 ``[n_k]`` ids of the vertices whose rows cache ``k``
                keeps, in the order of these; at most 2^31 - 1 in all. A vertex that several rows
                are of has the slot of the last.
        """

    @property
    def starts(self) -> Int64s:
        """``[K + 1]`` int64, the slot of each member's first row, and the number of all rows."""

    @property
    def num_bytes(self) -> int:
        """Memory that it takes."""

def gather_cached(
    host: Rows,
    caches: Sequence[Rows],
    slots: Int32s | RankedSlots,
    vertices: Array,
    *,
    out: Rows,
    num_threads: int,
) -> Int64s:
    """Copy the rows of ``vertices`` to ``out``, from the cache that has each or else from the host.

    The result is that of ``gather`` from ``host``, bit for bit, if the caches hold copies of it.

    Args:
        host: ``[num_vertices, f]``, also of int8 and int4.
        caches: a list of at most 1024 ``[rows of the cache, f]`` of the type of ``host``, with at
            most 2^31 - 1 rows in all.
        slots: ``[num_vertices]`` int32 from -1 to the number of all caches' rows less one; or
            those of caches that stay, with as many members and rows of each.
        vertices: ``[n]`` ids inside ``[0, num_vertices)``.
        out: ``[n, f]`` float32 or bfloat16; may be a column slice of a wider matrix.

    Returns:
        ``[len(caches) + 1]`` int64: the rows read from each cache and, last, from the host.
    """

def count_slots(
    slots: Int32s | RankedSlots,
    vertices: Array,
    starts: Int64s,
    *,
    weights: Int64s | None = None,
    num_threads: int,
) -> Int64s:
    """Count the vertices that each cache holds, as ``gather_cached`` would read them.

    Args:
        slots: as for ``gather_cached``, with these ``starts``.
        starts: ``[K + 1]`` int64, rising from 0: cache ``k`` of K, at most 1024, has the slots from
            ``starts[k]`` to ``starts[k + 1] - 1``.
        weights: ``[n + 1]`` int64 offsets, such as the ``indptr`` of a block: vertex ``i`` counts
            ``weights[i + 1] - weights[i]`` times. None counts each once.

    Returns:
        ``[K + 1]`` int64: the count of each cache and, last, of vertices that no cache holds.
    """

def count_uses(vertices: Array, counts: Int32s, *, num_threads: int) -> None:
    """Add 1 to ``counts[v]`` for every ``v`` in ``vertices``.

    Nobody else may add to the same counts meanwhile. A count stays at 2^31 - 1, once there.

    Args:
        vertices: ``[n]`` ids inside ``[0, num_vertices)``; they may repeat.
        counts: ``[num_vertices]`` int32, updated in place.
    """

def count_reads(indptr: Int64s, vertices: Array, counts: Int32s, *, num_threads: int) -> None:
    """Add ``indptr[i + 1] - indptr[i]`` to ``counts[vertices[i]]``, as ``count_uses`` adds 1.

    ``indptr`` ``[n + 1]``, rising from 0, holds the offsets of a block's destinations. If offsets
    fall, nothing was counted.
    """

def copy_rows(
    source: Rows, vertices: Array, target: Rows, slots_of_target: Array, *, num_threads: int
) -> None:
    """Copy row ``vertices[i]`` of ``source`` to row ``slots_of_target[i]`` of ``target``.

    Args:
        source: ``[num_vertices, f]``, also of int8 and int4.
        vertices: ``[n]`` ids inside ``[0, num_vertices)``; they may repeat.
        target: ``[num_slots, f]`` of the same type, in other memory.
        slots_of_target: ``[n]`` ids, distinct, inside ``[0, num_slots)``.
    """

#: What serving a batch found and changed; see ``NativeReplacement.advance``.
Replacing: TypeAlias = tuple[int, int, int, Int32s, Int32s]

class NativeReplacement:
    """Decides which rows a cache keeps, from the batches to come (Belady's MIN with bypass).

    Batches are expected in order, and served in that order. After a batch was served, its rows are
    on the device anyway. Of these and of the cache's, ``capacity`` are kept: those that an expected
    batch reads soonest. Rows that are read equally soon, or by no expected batch, go by descending
    priority, then by ascending vertex.

    With ``match`` (FastGL, Match) the rows of a batch stay on the device until the next one was
    served. So a row that the next batch reads as well needs no slot for that; it gets one only if
    it is free.

    Slots 0 to ``capacity - 1`` are the cache's. With ``match``, ``capacity + i`` is row ``i`` of
    the batch before, for what is not in the cache.

    It may be called from several threads, one after the other. It takes 8 bytes a vertex, 12 a
    slot, and 8 to 9 a row of the batches expected.
    """

    def __init__(self, priority: Int32s, *, capacity: int, match: bool) -> None:
        """Begin with an empty cache.

        Args:
            priority: ``[num_vertices]`` int32, used in place.
            capacity: slots; at most ``num_vertices``.
            match: whether the rows of the batch before can be read again.
        """

    @property
    def slots(self) -> Int32s:
        """``[num_vertices]`` int32, the slot of each vertex, or -1; a read-only view."""

    def expect(self, vertices: Array, *, num_threads: int) -> None:
        """Append the next batch, ``[n]`` ids of distinct vertices, which are copied.

        Raises:
            ValueError: a vertex is out of range or comes twice; the batch is not expected then.
        """

    def look_up(self, *, num_threads: int) -> Int32s:
        """Return ``[n]`` int32, the slots of the oldest expected batch's vertices, or -1."""

    def advance(self, *, num_threads: int) -> Replacing:
        """Serve the oldest expected batch, and replace.

        Returns:
            The numbers of its rows that were in the cache, in the batch before, and in neither;
            then ``positions, slots`` ``[m]`` int32: row ``positions[k]`` of the batch is to be
            copied to slot ``slots[k]``.
        """

# Planning caches. Vertex ``v`` takes ``bytes_per_vertex + bytes_per_entry * (offsets[v + 1] -
# offsets[v])`` bytes: a feature row the first alone, an adjacency list 8 and 4 (Legion, equation
# 3). Both numbers are from 0 to 2^31 - 1, and ``offsets`` are ``[num_vertices + 1]`` from 0.

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

    Takes up to 8 bytes a vertex with the result, 16 if ids are int64. All vertices together take
    less than 2^63 bytes.

    Args:
        hotness: ``[num_vertices]`` float32, int32 or int64, not negative.
        tie_break: ``[num_vertices]`` int32 or int64, not negative; or None.
        capacity: bytes; may be more than all vertices take.
        max_bytes: a vertex that takes more is left out; None for no limit.
        only_hot: whether vertices of hotness 0 are left out.

    Returns:
        ``[n]`` int32, int64 for 2^31 vertices or more, by falling hotness, then falling
        ``tie_break``, then rising id: every vertex before which there are less than ``capacity``
        bytes.
    """

class Shared(NamedTuple):
    """Who takes what, and what that comes to.

    Attributes:
        member: ``[n]`` int16, the member of each vertex of the order; -1 if no member has room. A
            smaller vertex after it may still find some.
        bytes: ``[K]`` int64, what each member's vertices take.
        reads: ``[K, K]`` int64, at ``[j, k]`` the hotness to member ``j`` of what member ``k``
            takes; None unless hotness is int32.
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

    In the order given, a vertex goes to the member to which it is hottest of those with room for
    it. Of members to which it is as hot, it is the one with most bytes left, then the lowest.
    Algorithm 1 knows no room; with enough of it, the result is Algorithm 1's.

    Args:
        order: ``[n]`` ids of distinct vertices; one that comes twice takes room twice.
        local: of each of K members, ``[num_vertices]`` int32 or float32 hotness, not negative; at
            most 1024 members.
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
    """Return the sums of the first 0, ``every``, 2 · ``every``, ... vertices of an order, and all.

    A vertex counts as its value and the bytes that it takes.

    Args:
        order: ``[n]`` ids of vertices.
        values: ``[num_vertices]`` int32 or float32; None for bytes alone, which needs ``offsets``.
        every: vertices from one sum to the next.
        falling: whether values never rise along the order, which the caller has to know. If the
            first of some vertices and the last one have the same, those between are not read.

    Returns:
        ``[⌈n / every⌉ + 1]`` int64, float64 of float32, the first 0 and the last the sum of all.
    """

def split_by_member(
    order: Array, member: Int16s, *, num_members: int, num_threads: int
) -> list[Array]:
    """Return the vertices of each of ``num_members`` (up to 1024) members of a clique, in order.

    ``member`` ``[n]`` int16 is the member of each vertex of ``order``; -1 for no member.
    """

def scatter_to_neighbors(
    indptr: Int64s, indices: Array, values: Array, out: Array, *, num_threads: int
) -> None:
    """Add every vertex's value to each of its in-neighbours: ``out[u] += values[v]``.

    The sum of each vertex is taken in the order of the edges, so that the result is the same to the
    last bit for any number of threads. A neighbour that is listed twice is added to twice. Takes 32
    MiB of memory, for large graphs 2 bytes a vertex.

    Args:
        indptr: ``[num_vertices + 1]`` int64, at most 2^32 vertices.
        values: ``[num_vertices]`` float32 or float64. The lists of vertices with 0 are not read.
        out: the same, updated in place; not ``values`` itself.
    """

# What a streaming kernel on an FPGA reads: one row of a block's sources after the other, each added
# to the rows of a buffer on the chip that its edges lead to. The buffer holds a tile of the
# destinations, so there is a list of edges for each tile, in 512-bit words of eight edges. Backward
# it does the same with the transpose. Feature rows come in words of 16 columns, all rows' first
# word before the second one.

class EdgeTiles(NamedTuple):
    """The edges of all tiles of destinations, in the order in which a kernel reads them.

    In each tile the edges are sorted by source, and every source has at least one entry. What is no
    edge is a null edge, of destination 0x7fffffff and weight 0: the entry of a source without an
    edge in the tile, and what fills the tile's last word.

    Attributes:
        edges: ``[num_words * 8]`` uint64. The low 32 bits are the destination within its tile (31
            bits) and, above it, whether the entry is the first one of its source; the high 32 bits
            are those of the float32 weight.
        tiles: ``[num_tiles, 3]`` int64: the first word of the tile's edges, the number of its
            words, and the number of its destination rows.
    """

    edges: NDArray[np.uint64]
    tiles: Int64s

class ArrangedBlock(NamedTuple):
    """A block as a kernel reads it.

    Attributes:
        sources: ``[num_sources]`` int32 local ids of the block's sources, in the order in which the
            kernel reads their rows; first the wanted destinations, unless there are several banks
            and own rows are not concatenated.
        forward: from ``sources`` to the wanted destinations.
        backward: the transpose, from rows of the wanted destinations to ``sources``; None if it was
            not asked for.
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
    """Put the edges of a block into the order in which a kernel reads them.

    Of the block only the edges to ``destinations`` count; ``v`` is a place in these. An edge weighs
    ``weights[e] * dst_scale[dst]``; what is not given counts as 1. An own edge, from a wanted
    destination to itself, weighs ``self_scale[dst]`` if it is added, and 1 if the own row is
    concatenated. Then there are two slots of rows, the own ones in slot 0 and the neighbours' sums
    in slot 1; otherwise there is slot 0 alone.

    *Sources.* First ``destinations``; then, for ``j = 0, 1, ...`` and ``x = 0, 1, ...``, neighbour
    ``j`` of ``v = (x - j) mod V``, if it has one that is not there yet.

    *Forward.* Tile ``t`` has the destinations from ``t * tile_rows`` on. The destination of an edge
    is ``slot * stride + v - t * tile_rows``; ``stride`` is the number of the tile's destinations,
    rounded up to a multiple of 16. The edges of one source are sorted by ``v``; with the same ``v``
    the own edge comes first, and then those of the list in its order.

    *Backward.* Rows ``(slot, v)``, those of slot 0 first, take the place of sources. The tiles are
    of ``backward_tile_rows`` places ``p`` in ``sources``, and the destination of an edge is
    ``p - t * backward_tile_rows``. The edges of one row are sorted by ``p``.

    *Banks.* With more than one, row ``i`` of the buffer is in bank ``i mod num_banks``, and entry
    ``i`` of a list is dealt to lane ``i mod num_banks``. Sources that several edges leave from are
    then spread over the others, in the order above, destinations too unless their own rows are
    concatenated. Of the sources with one edge, the next is one whose edge leads to the bank of its
    lane, if there is any. The edges of each source, forward, and of each row, backward, are ordered
    in the same way: the next is one that leads to the bank of its lane, if there is any. Otherwise
    the lane gets a null edge, provided that the kernel waits for the row anyway, since fewer than
    ``num_banks`` entries have been dealt for each source before; that the list has more than half
    as many; and that these null edges are at most a quarter of the entries.

    The cost is linear in the edges and the entries written, whose places take 31 bits at most. One
    thread is used.

    Args:
        num_src: number of the block's sources, of which its destinations are the first.
        destinations: ``[V]`` int32 local ids of the wanted destinations, distinct, in the kernel's
            order.
        weights: ``[num_edges]`` float32, of any stride; None for ones.
        dst_scale: ``[num_dst]`` float32; None for ones.
        self_scale: ``[num_dst]`` float32, which counts if ``self_term`` is ``"add"``; None for
            ones.
        self_term: what becomes of a destination's own row, as in ``Aggregation``; None leaves it
            out.
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
    """Gather rows ``ids`` of ``x`` in words of 16 columns.

    ``out[c, i, l] = x[ids[i], 16 c + l]``, and 0 beyond the last column.

    Args:
        x: ``[num_rows, f]``; rows may be apart. A NumPy array may come without the name of its
            type, but for bfloat16.
        ids: ``[k]`` ids inside ``[0, num_rows)``.
        num_columns_words: words of a row, at least ``⌈f / 16⌉``, which None stands for.
        out: ``[words of a row, k, 16]`` float32, contiguous, to write to in place of a new array;
            it says the number of words, too.

    Returns:
        ``[words of a row, k, 16]`` float32; ``out`` if that is given.
    """

# Tables from ids to their places in the list that they come from. They never change, and may be
# used by several threads.

class IntegerIds:
    """The place of each id in a list of whole numbers.

    A hash table of 16 bytes a slot, of which at most half are taken; if the ids lie in a range of
    at most eight times their number, a table of 4 bytes for each number of the range.
    """

    def __init__(self, ids: Int64s) -> None:
        """Make the table of ``[num_ids]`` int64."""

    @property
    def repeated(self) -> tuple[int, int] | None:
        """Two places with the same id, the later one the smallest that there is; else None.

        If an id is repeated, nothing after it is found.
        """

    @property
    def num_bytes(self) -> int:
        """Memory that it takes."""

    def find(self, wanted: Int64s, *, num_threads: int) -> tuple[Array, int]:
        """Return the place of each of ``wanted``, int32 if that can hold all, else int64.

        Returns:
            ``[num_wanted]`` places, -1 for an id that is not in the list; and the number of the
            first such one in ``wanted``, -1 if there is no such id.
        """

class TextIds:
    """The same of ids that are texts, compared byte by byte.

    Text ``i`` has the bytes from ``offsets[i]`` to ``offsets[i + 1]``, as in Arrow's large_string.
    The table has a copy of them.
    """

    def __init__(self, offsets: Int64s, data: Bytes) -> None:
        """Make the table of ``[num_ids + 1]`` offsets, from 0 to the length of ``data``."""

    @property
    def repeated(self) -> tuple[int, int] | None:
        """As in ``IntegerIds``."""

    @property
    def num_bytes(self) -> int:
        """Memory that it takes."""

    def find(self, offsets: Int64s, data: Bytes, *, num_threads: int) -> tuple[Array, int]:
        """As in ``IntegerIds``; the texts are as there at the beginning."""

# Files that are larger than memory.

class RowReader:
    """Reads rows of a file in the background, past the page cache if the file system can.

    The rows of a submission are sorted by their place in the file, a row that it names several
    times is read once, and neighbours become one request. Submissions are read in order: while the
    last rows of one are in flight, those of the next follow. A row that has arrived is copied to
    its slot, so that ``depth`` requests take all the memory that is needed beside the pools. With
    io_uring a row of whole blocks goes right to its slot, if that begins with a block of memory.

    The engine ``io_uring`` has one thread, which leaves ``depth`` reads to the kernel; ``threads``
    has up to 32, with a read each. Containers and hardened kernels may forbid io_uring.

    It may be called from several threads. A child of fork must open the file again.
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
        """Open the file.

        Args:
            path: a regular file.
            offset: bytes before the first row; the rows follow, one after the other.
            num_rows: at most 2^33.
            row_bytes: at most 2^20.
            depth: reads in flight at most, 1 to 1024.
            max_gap_bytes: what is read in vain rather than by a separate request, at most 2^24.
                The bytes that a disk reads in the time of a request, less those of the request, are
                the best choice (``DiskRates`` of ``gnnscale.features.disk``). Counted
                between the blocks that are read; rows in the same or in adjacent blocks are always
                one request.
            max_request_bytes: at most 2^24; a longer row is a request by itself. Requests in flight
                may take 256 MiB together.
            engine: ``auto`` is io_uring for direct reads if this process may use it, else threads,
                which were faster with the page cache.
            direct: whether reads go past the page cache if the file system can; else the page cache
                drops what was read.

        Raises:
            OSError: the file cannot be opened, or ``engine="io_uring"`` cannot be used.
            ValueError: the file is shorter than its rows.
        """

    @property
    def engine(self) -> Literal["io_uring", "threads"]:
        """What is in use."""

    @property
    def direct(self) -> bool:
        """Whether reads go past the page cache."""

    def submit(self, rows: Array, pool: Rows, slots: Int32s) -> int:
        """Begin to read row ``rows[i]`` of the file into row ``slots[i]`` of ``pool``.

        Returns at once. ``rows`` and ``slots`` are copied, and ``pool`` is kept until its rows are
        written; nobody else may use those meanwhile.

        Args:
            rows: ``[n]`` ids inside ``[0, num_rows)``, in any order; they may repeat.
            pool: ``[num_slots, f]``, each row of ``row_bytes`` bytes.
            slots: ``[n]`` int32 inside ``[0, num_slots)``. Two rows of one slot leave either of
                them, or parts of both.

        Returns:
            A ticket.
        """

    def wait(self, ticket: int) -> None:
        """Wait until all rows of a submission are written, and forget the ticket.

        Raises:
            OSError: a read failed, the file has become too short, or the reader was closed before.
                Other submissions are not affected.
            ValueError: there is no such ticket, or it was waited for.
        """

    def is_done(self, ticket: int) -> bool:
        """Return whether ``wait`` would return, or raise, at once."""

    def take_counters(self) -> dict[str, float]:
        """Return what was read since the last call.

        Returns:
            ``requests``; ``bytes_read``, with gaps and what alignment adds; ``bytes_wanted`` of the
            distinct rows of each submission; ``bytes_copied``, those of slots; ``busy_s``, seconds
            with at least one read in flight.
        """

    def close(self) -> None:
        """Wait for the reads in flight, and drop those that are still to be made."""

# Sums over the processes of one machine, for gnnscale.distributed.shm_allreduce.

class SharedSum:
    """One process's part in sums, in memory that all of them map.

    Each element is summed by one process, in the order of ranks: all have the same bits.
    """

    def __init__(self, memory: Bytes, *, rank: int, size: int) -> None:
        """Take part as ``rank`` of ``size``.

        Args:
            memory: ``[num_bytes(size)]`` uint8, the same memory in every process, aligned to 64
                bytes; zeros before the first process takes part.
        """

    @staticmethod
    def num_bytes(size: int) -> int:
        """Return the bytes of memory that ``size`` processes share, at most 1024."""

    def add(self, values: Array, poll: Callable[[], object]) -> None:
        """Replace ``values`` by the sums over all processes, which pass as many of the same type.

        Args:
            values: ``[n]`` float32, float64 or int64, whose sums wrap around.
            poll: called ten times a second while others are waited for, after Python has handled
                signals. What it raises ends the sum, and all later ones, in all processes.

        Raises:
            RuntimeError: a process has left, passes other values, or another thread of this one is
                in the midst of a sum.
        """

    def leave(self) -> None:
        """Let sums fail from now on, in all processes that wait for this one; from any thread."""
