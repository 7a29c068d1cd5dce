"""Exact inference over the whole graph, layer by layer with all neighbours."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gnnscale.backend.chunks import CHUNK_EDGES, CHUNK_VERTICES, Chunk, ChunkLoader, Vertices, cut
from gnnscale.dataset.storage.space import size
from gnnscale.feature import FeatureStore, HostFeatures
from gnnscale.graph import Graph
from gnnscale.model import GNN
from gnnscale.model.layer import LinearAggregationLayer
from gnnscale.progress import track
from gnnscale.runtime.evaluation.estimate import LayerSize, estimated_s, layer_size
from gnnscale.runtime.evaluation.hidden_rows import FileRows, MemoryRows, Wanted
from gnnscale.runtime.evaluation.needed import NeededRows, needed_vertices
from gnnscale.runtime.evaluation.plan import InferencePlan, plan_layers

__all__ = ["LayerwiseInference", "Limits"]

_LOG = logging.getLogger(__name__)

#: Inference of more chunks than these takes long enough to be announced.
_MANY_CHUNKS = 16
#: Bytes of an edge whose row is added to a sum: its row, destination, weight and place in order.
_EDGE_BYTES = 48


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What inference may hold in memory.

    Attributes:
        hidden_bytes: hidden rows of a layer beyond this size go to a temporary file; None for what
            fits into the memory that is available, up to 512 MiB.
        chunk_edges, chunk_vertices: of one chunk, which bound what it needs besides its output.
        file_chunk_edges: of a chunk that reads single rows from a file, and holds them in memory.
        stream_bytes: sums over the edges of a layer in a file, and as much again of its rows; None
            for a part of the memory that is available.
        kept_bytes: inputs of the first layer up to this size are kept for the next call.
        whole_vertices: of a graph of up to so many, hidden layers are computed for all vertices,
            and what is kept serves any; of a larger one for those that are needed.
    """

    hidden_bytes: int | None = None
    chunk_edges: int = CHUNK_EDGES
    chunk_vertices: int = CHUNK_VERTICES
    file_chunk_edges: int = 1 << 17
    stream_bytes: int | None = None
    kept_bytes: int = 64 << 20
    whole_vertices: int = 1 << 20


_LIMITS = Limits()


@dataclass(frozen=True, kw_only=True)
class Work:
    """What the logits of some vertices take.

    Attributes:
        wanted: these vertices.
        needed: the vertices that each hidden layer is computed for.
        sizes: of each layer, the last one included.
        plan: where hidden layers are kept.
    """

    wanted: Vertices
    needed: list[Vertices]
    sizes: list[LayerSize]
    plan: InferencePlan


