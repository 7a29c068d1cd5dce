"""One layer of exact inference, from the rows below it to its own, in chunks."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from gnnscale.backend.loading import Chunk, ChunkLoader, Vertices, cut, in_degrees
from gnnscale.core import Array
from gnnscale.feature import FeatureStore
from gnnscale.graph import Graph
from gnnscale.model import TrainableModel, gnn
from gnnscale.model.layer import LinearAggregationLayer
from gnnscale.runtime.evaluation.plan import Limits, NeededRows, Work
from gnnscale.runtime.evaluation.rows import EDGE_BYTES, FileRows, MemoryRows, Wanted, Workers


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A chunk that is yet to be loaded."""

    first: int  #: the row of its first vertex among the layer's
    load: Callable[[], Chunk]  #: loads it, in any thread


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
        self, index: int, groups: Iterable[Iterable[Piece]], out: MemoryRows | FileRows | None
    ) -> Iterator[Chunk]:
        """Compute layer ``index`` of all pieces; yield each once it is done, in their order.

        Args:
            out: where rows are written; None yields them, in place of what they were made of.
        """
        work, model = self._work, self._model
        layer = work.layers[index]
        above = work.layers[index + 1] if index + 1 < len(work.layers) else None

        def compute(piece: Piece) -> Chunk:
            block, x = piece.load()
            h = model.infer(index, x, block, layer).float()
            if out is None:
                return block, h
            out.write(piece.first, above.project(h) if isinstance(above, gnn.ProjectedLayer) else h)
            return block, x

        for group in groups:
            yield from self._workers.map(compute, group)

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
                (len(chunk), partial(self._loader.load_chunk, layer, rows, chunk))
                for chunk in chunks
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
                zip(map(len, group), rows.aggregate_all(wanted, self._workers), strict=True), first
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

    def _wanted(self, layer: LinearAggregationLayer, store: FeatureStore, chunk: Array) -> Wanted:
        distinct = not store.reads_per_edge
        vertices, block, degrees = self._loader.neighbours(chunk, distinct=distinct)
        aggregation = layer.aggregation(block, degrees)
        if isinstance(store, NeededRows):
            vertices, block = store.local(vertices, block)
        return Wanted(block=block, vertices=vertices, aggregation=aggregation)


def as_pieces(chunks: Iterable[Chunk]) -> Iterator[Piece]:
    """Yield pieces of chunks that are loaded already."""
    return _in_order((chunk[0].num_dst, partial(_loaded, chunk)) for chunk in chunks)


def _loaded(chunk: Chunk) -> Chunk:
    return chunk


def _in_order(loads: Iterable[tuple[int, Callable[[], Chunk]]], first: int = 0) -> Iterator[Piece]:
    """Yield a piece for each number of vertices and what loads them, one after the other."""
    for count, load in loads:
        yield Piece(first=first, load=load)
        first += count


def _stored(rows: FeatureStore) -> FeatureStore:
    """Return the rows of a layer, whether of all vertices or of some."""
    return rows.rows if isinstance(rows, NeededRows) else rows


def close(rows: FeatureStore | None) -> None:
    """Close a layer's output; features stay open."""
    stored = None if rows is None else _stored(rows)
    if isinstance(stored, FileRows):
        stored.close()
