"""What sampling kernels are told once: graph, fan-outs, buffers and the room in them.

The order of words is that of ``cuda/include/gnnscale_cuda/sample.hpp``.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch

from gnnscale.core import MAX_COUNT, ConfigError, Float32Array
from gnnscale.graph import Graph
from gnnscale.sampler import LayerSampling, NeighborSampling, WeightedSampling
from gnnscale.sampler.minibatch import MAX_HOPS

Sampling = NeighborSampling | WeightedSampling | LayerSampling

#: Vertices or edges that a block of threads takes at a time at least.
_TILE = 256
#: Histograms of a layer's priorities: of 256 counts for each byte of a double.
_HISTOGRAM = 8 * 256
#: A hash table has so many slots an edge.
_SLOTS = 2
#: Fan-outs up to this are picked by the lanes of a warp.
MAX_LANES = 32
#: Words of the state before its arrays, see ``State``.
_SCALARS = 7


@dataclass(frozen=True, kw_only=True)
class DeviceGraph:
    """A topology that kernels read: in a device's memory, or in memory that it reaches."""

    name: str  #: what errors call it
    indptr: torch.Tensor  #: ``[num_vertices + 1]`` int64
    indices: torch.Tensor  #: ``[num_edges]`` int32 or int64
    edge_weights: torch.Tensor | None = None  #: ``[num_edges]`` float32
    #: ``[num_vertices]`` float32 on the host, sums of all weights of in-edges, if edges have any
    weight_sums: Float32Array | None = None

    @classmethod
    def copy_of(cls, graph: Graph, device: torch.device) -> DeviceGraph:
        """Copy the topology of ``graph``, and its weights, to ``device``."""
        weights = graph.edge_weights
        return cls(
            name=str(graph.path or graph.name),
            indptr=torch.tensor(np.asarray(graph.indptr), device=device),
            indices=torch.tensor(np.asarray(graph.indices), device=device),
            edge_weights=None if weights is None else torch.tensor(weights, device=device),
            weight_sums=graph.weight_sums,
        )

    @property
    def num_vertices(self) -> int:
        """Number of vertices."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return len(self.indices)


@dataclass(frozen=True, kw_only=True)
class Room:
    """Vertices and edges that a batch has room for.

    Attributes:
        num_vertices: before each hop, and after the last one.
        num_edges: of each hop, those that a layer chooses from included.
    """

    num_vertices: tuple[int, ...]
    num_edges: tuple[int, ...]

    @classmethod
    def of(
        cls, sampling: Sampling, graph: DeviceGraph, *, max_seeds: int, max_edges: int | None
    ) -> Room:
        """Return the most that ``max_seeds`` seeds can reach, ``max_edges`` a hop at most."""
        vertices, edges = [max_seeds], []
        for fanout in fanouts_of(sampling):
            # A destination is there once, so that all lists together are the graph.
            most = graph.num_edges if fanout < 0 else vertices[-1] * fanout
            if not sampling_replaces(sampling) or fanout < 0:
                most = min(most, graph.num_edges)
            edges.append(min(most, MAX_COUNT if max_edges is None else max_edges))
            new = layer_size(sampling, len(edges) - 1, edges[-1])
            vertices.append(min(vertices[-1] + new, max(graph.num_vertices, max_seeds)))
        return cls(num_vertices=tuple(vertices), num_edges=tuple(edges))

    @property
    def max_edges(self) -> int:
        """Edges of the largest hop."""
        return max(self.num_edges)

    @property
    def max_vertices(self) -> int:
        """Vertices of a batch."""
        return self.num_vertices[-1]


def fanouts_of(sampling: Sampling) -> list[int]:
    """Return the edges a destination of each hop; a layer chooses from all neighbours."""
    if isinstance(sampling, LayerSampling):
        return [-1] * len(sampling.layer_sizes)
    return list(sampling.fanouts)


def layer_size(sampling: Sampling, hop: int, num_edges: int) -> int:
    """Return how many vertices ``num_edges`` edges of a hop lead to at most."""
    if isinstance(sampling, LayerSampling):
        return min(sampling.layer_sizes[hop], num_edges)
    return num_edges


def sampling_replaces(sampling: Sampling) -> bool:
    """Return whether neighbours are drawn with replacement."""
    return not isinstance(sampling, LayerSampling) and sampling.replace


@dataclass(frozen=True, kw_only=True)
class HopArrays:
    """A block of a sample on the device, with room at its ends; from the seeds outwards."""

    indptr: torch.Tensor  #: int64 offsets
    indices: torch.Tensor  #: int32 local ids of sources
    positions: torch.Tensor | None  #: int64 places in the graph's indices
    edge_weights: torch.Tensor | None  #: float32
    importance: torch.Tensor | None  #: float32, of layer-wise sampling

    def words(self, fanout: int) -> list[int]:
        """Return what the plan says of the hop."""
        optional = (self.positions, self.edge_weights, self.importance)
        return [
            fanout,
            len(self.indices),
            self.indptr.data_ptr(),
            self.indices.data_ptr(),
            *(0 if each is None else each.data_ptr() for each in optional),
        ]


class Scratch:
    """Buffers that the batches of a sampler share, one after the other."""

    def __init__(
        self, graph: DeviceGraph, sampling: Sampling, room: Room, device: torch.device
    ) -> None:
        """Make them as large as the largest batch needs."""

        def ints(count: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
            return torch.empty(max(count, 1), dtype=dtype, device=device)

        layerwise = isinstance(sampling, LayerSampling)
        edges = room.max_edges
        many = not sampling_replaces(sampling) and max(fanouts_of(sampling)) > MAX_LANES
        #: of each vertex; all ones is above every stamp
        self.stamps = torch.full(
            (max(graph.num_vertices, 1),), -1, dtype=torch.int32, device=device
        )
        self.candidates = torch.full_like(self.stamps, -1) if layerwise else self.stamps[:1]
        self.begins = ints(room.max_vertices)
        self.degrees = ints(room.max_vertices)
        self.slots = ints(_SLOTS * edges if many else 0, torch.int32)
        self.kept = ints(edges if layerwise else 0, graph.indices.dtype)
        self.kept_before = ints(edges + 1 if layerwise else 0, torch.int32)
        self.priorities = ints(edges if layerwise else 0)
        self.histograms = ints(MAX_HOPS * _HISTOGRAM if layerwise else 0, torch.int32)
        self.vertex_tiles = ints(room.max_vertices // _TILE + 1)
        self.edge_tiles = ints(edges // _TILE + 1)


class State:
    """Where a batch's sizes, and what is wrong with it, lie in its state."""

    STEP, BASE, ERROR, LOWEST, GREATEST = range(5)
    NUM_VERTICES = _SCALARS
    NUM_EDGES = NUM_VERTICES + MAX_HOPS + 1
    NUM_LISTED = NUM_EDGES + MAX_HOPS
    NUM_WORDS = NUM_LISTED + 2 * MAX_HOPS


