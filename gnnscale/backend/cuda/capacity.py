"""A graph as a device samples it, and the room that its samples need."""

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
from gnnscale.nn import GNN, TrainableModel
from gnnscale.nn.scatter_gather import CustomLayer
from gnnscale.sampling import LayerSampling, MiniBatch, NeighborSampling, WeightedSampling

Sampling = NeighborSampling | WeightedSampling | LayerSampling

#: Rows of a product are multiples of it, of which the hardware takes that many at a time.
_LINE = 64


@dataclass(frozen=True, kw_only=True)
class DeviceGraph:
    """A topology that kernels read: in a device's memory, or in memory that it reaches."""

    name: str  #: what errors call it
    indptr: torch.Tensor  #: ``[num_vertices + 1]`` int64
    indices: torch.Tensor  #: ``[num_edges]`` int32 or int64
    edge_weights: torch.Tensor | None = None  #: ``[num_edges]`` float32
    cached: DeviceAdjacencyCache | None = (
        None  #: lists that are read in device memory, and not here
    )

    @classmethod
    def copy_of(cls, graph: Graph, device: torch.device) -> DeviceGraph:
        """Copy the topology of ``graph``, and its weights, to ``device``."""
        weights = graph.edge_weights
        return cls(
            name=str(graph.path or graph.name),
            indptr=torch.tensor(np.asarray(graph.indptr), device=device),
            indices=torch.tensor(np.asarray(graph.indices), device=device),
            edge_weights=None if weights is None else torch.tensor(weights, device=device),
        )

    @property
    def num_vertices(self) -> int:
        """Vertices of the graph."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """Edges of the graph."""
        return len(self.indices)


@dataclass(frozen=True, kw_only=True)
class SampleSizes:
    """How large a sample is.

    Attributes:
        num_vertices: before each hop, seeds first, and after the last one.
        num_edges: of each hop.
    """

    num_vertices: tuple[int, ...]
    num_edges: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class BatchCapacity:
    """What a batch has room for.

    Attributes:
        num_vertices: before each hop, and after the last one.
        num_edges: of each hop; layer-wise, of all that a layer chooses from.
    """

    num_vertices: tuple[int, ...]
    num_edges: tuple[int, ...]

    @classmethod
    def of(
        cls, sampling: Sampling, graph: DeviceGraph, *, max_seeds: int, max_edges: int | None
    ) -> BatchCapacity:
        """Return what ``max_seeds`` seeds reach at most, with ``max_edges`` a hop at most.

        Raises:
            ConfigError: one of the two is not a positive number, or too large.
        """
        check_range("max_seeds", max_seeds, 1)
        if max_edges is not None:
            check_range("max_edges", max_edges, 1)
        vertices, edges = [max_seeds], []
        for hop, fanout in enumerate(fanouts_of(sampling)):
            # A vertex is expanded once a hop, so that all lists together are the graph.
            drawn = graph.num_edges if fanout < 0 else vertices[-1] * fanout
            if not replaces(sampling, fanout):
                drawn = min(drawn, graph.num_edges)
            edges.append(min(drawn, max_edges or MAX_COUNT, MAX_COUNT))
            new = edges[-1]
            if isinstance(sampling, LayerSampling):
                new = min(new, sampling.layer_sizes[hop])
            vertices.append(min(vertices[-1] + new, max(graph.num_vertices, max_seeds)))
        return cls(num_vertices=tuple(vertices), num_edges=tuple(edges))

    def around(self, sizes: Sequence[SampleSizes]) -> BatchCapacity:
        """Return room for samples like those of ``sizes``, and no more than there is here.

        What a hop has at most is kept if it is at most half as much again as the largest of
        ``sizes`` (ZeroGNN's envelope). Otherwise it is the largest and a tenth.
        """
        return BatchCapacity(
            num_vertices=_around(self.num_vertices, [each.num_vertices for each in sizes]),
            num_edges=_around(self.num_edges, [each.num_edges for each in sizes]),
        )

    def smallest(self, other: BatchCapacity) -> BatchCapacity:
        """Return the smaller of both rooms, hop by hop."""
        return BatchCapacity(
            num_vertices=tuple(map(min, self.num_vertices, other.num_vertices)),
            num_edges=tuple(map(min, self.num_edges, other.num_edges)),
        )

    @property
    def max_edges(self) -> int:
        """Edges of the largest hop."""
        return max(self.num_edges)

    @property
    def max_vertices(self) -> int:
        """Vertices of a batch."""
        return self.num_vertices[-1]

    @property
    def num_stamps(self) -> int:
        """Stamps that a batch uses: of vertices, and of edges that claim them."""
        return self.max_vertices + self.max_edges


def _around(most: tuple[int, ...], found: list[tuple[int, ...]]) -> tuple[int, ...]:
    """Return what ``BatchCapacity.around`` leaves of ``most``, in whole lines of a tile."""
    largest = [max(counts) for counts in zip(*found, strict=True)]
    return tuple(
        bound if 2 * bound <= 3 * seen else min(-(-11 * seen // (10 * _LINE)) * _LINE, bound)
        for bound, seen in zip(most, largest, strict=True)
    )


def fanouts_of(sampling: Sampling) -> list[int]:
    """Return the fan-out of each hop; a layer chooses from all neighbours."""
    if isinstance(sampling, LayerSampling):
        return [-1] * len(sampling.layer_sizes)
    return list(sampling.fanouts)


def replaces(sampling: Sampling, fanout: int) -> bool:
    """Return whether a hop draws with replacement."""
    return not isinstance(sampling, LayerSampling) and sampling.replace and fanout >= 0


def envelope(
    host: BackendInputs, topology: DeviceGraph, sampling: Sampling, *, max_seeds: int
) -> BatchCapacity:
    """Return the room for the mini-batches of a run.

    The first slices of the run are sampled by the host: what they need fixes it, so that a run that
    was resumed has the same.
    """
    most = BatchCapacity.of(sampling, topology, max_seeds=max_seeds, max_edges=None)
    assert host.own_steps is not None
    drawn = [
        _sizes(host.sampler.sample(seeds, step), host.graph, sampling)
        for step, seeds in enumerate(host.own_steps.first_slices)
        if len(seeds)
    ]
    return most.around(drawn) if drawn else most


def _sizes(batch: MiniBatch, graph: Graph, sampling: Sampling) -> SampleSizes:
    """Return the sizes of a mini-batch, seeds first; of a layer, the edges that it chose from."""
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
    """Return why ``model`` cannot compute over rows that are padded with zeros; None if it can.

    Models of the package can, and so can layers of a user's that gather by name.
    """
    if not isinstance(model, GNN):
        return f"{type(model).__name__} computes in its own way"
    if any(isinstance(norm, nn.BatchNorm1d) for norm in model.norms):
        return "statistics of batch normalisation count all rows"
    for index in range(len(model.layers)):
        layer = model.layer(index)
        if isinstance(layer, CustomLayer) and not isinstance(layer.functions.gather, str):
            return f"{type(layer.functions).__name__}.gather sees all messages"
    return None
