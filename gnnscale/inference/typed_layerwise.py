"""Exact inference over a graph with types, layer by layer with all neighbors of each edge type."""

import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from gnnscale import ops
from gnnscale.backend.feature_loading import CHUNK_EDGES, CHUNK_VERTICES, typed_edge_attr
from gnnscale.core import Array, BoolArray, Float32Array, IntArray, read_memory, track
from gnnscale.core.artifact.files import check_space, size
from gnnscale.features.typed import TypedStore
from gnnscale.graph import Graph, damaged_lists
from gnnscale.nn.typed.model import TypedGNN
from gnnscale.ops.products import torch_threads
from gnnscale.sampling import TypedMiniBatch, TypedSampler

_LOG = logging.getLogger(__name__)

#: Number of adjacency lists whose edges are marked at a time.
_LISTS = 1 << 18


class TypedInference:
    """Exact inference: each layer is computed for all required vertices before the next one.

    Hidden rows are in memory, or in temporary files if they take more than half of the free memory.
    """

    def __init__(
        self,
        model: TypedGNN,
        graph: Graph,
        *,
        num_threads: int,
        store: TypedStore | None = None,
        fanouts: Mapping[str, Sequence[int]] | None = None,
        num_layers: int | None = None,
    ) -> None:
        """Prepare exact inference of ``model`` on ``graph``.

        Args:
            model: the model, whose weights may change between calls.
            num_threads: threads of torch and of the native kernels.
            store: store of the features; None: the graph's features in host memory, learned rows
                included.
            fanouts: fan-outs of training by edge type. One of 0 leaves an edge type out at that
                hop; others have all neighbors. None: all have.
            num_layers: number of layers to compute, from the first; None: all layers.
        """
        self._model = model
        self._graph = graph
        self._num_threads = num_threads
        self._store = TypedStore.of(graph, learned=True) if store is None else store
        self._num_layers = len(model.layers) if num_layers is None else num_layers
        self._uses = _edge_types_used(graph, fanouts, len(model.layers))[: self._num_layers]
        # Vertices are in order, for which the system's read-ahead of the mapped file suffices.
        mapped = replace(graph, lists=None)
        self._samplers = [
            TypedSampler(mapped, fanouts=_all_of(graph, used), num_threads=num_threads)
            for used in self._uses
        ]

    def prepare(self, vertices: IntArray | None) -> None:
        """Log the size of the hidden rows of ``rows(vertices)`` if they are kept in files.

        ConfigError: the disk has too little space for them.
        """
        num_bytes = self._num_bytes(self._num_layers)
        if num_bytes > read_memory().available // 2:
            check_space("hidden rows of inference", Path(tempfile.gettempdir()), disk=num_bytes)
            _LOG.info(
                f"exact inference of {self._graph.name}: {size(num_bytes)} of temporary disk for "
                "hidden layers"
            )

    def logits(self, vertices: IntArray) -> torch.Tensor:
        """Return the last layer's rows ``[len(vertices), width]`` of distinct ``vertices``."""
        out = ops.empty((len(vertices), self._model.widths[self._num_layers]), torch.float32)
        first = 0
        for rows in self.rows(vertices):
            out[first : first + len(rows)] = rows
            first += len(rows)
        return out

    @torch.no_grad()
    def rows(self, vertices: IntArray | None = None) -> Iterator[torch.Tensor]:
        """Yield the last layer's rows of ``vertices`` in chunks, in their order; None: of all.

        The model must not be used meanwhile.
        """
        outputs = np.arange(self._graph.num_vertices) if vertices is None else np.asarray(vertices)
        needed = self._needed(outputs)
        was_training = self._model.training
        self._model.eval()
        total = len(outputs) + sum(int(mask.sum()) for mask in needed)
        try:
            with (
                torch_threads(self._num_threads),
                self._activations(len(needed)) as activations,
                track("inference", total=total, unit="vertices") as advance,
            ):
                self._encode(needed[0], activations[0])
                advance(int(needed[0].sum()))
                for index in range(self._num_layers - 1):
                    in_rows, out_rows = activations[index], activations[index + 1]
                    for ids, part in self._layer(index, in_rows, np.flatnonzero(needed[index + 1])):
                        self._write(out_rows, ids, part)
                        advance(len(ids))
                last = self._num_layers - 1
                for ids, part in self._layer(last, activations[last], outputs):
                    advance(len(ids))
                    yield part
        finally:
            self._model.train(was_training)

    def _needed(self, outputs: IntArray) -> list[BoolArray]:
        """Return masks ``[num_vertices]`` of the vertices whose input rows each layer reads."""
        mask = np.zeros(self._graph.num_vertices, np.bool_)
        mask[outputs] = True
        masks: list[BoolArray] = []
        for used in reversed(self._uses):
            mask = _with_sources(self._graph, mask, used)
            masks.append(mask)
        return masks[::-1]

    def _num_bytes(self, count: int) -> int:
        """Return the bytes of the input rows of the first ``count`` layers."""
        return 4 * self._graph.num_vertices * sum(self._model.widths[:count])

    @contextmanager
    def _activations(self, count: int) -> Iterator[list[list[Float32Array]]]:
        """Yield for each layer the arrays of its input rows, one for each vertex type."""
        types, widths = self._graph.schema.vertex_types, self._model.widths[:count]
        num_bytes = self._num_bytes(count)
        with tempfile.TemporaryDirectory(prefix="gnnscale-") as folder:
            in_memory = num_bytes <= read_memory().available // 2
            if not in_memory:
                check_space("hidden rows of inference", Path(folder), disk=num_bytes)
            yield [
                [
                    _rows((vertices.num_vertices, width), None if in_memory else Path(folder))
                    for vertices in types
                ]
                for width in widths
            ]

    def _encode(self, needed: BoolArray, rows: Sequence[Float32Array]) -> None:
        """Write the encoded features of the ``needed`` vertices of each type into ``rows``."""
        schema = self._graph.schema
        for number in range(len(schema.vertex_types)):
            vertices = schema.vertices(number)
            ids = np.flatnonzero(needed[vertices]) + vertices.start
            for first in range(0, len(ids), CHUNK_VERTICES):
                chunk = ids[first : first + CHUNK_VERTICES]
                features, _ = self._store.rows_of(
                    number, chunk, dtype=torch.float32, num_threads=self._num_threads
                )
                encoded = self._model.encode(number, features)
                rows[number][chunk - vertices.start] = encoded.numpy()

    def _layer(
        self, index: int, in_rows: Sequence[Float32Array], vertices: IntArray
    ) -> Iterator[tuple[IntArray, torch.Tensor]]:
        """Yield chunks of ``vertices``, of one type each, with the rows that a layer computes.

        ``in_rows`` are the layer's input rows.
        """
        schema = self._graph.schema
        types = schema.type_of(vertices)
        bounds = [0, *(np.flatnonzero(np.diff(types)) + 1).tolist(), len(vertices)]
        for first, end in pairwise(bounds):
            if first == end:
                continue
            number = int(types[first])
            for chunk in self._chunks(number, vertices[first:end]):
                batch = self._samplers[index].sample(chunk.astype(self._graph.indices.dtype), 0)
                rows = self._read(in_rows, batch)
                (block,) = batch.blocks
                if self._model.uses_edge_features:
                    attr = typed_edge_attr(self._graph, block, num_threads=self._num_threads)
                    block = block.with_edge_attr(attr)
                yield chunk, self._model.infer_layer(index, rows, block)[number]

    def _chunks(self, vertex_type: int, vertices: IntArray) -> Iterator[IntArray]:
        """Yield ``vertices`` of a type in chunks, in order, each of bounded vertices and edges."""
        schema = self._graph.schema
        stride = int((schema.destinations == vertex_type).sum())
        offsets = vertices - schema.vertices(vertex_type).start
        firsts = int(schema.first_rows[vertex_type]) + offsets * stride
        indptr = np.asarray(self._graph.indptr)
        costs = np.maximum(indptr[firsts + stride] - indptr[firsts], CHUNK_EDGES // CHUNK_VERTICES)
        groups = np.cumsum(costs) // CHUNK_EDGES
        bounds = np.flatnonzero(np.diff(groups)) + 1
        yield from np.split(vertices, bounds)

    def _read(self, in_rows: Sequence[Float32Array], batch: TypedMiniBatch) -> list[torch.Tensor]:
        """Return for each vertex type the input rows of the sources of ``batch``."""
        rows = []
        for number, matrix in enumerate(in_rows):
            ids = batch.vertices(number) - self._graph.schema.vertices(number).start
            out = ops.empty((len(ids), matrix.shape[1]), torch.float32)
            rows.append(
                ops.gather((matrix, "float32"), ids, out=out, num_threads=self._num_threads)
            )
        return rows

    def _write(self, out_rows: Sequence[Float32Array], ids: IntArray, rows: torch.Tensor) -> None:
        """Write the rows of ``ids``, vertices of one type, into the arrays of all types."""
        number = int(self._graph.schema.type_of(ids[:1])[0])
        out_rows[number][ids - self._graph.schema.vertices(number).start] = rows.numpy()


def _rows(shape: tuple[int, int], folder: Path | None) -> Float32Array:
    """Return an array of rows, in memory or in a temporary file in ``folder``."""
    if folder is None or 0 in shape:
        return np.empty(shape, np.float32)
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
        return np.memmap(file.name, np.float32, "w+", shape=shape)


def _edge_types_used(
    graph: Graph, fanouts: Mapping[str, Sequence[int]] | None, num_layers: int
) -> list[list[bool]]:
    """Return for each layer, input layer first, which edge types carry messages.

    Those with fan-out 0 of training carry none.
    """
    names = [str(edges) for edges in graph.schema.edge_types]
    if fanouts is None:
        return [[True] * len(names)] * num_layers
    return [
        [fanouts[name][num_layers - 1 - layer] != 0 for name in names]
        for layer in range(num_layers)
    ]


def _all_of(graph: Graph, used: Sequence[bool]) -> dict[str, list[int]]:
    """Return fan-outs of one hop: all neighbors by the edge types in use, none by others."""
    return {
        str(edges): [-1 if is_used else 0]
        for edges, is_used in zip(graph.schema.edge_types, used, strict=True)
    }


def _with_sources(graph: Graph, mask: BoolArray, used: Sequence[bool]) -> BoolArray:
    """Return ``mask`` ``[num_vertices]`` with all in-neighbors of its vertices by edge types."""
    if mask.all():
        return mask
    schema = graph.schema
    row_mask = np.zeros(schema.num_rows, np.bool_)
    for number, is_used in enumerate(used):
        if is_used:
            destinations = schema.vertices(int(schema.destinations[number]))
            row_mask[schema.rows(number)] = mask[destinations]
    out: BoolArray = mask.copy()
    for first in range(0, schema.num_rows, _LISTS):
        is_read = row_mask[first : first + _LISTS]
        if not is_read.any():
            continue
        offsets = np.asarray(graph.indptr[first : first + len(is_read) + 1])
        edges: Array = np.asarray(graph.indices[offsets[0] : offsets[-1]])
        sources = edges[np.repeat(is_read, np.diff(offsets))]
        if len(sources) and not 0 <= sources.min() <= sources.max() < len(out):
            raise damaged_lists(graph)
        out[sources] = True
    return out
