"""The protocol of what lies below a tier: a disk, or other machines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from gnnscale.core import Access, Array, Int32Array
from gnnscale.core.stages import NO_ACCESS


@dataclass(frozen=True, kw_only=True)
class SourceReads:
    """What a source has read since it was last asked."""

    num_bytes: int = 0  #: bytes, with what lies between rows
    num_requests: int = 0  #: requests
    #: what of it the disk was read for, of a source that reads other machines too
    disk: Access = NO_ACCESS

    def __add__(self, other: SourceReads) -> SourceReads:
        return SourceReads(
            num_bytes=self.num_bytes + other.num_bytes,
            num_requests=self.num_requests + other.num_requests,
            disk=self.disk + other.disk,
        )


class BatchSource(Protocol):
    """What reads rows into a pool, batch by batch."""

    def start(self, vertices: Array, pool: Array, slots: Int32Array) -> int:
        """Begin to read the row ``vertices[i]`` into ``pool[slots[i]]``, and return a ticket.

        Of each step that reads rows there is one call, in the order of steps.
        """
        ...

    def skip(self) -> None:
        """Take note of a step, in the order of steps, that reads nothing."""
        ...

    def finish(self, ticket: int) -> None:
        """Wait until the rows of ``ticket`` are there.

        Raises:
            OSError: they could not be read.
        """
        ...

    def take_reads(self) -> SourceReads:
        """Return what was read since the last call."""
        ...

    def close(self) -> None:
        """Wait for what was begun, and release everything."""
        ...


class RowSource(BatchSource, Protocol):
    """Rows that are read some time ahead of their use."""

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
        """Features of a row: elements, but of int8 and int4, whose elements are bytes."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy type in which rows are stored; bfloat16 is uint16."""
        ...

    @property
    def dtype_name(self) -> str:
        """The name of the element type."""
        ...

    def rehearse(self, vertices: Array) -> Array:
        """Return ``[n, width]`` rows for a rehearsal, of these vertices or of others."""
        ...
