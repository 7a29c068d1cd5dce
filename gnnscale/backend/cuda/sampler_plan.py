"""What sampling kernels read once: graph, fan-outs and buffers.

The order of words is that of ``cuda/include/gnnscale_cuda/sample.hpp``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch

from gnnscale.backend.cuda.capacity import (
    BatchCapacity,
    DeviceGraph,
    Sampling,
    fanouts_of,
    replaces,
)
from gnnscale.backend.cuda.device_cache import NO_LISTS
from gnnscale.core import ConfigError
from gnnscale.sampling import LayerSampling, WeightedSampling
from gnnscale.sampling.minibatch import MAX_HOPS

#: Vertices or edges that a block of threads takes at a time at least.
_TILE = 256
#: Histograms of a layer's priorities: of 256 counts for each byte of a double.
_HISTOGRAM = 8 * 256
#: A hash table has so many slots an edge.
_SLOTS = 2
#: Above every stamp.
_NO_STAMP = 2**32 - 1
#: Fan-outs up to this are picked by the lanes of a warp.
MAX_LANES = 32


class State:
    """Words of the state of a batch: single ones, then arrays with an entry for each hop."""

    STEP, BASE, ERROR, LOWEST, GREATEST = range(5)
    NUM_VERTICES = 7  #: and one more for the end
    NUM_EDGES = NUM_VERTICES + MAX_HOPS + 1
    NUM_LISTED = NUM_EDGES + MAX_HOPS
    KEYS = NUM_LISTED + MAX_HOPS
    NUM_LEFT = KEYS + MAX_HOPS
    NUM_WORDS = NUM_LEFT + MAX_HOPS + 3


@dataclass(frozen=True, kw_only=True)
class HopArrays:
    """A block of a sample on the device; arrays are longer than what counts of them."""

    indptr: torch.Tensor  #: int64 offsets
    indices: torch.Tensor  #: int32 local ids of sources
    positions: torch.Tensor | None  #: int64 places in the graph's indices, if they are asked for
    edge_weights: torch.Tensor | None  #: float32, if edges have weights that do not decide
    importance: torch.Tensor | None  #: float32, of layer-wise sampling
    max_vertices: int  #: room for vertices after the hop

    @classmethod
    def empty(
        cls, room: BatchCapacity, hop: int, device: torch.device, *, names: Sequence[str]
    ) -> HopArrays:
        """Make them, of the optional ones those of ``names``."""
        num_dst, max_vertices = room.num_vertices[hop : hop + 2]
        num_edges = room.num_edges[hop]

        def make(name: str, dtype: torch.dtype) -> torch.Tensor | None:
            wanted = name in names
            return torch.empty(num_edges, dtype=dtype, device=device) if wanted else None

        return cls(
            indptr=torch.empty(num_dst + 1, dtype=torch.int64, device=device),
            indices=torch.empty(num_edges, dtype=torch.int32, device=device),
            positions=make("positions", torch.int64),
            edge_weights=make("edge_weights", torch.float32),
            importance=make("importance", torch.float32),
            max_vertices=max_vertices,
        )

    def words(self, fanout: int) -> list[int]:
        """Return what the plan has of the hop."""
        arrays = (self.indptr, self.indices, self.positions, self.edge_weights, self.importance)
        return [fanout, len(self.indices), self.max_vertices, *map(_address, arrays)]


class Scratch:
    """Buffers that the batches of a sampler share, one after the other."""

    def __init__(
        self,
        graph: DeviceGraph,
        sampling: Sampling,
        room: BatchCapacity,
        device: torch.device,
        *,
        leaves_out: bool,
    ) -> None:
        """Make them as large as the largest batch needs."""

        def make(count: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
            return torch.empty(max(count, 1), dtype=dtype, device=device)

        layerwise = isinstance(sampling, LayerSampling)
        many = isinstance(sampling, WeightedSampling) or max(fanouts_of(sampling)) > MAX_LANES
        edges = room.max_edges
        self._num_stamps = room.num_stamps
        #: the base of the stamps of the sample before: above every stamp at first
        self._last_base = torch.full((1,), _NO_STAMP, dtype=torch.int64, device=device)
        #: of each vertex; all ones is above every stamp
        self._stamps = make(graph.num_vertices, torch.int32).fill_(-1)
        self._candidates = make(graph.num_vertices if layerwise else 1, torch.int32).fill_(-1)
        self._others = (
            make(edges if layerwise else 1, graph.indices.dtype),
            make(edges + 1 if layerwise or leaves_out else 1, torch.int32),
            make(edges if layerwise else 1),
            make(MAX_HOPS * _HISTOGRAM if layerwise else 1, torch.int32),
            make(room.max_vertices // _TILE + 1),
            make(edges // _TILE + 1),
        )
        self._lists = tuple(make(room.max_vertices) for _ in range(3))
        self._slots = make(_SLOTS * edges if many else 1, torch.int32)

    def words(self, vertices: torch.Tensor, picked: torch.Tensor) -> list[int]:
        """Return what the plan has of them, and of two buffers of each sample."""
        first = (vertices, self._stamps, *self._lists, picked, self._slots, self._candidates)
        arrays = (self._last_base, *first, *self._others)
        return [self._num_stamps, *map(_address, arrays)]


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """The arrays of a sample, by local id of a vertex or by edge."""

    vertices: torch.Tensor
    picked: torch.Tensor  #: sources of the last hop's edges as vertices of the graph
    hops: tuple[HopArrays, ...]
    #: the last two without the edges that are left out, if any are
    left_sources: torch.Tensor | None
    left: tuple[HopArrays, ...]

    @classmethod
    def empty(
        cls,
        room: BatchCapacity,
        dtype: torch.dtype,
        device: torch.device,
        *,
        names: Sequence[str],
        leaves_out: bool,
    ) -> Outputs:
        """Make them for vertices of ``dtype``."""

        def hops() -> tuple[HopArrays, ...]:
            numbers = range(len(room.num_edges))
            return tuple(HopArrays.empty(room, each, device, names=names) for each in numbers)

        def sources() -> torch.Tensor:
            return torch.empty(max(room.max_edges, 1), dtype=dtype, device=device)

        return cls(
            vertices=torch.empty(room.max_vertices, dtype=dtype, device=device),
            picked=sources(),
            hops=hops(),
            left_sources=sources() if leaves_out else None,
            left=hops() if leaves_out else (),
        )


def plan_words(
    graph: DeviceGraph,
    sampling: Sampling,
    *,
    seed: int,
    room: BatchCapacity,
    scratch: Scratch,
    outputs: Outputs,
    weight_slots: torch.Tensor | None,
    found: torch.Tensor,
) -> torch.Tensor:
    """Return the plan, int64, on the host."""
    places = any(each.positions is not None for each in outputs.hops)
    weights = graph.edge_weights is not None
    sizes = sampling.layer_sizes if isinstance(sampling, LayerSampling) else sampling.fanouts
    arrays = (graph.indptr, graph.indices, graph.edge_weights, weight_slots)
    size = len(HopArrays.__dataclass_fields__) + 2

    def words_of(hops: tuple[HopArrays, ...]) -> list[int]:
        found = list(chain.from_iterable(map(HopArrays.words, hops, sizes)))
        return found + [0] * (size * MAX_HOPS - len(found))

    words = [
        *(graph.num_vertices, graph.num_edges, *map(_address, arrays), len(sizes)),
        int(any(replaces(sampling, fanout) for fanout in fanouts_of(sampling))),
        int(isinstance(sampling, WeightedSampling)),
        int(isinstance(sampling, LayerSampling)),
        int(np.uint64(seed).astype(np.int64)),
        room.max_vertices,
        *scratch.words(outputs.vertices, outputs.picked),
        *words_of(outputs.hops),
        _address(outputs.left_sources),
        *words_of(outputs.left),
        *(NO_LISTS if graph.cached is None else graph.cached.words),
        int(places or weights),
        _address(found),
    ]
    return torch.tensor(words, dtype=torch.int64)


def check_weights(graph: DeviceGraph, sampling: Sampling) -> None:
    """Refuse to draw by weights that are not there.

    Raises:
        ConfigError: neighbours are drawn by weight, and the edges have no weights.
    """
    if isinstance(sampling, WeightedSampling) and graph.edge_weights is None:
        raise ConfigError(
            f"sampler=weighted: edges of {graph.name} have no weights to draw neighbours by; "
            "sampler=neighbor draws all alike"
        )


def _address(array: torch.Tensor | None) -> int:
    return 0 if array is None else array.data_ptr()
