"""PaGraph's partitioner: training vertices with common neighbors, and all of their neighborhoods.

A part has all vertices that sampling reaches from its training vertices, so its device needs no
other part. Vertices near the training vertices of several parts are replicated.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gnnscale import ops
from gnnscale.core import Int16Array, IntArray, UInt8Array, check_range
from gnnscale.core.artifact.npy import row_slices
from gnnscale.graph import Graph
from gnnscale.ops import naming_graph
from gnnscale.partition.base import (
    NO_PART,
    UNREACHED,
    Forecast,
    PartitionerConfig,
    Parts,
    check_num_parts,
)
from gnnscale.partition.simple import splitmix64
from gnnscale.sampling.seed_order import labeled_vertices

#: Largest number of paths of a neighborhood whose overlaps are counted exactly.
_MAX_WALKED = 1 << 14
#: Largest number of training vertices in the bitmaps that estimate overlaps.
_MAX_SAMPLED = 1 << 12
#: Seed of that sample of training vertices, not the run's seed: runs share a partition.
_SEED = 0
_SLICE_ENTRIES = 1 << 22
#: Training vertices whose neighborhoods are measured for a forecast.
_NUM_MEASURED = 64
#: Seconds to read a neighbor, or a cache line of its bitmap.
_STEP_S = 8e-9


@dataclass(frozen=True, kw_only=True)
class PaGraph(PartitionerConfig):
    """Greedy streaming over training vertices, in the order of their ids (PaGraph, Algorithm 1).

    A training vertex joins the part with the largest overlap with its L-hop in-neighborhood,
    counted in training vertices and relative to the part's size (equation 1). Parts differ by at
    most one training vertex.

    The overlap is exact for neighborhoods of up to 16,384 paths, and for all neighborhoods if there
    are at most 4,096 training vertices. Otherwise it is estimated from 4,096 training vertices,
    drawn uniformly. For an overlap of share p, the relative standard error is ``sqrt((1 - p) /
    (4096 p))``: 5 % for a tenth. Replication factors then differ from the exact factors by up to 4
    % in both directions on soc-Slashdot0902 and tolokers, with L = 2 and L = 3.
    """

    algorithm: ClassVar[str] = "pagraph"

    def assign(self, graph: Graph, *, num_parts: int, num_hops: int, num_threads: int) -> Parts:
        """Divide ``graph`` into ``num_parts`` overlapping parts, which need a training vertex each.

        Training vertices are divided by the overlap of their in-neighborhoods, as ``PaGraph`` says.
        A part has all vertices from which ``num_hops`` or fewer hops lead to its training vertices.
        A vertex's owner is the part with the fewest hops; a hash of its id breaks ties. Vertices
        that are in no part have no owner.
        """
        check_num_parts(graph, num_parts)
        train = _training_vertices(graph)
        check_range("num_hops", num_hops, 1, UNREACHED - 1)
        with naming_graph(graph.path or graph.name):
            part_of, hops, num_estimated = ops.pagraph_stream(
                graph.indptr,
                graph.indices,
                train,
                num_parts=num_parts,
                num_hops=num_hops,
                max_walked=_MAX_WALKED,
                max_sampled=_MAX_SAMPLED,
                seed=_SEED,
                num_threads=num_threads,
            )
        owner = _nearest_parts(hops)
        owner[train] = part_of
        return Parts(
            num_parts=num_parts,
            owner=owner,
            hops=hops,
            num_hops=num_hops,
            notes=(_overlap_note(num_estimated, len(train)), _drop_note(graph, hops, num_hops)),
        )

    def forecast(
        self, graph: Graph, *, num_parts: int, num_hops: int, num_threads: int
    ) -> Forecast:
        """Return the predicted memory and duration of ``assign``; reads a few neighborhoods."""
        train = _training_vertices(graph)
        picked = train[:: max(1, len(train) // _NUM_MEASURED)]
        counts = [_num_paths(graph, vertex, num_hops) for vertex in picked]
        walked = [count for count in counts if count <= _MAX_WALKED]
        # Neighborhoods too large for an exact overlap, and mean paths, 0 for large ones.
        share, num_paths = 1 - len(walked) / len(counts), sum(walked) / len(counts)
        num_sampled = min(len(train), _MAX_SAMPLED)
        # Per vertex: hops and owner; the last walk that visited it, and its training part.
        vertex_bytes = num_parts + 2 + 4 + 2
        # In addition: the number of paths; or bitmaps, and the vertex's index in the sample.
        vertex_bytes += (4 + 64 * min(num_hops - 1, 2)) if share else 4 * min(num_hops - 1, 2)
        row_bytes = share * len(train) * num_sampled / 8
        mapped = graph.indices.nbytes if isinstance(graph.indices, np.memmap) else 0
        steps = num_hops * graph.num_edges
        bits = steps * -(-num_sampled // 512) if share else 0
        return Forecast(
            memory_bytes=mapped + vertex_bytes * graph.num_vertices + round(row_bytes),
            seconds=_STEP_S * (num_parts * steps + bits / num_threads + num_paths * len(train)),
        )


def _training_vertices(graph: Graph) -> IntArray:
    """Return the labeled training vertices, ascending: ids often follow communities.

    Replication factors are then lower than in random order: by 22 to 24 % on tolokers, 9 to 15 % on
    soc-Slashdot0902 (L = 2), though 3 to 10 % higher on Cora with 140 training vertices.
    """
    return np.sort(labeled_vertices(graph, "train")).astype(graph.indices.dtype)


def _nearest_parts(hops: UInt8Array) -> Int16Array:
    """Return the part with the fewest hops to each vertex, ties by hash; ``NO_PART`` for none."""
    num_parts, num_vertices = hops.shape
    owner = np.empty(num_vertices, np.int16)
    for rows in row_slices(num_vertices, num_parts, _SLICE_ENTRIES):
        fewest = hops[:, rows].min(axis=0)
        nearest = hops[:, rows] == fewest
        ids = np.arange(rows.start, rows.stop, dtype=np.uint64)
        # The chosen part is the first whose rank among the nearest parts exceeds ``chosen``.
        chosen = splitmix64(ids) % nearest.sum(axis=0, dtype=np.uint64)
        rank = nearest.cumsum(axis=0, dtype=np.int16)
        owner[rows] = (rank > chosen.astype(np.int16)).argmax(axis=0)
        owner[rows][fewest == UNREACHED] = NO_PART
    return owner


def _overlap_note(num_estimated: int, num_train: int) -> str:
    if not num_estimated:
        return "overlaps of neighborhoods are exact"
    return (
        f"overlaps of {num_estimated:,} of {num_train:,} neighborhoods are estimated, "
        f"from {_MAX_SAMPLED:,} training vertices"
    )


def _drop_note(graph: Graph, hops: UInt8Array, num_hops: int) -> str:
    """Return a report's line that counts vertices and edges which no training vertex reaches."""
    vertices = edges = 0
    for rows in row_slices(graph.num_vertices, len(hops), _SLICE_ENTRIES):
        fewest = hops[:, rows].min(axis=0)
        degrees = np.diff(graph.indptr[rows.start : rows.stop + 1])
        vertices += int(np.count_nonzero(fewest == UNREACHED))
        edges += int(degrees[fewest >= num_hops].sum())
    return (
        f"{vertices:,} of {graph.num_vertices:,} vertices and {edges:,} of {graph.num_edges:,} "
        f"edges are in no part: no training vertex reaches them in {num_hops} hops"
    )


def _num_paths(graph: Graph, vertex: int, num_hops: int) -> int:
    """Count the paths of 1 to ``num_hops`` edges that end at ``vertex``; stop beyond 16,384."""
    ends, total = np.array([vertex]), 0
    for hop in range(num_hops):
        # Clipped ids: the partitioner reports ids out of range.
        begins = graph.indptr.take(ends, mode="clip")
        degrees = graph.indptr.take(ends + 1, mode="clip") - begins
        total += int(degrees.sum())
        if total > _MAX_WALKED or hop == num_hops - 1:
            break
        lists = [graph.indices[begin : begin + n] for begin, n in zip(begins, degrees, strict=True)]
        ends = np.concatenate([ends[:0], *lists])
    return total
