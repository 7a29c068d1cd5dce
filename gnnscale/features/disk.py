"""Feature rows in a file, read past the page cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from gnnscale import ops
from gnnscale.core import Array, ConfigError, Int32Array
from gnnscale.features.tiered.source import SourceReads
from gnnscale.graph import Graph

#: Largest gap between two rows that one request reads. Every disk reads a larger gap more slowly
#: than it starts another request.
MAX_GAP_BYTES = 1 << 20
#: Requests in flight. The reading thread may wait a millisecond or more for a core while other
#: threads compute; a deep queue keeps the disk busy.
DEPTH = 256
#: Largest request.
MAX_REQUEST_BYTES = 1 << 16


class DiskRows:
    """Asynchronous reader of the rows of a feature file.

    The reads of a call are sorted by file offset, and reads with a small gap between them become
    one request.
    """

    def __init__(
        self, rows: np.memmap[Any, Any], *, dtype_name: str, num_features: int, max_gap_bytes: int
    ) -> None:
        """Open the file of ``rows``; the mapping itself is never read.

        Args:
            rows: ``[num_rows, width]``, contiguous.
            dtype_name: name of the element type.
            num_features: features of a row; an int8 or int4 row has ``width`` bytes instead.
            max_gap_bytes: largest gap between two rows that one request reads.

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
            ConfigError: the features are in memory, without a file.
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

    def start(self, vertices: Array, buffer: Array, slots: Int32Array) -> int:
        """Start reading row ``vertices[i]`` into ``buffer[slots[i]]``, and return a ticket."""
        return self._reader.submit(vertices, (buffer.view(np.uint8), "uint8"), slots)

    def skip(self) -> None:
        """Do nothing: no other process takes part in the reads."""

    def profile_rows(self, vertices: Array) -> Array:
        """Return the rows of ``vertices``, ``[n, width]``."""
        rows: Array = np.empty((len(vertices), self.width), self.dtype)
        self.finish(self.start(vertices, rows, np.arange(len(vertices), dtype=np.int32)))
        return rows

    def finish(self, ticket: int) -> None:
        """Wait until the rows of ``ticket`` have arrived.

        Raises:
            OSError: the rows could not be read.
        """
        self._reader.wait(ticket)

    def take_reads(self) -> SourceReads:
        """Return the reads since the last call, and reset the counters."""
        counters = self._reader.take_counters()
        return SourceReads(
            num_bytes=round(counters["bytes_read"]), num_requests=round(counters["requests"])
        )

    def close(self) -> None:
        """Wait for pending reads, and close the file."""
        self._reader.close()


def features_file(graph: Graph) -> Path:
    """Return the path of the file that has the features of ``graph``.

    Raises:
        ConfigError: the features are in memory, without a file.
    """
    return Path(str(mapped_features(graph).filename))


def mapped_features(graph: Graph) -> np.memmap[Any, Any]:
    """Return the mapped features of ``graph``.

    Raises:
        ConfigError: the features are in memory, without a file.
    """
    features: Any = graph.features
    if not isinstance(features, np.memmap) or not features.flags.c_contiguous:
        raise ConfigError(
            f"features=disk: expected features in a file, got those of {graph.path or graph.name} "
            "in memory; a graph store on disk has them in a file"
        )
    return features
