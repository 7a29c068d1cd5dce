"""Load stage: reads the input rows of a mini-batch, or of many vertices in chunks."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import torch

from gnnscale import ops
from gnnscale.core import (
    Access,
    Array,
    Float32Array,
    GraphError,
    Int64Array,
    IntArray,
    Traffic,
    UInt32Array,
    multiplies_bfloat16,
)
from gnnscale.features import FeatureStore, HostFeatures, check_store, take_reads
from gnnscale.graph import Graph
from gnnscale.graph.time_order import degrees_between
from gnnscale.nn import Inputs, TrainableModel
from gnnscale.nn.conv.linear import Degrees, GraphLayer
from gnnscale.sampling import Block, MiniBatch, NeighborSampler, TypedBlock, TypedMiniBatch

#: Maximum edges and vertices of a chunk, which bound its memory.
CHUNK_EDGES = 1 << 20
CHUNK_VERTICES = 1 << 14

#: Vertices whose chunk boundaries are computed at a time.
_PIECE = 1 << 20
#: Distinct vertex ids: an array, or a range without one.
Vertices: TypeAlias = "Array | range"
#: Full neighborhood of some vertices, and the result of a layer's ``load`` over it.
LoadedChunk = tuple[Block, torch.Tensor]
#: Sources, block, and the sources' in-degrees if the model uses them.
Neighborhood = tuple[Array, Block, Degrees]


class ChunkLoader:
    """Reader of full neighborhoods and of a layer's input over them, in chunks of vertices."""

    def __init__(self, graph: Graph, *, num_threads: int, uses_degrees: bool) -> None:
        self._graph = graph
        self._num_threads = num_threads
        # Vertices are in order, for which the system's read-ahead of the mapped file suffices.
        mapped = replace(graph, lists=None)
        self._sampler = NeighborSampler(mapped, fanouts=[-1], num_threads=num_threads)
        self._uses_degrees = uses_degrees

    def load(
        self,
        layer: GraphLayer,
        store: FeatureStore,
        vertices: Vertices,
        *,
        chunk_edges: int = CHUNK_EDGES,
        chunk_vertices: int = CHUNK_VERTICES,
    ) -> Iterator[LoadedChunk]:
        """Yield the block of the full neighborhood, and ``layer.load`` over it, for each chunk.

        Chunks of ``vertices`` are in order, of about ``chunk_edges`` in-edges, or of about
        ``chunk_vertices`` vertices if these have fewer.
        """
        for chunk in cut(self._graph, vertices, chunk_edges, chunk_vertices):
            yield self.load_chunk(layer, store, chunk)

    def load_chunk(self, layer: GraphLayer, store: FeatureStore, vertices: Array) -> LoadedChunk:
        """Return the block of the full neighborhood of ``vertices``, and ``layer.load`` over it.

        Thread-safe.
        """
        distinct = not (layer.aggregates_on_load and store.reads_per_edge)
        sources, block, degrees = self.neighbours(vertices, distinct=distinct)
        x, _ = layer.load(
            store, sources, block, degrees, dtype=torch.float32, num_threads=self._num_threads
        )
        if layer.uses_edge_features:
            attr = edge_attr(self._graph, block, num_threads=self._num_threads)
            block = replace(block, edge_attr=attr)
        return block, x

    def neighbours(self, vertices: Array, *, distinct: bool) -> Neighborhood:
        """Return sources, block and in-degrees of the full neighborhood of ``vertices``.

        With ``distinct`` each source appears once. Otherwise every edge of consecutive vertices has
        a source of its own, so that adjacency lists are used without a lookup. In-degrees are None
        if the model does not use them.
        """
        if distinct or not len(vertices) or (np.diff(vertices) != 1).any():
            batch = self._sampler.sample(vertices, 0)
            sources, block = batch.input_vertices, batch.blocks[0]
        else:
            sources, block = self._lists(vertices)
        return sources, block, in_degrees(self._graph, sources) if self._uses_degrees else None

    def _lists(self, vertices: Array) -> tuple[Array, Block]:
        """Return the adjacency lists of consecutive vertices as sources and block."""
        first, end = int(vertices[0]), int(vertices[-1]) + 1
        indptr = np.asarray(self._graph.indptr[first : end + 1], dtype=np.int64)
        edges = np.asarray(self._graph.indices[indptr[0] : indptr[-1]])
        count = len(vertices)
        sources = np.concatenate([vertices, edges])
        weights, sums = self._graph.edge_weights, self._graph.weight_sums
        rows = self._graph.edge_rows
        block = Block(
            indptr=indptr - indptr[0],
            indices=np.arange(count, count + len(edges), dtype=np.int32),
            num_src=count + len(edges),
            edge_vertices=edges,
            edge_weights=None if weights is None else np.asarray(weights[indptr[0] : indptr[-1]]),
            weight_sums=None if sums is None else sums[sources],
            edge_rows=None if rows is None else np.asarray(rows[indptr[0] : indptr[-1]]),
        )
        return sources, block


