"""Exchange of sharded feature rows: collectives in which all processes take part.

An exchange is three all-to-alls: the number of rows that each process requests of each other
process, the requested vertices, and the rows.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np
import torch

from gnnscale import ops
from gnnscale.core import Array, IntArray
from gnnscale.distributed.process_group import Group
from gnnscale.features.disk import DiskRows
from gnnscale.graph import ShardedFeatures, vertex_dtype


@dataclass(frozen=True, kw_only=True)
class DeferredWork:
    """Handle of a ``torch.distributed`` transfer that starts after rows are read from disk."""

    started: Future[Any]  #: resolves to the work once it has started

    def wait(self) -> None:
        """Wait for the transfer; OSError: rows cannot be read. RuntimeError: a process is gone."""
        self.started.result().wait()


class LocalShard:
    """Reader of the rows of this machine's shard, in memory or on the disk."""

    def __init__(self, rows: Array) -> None:
        """Read from ``rows``, ``[n, width]``, until ``read_from`` or a new value of ``rows``."""
        self.rows = rows
        self._file: DiskRows | None = None
        self._sending: ThreadPoolExecutor | None = None

    def read_from(self, file: DiskRows) -> None:
        """Read ``file`` in place of its mapping ``rows`` from now on; ``close`` closes ``file``."""
        self._file = file
        self._sending = ThreadPoolExecutor(1, thread_name_prefix="rows-read")

    def copy(self, indices: IntArray, target: Array, slots: IntArray) -> None:
        """Copy row ``indices[i]`` of the shard to row ``slots[i]`` of ``target``, and wait."""
        if self._file is None:
            copy_rows(self.rows, indices, target, slots)
        else:
            self._file.finish(self._file.start(indices, target, slots.astype(np.int32)))

    def send(self, indices: IntArray, buffer: Array, send: Callable[[], Any]) -> Any:
        """Copy row ``indices[i]`` to ``buffer[i]``, call ``send``, and return its handle.

        Rows on the disk are read and sent in the background, in the order of calls: the result is
        then a ``DeferredWork``.
        """
        order = np.arange(len(indices), dtype=np.int32)
        if self._file is None:
            copy_rows(self.rows, indices, buffer, order)
            return send()
        assert self._sending is not None
        file, ticket = self._file, self._file.start(indices, buffer, order)

        def read_and_send() -> Any:
            file.finish(ticket)
            return send()

        return DeferredWork(started=self._sending.submit(read_and_send))

    def close(self) -> None:
        """Finish pending sends, and close the file; do nothing for rows in memory."""
        if self._file is not None and self._sending is not None:
            self._sending.shutdown()
            self._file.close()


def copy_rows(rows: Array, indices: IntArray, target: Array, slots: IntArray) -> None:
    """Copy row ``indices[i]`` of ``rows`` to row ``slots[i]`` of ``target``, without the GIL."""
    if len(indices):
        ops.copy_rows(_as_bytes(rows), indices, _as_bytes(target), slots, num_threads=1)


def _as_bytes(rows: Array) -> tuple[Array, str]:
    return rows.view(np.uint8).reshape(len(rows), -1), "uint8"


#: Row count that ends the reads of rank 0.
NO_MORE = -1


def owners_of(parts: Sequence[int], rank: int) -> IntArray:
    """Return ``[num_parts]``, the rank from which ``rank`` requests the rows of each shard.

    Processes are paired by their index within the machine, modulo the processes of the machine that
    has the shard. ``parts[r]`` is the shard of rank ``r``; each machine has one shard. Example:
    ``owners_of([1, 1, 0, 0], 3)`` is ``[3, 1]``.
    """
    ranks_by_part: dict[int, list[int]] = {}
    for peer, part in enumerate(parts):
        ranks_by_part.setdefault(part, []).append(peer)
    index = ranks_by_part[parts[rank]].index(rank)
    return np.array([ranks[index % len(ranks)] for _, ranks in sorted(ranks_by_part.items())])


