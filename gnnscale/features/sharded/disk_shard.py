"""Own rows that exceed memory: a tier over the disk that has these, and over other machines."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gnnscale.core import Access, Array, Int32Array
from gnnscale.core.artifact.files import size
from gnnscale.features.disk import MAX_GAP_BYTES, DiskRows
from gnnscale.features.disk_bandwidth import DiskRates, rates_of
from gnnscale.features.sharded.store import ShardedStore
from gnnscale.features.tiered.buffer import MappedRows
from gnnscale.features.tiered.sizing import Misses, TierSizes
from gnnscale.features.tiered.source import SourceReads


@dataclass(frozen=True, kw_only=True)
class _Tickets:
    """What was begun for a step."""

    own: int
    others: int
    num_own: int  #: rows that the disk is read for


class LocalDiskShard:
    """The rows of all machines as a source of a tier: own ones of the disk, the others' as shared.

    Both are begun at once, and on their way together.
    """

    def __init__(self, rows: ShardedStore, file: DiskRows) -> None:
        """Read own rows of ``file``, and all others of ``rows``."""
        self._rows, self._file = rows, file
        self._started: dict[int, _Tickets] = {}
        self._num_started = 0
        self._num_own, self._waited_s = 0, 0.0

    @property
    def num_rows(self) -> int:
        """Number of rows, of all machines."""
        return self._rows.num_rows

    @property
    def width(self) -> int:
        """Elements of a row."""
        return self._rows.width

    @property
    def num_features(self) -> int:
        """Features of a row."""
        return self._rows.num_features

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy type in which rows are stored; bfloat16 is uint16."""
        return self._rows.dtype

    @property
    def dtype_name(self) -> str:
        """The name of the element type."""
        return self._rows.dtype_name

    def start(self, vertices: Array, pool: Array, slots: Int32Array) -> int:
        """Begin to read the row ``vertices[i]`` into ``pool[slots[i]]``, and return a ticket.

        Raises:
            PeerLostError: another process is gone.
        """
        places = self._rows.own_places(vertices)
        own, others = np.flatnonzero(places >= 0), np.flatnonzero(places < 0)
        # All processes exchange in each step, also for no rows.
        asked = self._rows.start(vertices[others], pool, slots[others])
        self._num_started += 1
        self._started[self._num_started] = _Tickets(
            own=self._file.start(places[own], pool, slots[own]), others=asked, num_own=len(own)
        )
        return self._num_started

    def skip(self) -> None:
        """Take part in the exchange of a step that reads nothing."""
        self._rows.skip()

    def rehearse(self, vertices: Array) -> Array:
        """Return rows ``[n, width]`` for a rehearsal: own ones, also in place of others."""
        return self._rows.rehearse(vertices)

    def finish(self, ticket: int) -> None:
        """Wait until the rows of ``ticket`` are there.

        Raises:
            OSError: own ones could not be read.
            PeerLostError: another process is gone.
        """
        tickets = self._started.pop(ticket)
        start = time.perf_counter()
        self._file.finish(tickets.own)
        self._waited_s += time.perf_counter() - start
        self._num_own += tickets.num_own
        self._rows.finish(tickets.others)

    def take_reads(self) -> SourceReads:
        """Return what was read since the last call, and what of it on the disk."""
        own = self._file.take_reads()
        disk = Access(
            misses=self._num_own,
            link_bytes=own.num_bytes,
            link_requests=own.num_requests,
            waited_us=round(1e6 * self._waited_s),
        )
        self._num_own, self._waited_s = 0, 0.0
        return self._rows.take_reads() + replace(own, disk=disk)

    def close(self) -> None:
        """End the exchanges of all processes, and close the file."""
        self._rows.close()
        self._file.close()


@dataclass(frozen=True, kw_only=True)
class DiskShardInfo:
    """The disk that has the rows of this machine."""

    rates: DiskRates | None  #: None of a file that is too small to measure it

    @classmethod
    def of(cls, rows: ShardedStore) -> DiskShardInfo:
        """Measure the disk of own rows."""
        file = _mapped(rows)
        return cls(rates=rates_of(Path(str(file.filename))))

    @property
    def max_gap_bytes(self) -> int:
        """Bytes between two rows up to which one request reads both; all of a small file."""
        return MAX_GAP_BYTES if self.rates is None else self.rates.max_gap_bytes

    def own_part(self, rows: ShardedStore, misses: Misses, num_users: int) -> tuple[float, float]:
        """Return which part of a usual mini-batch's misses are own rows.

        Args:
            num_users: workers that share the disk.

        Returns:
            The part, and the seconds that the disk takes for them, for each miss of either kind.
        """
        places = np.sort(rows.own_places(misses.vertices))
        own, every = replace(misses, vertices=places[places >= 0]), max(len(places), 1)
        seconds = 0.0
        if self.rates is not None:
            gap = self.rates.max_gap_bytes
            requests, num_bytes = own.requests(row_bytes=rows.row_bytes, max_gap_bytes=gap)
            seconds = self.rates.seconds(requests, num_bytes) * num_users
        return len(own.vertices) / every, seconds / every


def own_file(rows: ShardedStore, max_gap_bytes: int) -> DiskRows:
    """Open the file of this machine's rows.

    Raises:
        OSError: it cannot be read.
    """
    return DiskRows(
        _mapped(rows),
        dtype_name=rows.dtype_name,
        num_features=rows.num_features,
        max_gap_bytes=max_gap_bytes,
    )


def describe_over_disk(rows: ShardedStore, sizes: TierSizes) -> str:
    """Say in one line what is read of the disk, and what memory holds."""
    held, whole = sizes.num_kept * rows.row_bytes, rows.num_rows * rows.row_bytes
    return (
        f"features=shared: this machine's {size(rows.num_own * rows.row_bytes)} of rows exceed "
        f"its memory, and are read from the disk; {size(held)} of memory hold "
        f"{sizes.num_kept / max(rows.num_rows, 1):.0%} of all machines' {size(whole)}, those "
        f"that the next {sizes.window} steps read soonest"
    )


def _mapped(rows: ShardedStore) -> MappedRows:
    assert isinstance(rows.own, np.memmap)  # that of its store
    return rows.own
