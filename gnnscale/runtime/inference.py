"""Exact inference over the whole graph, layer by layer with all neighbours."""

from __future__ import annotations

import mmap
import os
import tempfile
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gnnscale.graph import Graph
from gnnscale.model import GNN
from gnnscale.ops import Rows
from gnnscale.progress import track
from gnnscale.runtime.loading import in_degrees
from gnnscale.sampler import NeighborSampler

__all__ = ["layerwise_inference"]

#: Hidden rows beyond this size go to a temporary file instead of memory.
MEMORY_BUDGET_BYTES = 512 << 20
#: Edges of one chunk, which bounds what a chunk needs besides its rows.
_CHUNK_EDGES = 1 << 20
_CHUNK_VERTICES = 1 << 14


class _HiddenRows:
    """The output of a layer for every vertex, in memory or in an unlinked temporary file.

    Pages of the file are dropped from this process after each chunk, so that its memory stays
    bounded; the operating system keeps them cached as long as it has room.
    """

    def __init__(self, num_rows: int, width: int) -> None:
        self.rows: NDArray[np.float32]
        self._map: mmap.mmap | None = None
        num_bytes = num_rows * width * 4
        if num_bytes <= MEMORY_BUDGET_BYTES:
            self.rows = np.empty((num_rows, width), dtype=np.float32)
        else:
            with tempfile.TemporaryFile(prefix="gnnscale-inference-") as file:
                # Room is taken now: a page that the disk cannot hold later would kill the process.
                os.posix_fallocate(file.fileno(), 0, num_bytes)
                self._map = mmap.mmap(file.fileno(), num_bytes)
            self.rows = np.frombuffer(self._map, dtype=np.float32).reshape(num_rows, width)

    def release_pages(self) -> None:
        if self._map is not None:
            self._map.madvise(mmap.MADV_DONTNEED)


def _chunks(graph: Graph, vertices: NDArray[Any]) -> list[NDArray[Any]]:
    """Cut ``vertices`` so that a chunk has about ``_CHUNK_EDGES`` in-edges at most."""
    degrees = graph.indptr[vertices + 1] - graph.indptr[vertices]
    cost = np.cumsum(np.maximum(degrees, _CHUNK_EDGES // _CHUNK_VERTICES))
    cuts = np.flatnonzero(np.diff(cost // _CHUNK_EDGES)) + 1
    return np.split(vertices, cuts)


@torch.no_grad()
def layerwise_inference(
    model: GNN, graph: Graph, *, num_threads: int, vertices: NDArray[Any] | None = None
) -> torch.Tensor:
    """Compute exact logits: every layer for all vertices before the next one.

    Each hidden layer is computed once a vertex, where sampling would compute it once a path. The
    last layer is computed for ``vertices`` alone.

    Args:
        model: put into evaluation mode for the call.
        graph: the whole graph.
        num_threads: threads of the native kernels.
        vertices: distinct ids to predict, all by default.

    Returns:
        ``[len(vertices), num_classes]`` float32, in the order of ``vertices``.
    """
    sampler = NeighborSampler(graph, fanouts=[-1], num_threads=num_threads)
    degrees = in_degrees(graph) if model.uses_degrees else None
    everything = np.arange(graph.num_vertices, dtype=graph.indices.dtype)
    wanted = everything if vertices is None else np.asarray(vertices, dtype=graph.indices.dtype)
    rows: Rows = (graph.features, graph.feature_dtype)
    previous: _HiddenRows | None = None
    was_training = model.training
    model.eval()
    try:
        for index in range(len(model.layers)):
            last = index + 1 == len(model.layers)
            targets = wanted if last else everything
            current: _HiddenRows | None = None
            done = 0
            with track(
                f"inference, layer {index + 1}", total=len(targets), unit="vertices"
            ) as advance:
                for chunk in _chunks(graph, targets):
                    h = _infer_chunk(model, index, rows, sampler, chunk, degrees, num_threads)
                    if current is None:
                        current = _HiddenRows(len(targets), h.shape[1])
                    current.rows[done : done + len(chunk)] = h.numpy()
                    done += len(chunk)
                    current.release_pages()
                    if previous is not None:
                        previous.release_pages()
                    advance(len(chunk))
            assert current is not None
            previous, rows = current, (current.rows, "float32")
    finally:
        model.train(was_training)
    assert previous is not None
    return torch.from_numpy(previous.rows)


def _infer_chunk(
    model: GNN,
    index: int,
    rows: Rows,
    sampler: NeighborSampler,
    chunk: NDArray[Any],
    degrees: NDArray[np.float32] | None,
    num_threads: int,
) -> torch.Tensor:
    batch = sampler.sample(chunk, 0)
    block = batch.blocks[0]
    x = model.layer(index).load(
        rows,
        batch.input_vertices,
        block,
        None if degrees is None else degrees[batch.input_vertices],
        dtype=torch.float32,
        num_threads=num_threads,
    )
    return model.infer(index, x, block).float()
