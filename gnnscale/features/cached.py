"""Stores that keep rows of another store in device memory, and cached adjacency lists."""

from __future__ import annotations

import math
import mmap
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from gnnscale import ops
from gnnscale.cache import plan as cache_plan
from gnnscale.cache.belady import LookAheadReplay
from gnnscale.core import Access, Array, Int32Array, Traffic
from gnnscale.features.base import FeatureStore
from gnnscale.features.host import HostFeatures
from gnnscale.sampling import MiniBatch


def slots_of(num_vertices: int, caches: Sequence[Array]) -> ops.RankedSlots:
    """Return the slot of each vertex among the rows of all ``caches``, one array per clique member.

    The slots of a member come after those of the members before it. One cache of ascending vertices
    takes least memory.
    """
    return ops.RankedSlots(num_vertices, list(caches))


class _OverHost(FeatureStore):
    """Base of the stores that hold rows of ``_host``."""

    _host: HostFeatures

    @property
    def num_rows(self) -> int:
        return self._host.num_rows

    @property
    def width(self) -> int:
        return self._host.width

    @property
    def row_bytes(self) -> int:
        return self._host.row_bytes


class CachedFeatures(_OverHost):
    """The host's features, some rows of which are read from the caches of a clique.

    The values are the host's, bit for bit. Where a row is found decides only what it costs.
    """

    def __init__(
        self,
        host: HostFeatures,
        caches: Sequence[Array],
        slots: ops.RankedSlots,
        *,
        own: int,
        names: Sequence[str] = (),
    ) -> None:
        """Wrap ``host``.

        Args:
            host: has every row.
            caches: ``[n_k, stored_width]`` rows of each clique member, in the host's type.
            slots: of these rows; see ``slots_of``.
            own: which of ``caches`` is this device's.
            names: the members' names in reports.
        """
        self._host = host
        # One object, since another thread may gather while it is replaced.
        self._content = (list(caches), slots)
        self._own = own
        self._names = names
        # Rows are read in one thread, and counted by another.
        self._counting = threading.Lock()
        self._found = [0] * (len(caches) + 1)

    def gather(
        self, vertices: Array, *, dtype: torch.dtype, num_threads: int
    ) -> tuple[torch.Tensor, Traffic]:
        """Return the rows of ``vertices``, ``[n, width]``, each read where it is found."""
        out = ops.empty((len(vertices), self.width), dtype)
        caches, slots = self._content
        _, name = self._host.stored
        found = ops.gather_cached(
            self._host.stored,
            [(rows, name) for rows in caches],
            slots,
            vertices,
            out=out,
            num_threads=num_threads,
        )
        counts = found.tolist()
        with self._counting:
            self._found = [before + each for before, each in zip(self._found, counts, strict=True)]
        return out, found_rows(counts, own=self._own, row_bytes=self.row_bytes)

    def replace(self, caches: Sequence[Array], slots: ops.RankedSlots) -> None:
        """Read other rows in the caches of the same members from now on."""
        self._content = (list(caches), slots)

    def take_counters(self) -> dict[str, float]:
        """Return the rows read at each member and at the host since the last call, by name."""
        with self._counting:
            found, self._found = self._found, [0] * len(self._found)
        return count_by_name(found, self._names)


def count_by_name(found: Sequence[int], names: Sequence[str]) -> dict[str, float]:
    """Return the rows by place, of members with these ``names`` and of the host, for a report."""
    pairs = zip((*names, cache_plan.HOST), found, strict=True)
    return {f"{cache_plan.ROWS_FROM}{name}": float(each) for name, each in pairs}


def found_rows(found: Sequence[int], *, own: int, row_bytes: int) -> Traffic:
    """Return the traffic of rows by place: each cache, ``own`` being the device's; the host."""
    peers = sum(found[:-1]) - found[own]
    return Traffic(
        rows=Access(
            hits=found[own],
            peer_hits=peers,
            misses=found[-1],
            host_bytes=found[-1] * row_bytes,
            peer_bytes=peers * row_bytes,
        )
    )


