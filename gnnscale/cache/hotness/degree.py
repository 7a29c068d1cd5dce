"""Hotness metrics of graph and sampler: degrees, PageRank, inclusion (SALIENT++), random."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale import ops
from gnnscale.core import MAX_COUNT, GraphError
from gnnscale.core.types import Array, Float32Array, Float64Array, Int32Array, Int64Array, IntArray
from gnnscale.graph import Graph
from gnnscale.ops import naming_graph
from gnnscale.partition.simple import splitmix64

_SLICE_ENTRIES = 1 << 20


def slices(num_entries: int) -> Iterator[slice]:
    """Yield consecutive slices of at most 2^20 entries from 0 to ``num_entries``."""
    for first in range(0, num_entries, _SLICE_ENTRIES):
        yield slice(first, min(first + _SLICE_ENTRIES, num_entries))


def sum_at(values: Array, at: Array) -> Any:
    """Return the sum of ``values[at]``: exact for integers, in float64 for floats."""
    wide = np.int64 if np.issubdtype(values.dtype, np.integer) else np.float64
    return sum(values[at[part]].sum(dtype=wide).item() for part in slices(len(at)))


def out_degree(graph: Graph) -> Int32Array:
    """Return int32 out-degrees: the number of adjacency lists that contain each vertex.

    Uniform sampling reads a vertex more often, the more lists contain it (PaGraph, Lin et al. 2020,
    3.1). Takes 12 bytes per vertex. GraphError: the lists contain an invalid vertex.
    """
    counts = np.zeros(graph.num_vertices, np.int64)
    for part in slices(graph.num_edges):
        try:
            ops.count_in_degrees(graph.indices[part], counts)
        except ValueError as error:
            _, _, bad_ids = str(error).partition("dst: ")
            name = graph.path or graph.name
            raise GraphError(f"{name}: damaged, indices hold {bad_ids}") from None
    return np.minimum(counts, MAX_COUNT, out=counts).astype(np.int32)


def degree_ratio(graph: Graph) -> Float32Array:
    """Return the float32 importance of each vertex (AliGraph, Zhu et al. 2019, 3.2) at one hop.

    AliGraph's ``Imp(v) = D_i(v) / D_o(v)`` divides a benefit, the number of neighborhoods that
    contain ``v``, by a cost, the size of the neighborhood of ``v`` that is cached with it. Its
    samplers follow out-edges. Samplers here follow in-edges: the benefit is the out-degree of
    ``v``, and the cost its in-degree. An empty list counts as one entry. Takes 16 bytes per vertex.
    """
    benefit = out_degree(graph)
    ratio = np.empty(graph.num_vertices, np.float32)
    for rows in slices(graph.num_vertices):
        cost = np.diff(graph.indptr[rows.start : rows.stop + 1])
        ratio[rows] = benefit[rows] / np.maximum(cost, 1)
    return ratio


def pagerank(
    graph: Graph,
    train: IntArray,
    *,
    damping: float = 0.85,
    num_iterations: int = 20,
    num_threads: int,
) -> Float32Array:
    """Return the weighted reverse PageRank of each vertex (Data Tiering, Min et al. 2022).

    A walk starts at a training vertex and moves to in-neighbors, as sampling does; with probability
    ``1 - damping`` it restarts. With T the training vertices and N(v) the in-neighbors of v, from
    ``r_0(u) = [u in T] / |T|``,

        r_{t+1}(u) = damping * sum over v with u in N(v) of r_t(v) / |N(v)| + [u in T] / |T| * s_t

    ``s_t`` is the probability of a restart: ``1 - damping``, plus ``damping`` times the ranks of
    vertices without in-neighbors. After ``n`` iterations the total error is at most ``2 *
    damping^n``. Takes 16 bytes per vertex, and 4 for the result.

    Args:
        train: ``[n]`` distinct vertices, at least one.
        num_threads: threads to use; the result does not depend on it.
    """
    rank = np.zeros(graph.num_vertices)
    rank[train] = 1 / len(train)
    received = np.empty_like(rank)
    for _ in range(num_iterations):
        lost = 0.0  # ranks without in-neighbors; others are divided by the degree
        for rows in slices(len(rank)):
            degrees = np.diff(graph.indptr[rows.start : rows.stop + 1])
            lost += float(rank[rows][degrees == 0].sum())
            rank[rows] /= np.maximum(degrees, 1)
        received[:] = 0
        with naming_graph(graph.path or graph.name):
            ops.scatter_to_neighbors(
                graph.indptr, graph.indices, rank, received, num_threads=num_threads
            )
        received *= damping
        received[train] += (1 - damping + damping * lost) / len(train)
        rank, received = received, rank
    return rank.astype(np.float32)


@dataclass(frozen=True, kw_only=True)
class Inclusion:
    """Expected reads by one mini-batch of each vertex's feature row and adjacency list."""

    #: ``[num_vertices]`` float32 probability that the vertex is an input vertex
    probability: Float32Array
    #: ``[num_lists]`` float32 mean reads of lists: one per traversed edge, and one per visit
    lists: Float32Array


