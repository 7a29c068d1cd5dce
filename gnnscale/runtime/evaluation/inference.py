"""Exact inference over the whole graph, layer by layer with all neighbours."""

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from gnnscale import ops
from gnnscale.artifact.files import size
from gnnscale.backend import Inferring
from gnnscale.backend.loading import Chunk, ChunkLoader, Vertices, cut, in_degrees
from gnnscale.core import Array, track
from gnnscale.feature import FeatureStore, HostFeatures
from gnnscale.graph import Graph
from gnnscale.model import TrainableModel, gnn
from gnnscale.model.layer import LinearAggregationLayer
from gnnscale.runtime.evaluation import rows as row_stores
from gnnscale.runtime.evaluation.plan import Limits, NeededRows, Work, disk_rate, find_work
from gnnscale.runtime.evaluation.rows import (
    EDGE_BYTES,
    EncodedRows,
    FileRows,
    MemoryRows,
    Workers,
    file_bytes,
)


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A chunk that is yet to be loaded."""

    first: int  #: the row of its first vertex among the layer's
    load: Callable[[], Chunk]  #: loads it, in any thread
    vertices: Array | None = None  #: of the chunk; None if the layer reads no rows of theirs


class LayerPass:
    """Computes layers of one model, each from a store of the rows below it."""

    def __init__(
        self, model: TrainableModel, graph: Graph, work: Work, limits: Limits, workers: Workers
    ) -> None:
        """Compute ``model`` on ``graph``."""
        self._model = model
        self._graph = graph
        self._work = work
        self._limits = limits
        self._workers = workers
        self._loader = ChunkLoader(graph, num_threads=workers.each, uses_degrees=model.uses_degrees)

    def num_reads(self, index: int) -> int:
        """Return of how many earlier layers layer ``index`` reads the rows of its vertices."""
        return len(self._model.reads(index))

    def output(self, index: int, num_rows: int) -> MemoryRows | FileRows | None:
        """Make room for ``num_rows`` rows of layer ``index``, as the layer above it reads them.

        Nothing reads those of the last layer, which need no room.
        """
        work = self._work
        if index == len(work.widths):
            return None
        width, num_parts = work.widths[index]
        if not work.plan.in_file[index]:
            return MemoryRows(num_rows, width, num_parts=num_parts)
        stretch_bytes = work.plan.stream_bytes
        return FileRows(num_rows, width, num_parts=num_parts, stretch_bytes=stretch_bytes)

    def compute(
        self,
        index: int,
        groups: Iterable[Iterable[Piece]],
        out: MemoryRows | FileRows | None,
        own: Sequence[FeatureStore] = (),
    ) -> Iterator[Chunk]:
        """Compute layer ``index`` of all pieces; yield each once it is done, in their order.

        Args:
            out: where rows are written; None yields them, in place of what they were made of.
            own: the stores of rows that the layer ``reads``.
        """
        work, model = self._work, self._model
        layer = work.layers[index]
        above = work.layers[index + 1] if index + 1 < len(work.layers) else None

        def compute(piece: Piece) -> Chunk:
            block, x = piece.load()
            h = model.infer(index, x, block, layer, self._own(piece, own)).float()
            if out is None:
                return block, h
            out.write(piece.first, above.project(h) if isinstance(above, gnn.ProjectedLayer) else h)
            return block, x

        for group in groups:
            yield from self._workers.map(compute, group)

    def _own(self, piece: Piece, stores: Sequence[FeatureStore]) -> list[torch.Tensor]:
        """Return the rows of a piece's vertices in each of ``stores``."""
        if not stores:
            return []
        assert piece.vertices is not None
        options: Any = {"dtype": torch.float32, "num_threads": self._workers.each}
        return [store.gather(piece.vertices, **options)[0] for store in stores]

    def pieces(
        self, index: int, rows: FeatureStore, vertices: Vertices
    ) -> Iterator[Iterable[Piece]]:
        """Yield pieces of layer ``index``, in groups that are computed one after the other."""
        limits, layer, stored = self._limits, self._work.layers[index], _stored(rows)
        in_file = isinstance(stored, FileRows)
        num_edges = limits.chunk_edges
        if in_file and not isinstance(layer, LinearAggregationLayer):
            num_edges = limits.file_chunk_edges
        chunks = cut(self._graph, vertices, num_edges, limits.chunk_vertices)
        if isinstance(stored, FileRows) and isinstance(layer, LinearAggregationLayer):
            yield from self._stream(layer, rows, stored, chunks)
        else:
            yield _in_order(
                (chunk, partial(self._loader.load_chunk, layer, rows, chunk)) for chunk in chunks
            )

    def _stream(
        self,
        layer: LinearAggregationLayer,
        store: FeatureStore,
        rows: FileRows,
        chunks: Iterator[Array],
    ) -> Iterator[Iterable[Piece]]:
        """Read a file from end to end for a group of many chunks at once."""
        first = 0
        for group in self._groups(rows, chunks):
            wanted = [partial(self._wanted, layer, store, chunk) for chunk in group]
            # Without a name for them here, sums are gone before those of the next group are made.
            yield _in_order(
                zip(group, rows.aggregate_all(wanted, self._workers), strict=True), first
            )
            first += sum(map(len, group))

    def _groups(self, rows: FileRows, chunks: Iterator[Array]) -> Iterator[list[Array]]:
        """Yield chunks whose sums and edges together fit into memory."""
        group: list[Array] = []
        left = rows.stretch_bytes
        for chunk in chunks:
            num_edges = float(in_degrees(self._graph, chunk).sum(dtype=float))
            num_bytes = int(len(chunk) * rows.row_bytes + num_edges * EDGE_BYTES)
            if group and num_bytes > left:
                yield group
                group, left = [], rows.stretch_bytes
            group.append(chunk)
            left -= num_bytes
        yield group

    def _wanted(
        self, layer: LinearAggregationLayer, store: FeatureStore, chunk: Array
    ) -> row_stores.Wanted:
        distinct = not store.reads_per_edge
        vertices, block, degrees = self._loader.neighbours(chunk, distinct=distinct)
        aggregation = layer.aggregation(block, degrees)
        if isinstance(store, NeededRows):
            vertices, block = store.local(vertices, block)
        return row_stores.Wanted(block=block, vertices=vertices, aggregation=aggregation)