class LayerwiseInference:
    """Computes exact logits: every layer for all vertices that need it before the next one.

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
        self._num_threads = num_threads
        self._loader = ChunkLoader(graph, num_threads=num_threads, uses_degrees=model.uses_degrees)
        self._kept: list[Chunk] | None = None
        self._last: Work | None = None

    def work(self, vertices: NDArray[Any] | None) -> Work:
        """Return what ``logits`` of ``vertices`` has to do; of the last ones it is remembered."""
        graph, limits = self._graph, self._limits
        everything = range(graph.num_vertices)
        wanted: Vertices = everything
        if vertices is not None:
            wanted = np.asarray(vertices, dtype=graph.indices.dtype)
        last = self._last
        if last is not None and np.array_equal(last.wanted, wanted):
            return last
        num_hidden = len(self._model.layers) - 1
        needed: list[Vertices] = [everything] * num_hidden
        if graph.num_vertices > limits.whole_vertices:
            needed = needed_vertices(
                graph,
                wanted,
                num_hidden,
                chunk_edges=limits.chunk_edges,
                chunk_vertices=limits.chunk_vertices,
                num_threads=self._num_threads,
            )
        known = [] if last is None else last.needed
        if not all(isinstance(each, range) for each in (*needed[:1], *known[:1])):
            self._kept = None
        plan = plan_layers(
            list(zip(map(len, needed), self._model.widths[1:-1], strict=True)),
            hidden_bytes=limits.hidden_bytes,
            stream_bytes=limits.stream_bytes,
        )
        sizes = [layer_size(graph, each) for each in (*needed, wanted)]
        self._last = Work(wanted=wanted, needed=needed, sizes=sizes, plan=plan)
        return self._last

    def prepare(self, vertices: NDArray[Any]) -> None:
        """Say what inference of ``vertices`` takes, where that is much.

        Raises:
            ConfigError: there is less room on the disk than hidden layers need.
        """
        work = self.work(vertices)
        work.plan.check_disk()
        if sum(each.num_edges for each in work.sizes) < _MANY_CHUNKS * self._limits.chunk_edges:
            return
        _LOG.info(
            f"exact inference of {len(vertices):,} vertices of {self._graph.name}: "
            f"about {self.estimate_s(vertices):,.0f} s each time, "
            f"{size(work.plan.temporary_bytes)} of temporary disk, "
            f"{size(work.plan.memory_bytes)} of memory for hidden layers"
        )

    def estimate_s(self, vertices: NDArray[Any] | None) -> float:
        """Return the seconds that ``logits`` of ``vertices`` will about take."""
        work = self.work(vertices)
        first = work.needed[0] if work.needed else work.wanted
        chunks = self._read(0, self._store, first)
        was_training = self._model.training
        self._model.eval()
        try:
            return estimated_s(self._model, work.sizes, work.plan, lambda: next(chunks))
        finally:
            self._model.train(was_training)

    @torch.no_grad()
    def logits(self, vertices: NDArray[Any] | None = None) -> torch.Tensor:
        """Return the logits of ``vertices``, with the model's weights as they are now.

        Args:
            vertices: distinct ids, all by default. Layers are computed for what these need alone.

        Returns:
            ``[len(vertices), num_classes]`` float32, in the order of ``vertices``.
        """
        work = self.work(vertices)
        rows = self._store
        was_training = self._model.training
        self._model.eval()
        try:
            with self._progress(sum(each.num_vertices for each in work.sizes)) as advance:
                for index, needed in enumerate(work.needed):
                    chunks = self._chunks(index, rows, needed)
                    hidden = self._infer(index, chunks, len(needed), advance)
                    _close(rows)
                    rows = hidden
                    if not isinstance(needed, range):
                        rows = NeededRows(hidden, needed, self._graph.num_vertices)
                chunks = self._chunks(len(work.needed), rows, work.wanted)
                logits = self._infer(len(work.needed), chunks, len(work.wanted), advance)
        finally:
            _close(rows)
            self._model.train(was_training)
        assert isinstance(logits, MemoryRows)
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
        advance: Callable[[int], None],
    ) -> MemoryRows | FileRows:
        """Compute layer ``index`` of ``chunks``, which have ``num_rows`` vertices together."""
        assert self._last is not None
        plan = self._last.plan
        in_file = (*plan.in_file, False)[index]
        out: MemoryRows | FileRows | None = None
        for block, x in chunks:
            h = self._model.infer(index, x, block).float()
            if out is None:
                width = h.shape[1]
                out = (
                    FileRows(num_rows, width, stretch_bytes=plan.stream_bytes)
                    if in_file
                    else MemoryRows(num_rows, width)
                )
            out.append(h)
            advance(len(h))
        assert out is not None
        return out

    def _chunks(self, index: int, rows: FeatureStore, vertices: Vertices) -> Iterable[Chunk]:
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

    def _read(self, index: int, rows: FeatureStore, vertices: Vertices) -> Iterator[Chunk]:
        """Read what the layer needs of all neighbours of ``vertices``, chunk by chunk."""
        limits, layer = self._limits, self._model.layer(index)
        in_file = isinstance(_stored(rows), FileRows)
        if in_file and isinstance(layer, LinearAggregationLayer):
            return self._stream(layer, rows, vertices)
        return self._loader.load(
            layer,
            rows,
            vertices,
            chunk_edges=limits.file_chunk_edges if in_file else limits.chunk_edges,
            chunk_vertices=limits.chunk_vertices,
        )

    def _stream(
        self, layer: LinearAggregationLayer, store: FeatureStore, vertices: Vertices
    ) -> Iterator[Chunk]:
        """Read the same from a file, which is read from end to end for many chunks at once."""
        rows = _stored(store)
        assert isinstance(rows, FileRows)
        assert self._last is not None
        stream_bytes = self._last.plan.stream_bytes
        limits = self._limits
        group: list[Wanted] = []
        num_bytes = 0
        for chunk in cut(self._graph, vertices, limits.chunk_edges, limits.chunk_vertices):
            batch, degrees = self._loader.sample(chunk)
            block = batch.blocks[0]
            aggregation = layer.aggregation(block, degrees)
            # Own and aggregated rows of a chunk are made of the sums of all.
            num_bytes += block.num_dst * rows.row_bytes + block.num_edges * _EDGE_BYTES
            if group and num_bytes > stream_bytes:
                yield from self._add_up(rows, group)
                group = []
                num_bytes = block.num_dst * rows.row_bytes + block.num_edges * _EDGE_BYTES
            sources = batch.input_vertices
            if isinstance(store, NeededRows):
                sources, block = store.local(sources, block)
            group.append(Wanted(block=block, vertices=sources, aggregation=aggregation))
        yield from self._add_up(rows, group)

    def _add_up(self, rows: FileRows, group: list[Wanted]) -> Iterator[Chunk]:
        aggregated = rows.aggregate_all(group, num_threads=self._num_threads)
        for each, x in zip(group, aggregated, strict=True):
            yield each.block, x


def _stored(rows: FeatureStore) -> FeatureStore:
    """Return the rows of a layer, whether of all vertices or of some."""
    return rows.rows if isinstance(rows, NeededRows) else rows


def _close(rows: FeatureStore) -> None:
    """Close a layer's output; features stay open."""
    stored = _stored(rows)
    if isinstance(stored, FileRows):
        stored.close()
