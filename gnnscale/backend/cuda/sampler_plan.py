"""Sampling plan that kernels read: words in the order of ``gnnscale_cuda/sample.hpp``."""

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
from gnnscale.sampling import MAX_HOPS, LayerSampling, WeightedSampling

#: Minimum vertices or edges that a block of threads processes at a time.
_TILE = 256
#: Words of a layer's priority histograms: 256 counts for each byte of a double.
_HISTOGRAM = 8 * 256
#: Slots of the hash table for each edge.
_SLOTS = 2
#: Larger than every stamp.
_NO_STAMP = 2**32 - 1
#: Largest fan-out that the lanes of one warp pick.
MAX_LANES = 32


class State:
    """Offsets, in int64 words, of the fields of a sample's state (``DeviceSample.state``).

    First come single words, then arrays with an entry for each hop.
    """

    STEP, BASE, ERROR, LOWEST, GREATEST = range(5)
    NUM_VERTICES = 7  #: one entry more than hops
    NUM_EDGES = NUM_VERTICES + MAX_HOPS + 1
    NUM_LISTED = NUM_EDGES + MAX_HOPS
    KEYS = NUM_LISTED + MAX_HOPS
    NUM_LEFT = KEYS + MAX_HOPS
    NUM_WORDS = NUM_LEFT + MAX_HOPS + 3


@dataclass(frozen=True, kw_only=True)
class HopArrays:
    """Arrays of a hop's block on the device; entries past its actual sizes are undefined."""

    indptr: torch.Tensor  #: int64 offsets
    indices: torch.Tensor  #: int32 local ids of sources
    positions: torch.Tensor | None  #: int64 indices of edges in the graph's ``indices``
    edge_weights: torch.Tensor | None  #: float32; None if weights are the sampling probabilities
    importance: torch.Tensor | None  #: float32, of layer-wise sampling
    max_vertices: int  #: capacity of vertices after the hop

    @classmethod
    def empty(
        cls, capacity: BatchCapacity, hop: int, device: torch.device, *, names: Sequence[str]
    ) -> "HopArrays":
        """Return uninitialized arrays of ``hop``, with the optional arrays in ``names``."""
        num_dst, max_vertices = capacity.num_vertices[hop : hop + 2]
        num_edges = capacity.num_edges[hop]

        def make(name: str, dtype: torch.dtype) -> torch.Tensor | None:
            is_used = name in names
            return torch.empty(num_edges, dtype=dtype, device=device) if is_used else None

        return cls(
            indptr=torch.empty(num_dst + 1, dtype=torch.int64, device=device),
            indices=torch.empty(num_edges, dtype=torch.int32, device=device),
            positions=make("positions", torch.int64),
            edge_weights=make("edge_weights", torch.float32),
            importance=make("importance", torch.float32),
            max_vertices=max_vertices,
        )

    def words(self, fanout: int) -> list[int]:
        """Return this hop's integers in the sampling plan: fan-out, capacities, array addresses.

        In layer-wise sampling ``fanout`` is the layer's size.
        """
        arrays = (self.indptr, self.indices, self.positions, self.edge_weights, self.importance)
        return [fanout, len(self.indices), self.max_vertices, *map(_address, arrays)]


