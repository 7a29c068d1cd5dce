"""Local shard that exceeds memory: local rows are read from the disk, remote rows are exchanged."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gnnscale.core import Access, Array, Int32Array
from gnnscale.core.artifact.files import size
from gnnscale.features.disk import MAX_GAP_BYTES, DiskRates, DiskRows, cached_disk_rates
from gnnscale.features.sharded.store import ShardedStore
from gnnscale.features.tiered.buffer import MappedRows, SourceReads
from gnnscale.features.tiered.sizing import Misses, TierSizes


class LocalDiskShard:
    """Backing store of the rows of all machines: local rows on disk, remote rows by exchange.

    Both reads of a step start together and overlap. OSError: local rows could not be read.
    PeerLostError: another process is gone.
    """

    def __init__(self, rows: ShardedStore, file: DiskRows) -> None:
        """Read local rows from ``file``, and remote rows from ``rows``."""
        self.num_rows = rows.num_rows  #: rows over all machines
        self.width, self.num_features = rows.width, rows.num_features
        self.dtype, self.dtype_name = rows.dtype, rows.dtype_name
        self._rows, self._file = rows, file
        #: Tickets of local and remote reads, and numbers of local rows, by ticket.
        self._started: dict[int, tuple[int, int, int]] = {}
        self._num_started = 0
        self._num_local_reads, self._waited_s = 0, 0.0

    def start(self, vertices: Array, buffer: Array, slots: Int32Array) -> int:
        """Start reading row ``vertices[i]`` into ``buffer[slots[i]]``, and return a ticket."""
        indices = self._rows.local_indices(vertices)
        local, remote = np.flatnonzero(indices >= 0), np.flatnonzero(indices < 0)
        # All processes exchange in each step, also without remote rows.
        exchange = self._rows.start(vertices[remote], buffer, slots[remote])
        read = self._file.start(indices[local], buffer, slots[local])
        self._num_started += 1
        self._started[self._num_started] = read, exchange, len(local)
        return self._num_started

    def skip(self) -> None:
        """Take part in the exchange of a step that reads no rows."""
        self._rows.skip()

    def profile_rows(self, vertices: Array) -> Array:
        """Return rows ``[n, width]`` for a profiling run; local rows stand in for remote rows."""
        return self._rows.profile_rows(vertices)

    def finish(self, ticket: int) -> None:
        """Wait until the rows of ``ticket`` have arrived."""
        read, exchange, num_local = self._started.pop(ticket)
        start = time.perf_counter()
        self._file.finish(read)
        self._waited_s += time.perf_counter() - start
        self._num_local_reads += num_local
        self._rows.finish(exchange)

    def take_reads(self) -> SourceReads:
        """Return the reads since the last call, with the share of the disk in ``disk``."""
        local = self._file.take_reads()
        disk = Access(
            misses=self._num_local_reads,
            link_bytes=local.num_bytes,
            link_requests=local.num_requests,
            waited_us=round(1e6 * self._waited_s),
        )
        self._num_local_reads, self._waited_s = 0, 0.0
        return self._rows.take_reads() + replace(local, disk=disk)

    def close(self) -> None:
        """End the exchanges of all processes, and close the file."""
        self._rows.close()
        self._file.close()


@dataclass(frozen=True, kw_only=True)
class DiskShardInfo:
    """Read rates of the disk that has the rows of this machine's shard."""

    rates: DiskRates | None  #: measured rates. None: the file is too small to measure

    @classmethod
    def of(cls, rows: ShardedStore) -> DiskShardInfo:
        """Return the read rates of the disk of the local rows, measured if the file is large."""
        file = _mapped_shard(rows)
        return cls(rates=cached_disk_rates(Path(str(file.filename))))

    @property
    def max_gap_bytes(self) -> int:
        """Largest gap in bytes between two rows that one request reads."""
        return MAX_GAP_BYTES if self.rates is None else self.rates.max_gap_bytes

    def local_share(
        self, rows: ShardedStore, misses: Misses, num_users: int
    ) -> tuple[float, float]:
        """Return the share of local rows among a batch's misses, and their disk seconds per miss.

        ``num_users`` workers share the disk.
        """
        indices = np.sort(rows.local_indices(misses.vertices))
        local, total = replace(misses, vertices=indices[indices >= 0]), max(len(indices), 1)
        seconds = 0.0
        if self.rates is not None:
            gap = self.rates.max_gap_bytes
            requests, num_bytes = local.requests(row_bytes=rows.row_bytes, max_gap_bytes=gap)
            seconds = self.rates.seconds(requests, num_bytes) * num_users
        return len(local.vertices) / total, seconds / total


def open_local_file(rows: ShardedStore, max_gap_bytes: int) -> DiskRows:
    """Open the file of the local rows; OSError: it cannot be read."""
    return DiskRows(
        _mapped_shard(rows),
        dtype_name=rows.dtype_name,
        num_features=rows.num_features,
        max_gap_bytes=max_gap_bytes,
    )


def describe_over_disk(rows: ShardedStore, sizes: TierSizes) -> str:
    """Return a line for the log: bytes read from the disk, and bytes held in memory."""
    held_bytes, total_bytes = sizes.num_kept * rows.row_bytes, rows.num_rows * rows.row_bytes
    return (
        f"features=shared: this machine's {size(rows.num_own * rows.row_bytes)} of rows exceed "
        f"its memory, and are read from the disk; {size(held_bytes)} of memory hold "
        f"{sizes.num_kept / max(rows.num_rows, 1):.0%} of all machines' {size(total_bytes)}, those "
        f"that the next {sizes.window} steps read soonest"
    )


def _mapped_shard(rows: ShardedStore) -> MappedRows:
    assert isinstance(rows.own, np.memmap)  # mapped from the graph store
    return rows.own
