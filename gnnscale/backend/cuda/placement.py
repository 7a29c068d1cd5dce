"""The place of a graph that a GPU samples and reads: its own memory, or the host's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from gnnscale.backend.base import DeviceMemoryError
from gnnscale.backend.cuda.capacity import DeviceGraph
from gnnscale.backend.cuda.device_cache import CachedRows, ResidentCache
from gnnscale.backend.cuda.dynamic_cache import DynamicCache
from gnnscale.backend.cuda.engine import Engine
from gnnscale.backend.cuda.row_gather import requests, word_bytes
from gnnscale.core import Access, Array
from gnnscale.core.stages import NO_ACCESS
from gnnscale.graph import Graph
from gnnscale.planner import Cuda

#: Rows whose requests over the link are counted for the mean: alignments repeat within them.
_ROWS = 128
#: Bytes that are copied to the device at a time.
_PIECE_BYTES = 256 << 20
#: Bytes of a neighbour's id that a pick counts.
_ID_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class ResidentGraph:
    """A graph as kernels read it."""

    topology: DeviceGraph
    rows: torch.Tensor  #: ``[num_vertices, f]`` features
    rows_on_device: bool  #: whether the features lie in device memory
    lists_on_device: bool  #: whether the adjacency lists do
    #: ``[num_vertices]`` int32 in-degrees in the whole graph, of a graph's part
    degrees: torch.Tensor | None
    #: ``[num_vertices]`` float32 sums of the weights of all in-edges, if edges have weights
    weight_sums: torch.Tensor | None
    cached: CachedRows | None = None  #: rows that are read in device memory, and not in ``rows``
    own: int | None = None  #: which member of the clique the device is; None without a cache
    following: DynamicCache | None = None  #: rows in device memory that follow the batches

    @cached_property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.rows.shape[1] * self.rows.element_size()

    def row_access(self, num_rows: int, found: Sequence[int] = ()) -> Access:
        """Return what reading so many distinct rows moves.

        Args:
            found: rows that were read at each member, and at the host; empty if nobody keeps any.
        """
        if self.rows_on_device:
            return NO_ACCESS
        hits, peer_hits, misses = self._places(found, num_rows)
        num_bytes = misses * self.row_bytes
        return Access(
            hits=hits,
            peer_hits=peer_hits,
            misses=0 if self.own is None else misses,
            host_bytes=num_bytes,
            link_bytes=num_bytes,
            link_requests=round(misses * self.requests_per_row),
            peer_bytes=peer_hits * self.row_bytes,
        )

    def list_access(self, num_reads: int, request_bytes: int, found: Sequence[int] = ()) -> Access:
        """Return what sampling moves that reads so many neighbours and offsets of lists.

        Args:
            found: those that were read at each member, and at the host; empty likewise.
        """
        if self.lists_on_device:
            return NO_ACCESS
        hits, peer_hits, misses = self._places(found, num_reads)
        return Access(
            hits=hits,
            peer_hits=peer_hits,
            misses=0 if self.own is None else misses,
            host_bytes=misses * _ID_BYTES,
            link_bytes=misses * request_bytes,
            link_requests=misses,
            peer_bytes=peer_hits * _ID_BYTES,
        )

    def _places(self, found: Sequence[int], count: int) -> tuple[int, int, int]:
        """Return how many of ``count`` reads hit, hit at a peer, and miss."""
        if not found or self.own is None:
            return 0, 0, count
        hits, misses = found[self.own], found[-1]
        return hits, sum(found) - hits - misses, misses

    @cached_property
    def requests_per_row(self) -> float:
        """Requests of 128 bytes over the link for a row, on average over their alignments."""
        word, first = word_bytes(self.rows, self.rows), self.rows.data_ptr()
        counted = [
            requests(self.row_bytes, first + row * self.row_bytes, word, shifts=True)
            for row in range(min(_ROWS, len(self.rows)))
        ]
        return sum(counted) / max(len(counted), 1)


def place(
    graph: Graph,
    device: Cuda,
    engine: Engine,
    *,
    kept_bytes: int,
    cache: ResidentCache | None = None,
) -> ResidentGraph:
    """Bring a graph to the memory that ``device`` asks for.

    Args:
        kept_bytes: device memory that other things take.
        cache: what the device keeps of data that are left in the host's memory otherwise.

    Raises:
        DeviceMemoryError: what must lie in device memory does not fit.
    """
    sizes = {"topology": topology_bytes(graph), "features": graph.feature_bytes}
    held = device.keeps(**sizes, kept=kept_bytes, budget=engine.memory_bytes)
    if cache is not None:
        held = (device.topology == "device", False)
    room = engine.memory_bytes - kept_bytes
    for (what, num_bytes), is_held in zip(sizes.items(), held, strict=True):
        if is_held and num_bytes > room:
            raise DeviceMemoryError(
                f"device_plan: {what}=device: {graph.name} has {num_bytes / 1e6:,.1f} MB of them, "
                f"and {max(room, 0) / 1e6:,.1f} MB of {device.label}'s memory are left; "
                f"{what}=host leaves them in the host's"
            )
        room -= num_bytes if is_held else 0
    placed = _placed(graph, engine, topology=held[0], features=held[1])
    return placed if cache is None else _cached(placed, cache)


def _cached(placed: ResidentGraph, cache: ResidentCache) -> ResidentGraph:
    """Read in device memory what a cache has."""
    topology = placed.topology
    if not placed.lists_on_device:
        topology = replace(topology, cached=cache.lists)
    following = None
    ahead = cache.kept.look_ahead
    if ahead is not None:
        num_vertices = topology.num_vertices
        following = DynamicCache(cache.own_rows, num_vertices, match=ahead.match)
    return replace(
        placed,
        topology=topology,
        cached=cache.rows,
        own=cache.kept.own,
        following=following,
    )


def _placed(graph: Graph, engine: Engine, *, topology: bool, features: bool) -> ResidentGraph:
    def put(array: Array, on_device: bool, dtype: torch.dtype | None = None) -> torch.Tensor:
        kind = dtype or getattr(torch, array.dtype.name)
        if not on_device:
            return engine.reached(array, kind)
        return _copied(array, engine.device).view(kind)

    weights, sums, degrees = graph.edge_weights, graph.weight_sums, graph.degrees
    return ResidentGraph(
        topology=DeviceGraph(
            name=str(graph.path or graph.name),
            indptr=put(graph.indptr, topology, torch.int64),
            indices=put(graph.indices, topology),
            edge_weights=None if weights is None else put(weights, topology),
        ),
        rows=put(graph.features, features, getattr(torch, graph.feature_dtype)),
        rows_on_device=features,
        lists_on_device=topology,
        degrees=None if degrees is None else put(degrees, topology, torch.int32),
        weight_sums=None if sums is None else put(sums, topology),
    )


def _copied(array: Array, device: torch.device) -> torch.Tensor:
    """Return a copy of ``array``, which may be a map of a file, a piece after the other."""
    row_bytes = max(array[:1].nbytes, 1)
    rows = max(_PIECE_BYTES // row_bytes, 1)
    out: torch.Tensor | None = None
    for first in range(0, max(len(array), 1), rows):
        piece = torch.from_numpy(np.array(array[first : first + rows]))
        if out is None:
            out = torch.empty(array.shape, dtype=piece.dtype, device=device)
        out[first : first + rows] = piece
    assert out is not None
    return out


def topology_bytes(graph: Graph) -> int:
    """Return the bytes of all that sampling reads."""
    optional = (graph.edge_weights, graph.weight_sums, graph.degrees)
    return graph.topology_bytes + sum(each.nbytes for each in optional if each is not None)
