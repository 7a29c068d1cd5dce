"""How large mini-batches are, by trial: what captured steps have room for (ZeroGNN)."""

from __future__ import annotations

import numpy as np

from gnnscale.backend.base import HostParts
from gnnscale.backend.cuda.room import DeviceGraph, Room, SampleSizes, Sampling
from gnnscale.graph import Graph
from gnnscale.sampler import LayerSampling, MiniBatch


def envelope(host: HostParts, topology: DeviceGraph, sampling: Sampling, *, max_seeds: int) -> Room:
    """Return the room for the mini-batches of a run.

    The first slices of the run are sampled by the host: what they need fixes it, so that a run that
    was resumed has the same.
    """
    most = Room.of(sampling, topology, max_seeds=max_seeds, max_edges=None)
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