def plan_words(
    graph: DeviceGraph,
    sampling: Sampling,
    *,
    seed: int,
    room: Room,
    scratch: Scratch,
    vertices: torch.Tensor,
    picked: torch.Tensor,
    weight_sums: torch.Tensor | None,
    hops: list[HopArrays],
) -> torch.Tensor:
    """Return the plan on the host, int64."""
    weights = graph.edge_weights
    layerwise = isinstance(sampling, LayerSampling)
    words = [
        graph.num_vertices,
        graph.num_edges,
        graph.indptr.data_ptr(),
        graph.indices.data_ptr(),
        0 if weights is None else weights.data_ptr(),
        0 if weight_sums is None else weight_sums.data_ptr(),
        len(hops),
        int(sampling_replaces(sampling)),
        int(isinstance(sampling, WeightedSampling)),
        int(layerwise),
        int(np.uint64(seed).astype(np.int64)),
        room.max_vertices,
    ]
    buffers = (
        vertices,
        scratch.stamps,
        scratch.begins,
        scratch.degrees,
        picked,
        scratch.slots,
        scratch.candidates,
        scratch.kept,
        scratch.kept_before,
        scratch.priorities,
        scratch.histograms,
        scratch.vertex_tiles,
        scratch.edge_tiles,
    )
    words += [each.data_ptr() for each in buffers]
    sizes = sampling.layer_sizes if isinstance(sampling, LayerSampling) else sampling.fanouts
    words += chain.from_iterable(hop.words(size) for hop, size in zip(hops, sizes, strict=True))
    return torch.tensor(words, dtype=torch.int64)


def check_room(room: Room, max_seeds: int) -> None:
    """Refuse batches whose stamps would not fit into 32 bits.

    Raises:
        ConfigError: there is no room for a seed, or more than local ids can count.
    """
    if max_seeds < 1 or max_seeds > MAX_COUNT:
        raise ConfigError(f"max_seeds={max_seeds}, allowed are 1 to {MAX_COUNT:,}")
    if room.max_edges < 1 and any(room.num_edges):
        raise ConfigError(f"max_edges={room.max_edges}, allowed is a positive number")
