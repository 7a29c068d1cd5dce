"""Statistics of a partition: sizes of its parts, their balance, and the edges between them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnscale import ops
from gnnscale.core import Array, Int16Array, Int64Array, UInt8Array, errors, hardware, track
from gnnscale.core.artifact.npy import row_slices
from gnnscale.graph import Graph
from gnnscale.ops import naming_graph
from gnnscale.partition.base import UNREACHED, Parts
from gnnscale.sampling.seed_order import labeled_vertices

_SLICE_EDGES = 1 << 20
#: Default bytes of memory of ``halo_sizes``.
MAX_SEEN_BYTES = 512 << 20


def cut_matrix(
    graph: Graph,
    owner: Int16Array,
    num_parts: int,
    advance: Callable[[int], None] = lambda num_edges: None,
) -> Int64Array:
    """Return ``[K, K]`` numbers of edges from each part (row) to each part (column), by ``owner``.

    ``advance`` is called with the number of edges read since its last call.
    """
    with naming_graph(graph.path or graph.name):
        counts = ops.count_cut(
            graph.indptr, graph.indices, owner, num_parts, num_threads=hardware.usable_cores()
        )
    advance(graph.num_edges)
    return counts


def halo_sizes(
    graph: Graph,
    owner: Int16Array,
    num_parts: int,
    advance: Callable[[int], None] = lambda num_edges: None,
    *,
    max_bytes: int = MAX_SEEN_BYTES,
) -> tuple[Int64Array, int]:
    """Return the sizes ``[K]`` of one-hop halos, and the number of vertices in any part or halo.

    A part's halo has the in-neighbors of the part's vertices that the part does not own. ``owner``
    is the part of each vertex; ``advance`` gets the number of edges read since its last call. A
    pass over the edges serves as many parts, of ``num_vertices`` bytes each, as ``max_bytes``
    allow.
    """
    sizes = np.zeros(num_parts, np.int64)
    in_any_part = owner >= 0
    step = -(-num_parts // num_passes(graph, num_parts, max_bytes))
    for first in range(0, num_parts, step):
        last = min(first + step, num_parts)
        in_halo = np.zeros((last - first, graph.num_vertices), np.bool_)
        for sources, destinations in _edge_slices(graph):
            part = owner[destinations]
            outside = (part >= first) & (part < last) & (part != owner[sources])
            in_halo[part[outside] - first, sources[outside]] = True
            advance(len(sources))
        sizes[first:last] = np.count_nonzero(in_halo, axis=1)
        in_any_part |= in_halo.any(axis=0)
    return sizes, int(np.count_nonzero(in_any_part))


def num_passes(graph: Graph, num_parts: int, max_bytes: int = MAX_SEEN_BYTES) -> int:
    """Return the number of passes of ``halo_sizes`` over the edges."""
    step = max(1, min(num_parts, max_bytes // max(1, graph.num_vertices)))
    return -(-num_parts // step)


def _edge_slices(graph: Graph) -> Iterator[tuple[Array, Int64Array]]:
    for first in range(0, graph.num_edges, _SLICE_EDGES):
        sources = np.asarray(graph.indices[first : first + _SLICE_EDGES])
        last = first + len(sources)
        if sources.min() < 0 or sources.max() >= graph.num_vertices:
            bad = sources[(sources < 0) | (sources >= graph.num_vertices)][0]
            raise errors.GraphError(
                f"{graph.name}: expected neighbors from 0 to {graph.num_vertices - 1}, got {bad}"
            )
        begin = int(np.searchsorted(graph.indptr, first, side="right")) - 1
        end = int(np.searchsorted(graph.indptr, last, side="left"))
        bounds = np.clip(graph.indptr[begin : end + 1], first, last)
        yield sources, np.repeat(np.arange(begin, end), np.diff(bounds))


_SLICE_VERTICES = 1 << 22


@dataclass(frozen=True, kw_only=True)
class PartStats:
    """Numbers of vertices, training vertices and edges of a part."""

    num_vertices: int  #: vertices of the part, halo included
    num_inner: int | None  #: vertices that the part owns. None: every part has the full topology
    #: training vertices that the part owns. None: every part has the full topology
    num_train: int | None
    num_edges: int  #: in-edges of the part


@dataclass(frozen=True, kw_only=True)
class MeasuredCost:
    """Measured duration and memory of dividing a graph into parts."""

    seconds: float  #: duration of the partitioner
    #: peak memory of the process and a child process. None: the system does not report it
    peak_rss_bytes: int | None


@dataclass(frozen=True, kw_only=True)
class PredictedCost:
    """Predicted duration and memory of dividing a graph into parts."""

    seconds: float  #: duration of the partitioner
    peak_rss_bytes: int | None  #: memory of the process before partitioning, plus the forecast


@dataclass(frozen=True, kw_only=True)
class PartitionStats:
    """Statistics of a partition. A balance is the maximum over the mean of the parts, 1 at best."""

    algorithm: str  #: name of the partitioner
    seconds: float  #: see ``MeasuredCost``
    peak_rss_bytes: int | None  #: see ``MeasuredCost``
    #: share of the edges between different parts, without edges at vertices that are in no part.
    #: None: every part has the full topology, or there are no such edges
    edge_cut_fraction: float | None
    #: balance of ``num_inner``. None: every part has the full topology
    vertex_balance: float | None
    edge_balance: float | None  #: balance of ``num_edges``. None: there are no edges
    train_balance: float | None  #: balance of ``num_train``. None: every part has the full topology
    #: vertices of all parts over vertices in any part (PaGraph, section 5.5)
    replication_factor: float
    parts: tuple[PartStats, ...]  #: K parts
    #: ``[K][K]`` edges from part (row) to part (column). None: every part has the full topology
    cut: tuple[tuple[int, ...], ...] | None
    predicted: PredictedCost  #: predicted cost
    notes: tuple[str, ...]  #: lines of a report

    @property
    def num_parts(self) -> int:
        """Number of parts, K."""
        return len(self.parts)


def examine(
    graph: Graph,
    parts: Parts,
    *,
    algorithm: str,
    measured: MeasuredCost,
    predicted: PredictedCost,
    notes: Sequence[str] = (),
) -> PartitionStats:
    """Return the measured sizes, balances and cut of ``parts``, with the given costs and notes.

    Edges of all types are counted together.
    """
    graph = graph.without_types()
    inner = train = cut = None
    if parts.owner is not None:
        inner = _counts(parts.owner, parts.num_parts)
        train = _counts(parts.owner[labeled_vertices(graph, "train")], parts.num_parts)
        with track("counting edges between parts", graph.num_edges, "edges") as advance:
            cut = cut_matrix(graph, parts.owner, parts.num_parts, advance)
    num_vertices, num_edges, in_any_part = _sizes(graph, parts, inner)
    return PartitionStats(
        algorithm=algorithm,
        seconds=measured.seconds,
        peak_rss_bytes=measured.peak_rss_bytes,
        edge_cut_fraction=None if cut is None else _cut_fraction(cut),
        vertex_balance=_balance(inner),
        edge_balance=_balance(num_edges),
        train_balance=_balance(train),
        replication_factor=sum(num_vertices) / max(in_any_part, 1),
        parts=tuple(
            PartStats(
                num_vertices=num_vertices[part],
                num_inner=None if inner is None else inner[part],
                num_train=None if train is None else train[part],
                num_edges=num_edges[part],
            )
            for part in range(parts.num_parts)
        ),
        cut=None if cut is None else tuple(map(tuple, cut.tolist())),
        predicted=predicted,
        notes=(*parts.notes, *_idle_note(train), *notes),
    )


def _idle_note(train: Sequence[int] | None) -> tuple[str, ...]:
    """Return a report's line about parts without training vertices; none if all have some.

    ``train`` are the parts' numbers of training vertices.
    """
    idle = [str(part) for part, count in enumerate(train or ()) if not count]
    if len(idle) == 1:
        return (f"part {idle[0]} has no training vertex; its device trains those of other parts",)
    predicate = "have no training vertex; their devices train those of other parts"
    return (f"parts {', '.join(idle)} {predicate}",) if idle else ()


def examine_bytes(graph: Graph, num_parts: int) -> int:
    """Return an upper bound of the memory of ``examine`` in bytes, mapped topology included."""
    halo_bytes = min(MAX_SEEN_BYTES, num_parts * graph.num_vertices)
    return graph.topology_bytes + halo_bytes + graph.num_vertices + 8 * num_parts**2 + (64 << 20)


def _sizes(
    graph: Graph, parts: Parts, inner: Sequence[int] | None
) -> tuple[list[int], list[int], int]:
    """Return each part's vertices (with halo) and in-edges, and the vertices in at least one part.

    ``inner`` are the numbers of vertices that the parts own. None: every part has the full
    topology.
    """
    if parts.owner is None or inner is None:
        everything = [graph.num_vertices] * parts.num_parts, [graph.num_edges] * parts.num_parts
        return *everything, graph.num_vertices
    if parts.hops is not None:
        return _sizes_with_halo(graph, parts.hops, parts.num_hops)
    passes = num_passes(graph, parts.num_parts)
    with track("counting vertices at the borders", passes * graph.num_edges, "edges") as advance:
        halo, in_any_part = halo_sizes(graph, parts.owner, parts.num_parts, advance)
    num_edges = np.zeros(parts.num_parts, np.int64)
    for rows in row_slices(graph.num_vertices, 1, _SLICE_VERTICES):
        owner, degrees = parts.owner[rows], _degrees(graph, rows)
        owned = owner >= 0
        # Weights are summed as float64, which is exact below 2^53.
        num_edges += np.bincount(owner[owned], degrees[owned], parts.num_parts).astype(np.int64)
    return (np.asarray(inner) + halo).tolist(), num_edges.tolist(), in_any_part


def _sizes_with_halo(
    graph: Graph, hops: UInt8Array, num_hops: int
) -> tuple[list[int], list[int], int]:
    """Return each part's vertices and in-edges, and the vertices in at least one part, by ``hops``.

    A part has the in-edges of vertices fewer than ``num_hops`` hops from its training vertices.
    """
    num_vertices, num_edges = np.zeros((2, len(hops)), np.int64)
    in_any_part = 0
    for rows in row_slices(graph.num_vertices, 1, _SLICE_VERTICES):
        degrees, is_in_any = _degrees(graph, rows), np.zeros(rows.stop - rows.start, np.bool_)
        for part, part_hops in enumerate(hops[:, rows]):
            is_in_part = part_hops != UNREACHED
            is_in_any |= is_in_part
            num_vertices[part] += np.count_nonzero(is_in_part)
            num_edges[part] += degrees[part_hops < num_hops].sum()
        in_any_part += int(np.count_nonzero(is_in_any))
    return num_vertices.tolist(), num_edges.tolist(), in_any_part


def _degrees(graph: Graph, rows: slice) -> Int64Array:
    return np.diff(graph.indptr[rows.start : rows.stop + 1])


def _counts(owner: Int16Array, num_parts: int) -> list[int]:
    counts: list[int] = np.bincount(owner[owner >= 0], minlength=num_parts).tolist()
    return counts


def _cut_fraction(cut: Int64Array) -> float | None:
    total = int(cut.sum())
    return (total - int(np.trace(cut))) / total if total else None


def _balance(values: Sequence[Any] | None) -> float | None:
    if values is None or not sum(values):
        return None
    return float(max(values) * len(values) / sum(values))
