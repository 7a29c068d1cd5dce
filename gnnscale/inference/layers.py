"""Layers of exact inference, each computed for all vertices that require it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Any

import torch
from torch import nn

from gnnscale.backend.feature_loading import ChunkLoader, LoadedChunk, Vertices, cut, in_degrees
from gnnscale.core import Array, Traffic
from gnnscale.features import FeatureStore, HostFeatures, WrappedStore
from gnnscale.graph import Graph
from gnnscale.inference.activation_store import EDGE_BYTES, AggregationRequest, FileRows, MemoryRows
from gnnscale.inference.chunks import Chunk, Workers, in_order
from gnnscale.inference.first_layer import FirstLayer
from gnnscale.inference.memory_plan import InferenceWork, MemoryLimits, SubsetStore
from gnnscale.inference.streamed_inputs import FeatureReader, make_rows
from gnnscale.nn import ProjectedLayer, TrainableModel
from gnnscale.nn.conv.linear import LinearAggregationLayer


class LayerPass:
    """Computation of a model's layers, each from a store of the previous layer's rows."""

    def __init__(
        self,
        model: TrainableModel,
        graph: Graph,
        work: InferenceWork,
        limits: MemoryLimits,
        workers: Workers,
    ) -> None:
        """Compute the layers of ``model`` on ``graph`` as planned in ``work``, by ``workers``."""
        self._model = model
        self._graph = graph
        self._work = work
        self._limits = limits
        self._workers = workers
        self._loader = ChunkLoader(
            graph, num_threads=workers.threads_per_chunk, uses_degrees=model.uses_degrees
        )

    @property
    def makes_rows(self) -> bool:
        """Whether the first layer aggregates rows that earlier passes have transformed."""
        return self._work.inputs is not None

    def first(self, store: FeatureStore) -> FirstLayer:
        """Return the first layer, which runs the planned passes over the features in ``store``."""
        assert self._work.inputs is not None
        assert isinstance(store, HostFeatures)
        return FirstLayer(
            plan=self._work.inputs,
            graph=self._graph,
            store=store,
            limits=self._limits,
            loader=self._loader,
            workers=self._workers,
        )

    def encode(
        self, store: FeatureStore, advance: Callable[[int], None], count: int | None = None
    ) -> MemoryRows | FileRows:
        """Encode the features of the first ``count`` vertices (None: all) into a new store.

        ``advance`` gets the number of vertices after each part.
        """
        encoder, width = self._model.encoder, self._model.widths[1]
        assert isinstance(store, HostFeatures)
        assert encoder is not None
        num_rows = self._graph.num_vertices if count is None else count
        out: MemoryRows | FileRows
        if self._work.encoded == "memory":
            out = MemoryRows(num_rows, width)
        else:
            # A trial with fewer rows has as many ranges as all rows.
            range_bytes = self._work.plan.stream_bytes * num_rows // self._graph.num_vertices
            out = FileRows(num_rows, width, range_bytes=range_bytes)
        try:
            reader = FeatureReader(store, self._graph, num_threads=self._workers.threads_per_chunk)
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
        """Return how many earlier outputs layer ``index`` reads in addition to its input."""
        return len(self._model.reads(index))

    def output(self, index: int, num_rows: int) -> MemoryRows | FileRows | None:
        """Allocate a store for the output of layer ``index``. None: it is the last, not stored."""
        work = self._work
        if index == len(work.widths):
            return None
        width, num_parts = work.widths[index]
        if not work.plan.in_file[index]:
            return MemoryRows(num_rows, width, num_parts=num_parts)
        range_bytes = work.plan.stream_bytes
        return FileRows(num_rows, width, num_parts=num_parts, range_bytes=range_bytes)

    def compute(
        self,
        index: int,
        groups: Iterable[Iterable[Chunk]],
        out: MemoryRows | FileRows | None,
        self_stores: Sequence[FeatureStore] = (),
    ) -> Iterator[LoadedChunk]:
        """Compute layer ``index`` and yield each finished chunk, in order.

        Args:
            groups: groups of chunks, each loaded after the previous one is finished.
            out: store of the output rows, while chunks have input rows; None: they have outputs.
            self_stores: stores of earlier outputs that the layer reads for its own vertices.
        """
        work, model = self._work, self._model
        layer = work.layers[index]
        following = work.layers[index + 1] if index + 1 < len(work.layers) else None

        def compute(chunk: Chunk) -> LoadedChunk:
            block, x = chunk.load()
            h = model.infer(index, x, block, layer, self._read_self(chunk, self_stores)).float()
            if out is None:
                return block, h
            rows = following.project(h) if isinstance(following, ProjectedLayer) else h
            out.write(chunk.first, rows)
            return block, x

        for group in groups:
            yield from self._workers.map(compute, group)

    def _read_self(self, chunk: Chunk, stores: Sequence[FeatureStore]) -> list[torch.Tensor]:
        """Return the rows of a chunk's vertices in each of ``stores``."""
        if not stores:
            return []
        assert chunk.vertices is not None
        options: Any = {"dtype": torch.float32, "num_threads": self._workers.threads_per_chunk}
        return [store.gather(chunk.vertices, **options)[0] for store in stores]

    def chunks(
        self,
        index: int,
        rows: FeatureStore,
        vertices: Vertices,
        advance: Callable[[int], None] = lambda _: None,
    ) -> Iterator[Iterable[Chunk]]:
        """Yield the chunks of layer ``index`` for ``vertices``, in groups.

        The caller computes a group before it takes the next one: aggregated rows of all chunks of a
        group may be in memory together. ``rows`` stores the layer's inputs. If passes transform the
        features first, ``advance`` gets the number of vertices after each part of a pass.
        """
        if index == 0 and self.makes_rows:
            yield from self.first(rows).chunks(vertices, advance)
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
        """Yield groups of chunks, whose sums one pass over the file of ``rows`` computes.

        ``store`` finds a vertex's row in ``rows``, or is ``rows``.
        """
        first = 0
        for group in self._groups(rows, chunks):
            requests = [partial(self._request, layer, store, chunk) for chunk in group]
            # No variable keeps the sums alive when the next group allocates its own.
            yield in_order(
                zip(group, rows.aggregate_all(requests, self._workers), strict=True), first
            )
            first += sum(map(len, group))

    def _groups(self, rows: FileRows, chunks: Iterator[Array]) -> Iterator[list[Array]]:
        """Yield lists of chunks whose sums and edges together fit into ``rows.range_bytes``."""
        group: list[Array] = []
        free_bytes = rows.range_bytes
        for chunk in chunks:
            num_edges = float(in_degrees(self._graph, chunk).sum(dtype=float))
            num_bytes = int(len(chunk) * rows.row_bytes + num_edges * EDGE_BYTES)
            if group and num_bytes > free_bytes:
                yield group
                group, free_bytes = [], rows.range_bytes
            group.append(chunk)
            free_bytes -= num_bytes
        yield group

    def _request(
        self, layer: LinearAggregationLayer, store: FeatureStore, chunk: Array
    ) -> AggregationRequest:
        """Return the request to aggregate stored rows over all in-edges of a chunk's vertices."""
        distinct = not store.reads_per_edge
        vertices, block, degrees = self._loader.neighbours(chunk, distinct=distinct)
        aggregation = layer.aggregation(block, degrees)
        if isinstance(store, SubsetStore):
            vertices, block = store.local(vertices, block)
        return AggregationRequest(block=block, vertices=vertices, aggregation=aggregation)


def stored_rows(rows: FeatureStore) -> FeatureStore:
    """Return the store that a ``SubsetStore`` wraps; any other store is returned as it is."""
    return rows.rows if isinstance(rows, SubsetStore) else rows


def close(rows: FeatureStore | None) -> None:
    """Close a store whose rows, or whose subset's rows, are in a file; do nothing otherwise."""
    stored = None if rows is None else stored_rows(rows)
    if isinstance(stored, FileRows):
        stored.close()


class EncodedRows(WrappedStore):
    """Store that encodes the rows of another store on each read."""

    def __init__(self, store: FeatureStore, encoder: nn.Module, *, width: int) -> None:
        """Encode rows of ``store`` to ``width`` features."""
        self.inner = store
        self._encoder = encoder
        self._width = width

    @property
    def width(self) -> int:
        """Number of features of an encoded row."""
        return self._width

    @torch.no_grad()
    def gather(
        self, vertices: Array, *, dtype: torch.dtype, num_threads: int
    ) -> tuple[torch.Tensor, Traffic]:
        """Return the encoded rows of ``vertices``, ``[n, width]``, and the bytes read."""
        rows, traffic = self.inner.gather(vertices, dtype=dtype, num_threads=num_threads)
        return self._encoder(rows), traffic
