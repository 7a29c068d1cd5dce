"""Exact inference over the whole graph, layer by layer with all neighbours."""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gnnscale import ops
from gnnscale.backend.loading import in_degrees
from gnnscale.feature import FeatureStore, HostFeatures
from gnnscale.graph import Graph
from gnnscale.model import GNN
from gnnscale.progress import track
from gnnscale.sampler import NeighborSampler
from gnnscale.stages import Traffic

__all__ = ["Limits", "layerwise_inference"]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What inference may hold in memory.

    Attributes:
        hidden_bytes: hidden rows of a layer beyond this size go to a temporary file.
        chunk_edges, chunk_vertices: of one chunk, which bound what it needs besides its output.
        file_chunk_edges: of a chunk that reads its rows from a file, and holds them in memory.
    """

    hidden_bytes: int = 512 << 20
    chunk_edges: int = 1 << 20
    chunk_vertices: int = 1 << 14
    file_chunk_edges: int = 1 << 17


_LIMITS = Limits()


class _FileRows(FeatureStore):
    """A layer's output in an unlinked temporary file.

    Rows are read into a buffer, not mapped: the pages that random rows of a mapping touch would all
    count as this process's memory.
    """

    def __init__(self, num_rows: int, width: int) -> None:
        self._num_rows = num_rows
        self._width = width
        self._file = tempfile.TemporaryFile(prefix="gnnscale-inference-")  # noqa: SIM115
        try:
            # Room is taken now: better an error here than after hours.
            os.posix_fallocate(self._file.fileno(), 0, num_rows * width * 4)
        except OSError:
            self.close()
            raise

    @property
    def num_rows(self) -> int:
        return self._num_rows

    @property
    def width(self) -> int:
        return self._width

    @property
    def row_bytes(self) -> int:
        return 4 * self._width

    def append(self, h: torch.Tensor) -> None:
        self._file.write(h.numpy().data)

    def gather(
        self, vertices: NDArray[Any], *, dtype: torch.dtype, num_threads: int
    ) -> tuple[torch.Tensor, Traffic]:
        self._file.flush()
        rows = ops.empty((len(vertices), self._width), torch.float32)
        ops.read_rows(self._file.fileno(), vertices, out=rows, num_threads=num_threads)
        return rows.to(dtype), Traffic()

    def close(self) -> None:
        self._file.close()


class _MemoryRows(HostFeatures):
    """A layer's output in memory."""

    def __init__(self, num_rows: int, width: int) -> None:
        self.rows = np.empty((num_rows, width), dtype=np.float32)
        self._done = 0
        super().__init__(self.rows, "float32")

    def append(self, h: torch.Tensor) -> None:
        self.rows[self._done : self._done + len(h)] = h.numpy()
        self._done += len(h)


def _chunks(
    graph: Graph, vertices: NDArray[Any], num_edges: int, num_vertices: int
) -> list[NDArray[Any]]:
    """Cut ``vertices`` so that a chunk has about ``num_edges`` in-edges, or ``num_vertices``."""
    degrees = graph.indptr[vertices + 1] - graph.indptr[vertices]
    cost = np.cumsum(np.maximum(degrees, max(num_edges // num_vertices, 1)))
    cuts = np.flatnonzero(np.diff(cost // num_edges)) + 1
    return np.split(vertices, cuts)


@torch.no_grad()
def layerwise_inference(
    model: GNN,
    graph: Graph,
    *,
    num_threads: int,
    vertices: NDArray[Any] | None = None,
    store: FeatureStore | None = None,
    limits: Limits = _LIMITS,
) -> torch.Tensor:
    """Compute exact logits: every layer for all vertices before the next one.

    Each hidden layer is computed once a vertex, where sampling would compute it once a path. The
    last layer is computed for ``vertices`` alone.

    Args:
        model: put into evaluation mode for the call.
        graph: the whole graph.
        num_threads: threads of the native kernels.
        vertices: distinct ids to predict, all by default.
        store: where features are read, by default the graph's own.
        limits: of memory.

    Returns:
        ``[len(vertices), num_classes]`` float32, in the order of ``vertices``.
    """
    sampler = NeighborSampler(graph, fanouts=[-1], num_threads=num_threads)
    degrees = in_degrees(graph) if model.uses_degrees else None
    everything = np.arange(graph.num_vertices, dtype=graph.indices.dtype)
    wanted = everything if vertices is None else np.asarray(vertices, dtype=graph.indices.dtype)
    rows: FeatureStore = HostFeatures.of(graph) if store is None else store
    was_training = model.training
    model.eval()
    try:
        for index in range(len(model.layers) - 1):
            hidden = _infer_layer(model, index, rows, sampler, everything, degrees, graph, limits)
            _close(rows)
            rows = hidden
        last = len(model.layers) - 1
        in_memory = replace(limits, hidden_bytes=sys.maxsize)
        logits = _infer_layer(model, last, rows, sampler, wanted, degrees, graph, in_memory)
    finally:
        _close(rows)
        model.train(was_training)
    assert isinstance(logits, _MemoryRows)
    return torch.from_numpy(logits.rows)


def _infer_layer(
    model: GNN,
    index: int,
    rows: FeatureStore,
    sampler: NeighborSampler,
    vertices: NDArray[Any],
    degrees: NDArray[np.float32] | None,
    graph: Graph,
    limits: Limits,
) -> _MemoryRows | _FileRows:
    """Compute layer ``index`` for ``vertices`` from the rows of the layer before it."""
    out: _MemoryRows | _FileRows | None = None
    with track(f"inference, layer {index + 1}", total=len(vertices), unit="vertices") as advance:
        in_file = isinstance(rows, _FileRows)
        num_edges = limits.file_chunk_edges if in_file else limits.chunk_edges
        for chunk in _chunks(graph, vertices, num_edges, limits.chunk_vertices):
            batch = sampler.sample(chunk, 0)
            own = None if degrees is None else degrees[batch.input_vertices]
            x, _ = model.layer(index).load(
                rows,
                batch.input_vertices,
                batch.blocks[0],
                own,
                dtype=torch.float32,
                num_threads=sampler.num_threads,
            )
            h = model.infer(index, x, batch.blocks[0]).float()
            if out is None:
                fits = len(vertices) * h.shape[1] * 4 <= limits.hidden_bytes
                out = (_MemoryRows if fits else _FileRows)(len(vertices), h.shape[1])
            out.append(h)
            advance(len(chunk))
    assert out is not None
    return out


def _close(rows: FeatureStore) -> None:
    """Close a layer's output; features stay open."""
    if isinstance(rows, _FileRows):
        rows.close()