def cut(graph: Graph, vertices: Vertices, num_edges: int, num_vertices: int) -> Iterator[Array]:
    """Yield ``vertices`` in chunks, in order, of about ``num_edges`` in-edges each.

    A chunk has about ``num_vertices`` vertices at most.
    """
    indptr, dtype = np.asarray(graph.indptr), graph.indices.dtype
    least = max(num_edges // num_vertices, 1)
    first = cost_sum = 0
    for start in range(0, len(vertices), _PIECE):
        piece = _ids(vertices[start : start + _PIECE], dtype)
        degrees = indptr[1:][piece] - indptr[piece]
        cost = cost_sum + np.cumsum(np.maximum(degrees, least))
        number = np.concatenate([[cost_sum // num_edges], cost // num_edges])
        for end in (np.flatnonzero(np.diff(number)) + start).tolist():
            if end > 0:
                yield _ids(vertices[first:end], dtype)
                first = end
        cost_sum = int(cost[-1])
    yield _ids(vertices[first:], dtype)


def _ids(vertices: Vertices, dtype: np.dtype[Any]) -> Array:
    if isinstance(vertices, range):
        return np.arange(vertices.start, vertices.stop, dtype=dtype)
    return vertices


def in_degrees(graph: Graph, vertices: IntArray) -> Float32Array:
    """Return ``[n]`` float32 in-degrees of ``vertices``.

    If ``graph`` is a partition with stored degrees, they are degrees in the full graph, and 0 for a
    vertex that the partition lacks.
    """
    if graph.degrees is not None:
        full_degrees: UInt32Array = np.asarray(graph.degrees)[vertices]
        return full_degrees.astype(np.float32)
    indptr = np.asarray(graph.indptr)
    degrees: Int64Array = indptr[1:][vertices] - indptr[vertices]
    return degrees.astype(np.float32)


#: Row ids below this fit into int32, which the native gather reads without conversion.
_MAX_INT32 = 1 << 31


def edge_attr(graph: Graph, block: Block, *, num_threads: int) -> Float32Array:
    """Return the features of the edges of ``block``, ``[num_edges, num_edge_features]`` float32."""
    features, rows = graph.edge_features, block.edge_rows
    if features is None or rows is None:
        raise GraphError(
            f"{graph.path or graph.name}: its edges have no features, which the model reads"
        )
    return _gather(graph, (features, "float32"), rows, num_threads)


def typed_edge_attr(
    graph: Graph, block: TypedBlock, *, num_threads: int
) -> tuple[Float32Array, ...]:
    """Return the features of the edges of each type of ``block``, ``[num_edges, width]`` float32.

    The width of an edge type without features is 0.
    """
    by_type = graph.edges.by_type
    parts = []
    for number, edges in enumerate(block.relations):
        matrix = None if by_type is None else by_type.matrices[number]
        if matrix is None or edges.edge_rows is None:
            parts.append(np.empty((edges.num_edges, 0), np.float32))
        else:
            table = matrix.rows, matrix.dtype
            parts.append(_gather(graph, table, edges.edge_rows, num_threads))
    return tuple(parts)


def _gather(
    graph: Graph, table: tuple[Array, str], rows: UInt32Array, num_threads: int
) -> Float32Array:
    """Return ``rows`` of ``table``, an array and its type, as float32.

    GraphError: ``graph`` has a row that is out of range.
    """
    features, dtype = table
    narrow = len(features) <= _MAX_INT32
    ids: Array = rows.view(np.int32) if narrow else rows.astype(np.int64)
    out = ops.empty((len(ids), features.shape[1]), torch.float32)
    try:
        ops.gather((features, dtype), ids, out=out, num_threads=num_threads)
    except ValueError as error:
        raise ops.damaged(graph.path or graph.name, f"edge_rows: {error}") from None
    attr: Float32Array = out.numpy()
    return attr


class FeatureLoader:
    """Reader of a model's first-layer input from a feature store."""

    def __init__(
        self,
        graph: Graph,
        model: TrainableModel,
        *,
        num_threads: int,
        store: FeatureStore | None = None,
        aggregates: bool = True,
        compute_dtype: torch.dtype = torch.float32,
    ) -> None:
        """Prepare to load the input of ``model`` for mini-batches of ``graph``.

        Raises GraphError if the store's rows do not match the graph.

        Args:
            store: source of feature rows. None: the graph's features.
            aggregates: whether the first layer may aggregate while reading, if it supports that;
                values are equal.
            compute_dtype: requested type of the rows. A processor without bfloat16 products gets
                float32.
        """
        self.store = HostFeatures.of(graph) if store is None else store
        check_store(self.store, graph)
        self.num_threads = num_threads
        self.compute_dtype = compute_dtype  #: type of the configuration
        #: type of loaded rows and of the model's products: float32 on a processor without
        #: bfloat16 instructions, where converting before each product is slower than float32
        self.dtype = torch.float32
        if compute_dtype == torch.bfloat16 and multiplies_bfloat16():
            self.dtype = torch.bfloat16
        self._graph = graph
        self._model = model
        # A row that is learned and read as of several cut-offs has the sum of their gradients.
        sums_repeats = graph.has_cutoffs and model.vertex_rows is not None
        self._aggregates = aggregates and not sums_repeats

    def load(self, batch: MiniBatch) -> Inputs:
        """Return the model's input for ``batch``, with its traffic.

        For a graph on disk the traffic includes all reads of lists since the last call, also for
        batches sampled ahead.
        """
        degrees = self.batch_degrees(batch)
        return self.with_list_reads(self.read(batch, degrees))

    def with_list_reads(self, inputs: Inputs) -> Inputs:
        """Return ``inputs`` with the reads of lists since the last call in its traffic."""
        if self._graph.lists is None:
            return inputs
        # The reads include those of batches sampled ahead.
        read = Traffic(neighbors=take_reads(self._graph.lists))
        return replace(inputs, traffic=inputs.traffic + read)

    def read(self, batch: MiniBatch, degrees: Degrees) -> Inputs:
        """Return the model's input for ``batch``, with traffic but for lists read from disk.

        ``degrees`` are the in-degrees of the input vertices. None: they are not needed.
        """
        inputs = self._model.load(
            self.store,
            batch,
            degrees,
            aggregates=self._aggregates,
            dtype=self.dtype,
            num_threads=self.num_threads,
        )
        inputs = self.with_ages(batch, inputs)
        if not self._model.uses_edge_features:
            return inputs
        attr = (
            edge_attr(self._graph, block, num_threads=self.num_threads) for block in batch.blocks
        )
        return replace(inputs, edge_attr=tuple(attr))

    def with_ages(self, batch: MiniBatch, inputs: Inputs) -> Inputs:
        """Return ``inputs`` with the ages of input vertices at their cut-offs, if they are read."""
        times, cutoffs = self._graph.times, batch.cutoffs
        if not self._model.uses_ages or times is None or cutoffs is None:
            return inputs
        ages = torch.from_numpy(times.ages(batch.input_vertices, cutoffs))
        if not isinstance(batch, TypedMiniBatch):
            return replace(inputs, ages=(ages,))
        spans = map(self._graph.schema.vertices, range(len(batch.type_sizes)))
        pairs = zip(spans, torch.split(ages, list(batch.type_sizes)), strict=True)
        return replace(
            inputs, ages=tuple(part if times.are_timed(span) else None for span, part in pairs)
        )

    def with_learned(self, batch: MiniBatch, inputs: Inputs) -> Inputs:
        """Return ``inputs``, the result of ``without_rows``, with the learned rows."""
        return self.read(batch, inputs.degrees)

    def without_rows(self, batch: MiniBatch) -> Inputs:
        """Return an input for ``batch`` without rows, for learned rows that the model reads itself.

        Its traffic is the traffic of these rows in host memory.
        """
        return Inputs(
            x=torch.empty(0, self.store.width, dtype=self.dtype),
            aggregated=False,
            degrees=self.batch_degrees(batch),
            traffic=Traffic(rows=Access(host_bytes=self.bytes_read(batch))),
        )

    def bytes_read(self, batch: MiniBatch) -> int:
        """Return the bytes of the distinct feature rows of ``batch``: |V^0| f^0 S of eq. 7."""
        return sum(count * row_bytes for count, row_bytes in self.rows_read(batch))

    def rows_read(self, batch: MiniBatch) -> list[tuple[int, int]]:
        """Return for each vertex type the number of distinct rows of ``batch``, and their bytes."""
        return [(len(batch.input_vertices), self.store.row_bytes)]

    def batch_degrees(self, batch: MiniBatch) -> Degrees:
        """Return the in-degrees of the input vertices, by the edges that sampling allows.

        None: neither the model nor the sampling needs in-degrees.
        """
        vertices, block, times = batch.input_vertices, batch.blocks[0], self._graph.times
        if not self._model.uses_degrees and block.importance is None:
            return None
        intervals = batch.intervals
        if intervals is None or times is None:
            return self.degrees_of(vertices, block)
        indptr = self._graph.indptr
        return degrees_between(indptr, times.edges, vertices, intervals).astype(np.float32)

    def degrees_of(self, vertices: IntArray, block: Block) -> Degrees:
        """Return the in-degrees of ``vertices``, the sources of ``block``.

        None: neither the model nor the sampling needs in-degrees.
        """
        if not self._model.uses_degrees and block.importance is None:
            return None
        return in_degrees(self._graph, vertices)
