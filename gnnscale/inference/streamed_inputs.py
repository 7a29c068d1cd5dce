"""Rows of the first layer that sequential passes over the features transform."""

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from gnnscale import ops
from gnnscale.backend.feature_loading import Vertices
from gnnscale.core import Array, Traffic
from gnnscale.features import DiskRows, HostFeatures, features_file, max_read_gap, write_aggregated
from gnnscale.graph import Graph
from gnnscale.inference.activation_store import MemoryRows
from gnnscale.inference.chunks import Workers
from gnnscale.nn.conv.linear import Degrees, LinearAggregationLayer
from gnnscale.nn.transform_first import TransformedStore
from gnnscale.sampling import Block

#: Approximate bytes of the float32 rows that are read and transformed together.
_RANGE_BYTES = 8 << 20

#: Waits for rows that are being read and returns them, in any thread.
Reading = Callable[[], torch.Tensor]


class FeatureReader:
    """Reader of feature rows as float32 for many vertices, asynchronous if they are on the disk.

    Files are read without the page cache if the file system supports it. OSError: the feature file
    cannot be opened.
    """

    def __init__(self, store: HostFeatures, graph: Graph, *, num_threads: int) -> None:
        """Read the rows of ``store``, the features of ``graph``."""
        self._store = store
        self._num_threads = num_threads
        self._file: DiskRows | None = None
        if store.from_disk:
            self._file = DiskRows.of(graph, max_gap_bytes=max_read_gap(features_file(graph)))

    def start(self, vertices: Array) -> Reading:
        """Start to read rows of ``vertices``; return a function that gives them, ``[n, width]``."""
        if self._file is None:
            return partial(self._gather, vertices)
        shape, file = (len(vertices), self._file.width), self._file
        buffer: Array = np.empty(shape, file.dtype)
        if file.dtype_name == "float32":
            buffer = ops.empty(shape, torch.float32).numpy()
        ticket = file.start(vertices, buffer, np.arange(len(vertices), dtype=np.int32))
        return partial(self._finish, ticket, buffer)

    def _gather(self, vertices: Array) -> torch.Tensor:
        options: Any = {"dtype": torch.float32, "num_threads": self._num_threads}
        return self._store.gather(vertices, **options)[0]

    def _finish(self, ticket: int, buffer: Array) -> torch.Tensor:
        assert self._file is not None
        self._file.finish(ticket)
        if self._file.dtype_name == "float32":
            return torch.from_numpy(buffer)
        out = ops.empty((len(buffer), self._store.width), torch.float32)
        stored = (buffer, self._file.dtype_name)
        rows = np.arange(len(buffer), dtype=np.int32)
        return ops.gather(stored, rows, out=out, num_threads=self._num_threads)

    def close(self) -> None:
        """Wait for pending reads and close the file."""
        if self._file is not None:
            self._file.close()


def make_rows(
    reader: FeatureReader,
    vertices: Vertices,
    make: Callable[[torch.Tensor], torch.Tensor],
    write: Callable[[int, torch.Tensor], None],
    *,
    width: int,
    workers: Workers,
    advance: Callable[[int], None],
) -> None:
    """Read rows of ascending ``vertices`` by range, apply ``make``, and ``write`` its results.

    ``write`` gets the index in ``vertices`` of a range's first vertex and the range's rows, on any
    of ``workers``; ``advance`` gets each range's number of rows. ``width``: features of a row read.
    """

    def ranges() -> Iterator[tuple[int, Reading]]:
        count = max(_RANGE_BYTES // (4 * width), 16)
        for first in range(0, len(vertices), count):
            yield first, reader.start(np.asarray(vertices[first : first + count]))

    def transform(item: tuple[int, Reading]) -> int:
        first, reading = item
        rows = make(reading())
        write(first, rows)
        return len(rows)

    for count in workers.map(transform, ranges()):
        advance(count)


class TransformedRows(TransformedStore):
    """Store of rows that a pass has transformed, with access to the original features."""

    inner: MemoryRows

    def __init__(
        self,
        rows: MemoryRows,
        positions: Callable[[Array], Array] | None,
        reader: FeatureReader,
        num_vertices: int,
        *,
        num_threads: int,
    ) -> None:
        """Store ``rows``, which ``positions`` finds by vertex (None: its id).

        ``reader`` reads the original features.
        """
        self.inner = rows
        self._positions = positions
        self._reader = reader
        self._num_vertices = num_vertices
        self._num_threads = num_threads
        self._reading: Reading | None = None

    @property
    def num_rows(self) -> int:
        """Number of vertices of the graph."""
        return self._num_vertices

    @property
    def reads_per_edge(self) -> bool:
        """Whether sums read one row per edge, rather than one per source: always."""
        return True

    def prefetch(self, vertices: Array) -> "TransformedRows":
        """Start to read features of ``vertices``; return a copy with them for ``features_of``."""
        store = copy(self)
        store._reading = self._reader.start(vertices)
        return store

    def gather(
        self, vertices: Array, *, dtype: torch.dtype, num_threads: int
    ) -> tuple[torch.Tensor, Traffic]:
        """Return the transformed rows of ``vertices``, ``[n, width]``, and no traffic."""
        rows = vertices if self._positions is None else self._positions(vertices)
        return self.inner.gather(rows, dtype=dtype, num_threads=num_threads)

    def features_of(self, vertices: Array) -> torch.Tensor:
        """Return features ``[n, num_features]``, prefetched ones or else those of ``vertices``."""
        return self._reading() if self._reading is not None else self._reader.start(vertices)()

    def sums(
        self, vertices: Array, block: Block, degrees: Degrees, layer: LinearAggregationLayer
    ) -> torch.Tensor:
        """Return transformed rows aggregated as in ``layer``, ``[num_dst, width]``.

        A self term that ``layer`` adds is included; a self term that it concatenates is not.
        """
        aggregation = layer.aggregation(block, degrees)
        if self._positions is not None and block.edge_vertices is not None:
            block = replace(block, edge_vertices=self._positions(block.edge_vertices))
            vertices = self._positions(vertices[: block.num_dst])
        elif self._positions is not None:
            vertices = self._positions(vertices)
        out = ops.empty((block.num_dst, self.width), torch.float32)
        options: Any = {"out": out, "num_threads": self._num_threads}
        if aggregation.self_term == "add":
            write_aggregated(self.inner.stored, block, aggregation, ids=vertices, **options)
            return out
        per_edge = block.edge_vertices is not None
        return ops.aggregate(
            self.inner.stored,
            block.indptr,
            block.indices,
            ids=block.edge_vertices if per_edge else vertices,
            ids_per_edge=per_edge,
            weights=aggregation.weights,
            dst_scale=aggregation.dst_scale,
            **options,
        )
