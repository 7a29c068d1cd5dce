"""Exact inference over the whole graph, layer by layer with all neighbours."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gnnscale import ops
from gnnscale.backend.chunks import CHUNK_EDGES, CHUNK_VERTICES, Chunk, ChunkLoader
from gnnscale.feature import FeatureStore, HostFeatures
from gnnscale.graph import Graph
from gnnscale.model import GNN
from gnnscale.progress import track
from gnnscale.stages import Traffic

__all__ = ["LayerwiseInference", "Limits"]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What inference may hold in memory.

    Attributes:
        hidden_bytes: hidden rows of a layer beyond this size go to a temporary file.
        chunk_edges, chunk_vertices: of one chunk, which bound what it needs besides its output.
        file_chunk_edges: of a chunk that reads its rows from a file, and holds them in memory.
        kept_bytes: inputs of the first layer up to this size are kept for the next call.
    """

    hidden_bytes: int = 512 << 20
    chunk_edges: int = CHUNK_EDGES
    chunk_vertices: int = CHUNK_VERTICES
    file_chunk_edges: int = 1 << 17
    kept_bytes: int = 64 << 20


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


class LayerwiseInference:
    """Computes exact logits: every layer for all vertices before the next one.

    Each hidden layer is computed once a vertex, where sampling would compute it once a path.
    What the first layer reads depends on no weight. Where it is small it is kept, since a small
    graph would spend most of each validation on reading it again.
    """

    def __init__(
        self,
        model: GNN,
        graph: Graph,
        *,
        num_threads: int,
        store: FeatureStore | None = None,
        limits: Limits = _LIMITS,
    ) -> None:
        """Prepare to infer.

        Args:
            model: whose weights may change between calls.
            graph: the whole graph.
            num_threads: threads of the native kernels.
            store: where features are read, by default the graph's own.
            limits: of memory.
        """
        self._model = model
        self._graph = graph
        self._store = HostFeatures.of(graph) if store is None else store
        self._limits = limits
        self._loader = ChunkLoader(graph, num_threads=num_threads, uses_degrees=model.uses_degrees)
        self._kept: list[Chunk] | None = None

    @torch.no_grad()
    def logits(self, vertices: NDArray[Any] | None = None) -> torch.Tensor:
        """Return the logits of ``vertices``, with the model's weights as they are now.

        Args:
            vertices: distinct ids, all by default. The last layer is computed for these alone.

        Returns:
            ``[len(vertices), num_classes]`` float32, in the order of ``vertices``.
        """
        dtype = self._graph.indices.dtype
        everything = np.arange(self._graph.num_vertices, dtype=dtype)
        wanted = everything if vertices is None else np.asarray(vertices, dtype=dtype)
        num_hidden = len(self._model.layers) - 1
        total = num_hidden * len(everything) + len(wanted)
        rows = self._store
        was_training = self._model.training
        self._model.eval()
        try:
            with self._progress(total) as advance:
                for index in range(num_hidden):
                    chunks = self._chunks(index, rows, everything)
                    hidden = self._infer(index, chunks, len(everything), self._limits, advance)
                    _close(rows)
                    rows = hidden
                chunks = self._chunks(num_hidden, rows, wanted)
                in_memory = replace(self._limits, hidden_bytes=sys.maxsize)
                logits = self._infer(num_hidden, chunks, len(wanted), in_memory, advance)
        finally:
            _close(rows)
            self._model.train(was_training)
        assert isinstance(logits, _MemoryRows)
        return torch.from_numpy(logits.rows)

    def _progress(self, total: int) -> AbstractContextManager[Callable[[int], None]]:
        """Show progress, but for a graph that is done before there is any to be shown."""
        graph, limits = self._graph, self._limits
        if graph.num_edges < limits.chunk_edges and graph.num_vertices < limits.chunk_vertices:
            return nullcontext(lambda _: None)
        return track("inference", total=total, unit="vertices")

    def _infer(
        self,
        index: int,
        chunks: Iterable[Chunk],
        num_rows: int,
        limits: Limits,
        advance: Callable[[int], None],
    ) -> _MemoryRows | _FileRows:
        """Compute layer ``index`` of ``chunks``, which have ``num_rows`` vertices together."""
        out: _MemoryRows | _FileRows | None = None
        for block, x in chunks:
            h = self._model.infer(index, x, block).float()
            if out is None:
                fits = num_rows * h.shape[1] * 4 <= limits.hidden_bytes
                out = (_MemoryRows if fits else _FileRows)(num_rows, h.shape[1])
            out.append(h)
            advance(len(h))
        assert out is not None
        return out

    def _chunks(self, index: int, rows: FeatureStore, vertices: NDArray[Any]) -> Iterable[Chunk]:
        """Return what layer ``index`` needs for ``vertices``; of the first layer it may be kept."""
        if index > 0 or len(self._model.layers) == 1:
            return self._read(index, rows, vertices)
        if self._kept is None:
            return self._keep(self._read(index, rows, vertices))
        return self._kept

    def _keep(self, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        """Yield ``chunks``, and keep them if they are small."""
        kept: list[Chunk] = []
        num_bytes = 0
        for block, x in chunks:
            num_bytes += x.nbytes + block.num_bytes
            if num_bytes <= self._limits.kept_bytes:
                kept.append((block, x))
            else:
                kept.clear()
            yield block, x
        if num_bytes <= self._limits.kept_bytes:
            self._kept = kept

    def _read(self, index: int, rows: FeatureStore, vertices: NDArray[Any]) -> Iterator[Chunk]:
        """Read what the layer needs of all neighbours of ``vertices``, chunk by chunk."""
        limits, in_file = self._limits, isinstance(rows, _FileRows)
        return self._loader.load(
            self._model.layer(index),
            rows,
            vertices,
            chunk_edges=limits.file_chunk_edges if in_file else limits.chunk_edges,
            chunk_vertices=limits.chunk_vertices,
        )


def _close(rows: FeatureStore) -> None:
    """Close a layer's output; features stay open."""
    if isinstance(rows, _FileRows):
        rows.close()