#: Where rows are found: in the cache, in the batch before, at the host.
_CACHE, _PREVIOUS = 0, 1


class LookAheadFeatures(_OverHost):
    """The host's features, some rows of which are in a cache that knows the next batches.

    The steps of a run are expected in the order in which they are gathered, each at least
    ``window`` steps ahead. Any other gather, e.g. of a rehearsal, reads the host and changes
    nothing. One thread may expect while another gathers; how far the first is ahead does not change
    the result.

    Rows enter the cache from batches that have them on the device: nothing crosses the link for the
    cache alone.
    """

    def __init__(
        self,
        host: HostFeatures,
        policy: cache_plan.LookAhead,
        *,
        priority: Int32Array,
        num_threads: int = 1,
    ) -> None:
        """Wrap ``host``; the cache is empty at first.

        ``priority`` is ``[num_vertices]``, the order of rows that are read equally soon. The result
        does not depend on ``num_threads``.
        """
        self._host = host
        self._policy = policy
        rows, self._dtype = host.stored
        self._rows = np.empty((policy.num_rows, host.stored_width), rows.dtype)
        self._previous = np.empty((0, host.stored_width), rows.dtype)
        self._replay = LookAheadReplay(
            host.num_rows, policy, priority=priority, num_threads=num_threads
        )

    @property
    def window(self) -> int:
        """Steps that are looked ahead."""
        return self._replay.window

    def expect(self, vertices: Array | None) -> None:
        """Append the input vertices of the next step, ``[n]``; None if it reads nothing.

        ``gather`` recognises the batch by this very array.
        """
        self._replay.expect(vertices)

    def gather(
        self, vertices: Array, *, dtype: torch.dtype, num_threads: int
    ) -> tuple[torch.Tensor, Traffic]:
        """Return the rows of ``vertices``, ``[n, width]``, and replace rows of the cache."""
        if self._replay.next_read() is not vertices:
            return self._host.gather(vertices, dtype=dtype, num_threads=num_threads)
        out = ops.empty((len(vertices), self.width), dtype)
        found = ops.gather_cached(
            self._host.stored,
            [(self._rows, self._dtype), (self._previous, self._dtype)],
            self._replay.belady.slots,
            vertices,
            out=out,
            num_threads=num_threads,
        ).tolist()
        self._replace(vertices, num_threads)
        # What is left of the batch before is on the device as well.
        places = [found[_CACHE] + found[_PREVIOUS], found[-1]]
        return out, found_rows(places, own=_CACHE, row_bytes=self.row_bytes)

    def _replace(self, vertices: Array, num_threads: int) -> None:
        replaced = self._replay.advance()
        self._copy(vertices[replaced.positions], self._rows, replaced.slots, num_threads)
        if self._policy.match:
            self._keep_matching(vertices, num_threads)

    def _keep_matching(self, vertices: Array, num_threads: int) -> None:
        """Keep the rows of a batch that the next one shares, or all if that is unknown yet."""
        if len(self._previous) < len(vertices):
            self._previous = np.empty_like(self._rows, shape=(len(vertices), self._rows.shape[1]))
        if self._replay.belady.num_expected:
            slots = self._replay.belady.look_up() - self._policy.num_rows
            matching = slots[slots >= 0]
        else:
            matching = np.arange(len(vertices), dtype=np.int32)
        self._copy(vertices[matching], self._previous, matching, num_threads)

    def _copy(self, vertices: Array, target: Array, slots: Int32Array, num_threads: int) -> None:
        """Copy rows as they are stored; a device has them in its memory."""
        ops.copy_rows(
            self._host.stored, vertices, (target, self._dtype), slots, num_threads=num_threads
        )


@dataclass(frozen=True, kw_only=True)
class RowsAddress:
    """The address of rows that another process holds."""

    process: int  #: the process that holds them
    file: int  #: its descriptor of them
    num_rows: int  #: number of rows