@dataclass(frozen=True, kw_only=True)
class RowRequest:
    """Remote vertices whose rows this process requests, sorted by the rank that sends the rows."""

    vertices: torch.Tensor  #: ``[n]`` requested vertices, by the rank that has the row
    counts: torch.Tensor  #: ``[size]`` int32, rows requested from each rank
    order: IntArray  #: ``[n]`` position of each of ``vertices`` in the caller's array


@dataclass(frozen=True, kw_only=True)
class RowReceive:
    """Received and sent rows of one exchange, and the handle of their transfer."""

    rows: torch.Tensor  #: ``[n, row_bytes]`` uint8, in the order of the ranks that have them
    sent: torch.Tensor  #: ``[m, row_bytes]`` uint8, referenced until the rows are sent
    work: Any  #: work of ``torch.distributed`` that receives and sends


class ShardExchange:
    """Exchanges of feature rows, which all processes start together, in the same order."""

    def __init__(
        self,
        group: Group,
        rows_groups: Sequence[Group],
        features: ShardedFeatures,
        shard: LocalShard,
        indices: IntArray,
        owners: IntArray,
    ) -> None:
        """Exchange the rows of ``features``, this machine's shard, which ``shard`` reads.

        Requests use the connections of ``group``; rows use those of ``rows_groups`` in turn, so
        that several exchanges overlap. ``indices`` is ``[num_vertices]`` the row of each vertex in
        ``shard``, -1 for remote rows; ``owners`` ``[num_parts]`` the rank from which this process
        requests each shard's rows.
        """
        self._group, self._rows_groups = group, cycle(rows_groups)
        self._features, self._shard = features, shard
        self._indices, self._owners = indices, owners
        self._id_dtype = vertex_dtype(len(features))
        self._row_bytes = int(features.rows.shape[1]) * features.itemsize

    def request(self, vertices: Array) -> RowRequest:
        """Build the request for the rows of ``vertices`` ``[n]``, all remote; ``start`` sends it.

        With n = 0 the process requests no rows, but takes part in the exchange.
        """
        owner = self._owners[self._features.owner[vertices]]
        order = np.argsort(owner, kind="stable")
        counts = np.bincount(owner, minlength=self._group.size).astype(np.int32)
        ordered = np.ascontiguousarray(vertices[order], dtype=self._id_dtype)
        return RowRequest(
            vertices=torch.from_numpy(ordered), counts=torch.from_numpy(counts), order=order
        )

    def start(self, request: RowRequest) -> RowReceive | None:
        """Exchange requests, and start sending and receiving rows. None: rank 0 ends its reads.

        Between steps, rank 0 may read while other ranks only serve it. OSError: rows cannot be
        read. RuntimeError: another process is gone. ValueError: another process requests a row that
        this machine does not have.
        """
        requested = torch.empty_like(request.counts)
        self._group.start_all_to_all(requested, request.counts).wait()
        if int(requested.min()) == NO_MORE:
            return None
        in_counts, out_counts = request.counts.tolist(), requested.tolist()
        if sum(out_counts) > len(self._features) * len(out_counts) or min(out_counts) < 0:
            raise ValueError(f"another process asks for {max(out_counts)} rows")
        vertices = torch.empty(sum(out_counts), dtype=request.vertices.dtype)
        self._group.start_all_to_all(vertices, request.vertices, (out_counts, in_counts)).wait()
        indices = self._local_indices(vertices.numpy())
        sent = torch.empty(len(indices), self._row_bytes, dtype=torch.uint8)
        rows = torch.empty(sum(in_counts), self._row_bytes, dtype=torch.uint8)
        swap = partial(
            next(self._rows_groups).start_all_to_all, rows, sent, (in_counts, out_counts)
        )
        work = self._shard.send(indices, sent.numpy(), swap)
        return RowReceive(rows=rows, sent=sent, work=work)

    def _local_indices(self, vertices: Array) -> IntArray:
        """Return ``[n]`` the index in the shard of each vertex; ValueError: a vertex is remote."""
        outside = (vertices < 0) | (vertices >= len(self._features))
        indices = self._indices[np.where(outside, 0, vertices)]
        outside |= indices < 0
        if outside.any():
            vertex = int(vertices[outside.argmax()])
            part = self._features.part
            raise ValueError(f"another process asks for vertex {vertex}, which part {part} has not")
        return indices
