"""Feature rows in a file, read around the page cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from gnnscale import ops
from gnnscale.core import Array, ConfigError, Int32Array
from gnnscale.features.tiered.source import SourceReads
from gnnscale.graph import Graph

#: A gap that no disk is asked to leave out: its next request takes as long.
MAX_GAP_BYTES = 1 << 20
#: Requests on their way, and the bytes of one at most. While threads compute on all cores, the
#: thread that reads gets its turn after a millisecond or more, for which a disk needs work.
DEPTH = 256
MAX_REQUEST_BYTES = 1 << 16


class DiskRows:
    """The rows of a feature file, which are read some time before they are needed.

    Reads of one call are sorted by place, and those that lie close together become one request.
    """

    def __init__(
        self, rows: np.memmap[Any, Any], *, dtype_name: str, num_features: int, max_gap_bytes: int
    ) -> None:
        """Open the file of ``rows``, of which nothing is read through the mapping.

        Args:
            rows: ``[num_rows, width]``, contiguous.
            dtype_name: the name of the element type.
            num_features: of a row; elements are bytes of int8 and int4.
            max_gap_bytes: rows with so many bytes between them, or fewer, are read by one request.

        Raises:
            OSError: the file cannot be read.
        """
        self._features = rows
        self.dtype_name = dtype_name
        self.num_features = num_features
        self._reader = ops.RowReader(
            str(rows.filename),
            offset=rows.offset,
            num_rows=self.num_rows,
            row_bytes=self.width * self.dtype.itemsize,
            depth=DEPTH,
            max_gap_bytes=min(max_gap_bytes, MAX_GAP_BYTES),
            max_request_bytes=MAX_REQUEST_BYTES,
        )

    @classmethod
    def of(cls, graph: Graph, *, max_gap_bytes: int) -> DiskRows:
        """Open the feature file of ``graph``.

        Raises:
            ConfigError: the features are in memory, and in no file.
            OSError: the file cannot be read.
        """
        return cls(
            mapped_features(graph),
            dtype_name=graph.feature_dtype,
            num_features=graph.num_features,
            max_gap_bytes=max_gap_bytes,
        )

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self._features)

    @property
    def width(self) -> int:
        """Elements of a row."""
        return int(self._features.shape[1])

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy type in which rows are stored; bfloat16 is uint16."""
        dtype: np.dtype[Any] = self._features.dtype
        return dtype

    def start(self, vertices: Array, pool: Array, slots: Int32Array) -> int:
        """Begin to read the row ``vertices[i]`` into ``pool[slots[i]]``, and return a ticket."""
        return self._reader.submit(vertices, (pool.view(np.uint8), "uint8"), slots)

    def skip(self) -> None:
        """Do nothing: nobody else needs to know."""

    def rehearse(self, vertices: Array) -> Array:
        """Return the rows of ``vertices``, ``[n, width]``."""
        rows: Array = np.empty((len(vertices), self.width), self.dtype)
        self.finish(self.start(vertices, rows, np.arange(len(vertices), dtype=np.int32)))
        return rows

    def finish(self, ticket: int) -> None:
        """Wait until the rows of ``ticket`` are there.

        Raises:
            OSError: they could not be read.
        """
        self._reader.wait(ticket)

    def take_reads(self) -> SourceReads:
        """Return what was read since the last call."""
        counters = self._reader.take_counters()
        return SourceReads(
            num_bytes=round(counters["bytes_read"]), num_requests=round(counters["requests"])
        )

    def close(self) -> None:
        """Wait for what was begun, and close the file."""
        self._reader.close()


def features_file(graph: Graph) -> Path:
    """Return the file that has the features of ``graph``.

    Raises:
        ConfigError: they are in memory, and in no file.
    """
    return Path(str(mapped_features(graph).filename))


def mapped_features(graph: Graph) -> np.memmap[Any, Any]:
    """Return the features of ``graph``, which its store's file has.

    Raises:
        ConfigError: they are in memory, and in no file.
    """
    features: Any = graph.features
    if not isinstance(features, np.memmap) or not features.flags.c_contiguous:
        raise ConfigError(
            f"features=disk: the features of {graph.path or graph.name} are in memory, and in no "
            "file; a graph store on disk has them in one"
        )
    return features
