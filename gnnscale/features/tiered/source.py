"""The protocol of backing stores of a tiered store: a disk, or other machines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from gnnscale.core import Access, Array, Int32Array
from gnnscale.core.stages import NO_ACCESS


@dataclass(frozen=True, kw_only=True)
class SourceReads:
    """Reads of a backing store since its counters were last taken."""

    num_bytes: int = 0  #: bytes, gaps between rows included
    num_requests: int = 0  #: number of requests
    disk: Access = NO_ACCESS  #: reads of the disk, for a store that also reads other machines

    def __add__(self, other: SourceReads) -> SourceReads:
        return SourceReads(
            num_bytes=self.num_bytes + other.num_bytes,
            num_requests=self.num_requests + other.num_requests,
            disk=self.disk + other.disk,
        )


class BatchSource(Protocol):
    """Reader of rows into a buffer, batch by batch."""

    def start(self, vertices: Array, buffer: Array, slots: Int32Array) -> int:
        """Start reading row ``vertices[i]`` into ``buffer[slots[i]]``, and return a ticket.

        Called once for each step that reads rows, in the order of steps.
        """
        ...

    def skip(self) -> None:
        """Note a step that reads no rows, in the order of steps."""
        ...

    def finish(self, ticket: int) -> None:
        """Wait until the rows of ``ticket`` have arrived.

        Raises:
            OSError: the rows could not be read.
        """
        ...

    def take_reads(self) -> SourceReads:
        """Return the reads since the last call."""
        ...

    def close(self) -> None:
        """Wait for pending reads, and release all resources."""
        ...


class RowSource(BatchSource, Protocol):
    """Backing store: rows that are read some time before their use."""

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        ...

    @property
    def width(self) -> int:
        """Elements of a row."""
        ...

    @property
    def num_features(self) -> int:
        """Features of a row; an int8 or int4 row has ``width`` bytes instead."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy type in which rows are stored; bfloat16 is uint16."""
        ...

    @property
    def dtype_name(self) -> str:
        """The name of the element type."""
        ...

    def profile_rows(self, vertices: Array) -> Array:
        """Return ``[n, width]`` rows for a profiling run; other rows may stand in for them."""
        ...
