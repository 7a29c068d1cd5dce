"""The first layer, from rows that passes over the features make."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial

import numpy as np
import torch

from gnnscale.backend.feature_loading import ChunkLoader, LoadedChunk, Vertices, cut
from gnnscale.core import Array
from gnnscale.features import HostFeatures
from gnnscale.graph import Graph
from gnnscale.inference.activation_store import FileRows, MemoryRows, Workers
from gnnscale.inference.chunks import Chunk, in_order
from gnnscale.inference.memory_plan import InputPlan, LayerSize, MemoryLimits, RankBitmap
from gnnscale.inference.streamed_inputs import FeatureReader, Reading, TransformedRows, make_rows
from gnnscale.nn.transform_first import TransformFirstLayer
from gnnscale.sampling import Block

#: Bytes of features that a pass is tried on.
_TRIED_BYTES = 256 << 20

Advance = Callable[[int], None]


class FirstLayer:
    """Computes the first layer of some vertices, as an ``InputPlan`` says."""

    def __init__(
        self,
        plan: InputPlan,
        graph: Graph,
        store: HostFeatures,
        *,
        limits: MemoryLimits,
        loader: ChunkLoader,
        workers: Workers,
    ) -> None:
        """Read the features in ``store``, those of ``graph``."""
        self._plan = plan
        self._graph = graph
        self._store = store
        self._limits = limits
        self._loader = loader
        self._workers = workers
        gathers = not plan.layer.aggregates_on_load
        #: a chunk of a layer that gathers has a row for each of its sources
        self._chunk_edges = limits.file_chunk_edges if gathers else limits.chunk_edges

    def pieces(self, vertices: Vertices, advance: Advance) -> Iterator[Iterator[Chunk]]:
        """Yield pieces of ``vertices``, after the passes that these need.

        Args:
            advance: takes how many vertices a pass has done.
        """
        layer, blocks = self._plan.layer, self._plan.blocks
        with closing(self._reader()) as reader:
            if len(blocks) == 1:
                made = self._made(layer, reader, advance)
                yield in_order(self._loads(layer, made, vertices))
                return
            width = blocks[0][1] - blocks[0][0]
            sums = FileRows(len(vertices), width, num_parts=len(blocks), stretch_bytes=1)
            with closing(sums):
                for number, columns in enumerate(blocks):
                    self._sum(layer.part(*columns), reader, vertices, (sums, number), advance)
                yield in_order(self._loads_of_sums(reader, vertices, sums))

    def _reader(self) -> FeatureReader:
        return FeatureReader(self._store, self._graph, num_threads=self._workers.each)

    def _made(
        self,
        layer: TransformFirstLayer,
        reader: FeatureReader,
        advance: Advance,
        count: int | None = None,
    ) -> TransformedRows:
        """Make rows in a pass over the features, of ``count`` vertices alone if it is given."""
        vertices = self._plan.vertices[:count]
        first, end = layer.columns
        rows = MemoryRows(len(vertices), end - first)
        make_rows(
            reader,
            vertices,
            layer.make,
            rows.write,
            width=self._store.width,
            workers=self._workers,
            advance=advance,
        )
        return self._store_of(rows, reader)

    def _store_of(self, rows: MemoryRows, reader: FeatureReader) -> TransformedRows:
        vertices, num_vertices = self._plan.vertices, self._graph.num_vertices
        places: Callable[[Array], Array] | None = None
        if (count := len(rows.rows)) < len(vertices):  # those of a trial stand for all

            def places(asked: Array) -> Array:
                return asked % count

        elif not isinstance(vertices, range):
            places = RankBitmap(vertices, num_vertices).of
        return TransformedRows(rows, places, reader, num_vertices, num_threads=self._workers.each)

    def _loads(
        self, layer: TransformFirstLayer, made: TransformedRows, vertices: Vertices
    ) -> Iterator[tuple[Array, Callable[[], LoadedChunk]]]:
        """Yield chunks of ``vertices``, and what loads each; their features are read ahead."""
        limits = self._limits
        for chunk in cut(self._graph, vertices, self._chunk_edges, limits.chunk_vertices):
            rows = made.ahead(chunk) if layer.reads_rows else made
            yield chunk, partial(self._loader.load_chunk, layer, rows, chunk)

    def _sum(
        self,
        layer: TransformFirstLayer,
        reader: FeatureReader,
        vertices: Vertices,
        place: tuple[FileRows, int],
        advance: Advance,
    ) -> None:
        """Write the sums of ``layer``, of some columns, to a part of a file."""
        made = self._made(layer, reader, advance)
        sums, number = place

        def write(piece: Chunk) -> int:
            block, x = piece.load()
            sums.write_part(number, piece.first, x[:, : made.width])
            return block.num_dst

        for count in self._workers.map(write, in_order(self._loads(layer, made, vertices))):
            advance(count)

    def _loads_of_sums(
        self, reader: FeatureReader, vertices: Vertices, sums: FileRows
    ) -> Iterator[tuple[Array, Callable[[], LoadedChunk]]]:
        """Yield chunks of ``vertices``, and what brings the sums of all columns together."""
        layer, first = self._plan.layer, 0
        for chunk in cut(self._graph, vertices, self._chunk_edges, self._limits.chunk_vertices):
            own = reader.start(chunk) if layer.reads_own else None
            yield chunk, partial(self._read_sums, sums, first, len(chunk), own)
            first += len(chunk)

    def _read_sums(
        self, sums: FileRows, first: int, count: int, own: Reading | None
    ) -> LoadedChunk:
        x = sums.read(first, count)[:, : self._plan.layer.width]
        # No edge is left to be read.
        block = Block(
            indptr=np.zeros(count + 1, np.int64), indices=np.zeros(0, np.int32), num_src=count
        )
        return block, x if own is None else torch.cat([x, own()], dim=1)

    def estimated_s(
        self,
        tried: Array,
        size: LayerSize,
        compute: Callable[[Iterator[Chunk]], Iterator[LoadedChunk]],
    ) -> float:
        """Return the seconds of all passes, and of the layer, by trying them.

        Args:
            tried: vertices that the layer is tried on.
            size: of the layer.
            compute: computes pieces of it.
        """
        plan = self._plan
        blocks, layer = len(plan.blocks), plan.layer.part(*plan.blocks[0])
        row_bytes = max(self._store.row_bytes, layer.width)
        count = min(max(_TRIED_BYTES // row_bytes, 1), len(plan.vertices))
        with closing(self._reader()) as reader:
            # What happens the first time, such as that memory is cleared, is not to count.
            self._made(layer, reader, _ignore, count // 8)
            begin = time.perf_counter()
            made = self._made(layer, reader, _ignore, count)
            row_s = (time.perf_counter() - begin) / max(count, 1)
            edge_s = 0.0
            for some in (tried[: len(tried) // 8], tried):
                begin, num_edges = time.perf_counter(), len(some)
                pieces = in_order(self._loads(layer, made, some))
                for block, _ in (compute if blocks == 1 else self._load)(pieces):
                    num_edges += block.num_edges
                edge_s = (time.perf_counter() - begin) / max(num_edges, 1)
        own_s = row_s * size.num_vertices if blocks > 1 and layer.reads_own else 0.0
        pass_s = row_s * len(plan.vertices) + edge_s * (size.num_edges + size.num_vertices)
        return blocks * pass_s + own_s

    def _load(self, pieces: Iterator[Chunk]) -> Iterator[LoadedChunk]:
        return self._workers.map(lambda piece: piece.load(), pieces)


def _ignore(_: int) -> None:
    pass
