"""Adjacency lists in host memory and on disk, for a topology that exceeds memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gnnscale import ops
from gnnscale.core import Access, ConfigError, Float32Array, IntArray
from gnnscale.graph import Graph

#: Bytes of the offset of a resident list.
_OFFSET_BYTES = 8
#: Bytes of a bitmap block, which says which of 64 vertices have a resident list.
_BLOCK_BYTES, _BLOCK_VERTICES = 16, 64
#: Largest gap between two reads that one request reads.
_MAX_GAP_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class ResidentAdjacency:
    """Adjacency lists that host memory holds."""

    vertices: IntArray  #: ``[k]`` vertices of the lists, ascending, of the type of ``indices``
    part: float  #: share of the edges, 0 to 1
    expected_hits: float  #: expected share of list reads that memory serves, 0 to 1


def choose_resident_lists(
    graph: Graph, reads: Float32Array, *, memory_bytes: int
) -> ResidentAdjacency:
    """Choose the adjacency lists with the most reads per byte that fit into ``memory_bytes``.

    Legion (Sun et al. 2023, section 4.2.1) ranks lists by hotness. Here hotness is divided by the
    bytes of a list, since sampling reads few entries of a long list.

    Args:
        reads: ``[num_vertices]`` expected reads of each vertex's list, in any unit.
        memory_bytes: memory for the lists, their offsets, and the bitmap of resident lists.
    """
    degrees = np.diff(graph.indptr)
    num_bytes = degrees * graph.indices.itemsize + _OFFSET_BYTES
    read = np.flatnonzero((degrees > 0) & (reads > 0))
    order = read[np.argsort(-reads[read] / num_bytes[read], kind="stable")]
    bitmap = (graph.num_vertices // _BLOCK_VERTICES + 1) * _BLOCK_BYTES
    fitting = np.cumsum(num_bytes[order]) <= memory_bytes - bitmap
    vertices = np.sort(order[fitting]).astype(graph.indices.dtype)
    total = float(reads[read].sum(dtype=np.float64))
    return ResidentAdjacency(
        vertices=vertices,
        part=float(degrees[vertices].sum()) / max(graph.num_edges, 1),
        expected_hits=float(reads[vertices].sum(dtype=np.float64)) / total if total else 0.0,
    )


def open_lists(graph: Graph, vertices: IntArray, *, max_gap_bytes: int) -> ops.DiskLists:
    """Open the file of ``graph.indices``, and load the adjacency lists of ``vertices``.

    Args:
        vertices: ``[k]`` vertices with resident lists, ascending.
        max_gap_bytes: largest gap in bytes between two neighbors that one request reads.

    Raises:
        ConfigError: the topology is in memory, without a file.
        GraphError: the topology is damaged.
        OSError: the file cannot be read.
    """
    indices = mapped_indices(graph)
    with ops.naming_graph(graph.path or graph.name):
        return ops.DiskLists(
            str(indices.filename),
            graph.indptr,
            indices,
            vertices,
            offset=indices.offset,
            max_gap_bytes=min(max_gap_bytes, _MAX_GAP_BYTES),
        )


def indices_file(graph: Graph) -> Path:
    """Return the path of the file that has ``graph.indices``; raise like ``mapped_indices``."""
    return Path(str(mapped_indices(graph).filename))


def mapped_indices(graph: Graph) -> np.memmap[Any, Any]:
    """Return the mapped ``graph.indices``.

    Raises:
        ConfigError: the topology is in memory, without a file.
    """
    indices: Any = graph.indices
    if not isinstance(indices, np.memmap):
        raise ConfigError(
            "sampler.memory_bytes: expected adjacency lists in a file, got those of "
            f"{graph.path or graph.name} in memory; a graph store on disk has them in a file"
        )
    return indices


def take_reads(lists: ops.DiskLists) -> Access:
    """Return the samplers' reads of adjacency lists since the last call."""
    counters = lists.take_counters()
    return Access(
        hits=round(counters["hits"]),
        misses=round(counters["misses"]),
        link_bytes=round(counters["bytes_read"]),
        link_requests=round(counters["requests"]),
        waited_us=round(1e6 * counters["waited_s"]),
    )