def share_rows(num_rows: int, width: int, dtype: np.dtype[Any]) -> tuple[Array, RowsAddress]:
    """Return new rows ``[num_rows, width]`` of zeros, and their address for other processes.

    The memory has no name, and is freed with the last process that maps it, however that ends.

    Raises:
        OSError: there is not enough memory.
    """
    file = os.memfd_create("gnnscale-cache", os.MFD_CLOEXEC)
    os.ftruncate(file, max(1, num_rows * width * dtype.itemsize))
    rows = _mapped(file, num_rows, width, dtype, writable=True)
    return rows, RowsAddress(process=os.getpid(), file=file, num_rows=num_rows)


def map_rows(address: RowsAddress, width: int, dtype: np.dtype[Any]) -> Array:
    """Map the rows of another process of this machine, read-only.

    Raises:
        OSError: the process has ended, or is another user's.
    """
    file = os.open(f"/proc/{address.process}/fd/{address.file}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _mapped(file, address.num_rows, width, dtype, writable=False)
    finally:
        os.close(file)


def _mapped(file: int, num_rows: int, width: int, dtype: np.dtype[Any], *, writable: bool) -> Array:
    num_bytes = max(1, math.prod((num_rows, width)) * dtype.itemsize)
    access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
    memory = mmap.mmap(file, num_bytes, access=access)
    rows: Array = np.frombuffer(memory, dtype, count=num_rows * width)
    return rows.reshape(num_rows, width)


class CachedAdjacency:
    """Counts where a device that samples by itself reads adjacency lists.

    Each picked neighbour is one read, and so are the offsets of each list (Legion counts an edge as
    a transaction). A miss is read at the host, each by one request.
    """

    def __init__(
        self,
        places: ops.RankedSlots | Int32Array | None,
        *,
        num_members: int,
        own: int,
        request_bytes: int,
        id_bytes: int = 4,
        num_threads: int = 1,
    ) -> None:
        """Prepare to count.

        Args:
            places: the slots of the lists in the members' caches; or ``[num_vertices]`` the member
                that has each list, -1 for none; None without a cache.
            num_members: devices of the clique.
            own: which of them this device is.
            request_bytes: bytes of a request over the link.
            id_bytes: bytes of a neighbour.
            num_threads: does not change the result.
        """
        self._places = places
        self._own = own
        self._request_bytes = request_bytes
        self._id_bytes = id_bytes
        self._num_threads = num_threads
        self._starts = np.arange(num_members + 1, dtype=np.int64)
        if isinstance(places, ops.RankedSlots):
            self._starts = places.starts

    @classmethod
    def none(cls, request_bytes: int) -> CachedAdjacency:
        """Return the counter of a device without a cache of lists: it reads all at the host."""
        return cls(None, num_members=0, own=0, request_bytes=request_bytes)

    def read(self, batch: MiniBatch) -> Access:
        """Return the reads of sampling ``batch``, by place."""
        if self._places is None:
            reads = sum(block.num_edges + block.num_dst for block in batch.blocks)
            return self._access([0], reads, cached=False)
        found = np.zeros(len(self._starts), np.int64)
        for block in batch.blocks:
            # One read more than edges from each list: its offsets.
            ends = block.indptr + np.arange(len(block.indptr))
            found += ops.count_slots(
                self._places,
                batch.input_vertices[: block.num_dst],
                self._starts,
                weights=ends,
                num_threads=self._num_threads,
            )
        return self._access(found.tolist(), int(found[-1]), cached=True)

    def _access(self, found: Sequence[int], reads: int, *, cached: bool) -> Access:
        """Return the access of reads by place, the host's last."""
        peers = sum(found[:-1]) - found[self._own] if cached else 0
        return Access(
            hits=found[self._own] if cached else 0,
            peer_hits=peers,
            misses=reads if cached else 0,
            host_bytes=reads * self._id_bytes,
            link_bytes=reads * self._request_bytes,
            link_requests=reads,
            peer_bytes=peers * self._id_bytes,
        )