class Scratch:
    """Device buffers for temporary values of sampling, shared by all samples of a sampler."""

    def __init__(
        self,
        graph: DeviceGraph,
        sampling: Sampling,
        capacity: BatchCapacity,
        device: torch.device,
        *,
        leaves_out: bool,
    ) -> None:
        def make(count: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
            return torch.empty(max(count, 1), dtype=dtype, device=device)

        layerwise = isinstance(sampling, LayerSampling)
        many = isinstance(sampling, WeightedSampling) or max(fanouts_of(sampling)) > MAX_LANES
        edges = capacity.max_edges
        self._num_stamps = capacity.num_stamps
        #: base of the previous sample's stamps; at first larger than every stamp
        self._last_base = torch.full((1,), _NO_STAMP, dtype=torch.int64, device=device)
        #: stamp of each vertex; all ones is larger than every stamp
        self._stamps = make(graph.num_vertices, torch.int32).fill_(-1)
        self._candidates = make(graph.num_vertices if layerwise else 1, torch.int32).fill_(-1)
        self._buffers = (
            make(edges if layerwise else 1, graph.indices.dtype),
            make(edges + 1 if layerwise or leaves_out else 1, torch.int32),
            make(edges if layerwise else 1),
            make(MAX_HOPS * _HISTOGRAM if layerwise else 1, torch.int32),
            make(capacity.max_vertices // _TILE + 1),
            make(edges // _TILE + 1),
        )
        self._lists = tuple(make(capacity.max_vertices) for _ in range(3))
        self._slots = make(_SLOTS * edges if many else 1, torch.int32)

    def words(self, vertices: torch.Tensor, picked: torch.Tensor) -> list[int]:
        """Return the plan's integers: number of stamps, addresses of buffers and of two outputs.

        These are the ``vertices`` of a sample, and ``picked``, the sources of its last hop's edges.
        """
        first = (vertices, self._stamps, *self._lists, picked, self._slots, self._candidates)
        arrays = (self._last_base, *first, *self._buffers)
        return [self._num_stamps, *map(_address, arrays)]


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """Output arrays of a sample: vertices by local id, and the block of each hop."""

    vertices: torch.Tensor
    picked: torch.Tensor  #: sources of the last hop's edges as vertices of the graph
    hops: tuple[HopArrays, ...]
    filtered_sources: torch.Tensor | None  #: ``picked`` without excluded edges
    filtered_hops: tuple[HopArrays, ...]  #: ``hops`` without excluded edges

    @classmethod
    def empty(
        cls,
        capacity: BatchCapacity,
        dtype: torch.dtype,
        device: torch.device,
        *,
        names: Sequence[str],
        leaves_out: bool,
    ) -> "Outputs":
        """Return uninitialized arrays of ``capacity``.

        Vertices have ``dtype``; ``names`` are optional arrays of hops. With ``leaves_out`` there
        are arrays for the sample without some edges, too.
        """

        def hops() -> tuple[HopArrays, ...]:
            numbers = range(len(capacity.num_edges))
            return tuple(HopArrays.empty(capacity, hop, device, names=names) for hop in numbers)

        def sources() -> torch.Tensor:
            return torch.empty(max(capacity.max_edges, 1), dtype=dtype, device=device)

        return cls(
            vertices=torch.empty(capacity.max_vertices, dtype=dtype, device=device),
            picked=sources(),
            hops=hops(),
            filtered_sources=sources() if leaves_out else None,
            filtered_hops=hops() if leaves_out else (),
        )


def plan_words(
    graph: DeviceGraph,
    sampling: Sampling,
    *,
    seed: int,
    capacity: BatchCapacity,
    scratch: Scratch,
    outputs: Outputs,
    weight_slots: torch.Tensor | None,
    read_counts: torch.Tensor,
) -> torch.Tensor:
    """Return the sampling plan that kernels read: options, capacities, and addresses of arrays.

    It is a tensor of int64 words in host memory, in the order of ``SamplePlan`` in sample.hpp. The
    arrays must stay alive with it.
    """
    has_positions = any(hop.positions is not None for hop in outputs.hops)
    weights = graph.edge_weights is not None
    sizes = sampling.layer_sizes if isinstance(sampling, LayerSampling) else sampling.fanouts
    arrays = (graph.indptr, graph.indices, graph.edge_weights, weight_slots)
    size = len(HopArrays.__dataclass_fields__) + 2

    def words_of(hops: tuple[HopArrays, ...]) -> list[int]:
        hop_words = list(chain.from_iterable(map(HopArrays.words, hops, sizes)))
        return hop_words + [0] * (size * MAX_HOPS - len(hop_words))

    words = [
        *(graph.num_vertices, graph.num_edges, *map(_address, arrays), len(sizes)),
        int(any(replaces(sampling, fanout) for fanout in fanouts_of(sampling))),
        int(isinstance(sampling, WeightedSampling)),
        int(isinstance(sampling, LayerSampling)),
        int(np.uint64(seed).astype(np.int64)),
        capacity.max_vertices,
        *scratch.words(outputs.vertices, outputs.picked),
        *words_of(outputs.hops),
        _address(outputs.filtered_sources),
        *words_of(outputs.filtered_hops),
        *(NO_LISTS if graph.cached is None else graph.cached.words),
        int(has_positions or weights),
        _address(read_counts),
    ]
    return torch.tensor(words, dtype=torch.int64)


def check_weights(graph: DeviceGraph, sampling: Sampling) -> None:
    """Raise ConfigError if sampling is weighted, and the graph has no edge weights."""
    if isinstance(sampling, WeightedSampling) and graph.edge_weights is None:
        raise ConfigError(
            f"sampler=weighted: edges of {graph.name} have no weights to draw neighbors by; "
            "sampler=neighbor draws uniformly"
        )


def _address(array: torch.Tensor | None) -> int:
    return 0 if array is None else array.data_ptr()
