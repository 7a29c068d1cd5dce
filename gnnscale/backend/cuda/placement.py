"""Placement of a graph's arrays in device memory or in host memory that the GPU reads."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from gnnscale.backend.base import DeviceMemoryError
from gnnscale.backend.cuda import aggregation
from gnnscale.backend.cuda.capacity import DeviceGraph
from gnnscale.backend.cuda.device_cache import CachedRows, ResidentCache
from gnnscale.backend.cuda.engine import Engine
from gnnscale.backend.cuda.kernels import Kernels
from gnnscale.backend.cuda.row_gather import DynamicCache, requests, word_bytes
from gnnscale.core import NO_ACCESS, NO_TRAFFIC, Access, Array, Traffic
from gnnscale.graph import Graph
from gnnscale.planner import Cuda
from gnnscale.planner.cost_model.equations import BatchSize

#: Rows over which requests are averaged; alignments repeat within them.
_ROWS = 128
#: Bytes copied to the device at a time.
_PIECE_BYTES = 256 << 20
#: Bytes of traffic of a neighbor's id.
_ID_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class ReadCounts:
    """Numbers of adjacency lists and of rows read: from each clique member, then from the host.

    Both are empty without a cache.
    """

    lists: tuple[int, ...] = ()
    rows: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ResidentGraph:
    """Graph as kernels read it: topology, rows and caches, in device or host memory."""

    topology: DeviceGraph
    rows: torch.Tensor  #: ``[num_vertices, f]`` features
    rows_on_device: bool  #: whether the features are in device memory
    lists_on_device: bool  #: whether the adjacency lists are in device memory
    #: ``[num_vertices]`` int32 in-degrees in the full graph. None: the graph is not a partition
    degrees: torch.Tensor | None
    #: ``[num_vertices]`` float32 sums of in-edge weights. None: edges have no weights
    weight_sums: torch.Tensor | None
    cached: CachedRows | None = None  #: rows of a static cache, read instead of ``rows``
    member: int | None = None  #: index of the device in its clique. None: no cache
    following: DynamicCache | None = None  #: rows of a dynamic cache

    @cached_property
    def row_bytes(self) -> int:
        """Bytes of a feature row."""
        return self.rows.shape[1] * self.rows.element_size()

    def row_access(self, num_rows: int, counts: Sequence[int] = ()) -> Access:
        """Return the traffic of reading ``num_rows`` rows, none if all are in device memory.

        ``counts`` are rows read from each clique member, then from the host; empty: all are from
        the host.
        """
        if self.rows_on_device:
            return NO_ACCESS
        requests_per_row = self.requests_per_row
        return self._access(num_rows, counts, self.row_bytes, self.row_bytes, requests_per_row)

    def list_access(self, num_reads: int, request_bytes: int, counts: Sequence[int] = ()) -> Access:
        """Return the traffic of ``num_reads`` reads of a neighbor or an offset of a list.

        It is none if all lists are in device memory. A read from the host takes ``request_bytes``
        on the link. ``counts`` are reads from each clique member, then from the host; empty: all
        are from the host.
        """
        if self.lists_on_device:
            return NO_ACCESS
        return self._access(num_reads, counts, _ID_BYTES, request_bytes, 1)

    def degrees_of(
        self, kernels: Kernels, vertices: torch.Tensor, count: torch.Tensor
    ) -> torch.Tensor:
        """Return the in-degrees of ``vertices`` in the full graph, ``[n]`` float32.

        ``count`` is the number of valid ``vertices``, ``[1]`` int64 on the device; later entries
        are 0.
        """
        topology, degrees = self.topology, self.degrees
        return aggregation.degrees_of(kernels, topology, vertices, count, full_degrees=degrees)

    def sums_of(
        self, kernels: Kernels, vertices: torch.Tensor, count: torch.Tensor
    ) -> torch.Tensor | None:
        """Return in-edge weight sums of ``vertices``, ``[n]``, 0 from index ``count`` on.

        None: edges have no weights.
        """
        sums = self.weight_sums
        return None if sums is None else aggregation.vertex_floats(kernels, sums, vertices, count)

    def traffic(
        self, size: BatchSize, counts: ReadCounts, request_bytes: int, sent_bytes: int | None
    ) -> Traffic:
        """Return the traffic of a mini-batch of ``size``; ``counts`` are its reads by location.

        ``request_bytes`` are the bytes of a request on the link, ``sent_bytes`` those of a sample
        copied from the host. None: the device has sampled.
        """
        if sent_bytes is None and self.rows_on_device and self.lists_on_device:
            return NO_TRAFFIC
        traffic = Traffic(rows=self.row_access(int(size.vertices[0]), counts.rows))
        if sent_bytes is not None:
            return traffic.with_link(
                row_bytes=0, list_bytes=sent_bytes, request_bytes=request_bytes
            )
        reads = size.num_edges + sum(size.vertices[1:])
        return replace(traffic, lists=self.list_access(int(reads), request_bytes, counts.lists))

    def _access(
        self,
        num_reads: int,
        counts: Sequence[int],
        num_bytes: int,
        link_bytes: int,
        requests: float,
    ) -> Access:
        """Return the traffic of ``num_reads`` reads of ``num_bytes`` each.

        A read from the host, a miss, takes ``link_bytes`` and ``requests`` on the link. ``counts``
        are reads from each clique member, then from the host; empty: all are from the host.
        """
        hits, peer_hits, misses = 0, 0, num_reads
        if counts and self.member is not None:
            hits, misses = counts[self.member], counts[-1]
            peer_hits = sum(counts) - hits - misses
        return Access(
            hits=hits,
            peer_hits=peer_hits,
            misses=0 if self.member is None else misses,
            host_bytes=misses * num_bytes,
            link_bytes=misses * link_bytes,
            link_requests=round(misses * requests),
            peer_bytes=peer_hits * num_bytes,
        )

    @cached_property
    def requests_per_row(self) -> float:
        """Average number of 128-byte requests over the link for a row, over its alignments."""
        word, first = word_bytes(self.rows, self.rows), self.rows.data_ptr()
        counted = [
            requests(self.row_bytes, first + row * self.row_bytes, word, shifts=True)
            for row in range(min(_ROWS, len(self.rows)))
        ]
        return sum(counted) / max(len(counted), 1)


def place_graph(
    graph: Graph,
    device: Cuda,
    engine: Engine,
    *,
    kept_bytes: int,
    cache: ResidentCache | None = None,
) -> ResidentGraph:
    """Return the graph as kernels read it: arrays in device memory, or in host memory.

    ``device`` states where, or leaves it to the memory that is free. With a ``cache``, features are
    in host memory, except cached rows, and so is the topology, unless ``device`` states otherwise.
    ``kept_bytes`` of device memory are for other data. Raises DeviceMemoryError if arrays that must
    be in device memory do not fit.
    """
    sizes = {"topology": topology_bytes(graph), "features": graph.feature_bytes}
    on_device = device.stores(**sizes, reserved=kept_bytes, budget=engine.memory_bytes)
    if cache is not None:
        on_device = (device.topology == "device", False)
    free_bytes = engine.memory_bytes - kept_bytes
    for (what, num_bytes), is_held in zip(sizes.items(), on_device, strict=True):
        if is_held and num_bytes > free_bytes:
            raise DeviceMemoryError(
                f"device_plan: {what}=device: {graph.name} has {num_bytes / 1e6:,.1f} MB of them, "
                f"and {device.label} has {max(free_bytes, 0) / 1e6:,.1f} MB of free memory; "
                f"{what}=host leaves them in host memory"
            )
        free_bytes -= num_bytes if is_held else 0
    placed = _placed(graph, engine, topology=on_device[0], features=on_device[1])
    return placed if cache is None else _cached(placed, cache)


def _cached(placed: ResidentGraph, cache: ResidentCache) -> ResidentGraph:
    """Return the graph ``placed``, with cached rows and adjacency lists read from ``cache``."""
    topology = placed.topology
    if not placed.lists_on_device:
        topology = replace(topology, cached=cache.lists)
    following = None
    look_ahead = cache.contents.look_ahead
    if look_ahead is not None:
        num_vertices = topology.num_vertices
        following = DynamicCache(cache.own_rows, num_vertices, match=look_ahead.match)
    return replace(
        placed,
        topology=topology,
        cached=cache.rows,
        member=cache.contents.member,
        following=following,
    )


def _placed(graph: Graph, engine: Engine, *, topology: bool, features: bool) -> ResidentGraph:
    """Return the graph with its topology in device memory if ``topology``, else in host memory.

    The same holds for its features. Kernels read both kinds of memory.
    """

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
    """Return a copy of ``array`` on ``device``, made in chunks, as it may be a mapped file."""
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
    """Return the bytes of the topology, edge weights, weight sums and degrees of ``graph``."""
    optional = (graph.edge_weights, graph.weight_sums, graph.degrees)
    return graph.topology_bytes + sum(array.nbytes for array in optional if array is not None)
