"""Stores that cache rows of host memory on devices, and the counter of adjacency list reads."""

import mmap
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from gnnscale import ops
from gnnscale.cache import HOST, ROWS_FROM, LookAhead, LookAheadReplay
from gnnscale.core import Access, Array, Int32Array, Traffic
from gnnscale.features.base import WrappedStore
from gnnscale.features.host import HostFeatures
from gnnscale.features.repeats import RepeatedSteps
from gnnscale.features.typed import TypedSteps, TypedStore
from gnnscale.graph import GraphSchema
from gnnscale.sampling import MiniBatch, TypedMiniBatch


def rank_slots(num_vertices: int, caches: Sequence[Array]) -> ops.RankedSlots:
    """Return a map from vertices to slots: row numbers in the concatenated ``caches``.

    ``caches[k]`` has the vertices whose rows clique member k holds. A single cache of ascending
    vertices takes the least memory.
    """
    return ops.RankedSlots(num_vertices, list(caches))


class _DeviceCache(WrappedStore):
    """Base of the stores that cache rows of a host store on a device."""

    inner: HostFeatures


class CachedFeatures(_DeviceCache):
    """Host features with static caches: some rows are read from the caches of a device's clique.

    The values equal the host's, bit for bit. Example::

        slots = rank_slots(num_vertices, [np.array([3, 7]), np.array([5])])
        store = CachedFeatures(host, [rows_3_and_7, row_5], slots, own=0)
        store.gather(np.array([3, 5, 6]), ...)  # 1 hit, 1 peer hit, 1 miss
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
        """Wrap ``host``; ``slots`` map vertices to row numbers in the concatenated ``caches``.

        ``caches`` are ``[n_k, stored_width]`` rows of each clique member, in the host's type;
        ``own`` is the index of this device's cache. ``names`` are the members' names in reports.
        """
        self.inner = host
        # A single object: another thread may gather during a replacement.
        self._content = (list(caches), slots)
        self._member = own
        self._names = names
        # One thread gathers while another reads the counters.
        self._counting = threading.Lock()
        self._row_counts = [0] * (len(caches) + 1)

    def gather(
        self, vertices: Array, *, dtype: torch.dtype, num_threads: int
    ) -> tuple[torch.Tensor, Traffic]:
        """Return the rows ``[n, width]`` of ``vertices`` and the traffic; count rows by source."""
        out = ops.empty((len(vertices), self.width), dtype)
        caches, slots = self._content
        _, name = self.inner.stored
        counts = ops.gather_cached(
            self.inner.stored,
            [(rows, name) for rows in caches],
            slots,
            vertices,
            out=out,
            num_threads=num_threads,
        ).tolist()
        with self._counting:
            self._row_counts = add_counts(self._row_counts, counts)
        return out, row_traffic(counts, member=self._member, row_bytes=self.row_bytes)

    def replace(self, caches: Sequence[Array], slots: ops.RankedSlots) -> None:
        """Read cached rows from ``caches`` from now on; ``slots`` map vertices to these rows."""
        self._content = (list(caches), slots)

    def take_counters(self) -> dict[str, float]:
        """Return rows read from each member and the host since the last call, by report key."""
        with self._counting:
            counts, self._row_counts = self._row_counts, [0] * len(self._row_counts)
        return count_by_name(counts, self._names)


def add_counts(totals: Sequence[int], counts: Sequence[int]) -> list[int]:
    """Return the elementwise sum of ``totals`` and ``counts``."""
    return [total + count for total, count in zip(totals, counts, strict=True)]


def count_by_name(counts: Sequence[int], names: Sequence[str]) -> dict[str, float]:
    """Return ``counts`` of rows by report key.

    ``counts`` has the rows read from each clique member in ``names``, then from the host.
    """
    pairs = zip((*names, HOST), counts, strict=True)
    return {f"{ROWS_FROM}{name}": float(count) for name, count in pairs}


def row_traffic(counts: Sequence[int], *, member: int, row_bytes: int) -> Traffic:
    """Return the traffic of reading ``counts`` rows from each clique member, then from the host.

    ``member`` is the index of this device, whose rows are hits.
    """
    peers = sum(counts[:-1]) - counts[member]
    return Traffic(
        rows=Access(
            hits=counts[member],
            peer_hits=peers,
            misses=counts[-1],
            host_bytes=counts[-1] * row_bytes,
            peer_bytes=peers * row_bytes,
        )
    )


#: Index of the cache and of the previous batch in the counts of gathered rows; the host is last.
_CACHE, _PREVIOUS = 0, 1


class LookAheadFeatures(_DeviceCache):
    """Host features with a dynamic cache whose replacement policy knows the next batches.

    The caller announces a run's steps by ``expect``, in gather order, each at least ``window``
    steps before its gather. Any other gather, e.g. of a profiling run, reads the host and
    changes nothing. One thread may expect while another gathers, at any distance. Rows enter the
    cache from batches that have them on the device: filling it causes no link traffic.
    """

    def __init__(
        self,
        host: HostFeatures,
        policy: LookAhead,
        *,
        priority: Int32Array,
        repeats: bool = False,
        num_threads: int = 1,
    ) -> None:
        """Wrap ``host`` with an empty cache, whose capacity and window are those of ``policy``.

        Of rows read again equally soon, those of highest ``priority`` stay in the cache.
        ``repeats``: whether the vertices of a step may repeat.
        """
        self.inner = host
        self._repeated = RepeatedSteps() if repeats else None
        self._policy = policy
        rows, self._dtype = host.stored
        self._rows = np.empty((policy.num_rows, host.stored_width), rows.dtype)
        self._previous = np.empty((0, host.stored_width), rows.dtype)
        self._replay = LookAheadReplay(
            host.num_rows, policy, priority=priority, num_threads=num_threads
        )

    @property
    def window(self) -> int:
        """Number of steps that the policy looks ahead."""
        return self._replay.window

    def expect(self, vertices: Array | None) -> None:
        """Announce the input vertices of the next step, ``[n]``. None: the step reads no rows.

        ``gather`` recognizes the batch by the identity of the array.
        """
        steps = self._repeated
        self._replay.expect(vertices if steps is None else steps.announce(vertices))

    def gather(
        self, vertices: Array, *, dtype: torch.dtype, num_threads: int
    ) -> tuple[torch.Tensor, Traffic]:
        """Return the rows ``[n, width]`` of ``vertices``, and the traffic.

        If ``expect`` announced the step, update the cache.
        """
        distinct: Array | None = vertices
        if self._repeated is not None:
            rows = self._repeated.take(vertices)
            distinct = None if rows is None else rows.vertices
        if distinct is None or self._replay.next_read() is not distinct:
            return self.inner.gather(vertices, dtype=dtype, num_threads=num_threads)
        out = ops.empty((len(vertices), self.width), dtype)
        counts = ops.gather_cached(
            self.inner.stored,
            [(self._rows, self._dtype), (self._previous, self._dtype)],
            self._replay.belady.slots,
            vertices,
            out=out,
            num_threads=num_threads,
        ).tolist()
        self._replace(distinct, num_threads)
        # Rows of the previous batch are on the device, too.
        counts = [counts[_CACHE] + counts[_PREVIOUS], counts[-1]]
        return out, row_traffic(counts, member=_CACHE, row_bytes=self.row_bytes)

    def _replace(self, vertices: Array, num_threads: int) -> None:
        replaced = self._replay.advance()
        self._copy(vertices[replaced.positions], self._rows, replaced.slots, num_threads)
        if self._policy.match:
            self._keep_matching(vertices, num_threads)

    def _keep_matching(self, vertices: Array, num_threads: int) -> None:
        """Keep a copy of the rows of ``vertices`` that the next batch reads, or of all.

        All rows are kept if the next batch is not yet known.
        """
        if len(self._previous) < len(vertices):
            self._previous = np.empty_like(self._rows, shape=(len(vertices), self._rows.shape[1]))
        if self._replay.belady.num_expected:
            slots = self._replay.belady.look_up() - self._policy.num_rows
            matching = slots[slots >= 0]
        else:
            matching = np.arange(len(vertices), dtype=np.int32)
        self._copy(vertices[matching], self._previous, matching, num_threads)

    def _copy(self, vertices: Array, target: Array, slots: Int32Array, num_threads: int) -> None:
        """Copy the rows of ``vertices``, as the host stores them, to ``target[slots]``."""
        ops.copy_rows(
            self.inner.stored, vertices, (target, self._dtype), slots, num_threads=num_threads
        )


class TypedLookAhead(TypedStore):
    """Store of a matrix for each vertex type, with a dynamic cache of the rows of each.

    The caller announces steps as for ``LookAheadFeatures``, with the vertices of all types.
    """

    def __init__(self, schema: GraphSchema, stores: Sequence[LookAheadFeatures | None]) -> None:
        """Read the rows of vertex type i of ``schema`` from ``stores[i]``; None: it has no rows."""
        super().__init__(schema, stores)
        caches = {number: store for number, store in enumerate(stores) if store is not None}
        #: number of steps that the policies look ahead
        self.window = max((cache.window for cache in caches.values()), default=0)
        self._steps = TypedSteps(schema, {number: cache.expect for number, cache in caches.items()})

    def expect(self, vertices: Array | None) -> None:
        """Announce the input vertices of the next step, ``[n]``. None: the step reads no rows."""
        self._steps.expect(vertices)

    def _ids(self, batch: TypedMiniBatch) -> list[Array]:
        """Return the arrays that the caches expect, or those of another step."""
        return self._steps.next_rows(batch.input_vertices) or super()._ids(batch)


@dataclass(frozen=True, kw_only=True)
class RowsAddress:
    """Address of shared rows that another process of this machine holds."""

    process: int  #: id of the process
    file: int  #: file descriptor of the rows in the process
    num_rows: int  #: number of rows


def share_rows(num_rows: int, width: int, dtype: np.dtype[Any]) -> tuple[Array, RowsAddress]:
    """Return new shared rows ``[num_rows, width]`` of zeros, and their address for ``map_rows``."""
    file = os.memfd_create("gnnscale-cache", os.MFD_CLOEXEC)
    os.ftruncate(file, max(1, num_rows * width * dtype.itemsize))
    rows = _map_file(file, num_rows, width, dtype, writable=True)
    return rows, RowsAddress(process=os.getpid(), file=file, num_rows=num_rows)


def map_rows(address: RowsAddress, width: int, dtype: np.dtype[Any]) -> Array:
    """Return another process's shared rows, mapped read-only; OSError: the process has ended."""
    file = os.open(f"/proc/{address.process}/fd/{address.file}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _map_file(file, address.num_rows, width, dtype, writable=False)
    finally:
        os.close(file)


def _map_file(
    file: int, num_rows: int, width: int, dtype: np.dtype[Any], *, writable: bool
) -> Array:
    num_bytes = max(1, num_rows * width * dtype.itemsize)
    access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
    memory = mmap.mmap(file, num_bytes, access=access)
    rows: Array = np.frombuffer(memory, dtype, count=num_rows * width)
    return rows.reshape(num_rows, width)


class CachedAdjacency:
    """Counter of a sampling device's adjacency list reads, by the memory that serves them.

    Each sampled neighbor is one read, and so are the offsets of each vertex's list, or lists of all
    edge types (Legion counts an edge as a transaction). A miss is one request to the host.
    """

    def __init__(
        self,
        slots: ops.RankedSlots | Int32Array | None,
        *,
        num_members: int,
        own: int,
        request_bytes: int,
        id_bytes: int = 4,
        num_threads: int = 1,
    ) -> None:
        """Prepare to count the reads of the device with index ``own`` in its clique.

        Args:
            slots: slots of the lists in the members' caches; or ``[num_vertices]`` the member that
                has each list, -1 for the host. None: no cache.
            request_bytes: bytes of a request over the link.
            id_bytes: bytes of a neighbor.
        """
        self._slots = slots
        self._member = own
        self._request_bytes = request_bytes
        self._id_bytes = id_bytes
        self._num_threads = num_threads
        self._starts = np.arange(num_members + 1, dtype=np.int64)
        if isinstance(slots, ops.RankedSlots):
            self._starts = slots.starts

    @classmethod
    def none(cls, request_bytes: int) -> "CachedAdjacency":
        """Return the counter of a device without a list cache: all lists are read from the host."""
        return cls(None, num_members=0, own=0, request_bytes=request_bytes)

    def read(self, batch: MiniBatch) -> Access:
        """Return the adjacency list reads of sampling ``batch``, by the memory that serves them."""
        lists = batch.lists_read
        if self._slots is None:
            return self._host_access(sum(int(ends[-1]) + len(ids) for ids, ends in lists))
        counts = np.zeros(len(self._starts), np.int64)
        for vertices, indptr in lists:
            # A vertex has one read more than sampled edges: the offsets of its lists.
            counts += ops.count_slots(
                self._slots,
                vertices,
                self._starts,
                weights=indptr + np.arange(len(indptr)),
                num_threads=self._num_threads,
            )
        hits, misses = int(counts[self._member]), int(counts[-1])
        peers = int(counts[:-1].sum()) - hits
        return replace(
            self._host_access(misses),
            hits=hits,
            peer_hits=peers,
            misses=misses,
            peer_bytes=peers * self._id_bytes,
        )

    def _host_access(self, reads: int) -> Access:
        """Return the bytes and requests of ``reads`` reads from the host, one request each."""
        return Access(
            host_bytes=reads * self._id_bytes,
            link_bytes=reads * self._request_bytes,
            link_requests=reads,
        )
