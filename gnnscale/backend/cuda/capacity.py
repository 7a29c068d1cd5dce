"""Topology of a graph on a device, and the capacity of its samples' arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from gnnscale.backend.base import BackendInputs
from gnnscale.backend.cuda.device_cache import DeviceAdjacencyCache
from gnnscale.core import MAX_COUNT, check_range
from gnnscale.graph import Graph
from gnnscale.nn import GNN, CustomLayer, TrainableModel
from gnnscale.sampling import (
    LayerSampling,
    MiniBatch,
    NeighborSampling,
    SamplerConfig,
    WeightedSampling,
)
from gnnscale.sampling.edge_batches import LinkSampling

Sampling = NeighborSampling | WeightedSampling | LayerSampling

#: Capacities are multiples of it, the tile size of matrix products on the hardware.
_LINE = 64


@dataclass(frozen=True, kw_only=True)
class DeviceGraph:
    """Topology that kernels read, in device memory or in host memory mapped by the device."""

    name: str  #: name in errors
    indptr: torch.Tensor  #: ``[num_vertices + 1]`` int64
    indices: torch.Tensor  #: ``[num_edges]`` int32 or int64
    edge_weights: torch.Tensor | None = None  #: ``[num_edges]`` float32. None: no weights
    #: adjacency lists that are read from device memory instead of ``indices``
    cached: DeviceAdjacencyCache | None = None

    @classmethod
    def copy_of(cls, graph: Graph, device: torch.device) -> DeviceGraph:
        """Copy the topology of ``graph``, and its edge weights, to ``device``."""
        weights = graph.edge_weights
        return cls(
            name=str(graph.path or graph.name),
            indptr=torch.tensor(np.asarray(graph.indptr), device=device),
            indices=torch.tensor(np.asarray(graph.indices), device=device),
            edge_weights=None if weights is None else torch.tensor(weights, device=device),
        )

    @property
    def num_vertices(self) -> int:
        """Number of vertices of the graph."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """Number of edges of the graph."""
        return len(self.indices)


@dataclass(frozen=True, kw_only=True)
class SampleSizes:
    """Sizes of a sample: seeds and all vertices after each hop; and edges of each hop.

    Hop 1 starts from the seeds.
    """

    num_vertices: tuple[int, ...]
    num_edges: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class BatchCapacity:
    """Maximum sizes of a sample, as ``SampleSizes``.

    In layer-wise sampling, edges of a hop are all candidate edges that it chooses from.
    """

    num_vertices: tuple[int, ...]
    num_edges: tuple[int, ...]

    @classmethod
    def of(
        cls, sampling: Sampling, graph: DeviceGraph, *, max_seeds: int, max_edges: int | None
    ) -> BatchCapacity:
        """Return the maximum sizes of a sample of ``max_seeds`` seeds.

        ``max_edges`` limit each hop. None: only fan-outs and the graph do.
        """
        check_range("max_seeds", max_seeds, 1)
        if max_edges is not None:
            check_range("max_edges", max_edges, 1)
        vertices, edges = [max_seeds], []
        for hop, fanout in enumerate(fanouts_of(sampling)):
            # A hop expands each vertex once, and so reads each edge of the graph at most once.
            num_edges = graph.num_edges if fanout < 0 else vertices[-1] * fanout
            if not replaces(sampling, fanout):
                num_edges = min(num_edges, graph.num_edges)
            edges.append(min(num_edges, max_edges or MAX_COUNT, MAX_COUNT))
            new = edges[-1]
            if isinstance(sampling, LayerSampling):
                new = min(new, sampling.layer_sizes[hop])
            vertices.append(min(vertices[-1] + new, max(graph.num_vertices, max_seeds)))
        return cls(num_vertices=tuple(vertices), num_edges=tuple(edges))

    def around(self, sizes: Sequence[SampleSizes]) -> BatchCapacity:
        """Return the capacity observed in ``sizes`` (ZeroGNN's envelope), within this capacity.

        The capacity of a hop is unchanged if it is at most 1.5 times the largest of ``sizes``.
        Otherwise it becomes 1.1 times the largest, rounded up to a multiple of 64.
        """
        return BatchCapacity(
            num_vertices=_around(self.num_vertices, [size.num_vertices for size in sizes]),
            num_edges=_around(self.num_edges, [size.num_edges for size in sizes]),
        )

    def smallest(self, other: BatchCapacity) -> BatchCapacity:
        """Return the minimum of both capacities, hop by hop."""
        return BatchCapacity(
            num_vertices=tuple(map(min, self.num_vertices, other.num_vertices)),
            num_edges=tuple(map(min, self.num_edges, other.num_edges)),
        )

    @property
    def sizes(self) -> SampleSizes:
        """Sizes of a sample that fills this capacity."""
        return SampleSizes(num_vertices=self.num_vertices, num_edges=self.num_edges)

    @property
    def max_edges(self) -> int:
        """Maximum number of edges of a hop."""
        return max(self.num_edges)

    @property
    def max_vertices(self) -> int:
        """Maximum number of vertices of a sample."""
        return self.num_vertices[-1]

    @property
    def num_stamps(self) -> int:
        """Number of stamps (numbers by which kernels mark vertices as sampled) that a sample needs.

        There is one per vertex, and one per edge of a hop that may claim a new vertex.
        """
        return self.max_vertices + self.max_edges


def _around(bounds: tuple[int, ...], counts: list[tuple[int, ...]]) -> tuple[int, ...]:
    """Return each hop's bound; if over 1.5 times its largest count, 1.1 times that count instead.

    The latter is rounded up to a multiple of 64, and at most the bound.
    """
    largest = [max(hop_counts) for hop_counts in zip(*counts, strict=True)]
    return tuple(
        bound
        if 2 * bound <= 3 * largest_count
        else min(-(-11 * largest_count // (10 * _LINE)) * _LINE, bound)
        for bound, largest_count in zip(bounds, largest, strict=True)
    )


def vertex_sampling(sampling: SamplerConfig) -> SamplerConfig:
    """Return the options by which neighborhoods of vertices are sampled.

    They are ``sampling``, or in link prediction its options for the ends of edges.
    """
    return sampling.vertices if isinstance(sampling, LinkSampling) else sampling


def fanouts_of(sampling: Sampling) -> list[int]:
    """Return the fan-out of each hop; -1 in layer-wise sampling.

    There a hop chooses among all neighbors.
    """
    if isinstance(sampling, LayerSampling):
        return [-1] * len(sampling.layer_sizes)
    return list(sampling.fanouts)


def replaces(sampling: Sampling, fanout: int) -> bool:
    """Return whether a hop of ``fanout`` samples neighbors with replacement."""
    return not isinstance(sampling, LayerSampling) and sampling.replace and fanout >= 0


def envelope(
    host: BackendInputs, topology: DeviceGraph, sampling: Sampling, *, max_seeds: int
) -> BatchCapacity:
    """Return the capacity observed in mini-batches that the host samples for the first steps.

    Their seeds are ``host.step_inputs.first_slices``. If these are all empty, it is the maximum
    capacity of ``max_seeds`` seeds.
    """
    bound = BatchCapacity.of(sampling, topology, max_seeds=max_seeds, max_edges=None)
    assert host.step_inputs is not None
    sizes = [
        _sizes(host.sampler.sample(seeds, step), host.graph, sampling)
        for step, seeds in enumerate(host.step_inputs.first_slices)
        if len(seeds)
    ]
    return bound.around(sizes) if sizes else bound


def _sizes(batch: MiniBatch, graph: Graph, sampling: Sampling) -> SampleSizes:
    """Return a host mini-batch's sizes by hop; layer-wise sampling counts all candidate edges."""
    blocks = batch.blocks[::-1]
    edges = tuple(block.num_edges for block in blocks)
    if isinstance(sampling, LayerSampling):
        degrees = np.diff(graph.indptr)
        vertices = batch.input_vertices
        edges = tuple(int(degrees[vertices[: block.num_dst]].sum()) for block in blocks)
    return SampleSizes(
        num_vertices=(batch.num_seeds, *(block.num_src for block in blocks)), num_edges=edges
    )


def needs_sizes(model: TrainableModel) -> str | None:
    """Return the reason why ``model`` cannot compute over rows padded with zeros. None: it can."""
    if not isinstance(model, GNN):
        return f"{type(model).__name__} is user code"
    if any(isinstance(norm, nn.BatchNorm1d) for norm in model.norms):
        return "statistics of batch normalization count all rows"
    for index in range(len(model.layers)):
        layer = model.layer(index)
        if isinstance(layer, CustomLayer) and not isinstance(layer.functions.gather, str):
            return f"{type(layer.functions).__name__}.gather sees all messages"
    return None
