"""Rows that a pass over the features makes for the first layer, in the order of the file."""

from __future__ import annotations

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
from gnnscale.features import HostFeatures
from gnnscale.features.base import write_aggregated
from gnnscale.features.disk import DiskRows, features_file
from gnnscale.features.disk_bandwidth import gap_of
from gnnscale.graph import Graph
from gnnscale.inference.activation_store import MemoryRows, Workers
from gnnscale.nn.conv.linear import Degrees, LinearAggregationLayer
from gnnscale.nn.transform_first import TransformedStore
from gnnscale.sampling import Block

#: Rows of about so many bytes, as float32, are read and multiplied at once.
_STRETCH_BYTES = 8 << 20

#: What returns rows that are being read, in any thread.
Reading = Callable[[], torch.Tensor]


class FeatureReader:
    """Reads feature rows of many vertices, in the background if they are on the disk.

    Those of a file are read past the page cache, if the file system can.
    """

    def __init__(self, store: HostFeatures, graph: Graph, *, num_threads: int) -> None:
        """Read the rows of ``store``, those of ``graph``.

        Args:
            num_threads: of the native kernels, for each call.

        Raises:
            OSError: the feature file cannot be opened.
        """
        self._store = store
        self._num_threads = num_threads
        self._file: DiskRows | None = None
        if store.from_disk:
            self._file = DiskRows.of(graph, max_gap_bytes=gap_of(features_file(graph)))

    def start(self, vertices: Array) -> Reading:
        """Begin to read the rows of ``vertices``, ``[n, width]`` float32."""
        if self._file is None:
            return partial(self._gathered, vertices)
        shape, file = (len(vertices), self._file.width), self._file
        pool: Array = np.empty(shape, file.dtype)
        if file.dtype_name == "float32":
            pool = ops.empty(shape, torch.float32).numpy()
        ticket = file.start(vertices, pool, np.arange(len(vertices), dtype=np.int32))
        return partial(self._finished, ticket, pool)

    def _gathered(self, vertices: Array) -> torch.Tensor:
        options: Any = {"dtype": torch.float32, "num_threads": self._num_threads}
        return self._store.gather(vertices, **options)[0]

    def _finished(self, ticket: int, pool: Array) -> torch.Tensor:
        assert self._file is not None
        self._file.finish(ticket)
        if self._file.dtype_name == "float32":
            return torch.from_numpy(pool)
        out = ops.empty((len(pool), self._store.width), torch.float32)
        stored = (pool, self._file.dtype_name)
        everything = np.arange(len(pool), dtype=np.int32)
        return ops.gather(stored, everything, out=out, num_threads=self._num_threads)

    def close(self) -> None:
        """Wait for reads that nobody waited for, and close the file."""
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
    """Read the rows of ``vertices``, and write what ``make`` returns for them.

    Args:
        vertices: they ascend.
        write: takes the number of the first row.
        width: features of a row.
        advance: takes how many rows are done.
    """

    def stretches() -> Iterator[tuple[int, Reading]]:
        count = max(_STRETCH_BYTES // (4 * width), 16)
        for first in range(0, len(vertices), count):
            yield first, reader.start(np.asarray(vertices[first : first + count]))

    def made(stretch: tuple[int, Reading]) -> int:
        first, reading = stretch
        rows = make(reading())
        write(first, rows)
        return len(rows)

    for count in workers.map(made, stretches()):
        advance(count)


class TransformedRows(TransformedStore):
    """Rows that a pass has made, in memory, and the features that it has read."""

    def __init__(
        self,
        rows: MemoryRows,
        places: Callable[[Array], Array] | None,
        reader: FeatureReader,
        num_vertices: int,
        *,
        num_threads: int,
    ) -> None:
        """Take row ``places(vertices)[i]`` of ``rows`` as that of ``vertices[i]``.

        Args:
            places: None if vertices are rows.
        """
        self._rows = rows
        self._places = places
        self._reader = reader
        self._num_vertices = num_vertices
        self._num_threads = num_threads
        self._own: Reading | None = None

    @property
    def num_rows(self) -> int:
        """Number of vertices of the graph."""
        return self._num_vertices

    @property
    def width(self) -> int:
        """Columns of a row."""
        return self._rows.width

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self._rows.row_bytes

    @property
    def reads_per_edge(self) -> bool:
        """Sums read rows in the order of the edges."""
        return True

    def ahead(self, vertices: Array) -> TransformedRows:
        """Begin to read the features of ``vertices``, and return a store whose ``own`` has them."""
        found = copy(self)
        found._own = self._reader.start(vertices)
        return found

    def gather(
        self, vertices: Array, *, dtype: torch.dtype, num_threads: int
    ) -> tuple[torch.Tensor, Traffic]:
        """Return the rows of ``vertices``, ``[n, width]``."""
        found = vertices if self._places is None else self._places(vertices)
        return self._rows.gather(found, dtype=dtype, num_threads=num_threads)

    def own(self, vertices: Array) -> torch.Tensor:
        """Return the features of ``vertices``, ``[n, num_features]``, those read ahead if any."""
        return self._own() if self._own is not None else self._reader.start(vertices)()

    def sums(
        self, vertices: Array, block: Block, degrees: Degrees, layer: LinearAggregationLayer
    ) -> torch.Tensor:
        """Return neighbours' rows aggregated as in ``layer``, ``[num_dst, width]``."""
        aggregation = layer.aggregation(block, degrees)
        if self._places is not None and block.edge_vertices is not None:
            block = replace(block, edge_vertices=self._places(block.edge_vertices))
            vertices = self._places(vertices[: block.num_dst])
        elif self._places is not None:
            vertices = self._places(vertices)
        out = ops.empty((block.num_dst, self.width), torch.float32)
        options: Any = {"out": out, "num_threads": self._num_threads}
        if aggregation.self_term == "add":
            write_aggregated(self._rows.stored, block, aggregation, ids=vertices, **options)
            return out
        per_edge = block.edge_vertices is not None
        return ops.aggregate(
            self._rows.stored,
            block.indptr,
            block.indices,
            ids=block.edge_vertices if per_edge else vertices,
            ids_per_edge=per_edge,
            weights=aggregation.weights,
            dst_scale=aggregation.dst_scale,
            **options,
        )