def as_pieces(chunks: Iterable[Chunk]) -> Iterator[Piece]:
    """Yield pieces of chunks that are loaded already."""
    first = 0
    for chunk in chunks:
        yield Piece(first=first, load=partial(_loaded, chunk))
        first += chunk[0].num_dst


def _loaded(chunk: Chunk) -> Chunk:
    return chunk


def _in_order(
    loads: Iterable[tuple[Array, Callable[[], Chunk]]], first: int = 0
) -> Iterator[Piece]:
    """Yield a piece for vertices and what loads them, one after the other."""
    for vertices, load in loads:
        yield Piece(first=first, load=load, vertices=vertices)
        first += len(vertices)


def _stored(rows: FeatureStore) -> FeatureStore:
    """Return the rows of a layer, whether of all vertices or of some."""
    return rows.rows if isinstance(rows, NeededRows) else rows


def _close(rows: FeatureStore | None) -> None:
    """Close a layer's output; features stay open."""
    stored = None if rows is None else _stored(rows)
    if isinstance(stored, FileRows):
        stored.close()


#: Vertices that a layer is tried on, in stretches from all over them.
_TRIED_VERTICES, _STRETCHES = 1 << 17, 8
#: Bytes of the rows that they read: more than caches hold, and soon made.
_TRIED_BYTES = 128 << 20


