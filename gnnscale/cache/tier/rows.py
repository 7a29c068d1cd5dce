"""Rows that a tier holds in memory, as one worker sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from gnnscale.core import Access, Array, Int32Array
from gnnscale.feature.source import RowSource, SourceReads


@dataclass(frozen=True, kw_only=True)
class ReadyRows:
    """Rows that can be read now."""

    rows: Array  #: a matrix that has them
    slots: Int32Array  #: ``[n]`` the place of each in it
    #: rows that were read for the step; None of an unexpected gather
    num_missing: int | None
    waited_s: float  #: seconds that it took until they were there
    reads: SourceReads  #: what was read meanwhile

    @property
    def access(self) -> Access:
        """Rows found in memory, and what was read of the others."""
        missing = len(self.slots) if self.num_missing is None else self.num_missing
        return Access(
            hits=len(self.slots) - missing,
            misses=missing,
            link_bytes=self.reads.num_bytes,
            link_requests=self.reads.num_requests,
            waited_us=round(1e6 * self.waited_s),
        )


class TierRows(Protocol):
    """The rows of a source for one worker, which expects its steps some time ahead.

    One thread may expect while another reads.
    """

    lead: int  #: steps that are to be expected ahead of the one that is read
    source: RowSource  #: has all rows

    def expect(self, vertices: Array | None) -> None:
        """Append the rows of the next step, ``[n]`` distinct; None if it reads nothing."""
        ...

    def end(self) -> None:
        """Say that no further step follows."""
        ...

    def ready(self, vertices: Array) -> ReadyRows:
        """Wait for the rows of ``vertices``, which ``served`` is to give back.

        They are those of the next step if that expected this very array.
        """
        ...

    def served(self, ready: ReadyRows) -> None:
        """Give back the rows of a step, which the worker has read."""
        ...

    def read(self, vertices: Array, rows: Array) -> None:
        """Read the row of ``vertices[i]`` into ``rows[i]`` now, as it is stored."""
        ...

    def close(self) -> None:
        """Wait for reads that were begun, and release everything."""
        ...
