"""Feature rows sharded across machines, exchanged by all processes in lockstep.

A local shard that exceeds memory is read from the disk.
"""

import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gnnscale.core import Access, Array, Int32Array, IntArray
from gnnscale.core.artifact.files import size
from gnnscale.distributed.process_group import Group
from gnnscale.features.disk import MAX_GAP_BYTES, DiskRates, DiskRows, cached_disk_rates
from gnnscale.features.sharded.exchange import LocalShard, ShardExchange, copy_rows
from gnnscale.features.sharded.transport import RemoteReader, ShardTransport
from gnnscale.features.tiered.buffer import MappedRows, SourceReads
from gnnscale.features.tiered.sizing import Misses, TierSizes
from gnnscale.graph.sharded_features import ShardedFeatures

#: Exchanges whose rows are on their way at a time, each over its own connections.
_CONCURRENT_EXCHANGES = 3


class ShardedStore:
    """Backing store of a tiered store: the rows of a graph, sharded across machines.

    ``start`` queues the exchange of a step and returns; ``finish`` waits for its rows. All
    processes start the same number of exchanges, in the order of steps. Methods raise PeerLostError
    when another process is gone.

    Example::

        store = ShardedStore(graph.features, group, owners, dtype_name="float32")
        ticket = store.start(np.array([7, 9]), buffer, np.array([0, 1], np.int32))
        store.finish(ticket)  # buffer[0] is row 7, buffer[1] is row 9
    """

    def __init__(
        self,
        features: ShardedFeatures,
        group: Group,
        owners: IntArray,
        *,
        dtype_name: str,
        num_features: int | None = None,
    ) -> None:
        """Open connections to all processes, which do so at the same time, and start the threads.

        ``owners`` is ``[num_parts]`` the rank from which this process requests each shard's rows;
        ``num_features`` is set for int8 and int4 rows, whose elements are bytes.
        """
        self.num_rows = len(features)  #: rows over all machines
        self.num_machines, self.part = features.num_parts, features.part
        self.num_own = len(features.rows)  #: local rows
        self.width = int(features.shape[1])  #: elements of a row
        self.num_features = self.width if num_features is None else num_features
        self.dtype: np.dtype[Any] = features.dtype  #: as stored and sent; bfloat16 is uint16
        self.dtype_name = dtype_name
        self.row_bytes = self.width * self.dtype.itemsize
        self._shard = LocalShard(features.rows)
        self._indices = features.places()
        sync, ids, *rows = (group.new_group() for _ in range(2 + _CONCURRENT_EXCHANGES))
        local = features, self._shard, self._indices, owners
        self._transport = ShardTransport(ShardExchange(ids, rows, *local), sync)
        self._exchange = ShardExchange(sync, [sync], *local)
        self._reader = RemoteReader(self._exchange, self._transport, sync, row_bytes=self.row_bytes)

    @property
    def own(self) -> Array:
        """``[num_own, width]`` rows of this machine's shard."""
        return self._shard.rows

    def use_local_mapping(self, rows: Array) -> None:
        """Read local rows from ``rows`` from now on, an equal matrix at another address."""
        self._shard.rows = rows

    def use_local_file(self, file: DiskRows) -> None:
        """Read local rows, which exceed memory, from ``file`` from now on, not from its mapping."""
        self._shard.read_from(file)

    def local_indices(self, vertices: Array) -> IntArray:
        """Return ``[n]`` the index of each of ``vertices`` in ``own``, -1 for remote rows."""
        indices: IntArray = self._indices[vertices]
        return indices

    def start(self, vertices: Array, buffer: Array, slots: Int32Array) -> int:
        """Start reading remote row ``vertices[i]`` into ``buffer[slots[i]]``; return a ticket.

        This starts the next step's exchange. PeerLostError: the store is closed.
        """
        return self._transport.start(vertices, buffer, slots)

    def skip(self) -> None:
        """Take part in the exchange of a step for which this process requests no rows."""
        self._transport.skip()

    def finish(self, ticket: int) -> None:
        """Wait until the rows of ``ticket`` have arrived."""
        self._transport.finish(ticket)

    def profile_rows(self, vertices: Array) -> Array:
        """Return ``[n, width]`` rows for a profiling run before the first step.

        Local rows stand in for remote rows, so that processes need not run in lockstep.
        RuntimeError: steps have started, which read only rows announced by ``WorkerBuffer.expect``.
        """
        if self._transport.num_started:
            raise RuntimeError("features=shared: a step reads rows that were not expected")
        rows: Array = np.zeros((len(vertices), self.width), self.dtype)
        if self.num_own:
            indices = self._indices[vertices]
            indices = np.where(indices < 0, vertices % self.num_own, indices)
            self._shard.copy(indices, rows, np.arange(len(rows)))
        return rows

    def seconds_per_row(self) -> float:
        """Return the measured seconds to exchange a row; all processes call this before steps."""
        return self._reader.seconds_per_row(np.flatnonzero(self._indices < 0))

    def rank0_reads(self) -> AbstractContextManager[None]:
        """Return a context in which rank 0 calls ``read``; other ranks serve its reads on entry."""
        return self._reader.rank0_reads()

    def read(self, vertices: Array) -> Array:
        """Return rows ``[n, width]``; rank 0 alone calls this, in the context ``rank0_reads``.

        ``take_reads`` does not count the reads.
        """
        rows: Array = np.empty((len(vertices), self.width), self.dtype)
        indices = self._indices[vertices]
        remote, local = np.flatnonzero(indices < 0), np.flatnonzero(indices >= 0)
        self._shard.copy(indices[local], rows, local)
        request = self._exchange.request(vertices[remote])
        received = self._reader.read(request)
        copy_rows(received.numpy(), np.arange(len(received)), rows, remote[request.order])
        return rows

    def take_reads(self) -> SourceReads:
        """Return bytes and requests of the tickets that were finished since the last call."""
        return self._transport.take_reads()

    def close(self) -> None:
        """Take part in all exchanges that any process has started, then end the threads.

        All processes call this at the same time. Threads that wait for rows get them.
        """
        if not self._transport.closed:
            self._transport.close()
            self._shard.close()

    def abandon(self) -> None:
        """Disconnect after an error; waiting threads and other processes get PeerLostError."""
        if not self._transport.closed:
            self._transport.abandon()
            self._shard.close()


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
        """Take part in the exchange of a step for which this process reads no rows."""
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
        """Return the disk and network reads since the last call; ``.disk`` has the disk's alone."""
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
        """End the exchanges together with all other processes, and close the file."""
        self._rows.close()
        self._file.close()


@dataclass(frozen=True, kw_only=True)
class DiskShardInfo:
    """Read rates of the disk that has the rows of this machine's shard."""

    rates: DiskRates | None  #: measured rates. None: the file is too small to measure

    @classmethod
    def of(cls, rows: ShardedStore) -> "DiskShardInfo":
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
        """Return the local fraction of a batch's misses, and the disk's seconds per miss.

        The seconds are an average over local and remote misses; 0 if ``rates`` are not measured.
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
    """Return the log line for a shard that exceeds memory: its bytes, and the bytes in memory."""
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