def estimated_s(passes: LayerPass, work: Work, graph: Graph, store: FeatureStore) -> float:
    """Return the seconds of one pass over all layers.

    Each is computed for some of its vertices, hidden ones from rows of zeros, fewer than they will
    be but in the same kind of place.
    """
    rate = disk_rate() if work.plan.temporary_bytes else math.inf
    seconds = 0.0
    for index, layer in enumerate(work.sizes):
        rows = store if index == 0 else _zeros(work, index - 1, graph.num_vertices)
        try:
            edge_s = _edge_s(passes, index, rows, _some(work.needed[index], graph, rows))
        finally:
            if index > 0:
                _close(rows)
        # The system writes rows to the disk, and reads them ahead, while others are computed.
        moved = _written_bytes(work, index) + _read_bytes(work, index)
        seconds += max(edge_s * (layer.num_edges + layer.num_vertices), moved / rate)
    return seconds


def _some(vertices: Vertices, graph: Graph, rows: FeatureStore) -> Array:
    """Return some of ``vertices``, in stretches from all over them.

    They are fewer if ``rows`` are read from the disk, which takes as long as all else together.
    """
    count = _TRIED_VERTICES
    if isinstance(rows, HostFeatures) and rows.from_disk:
        neighbours = 1 + graph.num_edges // max(graph.num_vertices, 1)
        count = max(_STRETCHES, min(count, _TRIED_BYTES // (neighbours * rows.row_bytes)))
    length = count // _STRETCHES
    starts = range(0, max(len(vertices), 1), max(-(-len(vertices) // _STRETCHES), length))
    return np.concatenate(
        [np.asarray(vertices[first : first + length], graph.indices.dtype) for first in starts]
    )


def _edge_s(passes: LayerPass, index: int, rows: FeatureStore, vertices: Array) -> float:
    """Return the seconds that layer ``index`` takes for an edge or a vertex."""
    out = passes.output(index, len(vertices))
    try:
        seconds, count = 0.0, 1
        # What happens the first time, such as that memory is cleared, is not to count.
        for tried in (vertices[: len(vertices) // _STRETCHES], vertices):
            begin, count = time.perf_counter(), len(tried)
            pieces, own = passes.pieces(index, rows, tried), [rows] * passes.num_reads(index)
            for block, _ in passes.compute(index, pieces, out, own):
                count += block.num_edges
            seconds = time.perf_counter() - begin
        return seconds / max(count, 1)
    finally:
        _close(out)


def _zeros(work: Work, hidden: int, num_vertices: int) -> NeededRows:
    """Return zeros for rows of a hidden layer, those of any vertex."""
    num_rows, (width, num_parts) = len(work.needed[hidden]), work.widths[hidden]
    count = max(min(num_rows, _TRIED_BYTES // file_bytes(1, width)), 1)
    rows: MemoryRows | FileRows
    if work.plan.in_file[hidden]:
        # As many stretches as there will be, and as many sums for each.
        stretch_bytes = work.plan.stream_bytes * count // num_rows
        rows = FileRows(count, width, num_parts=num_parts, stretch_bytes=stretch_bytes)
    else:
        rows = MemoryRows(count, width, num_parts=num_parts)
    zeros = torch.zeros(min(count, _TRIED_VERTICES), num_parts * width)
    for first in range(0, count, len(zeros)):
        rows.write(first, zeros[: count - first])
    return NeededRows(rows, lambda vertices: vertices % count, num_vertices)


def _written_bytes(work: Work, index: int) -> float:
    """Return the bytes of layer ``index`` in a file."""
    if index == len(work.widths) or not work.plan.in_file[index]:
        return 0.0
    width, num_parts = work.widths[index]
    return file_bytes(work.sizes[index].num_vertices, width) * num_parts


def _read_bytes(work: Work, index: int) -> float:
    """Return the bytes that layer ``index`` reads of the disk: a file as often as sums do not fit.

    One that the system has room for is read from memory.
    """
    plan, layer = work.plan, work.sizes[index]
    if index == 0 or not plan.in_file[index - 1] or plan.cached:
        return 0.0
    width, _ = work.widths[index - 1]
    sums = file_bytes(layer.num_vertices, width) + layer.num_edges * EDGE_BYTES
    return file_bytes(len(work.needed[index - 1]), width) * math.ceil(sums / plan.stream_bytes)


_LOG = logging.getLogger(__name__)

#: Inference of more chunks than these takes long enough to be announced.
_MANY_CHUNKS = 64

_LIMITS = Limits()


class LayerwiseInference:
    """Computes exact logits: every layer for all vertices that need it before the next one.

    Of fewer layers, what comes of them. Each hidden layer is computed once per vertex;
    sampling would compute it once per path. What the first layer reads depends on no weight unless
    rows are learned, and is kept if it is small: a small graph would spend most of each validation
    on reading it again.
    """

    def __init__(
        self,
        model: TrainableModel,
        graph: Graph,
        *,
        num_threads: int,
        store: FeatureStore | None = None,
        limits: Limits = _LIMITS,
        num_layers: int | None = None,
        device: Inferring | None = None,
    ) -> None:
        """Prepare to infer.

        Args:
            num_threads: threads of torch and of the native kernels, over all chunks at once.
            store: where features are read, by default the graph's own.
            num_layers: the first so many layers are computed; None computes all, for logits.
            device: that computes; None for the host.
        """
        self._model = model
        self._device = device
        self._num_layers = len(model.layers) if num_layers is None else num_layers
        self._graph = graph
        self._store = HostFeatures.of(graph) if store is None else store
        if model.encoder is not None:
            self._store = EncodedRows(self._store, model.encoder, width=model.widths[1])
        self._limits = limits
        self._num_threads = num_threads
        self._kept: list[Chunk] | None = None
        self._last: Work | None = None

    def work(self, vertices: Array | None) -> Work:
        """Return what ``logits`` of ``vertices`` has to do; of the last ones it is remembered."""
        wanted: Vertices = range(self._graph.num_vertices)
        if vertices is not None:
            wanted = np.asarray(vertices, dtype=self._graph.indices.dtype)
        last = self._last
        if last is not None and np.array_equal(last.wanted, wanted):
            return last
        self._last = find_work(
            self._model,
            self._graph,
            wanted,
            self._limits,
            num_threads=self._num_threads,
            num_layers=self._num_layers,
        )
        first = [work.needed[0] for work in (last, self._last) if work and len(work.needed) > 1]
        if not all(isinstance(each, range) for each in first):
            self._kept = None
        return self._last

    def prepare(self, vertices: Array | None) -> None:
        """Say what inference of ``vertices``, None for all, takes when that is much.

        Raises:
            ConfigError: there is less room on the disk than hidden layers need.
        """
        work = self.work(vertices)
        if self._device is not None:
            return
        work.plan.check_disk()
        if sum(each.num_edges for each in work.sizes) < _MANY_CHUNKS * self._limits.chunk_edges:
            return
        _LOG.info(
            f"exact inference of {len(work.wanted):,} vertices of {self._graph.name}: "
            f"about {self.estimate_s(vertices):,.0f} s each time, "
            f"{size(work.plan.temporary_bytes)} of temporary disk, "
            f"{size(work.plan.memory_bytes)} of memory for hidden layers"
        )

    def estimate_s(self, vertices: Array | None) -> float:
        """Return the seconds that ``logits`` of ``vertices`` will about take."""
        with self._passes(vertices) as (passes, work):
            return estimated_s(passes, work, self._graph, self._store)

    @torch.no_grad()
    def logits(self, vertices: Array | None = None) -> torch.Tensor:
        """Return the last layer's rows of ``vertices``, with the weights as they are now.

        Args:
            vertices: distinct ids, all by default. Layers are computed for what these need alone.

        Returns:
            ``[len(vertices), num_classes]`` float32, in the order of ``vertices``.
        """
        num_rows = len(self.work(vertices).wanted)
        out = ops.empty((num_rows, self._model.widths[self._num_layers]), torch.float32)
        first = 0
        for rows in self.rows(vertices):
            out[first : first + len(rows)] = rows
            first += len(rows)
        return out

    def rows(self, vertices: Array | None = None) -> Iterator[torch.Tensor]:
        """Yield what ``logits`` returns, a chunk of rows after the other.

        Rows of hidden layers alone are kept in between. The model must not be used meanwhile.

        Args:
            vertices: distinct ids, all by default.
        """
        if self._device is not None:
            yield from self._device.inferred_rows(self._model, self.work(vertices).needed)
            return
        # What the layers read: number 0 the features, n the output of layer n - 1.
        stores = [self._store]
        with self._passes(vertices) as (passes, work):
            total, last = sum(each.num_vertices for each in work.sizes), len(work.layers) - 1
            try:
                with self._progress(total) as advance:
                    for index, needed in enumerate(work.needed[:-1]):
                        stores.append(self._infer(index, passes, stores, needed, advance))
                        self._close_read(stores, index + 1, last)
                    pieces = passes.pieces(last, stores[-1], work.wanted)
                    for _, rows in passes.compute(last, pieces, None, self._own(stores, last)):
                        advance(len(rows))
                        yield rows
            finally:
                for each in stores:
                    _close(each)

    def _own(self, stores: Sequence[FeatureStore], index: int) -> list[FeatureStore]:
        """Return the stores of which layer ``index`` reads the rows of its vertices."""
        return [stores[number] for number in self._model.reads(index)]

    def _close_read(self, stores: Sequence[FeatureStore], following: int, last: int) -> None:
        """Close the stores that no layer from ``following`` on reads."""
        layers = range(following, last + 1)
        still = {following, *(each for index in layers for each in self._model.reads(index))}
        for number, store in enumerate(stores):
            if number not in still:
                _close(store)

    @contextmanager
    def _passes(self, vertices: Array | None) -> Iterator[tuple[LayerPass, Work]]:
        """Have workers, and the model in evaluation mode, for the work of ``vertices``."""
        work = self.work(vertices)
        was_training = self._model.training
        self._model.eval()
        try:
            # torch may have been given fewer, as many as there are cores.
            workers = Workers(min(self._num_threads, torch.get_num_threads()))
            with workers.running():
                passes = LayerPass(self._model, self._graph, work, self._limits, workers)
                yield passes, work
        finally:
            self._model.train(was_training)

    def _progress(self, total: int) -> AbstractContextManager[Callable[[int], None]]:
        """Show progress, but for a graph that is done before there is any to be shown."""
        graph, limits = self._graph, self._limits
        if graph.num_edges < limits.chunk_edges and graph.num_vertices < limits.chunk_vertices:
            return nullcontext(lambda _: None)
        return track("inference", total=total, unit="vertices")

    def _infer(
        self,
        index: int,
        passes: LayerPass,
        stores: Sequence[FeatureStore],
        vertices: Vertices,
        advance: Callable[[int], None],
    ) -> FeatureStore:
        """Compute the hidden layer ``index`` of ``vertices`` from the rows of those before it."""
        if index == 0 and self._kept is not None:
            groups: Iterable[Iterable[Piece]] = [as_pieces(self._kept)]
        else:
            groups = passes.pieces(index, stores[-1], vertices)
        out = passes.output(index, len(vertices))
        assert out is not None
        try:
            chunks = passes.compute(index, groups, out, self._own(stores, index))
            # What an encoder makes changes with its weights, and so do learned rows.
            changes = self._model.encoder is not None or self._model.vertex_rows is not None
            keeps = index == 0 and self._kept is None and not changes
            for block, _ in self._keep(chunks) if keeps else chunks:
                advance(block.num_dst)
        except BaseException:
            _close(out)
            raise
        if isinstance(vertices, range):
            return out
        return NeededRows.of(out, vertices, self._graph.num_vertices)

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