def inclusion(
    graph: Graph,
    train: IntArray,
    fanouts: Sequence[int | Sequence[int]],
    *,
    batch_size: float,
    replace: bool = False,
    num_threads: int,
) -> Inclusion:
    """Return the expected reads of each vertex by a batch of neighbor sampling.

    This is the vertex-inclusion probability of SALIENT++ (Kaler et al. 2023,
    "Communication-efficient graph neural networks with probabilistic neighborhood expansion
    analysis and caching"): a vertex is missed if no vertex with it as an in-neighbor picks it. The
    picks are assumed independent, which is exact on a tree, and nearly so for small probabilities.

    In the paper, a hop expands the vertices that the previous hop reached. Here, hop h expands
    every vertex reached before it, so a vertex may pick at several hops. Let q_h(v) be the
    probability that v is reached in h hops, c_h(v) that v has been reached and has picked a given
    in-neighbor by then, and t_h(v) that one expansion picks it, which is ``min(1, fanout /
    degree)``. Then

        c_h(v) = c_{h-1}(v) + t_h(v) (q_{h-1}(v) - c_{h-1}(v))
        q_h(u) = 1 - (1 - q_0(u)) * product over v with u in N(v) of (1 - c_h(v))

    with ``c_0 = 0``, and ``q_0 = batch_size / number of training vertices`` for training vertices
    and 0 for all other vertices. If v was reached before hop h, the hop traverses m_h(v) =
    ``min(degree, fanout)`` edges from v, and reads the offsets of its list. With ``replace``, ``t =
    1 - (1 - 1 / degree)^fanout``, and ``m = fanout`` unless v has no in-neighbors. Takes 24 bytes
    per vertex, and 8 for the result.

    In a graph with types a vertex has a list, and picks, for each edge type that ends at it.

    Args:
        train: ``[n]`` distinct vertices, at least one.
        fanouts: neighbors per vertex, from the seeds outwards; -1 takes all. With types, the
            numbers of each hop by edge type.
        batch_size: mean of the seeds of a batch, drawn from ``train``.
        replace: whether neighbors are sampled with replacement.
    """
    num_vertices, num_lists = graph.num_vertices, len(graph.indptr) - 1
    # There may be fewer lists than vertices: those of some types have none.
    size = max(num_vertices, num_lists)
    indptr = (
        np.pad(graph.indptr, (0, size - num_lists), "edge") if size > num_lists else graph.indptr
    )
    seeded = min(1.0, batch_size / len(train))
    probability, picked, missed = (np.zeros(size) for _ in range(3))
    probability[train] = seeded
    lists = np.zeros(num_lists, np.float32)
    with np.errstate(divide="ignore"):  # a certain vertex has log1p(-1) = -inf
        for hop in fanouts:
            by_type = [hop] if isinstance(hop, int) else hop
            for edge_type, rows, vertices in _list_slices(graph):
                fanout = by_type[edge_type]
                if fanout == 0:  # no list is read
                    continue
                degrees = indptr[rows.start + 1 : rows.stop + 1 : rows.step] - indptr[rows]
                lists[rows] += probability[vertices] * (_num_picked(degrees, fanout, replace) + 1)
                share = _share_picked(degrees, fanout, replace)
                picked[rows] += share * (probability[vertices] - picked[rows])
                missed[rows] = np.log1p(-np.minimum(picked[rows], 1))
            probability[:] = 0
            probability[train] = np.log1p(-seeded)
            with naming_graph(graph.path or graph.name):
                topology = indptr, graph.indices
                ops.scatter_to_neighbors(*topology, missed, probability, num_threads=num_threads)
            np.subtract(0, np.expm1(probability, out=probability), out=probability)
    return Inclusion(probability=probability[:num_vertices].astype(np.float32), lists=lists)


def _list_slices(graph: Graph) -> Iterator[tuple[int, slice, slice]]:
    """Yield slices of the lists of each edge type, with its number and the lists' vertices."""
    schema = graph.schema
    for number, destination in enumerate(schema.destinations.tolist()):
        rows, first = schema.rows(number), schema.vertices(destination).start
        for part in slices(schema.vertex_types[destination].num_vertices):
            start, end = (rows.start + at * rows.step for at in (part.start, part.stop))
            yield number, slice(start, end, rows.step), slice(first + part.start, first + part.stop)


def _num_picked(degrees: Int64Array, fanout: int, replace: bool) -> Int64Array:
    """Return, for each vertex, how many edges a hop traverses if it samples the vertex's neighbors.

    ``degrees`` are in-degrees. With ``replace`` an edge counts each time that it is sampled.
    """
    if fanout == -1:
        return degrees
    if replace:
        return np.where(degrees, fanout, 0)
    return np.minimum(degrees, fanout)


def _share_picked(degrees: Int64Array, fanout: int, replace: bool) -> NDArray[np.floating[Any]]:
    """Return each vertex's probability that one sampling of its neighbors picks a given one."""
    inverse: Float64Array = 1 / np.maximum(degrees, 1)
    if fanout == -1:
        return np.ones_like(inverse)
    missed: Float64Array = 1 - fanout * inverse
    if replace:
        missed = (1 - inverse) ** fanout
    return 1 - np.maximum(missed, 0)


#: Stream id of the random numbers of ``uniform``.
_STREAM = 0x686F746E657373


def uniform(num_vertices: int, seed: int) -> Int32Array:
    """Return ``[num_vertices]`` int32 random hotness, uniform in [0, 2^31).

    A vertex's value depends on ``seed`` and the vertex alone.
    """
    key = splitmix64(np.array([seed ^ _STREAM], np.uint64))
    hotness = np.empty(num_vertices, np.int32)
    for rows in slices(num_vertices):
        ids = np.arange(rows.start, rows.stop, dtype=np.uint64)
        # Mixing ids first keeps the sequences of close seeds from being shifted copies.
        hotness[rows] = (splitmix64(splitmix64(ids) ^ key) >> np.uint64(33)).astype(np.int32)
    return hotness
