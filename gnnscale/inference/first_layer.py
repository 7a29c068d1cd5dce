"""First layer of exact inference from rows that passes over the features transform."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from gnnscale.backend.feature_loading import ChunkLoader, LoadedChunk, Vertices, cut
from gnnscale.core import Array
from gnnscale.features import HostFeatures
from gnnscale.graph import Graph
from gnnscale.inference.activation_store import FileRows, MemoryRows
from gnnscale.inference.chunks import Chunk, Workers, in_order
from gnnscale.inference.memory_plan import InputPlan, LayerSize, MemoryLimits, RankBitmap
from gnnscale.inference.streamed_inputs import FeatureReader, Reading, TransformedRows, make_rows
from gnnscale.nn.transform_first import TransformFirstLayer
from gnnscale.sampling import Block

#: Bytes of features in a trial of a pass.
_TRIAL_BYTES = 256 << 20

Advance = Callable[[int], None]


@dataclass(frozen=True, kw_only=True)
class FirstLayer:
    """First layer of exact inference that transforms rows before it aggregates them.

    Each pass of ``plan`` over the features computes some columns of all transformed rows.
    """

    plan: InputPlan
    graph: Graph
    store: HostFeatures  #: features of ``graph``
    limits: MemoryLimits
    loader: ChunkLoader
    workers: Workers

    @property
    def _chunk_edges(self) -> int:
        """Maximum edges of a chunk: fewer if the layer copies a row per source to memory."""
        gathers = not self.plan.layer.aggregates_on_load
        return self.limits.file_chunk_edges if gathers else self.limits.chunk_edges

    def chunks(self, vertices: Vertices, advance: Advance) -> Iterator[Iterator[Chunk]]:
        """Transform the features in passes, then yield one group: the chunks of ``vertices``.

        ``advance`` is called with the number of vertices after each part of a pass.
        """
        layer, blocks = self.plan.layer, self.plan.blocks
        with closing(self._reader()) as reader:
            if len(blocks) == 1:
                rows = self._transform(layer, reader, advance)
                yield in_order(self._chunk_loads(layer, rows, vertices))
                return
            width = blocks[0][1] - blocks[0][0]
            sums = FileRows(len(vertices), width, num_parts=len(blocks), range_bytes=1)
            with closing(sums):
                for number, columns in enumerate(blocks):
                    self._sum(layer.part(*columns), reader, vertices, (sums, number), advance)
                yield in_order(self._sum_loads(reader, vertices, sums))

    def _reader(self) -> FeatureReader:
        return FeatureReader(self.store, self.graph, num_threads=self.workers.threads_per_chunk)

    def _transform(
        self,
        layer: TransformFirstLayer,
        reader: FeatureReader,
        advance: Advance,
        count: int | None = None,
    ) -> TransformedRows:
        """Return a store of transformed rows, computed in one pass over the features.

        The store has the rows of the plan's first ``count`` vertices; None: all.
        """
        vertices = self.plan.vertices[:count]
        first, end = layer.columns
        rows = MemoryRows(len(vertices), end - first)
        make_rows(
            reader,
            vertices,
            layer.make,
            rows.write,
            width=self.store.width,
            workers=self.workers,
            advance=advance,
        )
        return self._with_positions(rows, reader)

    def _with_positions(self, rows: MemoryRows, reader: FeatureReader) -> TransformedRows:
        """Return a store that finds transformed ``rows`` by vertex.

        If a trial has transformed only some vertices, each row stands for many vertices.
        """
        vertices, num_vertices = self.plan.vertices, self.graph.num_vertices
        positions: Callable[[Array], Array] | None = None
        if (count := len(rows.rows)) < len(vertices):  # a trial: its rows represent all rows

            def positions(ids: Array) -> Array:
                return ids % count

        elif not isinstance(vertices, range):
            positions = RankBitmap(vertices, num_vertices).ranks
        return TransformedRows(
            rows, positions, reader, num_vertices, num_threads=self.workers.threads_per_chunk
        )

    def _chunk_loads(
        self, layer: TransformFirstLayer, transformed: TransformedRows, vertices: Vertices
    ) -> Iterator[tuple[Array, Callable[[], LoadedChunk]]]:
        """Yield chunks of ``vertices``, each with a function that loads block and sums.

        If ``layer`` reads the destinations' own features, they are requested before the yield.
        """
        limits = self.limits
        for chunk in cut(self.graph, vertices, self._chunk_edges, limits.chunk_vertices):
            rows = transformed.prefetch(chunk) if layer.reads_rows else transformed
            yield chunk, partial(self.loader.load_chunk, layer, rows, chunk)

    def _sum(
        self,
        layer: TransformFirstLayer,
        reader: FeatureReader,
        vertices: Vertices,
        target: tuple[FileRows, int],
        advance: Advance,
    ) -> None:
        """Transform rows in a pass, and write the sums over neighbors of ``vertices`` to a file.

        ``target`` is the file and the number of the part that gets this pass's columns.
        """
        transformed = self._transform(layer, reader, advance)
        sums, number = target

        def write(chunk: Chunk) -> int:
            block, x = chunk.load()
            sums.write_part(number, chunk.first, x[:, : transformed.width])
            return block.num_dst

        chunks = in_order(self._chunk_loads(layer, transformed, vertices))
        for count in self.workers.map(write, chunks):
            advance(count)

    def _sum_loads(
        self, reader: FeatureReader, vertices: Vertices, sums: FileRows
    ) -> Iterator[tuple[Array, Callable[[], LoadedChunk]]]:
        """Yield chunks of ``vertices``, each with a function that reads its rows in ``sums``.

        The destinations' own features are joined to the sums if the layer reads them.
        """
        layer, first = self.plan.layer, 0
        for chunk in cut(self.graph, vertices, self._chunk_edges, self.limits.chunk_vertices):
            features = reader.start(chunk) if layer.reads_own else None
            yield chunk, partial(self._read_sums, sums, first, len(chunk), features)
            first += len(chunk)

    def _read_sums(
        self, sums: FileRows, first: int, count: int, features: Reading | None
    ) -> LoadedChunk:
        x = sums.read(first, count)[:, : self.plan.layer.width]
        # The sums are complete: the block needs no edges.
        block = Block(
            indptr=np.zeros(count + 1, np.int64), indices=np.zeros(0, np.int32), num_src=count
        )
        return block, x if features is None else torch.cat([x, features()], dim=1)

    def estimated_s(
        self,
        trial: Array,
        size: LayerSize,
        compute: Callable[[Iterator[Chunk]], Iterator[LoadedChunk]],
    ) -> float:
        """Return the estimated seconds of all passes and of the layer, by a run for ``trial``.

        ``trial`` has some output vertices, ``size`` counts all vertices and edges; ``compute``
        computes the layer for chunks.
        """
        plan = self.plan
        blocks, layer = len(plan.blocks), plan.layer.part(*plan.blocks[0])
        row_bytes = max(self.store.row_bytes, layer.width)
        count = min(max(_TRIAL_BYTES // row_bytes, 1), len(plan.vertices))
        with closing(self._reader()) as reader:
            # The first run has one-time costs, such as the clearing of memory.
            self._transform(layer, reader, lambda _: None, count // 8)
            begin = time.perf_counter()
            transformed = self._transform(layer, reader, lambda _: None, count)
            row_s = (time.perf_counter() - begin) / max(count, 1)
            edge_s = 0.0
            for vertices in (trial[: len(trial) // 8], trial):
                begin, num_edges = time.perf_counter(), len(vertices)
                chunks = in_order(self._chunk_loads(layer, transformed, vertices))
                for block, _ in (compute if blocks == 1 else self._load)(chunks):
                    num_edges += block.num_edges
                edge_s = (time.perf_counter() - begin) / max(num_edges, 1)
        self_s = row_s * size.num_vertices if blocks > 1 and layer.reads_own else 0.0
        pass_s = row_s * len(plan.vertices) + edge_s * (size.num_edges + size.num_vertices)
        return blocks * pass_s + self_s

    def _load(self, chunks: Iterator[Chunk]) -> Iterator[LoadedChunk]:
        return self.workers.map(lambda chunk: chunk.load(), chunks)
