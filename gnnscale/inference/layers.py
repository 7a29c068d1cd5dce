"""One layer of exact inference over the vertices that need it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Any

import torch

from gnnscale.backend.feature_loading import ChunkLoader, LoadedChunk, Vertices, cut, in_degrees
from gnnscale.core import Array
from gnnscale.features import FeatureStore, HostFeatures
from gnnscale.graph import Graph
from gnnscale.inference import activation_store as row_stores
from gnnscale.inference.activation_store import EDGE_BYTES, FileRows, MemoryRows, Workers
from gnnscale.inference.chunks import Chunk, in_order
from gnnscale.inference.first_layer import FirstLayer
from gnnscale.inference.memory_plan import InferenceWork, MemoryLimits, SubsetStore
from gnnscale.inference.streamed_inputs import FeatureReader, make_rows
from gnnscale.nn import TrainableModel
from gnnscale.nn.conv.linear import LinearAggregationLayer
from gnnscale.nn.transform_first import ProjectedLayer


class LayerPass:
    """Computes layers of one model, each from a store of the rows below it."""

    def __init__(
        self,
        model: TrainableModel,
        graph: Graph,
        work: InferenceWork,
        limits: MemoryLimits,
        workers: Workers,
    ) -> None:
        """Compute ``model`` on ``graph``."""
        self._model = model
        self._graph = graph
        self._work = work
        self._limits = limits
        self._workers = workers
        self._loader = ChunkLoader(graph, num_threads=workers.each, uses_degrees=model.uses_degrees)

    @property
    def makes_rows(self) -> bool:
        """Whether passes over the features make rows for the first layer."""
        return self._work.inputs is not None

    def first(self, store: FeatureStore) -> FirstLayer:
        """Return what computes the first layer in passes over ``store``, as is planned."""
        assert self._work.inputs is not None
        assert isinstance(store, HostFeatures)
        return FirstLayer(
            self._work.inputs,
            self._graph,
            store,
            limits=self._limits,
            loader=self._loader,
            workers=self._workers,
        )

    def encode(
        self, store: FeatureStore, advance: Callable[[int], None], count: int | None = None
    ) -> MemoryRows | FileRows:
        """Return the rows that the encoder makes of all those of ``store``, in one pass.

        Args:
            count: the first so many are encoded; None for all.
        """
        encoder, width = self._model.encoder, self._model.widths[1]
        assert isinstance(store, HostFeatures)
        assert encoder is not None
        num_rows = self._graph.num_vertices if count is None else count
        out: MemoryRows | FileRows
        if self._work.encoded == "memory":
            out = MemoryRows(num_rows, width)
        else:
            # Of some rows, as many stretches as of all.
            stretch_bytes = self._work.plan.stream_bytes * num_rows // self._graph.num_vertices
            out = FileRows(num_rows, width, stretch_bytes=stretch_bytes)
        try:
            reader = FeatureReader(store, self._graph, num_threads=self._workers.each)
            with closing(reader):
                make_rows(
                    reader,
                    range(num_rows),
                    encoder,
                    out.write,
                    width=store.width,
                    workers=self._workers,
                    advance=advance,
                )
        except BaseException:
            close(out)
            raise
        return out

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
        groups: Iterable[Iterable[Chunk]],
        out: MemoryRows | FileRows | None,
        own: Sequence[FeatureStore] = (),
    ) -> Iterator[LoadedChunk]:
        """Compute layer ``index`` of all pieces; yield each once it is done, in their order.

        Args:
            out: where rows are written; None yields them, in place of what they were made of.
            own: the stores of rows that the layer ``reads``.
        """
        work, model = self._work, self._model
        layer = work.layers[index]
        above = work.layers[index + 1] if index + 1 < len(work.layers) else None

        def compute(piece: Chunk) -> LoadedChunk:
            block, x = piece.load()
            h = model.infer(index, x, block, layer, self._own(piece, own)).float()
            if out is None:
                return block, h
            out.write(piece.first, above.project(h) if isinstance(above, ProjectedLayer) else h)
            return block, x

        for group in groups:
            yield from self._workers.map(compute, group)

    def _own(self, piece: Chunk, stores: Sequence[FeatureStore]) -> list[torch.Tensor]:
        """Return the rows of a piece's vertices in each of ``stores``."""
        if not stores:
            return []
        assert piece.vertices is not None
        options: Any = {"dtype": torch.float32, "num_threads": self._workers.each}
        return [store.gather(piece.vertices, **options)[0] for store in stores]

    def pieces(
        self,
        index: int,
        rows: FeatureStore,
        vertices: Vertices,
        advance: Callable[[int], None] = lambda _: None,
    ) -> Iterator[Iterable[Chunk]]:
        """Yield pieces of layer ``index``, in groups that are computed one after the other.

        Args:
            advance: takes how many vertices a pass before them has done.
        """
        if index == 0 and self.makes_rows:
            yield from self.first(rows).pieces(vertices, advance)
            return
        limits, layer, stored = self._limits, self._work.layers[index], stored_rows(rows)
        in_file = isinstance(stored, FileRows)
        num_edges = limits.chunk_edges
        if in_file and not isinstance(layer, LinearAggregationLayer):
            num_edges = limits.file_chunk_edges
        chunks = cut(self._graph, vertices, num_edges, limits.chunk_vertices)
        if isinstance(stored, FileRows) and isinstance(layer, LinearAggregationLayer):
            yield from self._stream(layer, rows, stored, chunks)
        else:
            yield in_order(
                (chunk, partial(self._loader.load_chunk, layer, rows, chunk)) for chunk in chunks
            )

    def _stream(
        self,
        layer: LinearAggregationLayer,
        store: FeatureStore,
        rows: FileRows,
        chunks: Iterator[Array],
    ) -> Iterator[Iterable[Chunk]]:
        """Read a file from end to end for a group of many chunks at once."""
        first = 0
        for group in self._groups(rows, chunks):
            wanted = [partial(self._wanted, layer, store, chunk) for chunk in group]
            # Without a name for them here, sums are gone before those of the next group are made.
            yield in_order(
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
    ) -> row_stores.AggregationRequest:
        distinct = not store.reads_per_edge
        vertices, block, degrees = self._loader.neighbours(chunk, distinct=distinct)
        aggregation = layer.aggregation(block, degrees)
        if isinstance(store, SubsetStore):
            vertices, block = store.local(vertices, block)
        return row_stores.AggregationRequest(
            block=block, vertices=vertices, aggregation=aggregation
        )


def stored_rows(rows: FeatureStore) -> FeatureStore:
    """Return the rows of a layer, whether of all vertices or of some."""
    return rows.rows if isinstance(rows, SubsetStore) else rows


def close(rows: FeatureStore | None) -> None:
    """Close a layer's output; features stay open."""
    stored = None if rows is None else stored_rows(rows)
    if isinstance(stored, FileRows):
        stored.close()
