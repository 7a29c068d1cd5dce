"""Which neighbour lists host memory holds if the topology exceeds it; the disk has the others."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gnnscale import ops
from gnnscale.core import Access, ConfigError, Float32Array, IntArray
from gnnscale.graph import Graph

#: Bytes of the place of a list that is held, and of 64 vertices that are held or not.
_PLACE_BYTES = 8
_BLOCK_BYTES, _BLOCK_VERTICES = 16, 64
#: A gap that no disk is asked to leave out.
_MAX_GAP_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class ResidentAdjacency:
    """The lists that memory holds."""

    vertices: IntArray  #: ``[k]`` whose lists these are, ascending, of the type of ``indices``
    part: float  #: of all bytes of lists
    expected_hits: float  #: the part of the reads of lists that they are expected to answer


def hottest_lists(graph: Graph, reads: Float32Array, *, memory_bytes: int) -> ResidentAdjacency:
    """Choose the lists with most reads a byte that fit into ``memory_bytes``.

    Legion (Sun et al. 2023, section 4.2.1) caches lists by their hotness alone. Here a list costs
    its bytes: a long one is read at a few places of many.

    Args:
        reads: ``[num_vertices]`` how often the list of each vertex is expected to be read, in any
            unit.
        memory_bytes: for the lists, their places, and the bitmap of who is held.
    """
    degrees = np.diff(graph.indptr)
    num_bytes = degrees * graph.indices.itemsize + _PLACE_BYTES
    read = np.flatnonzero((degrees > 0) & (reads > 0))
    order = read[np.argsort(-reads[read] / num_bytes[read], kind="stable")]
    bitmap = (graph.num_vertices // _BLOCK_VERTICES + 1) * _BLOCK_BYTES
    fitting = np.cumsum(num_bytes[order]) <= memory_bytes - bitmap
    held = np.sort(order[fitting]).astype(graph.indices.dtype)
    total = float(reads[read].sum(dtype=np.float64))
    return ResidentAdjacency(
        vertices=held,
        part=float(degrees[held].sum()) / max(graph.num_edges, 1),
        expected_hits=float(reads[held].sum(dtype=np.float64)) / total if total else 0.0,
    )


def open_lists(graph: Graph, held: IntArray, *, max_gap_bytes: int) -> ops.DiskLists:
    """Open the file of ``graph.indices``, and read the lists of ``held``.

    Args:
        held: ``[k]`` vertices, ascending.
        max_gap_bytes: neighbours with so many bytes between them, or fewer, are read by one
            request.

    Raises:
        ConfigError: the topology is in memory, and in no file.
        GraphError: the topology is damaged.
        OSError: the file cannot be read.
    """
    indices = mapped_indices(graph)
    with ops.naming_graph(graph.path or graph.name):
        return ops.DiskLists(
            str(indices.filename),
            graph.indptr,
            indices,
            held,
            offset=indices.offset,
            max_gap_bytes=min(max_gap_bytes, _MAX_GAP_BYTES),
        )


def indices_file(graph: Graph) -> Path:
    """Return the file that has the neighbour lists of ``graph``; raise as ``mapped_indices``."""
    return Path(str(mapped_indices(graph).filename))


def mapped_indices(graph: Graph) -> np.memmap[Any, Any]:
    """Return the neighbour lists of ``graph``, which its store's file has.

    Raises:
        ConfigError: they are in memory, and in no file.
    """
    indices: Any = graph.indices
    if not isinstance(indices, np.memmap):
        raise ConfigError(
            f"sampler.memory_bytes: the neighbour lists of {graph.path or graph.name} are in "
            "memory, and in no file; a graph store on disk has them in one"
        )
    return indices


def take_reads(lists: ops.DiskLists) -> Access:
    """Return what samplers have read since the last call."""
    counters = lists.take_counters()
    return Access(
        hits=round(counters["hits"]),
        misses=round(counters["misses"]),
        link_bytes=round(counters["bytes_read"]),
        link_requests=round(counters["requests"]),
        waited_us=round(1e6 * counters["waited_s"]),
    )
