"""An exchange of feature rows that are divided among machines, by all processes at once.

It is three collectives: how many rows each process wants of each other one, which, and the rows.
"""

from __future__ import annotations

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
from gnnscale.graph.sharded import ShardedFeatures


@dataclass(frozen=True, kw_only=True)
class DeferredWork:
    """Work of torch that begins once rows have been read."""

    begun: Future[Any]

    def wait(self) -> None:
        """Wait until it is done.

        Raises:
            OSError: the rows could not be read.
            RuntimeError: another process is gone.
        """
        self.begun.result().wait()


class LocalShard:
    """The rows of one part: those of a matrix, or of the disk past it."""

    def __init__(self, rows: Array) -> None:
        """Read ``rows``, ``[n, width]``, until they are to be read elsewhere."""
        self.rows = rows
        self._file: DiskRows | None = None
        self._sending: ThreadPoolExecutor | None = None

    def read_from(self, file: DiskRows) -> None:
        """Read the rows of ``file`` from now on, and nothing of ``rows``, which map it."""
        self._file = file
        self._sending = ThreadPoolExecutor(1, thread_name_prefix="rows-read")

    def copy(self, places: IntArray, target: Array, slots: IntArray) -> None:
        """Copy row ``places[i]`` to row ``slots[i]`` of ``target``, byte by byte.

        Raises:
            OSError: it cannot be read.
        """
        if self._file is None:
            copy_rows(self.rows, places, target, slots)
        else:
            self._file.finish(self._file.start(places, target, slots.astype(np.int32)))

    def send(self, places: IntArray, buffer: Array, send: Callable[[], Any]) -> Any:
        """Copy row ``places[i]`` to ``buffer[i]``, then ``send`` them; return that work of torch.

        What the disk has is read during later exchanges. What was asked for first is sent first.
        """
        order = np.arange(len(places), dtype=np.int32)
        if self._file is None:
            copy_rows(self.rows, places, buffer, order)
            return send()
        assert self._sending is not None
        file, ticket = self._file, self._file.start(places, buffer, order)

        def read_and_send() -> Any:
            file.finish(ticket)
            return send()

        return DeferredWork(begun=self._sending.submit(read_and_send))

    def close(self) -> None:
        """Send what was begun, and close the file."""
        if self._file is not None and self._sending is not None:
            self._sending.shutdown()
            self._file.close()


def copy_rows(rows: Array, places: IntArray, target: Array, slots: IntArray) -> None:
    """Copy row ``places[i]`` of ``rows`` to row ``slots[i]`` of ``target``, byte by byte.

    Python's lock is free meanwhile.
    """
    if not len(places):
        return
    source, into = (
        (each.view(np.uint8).reshape(len(each), -1), "uint8") for each in (rows, target)
    )
    ops.copy_rows(source, places, into, slots, num_threads=1)


#: In place of a number of rows: rank 0 reads no more.
NO_MORE = -1


def owners_of(parts: Sequence[int], rank: int) -> IntArray:
    """Return ``[num_parts]``, the rank of which ``rank`` gets the rows of each part.

    It is that of the same number on the machine that has the part, if that has so many processes.

    Args:
        parts: the part whose rows each rank has. Processes of one part are those of one machine;
            their numbers rise with their ranks.
    """
    of_part: dict[int, list[int]] = {}
    for each, part in enumerate(parts):
        of_part.setdefault(part, []).append(each)
    number = of_part[parts[rank]].index(rank)
    return np.array([ranks[number % len(ranks)] for _, ranks in sorted(of_part.items())])


@dataclass(frozen=True, kw_only=True)
class RowRequest:
    """Rows that this process wants of the others."""

    vertices: torch.Tensor  #: ``[n]`` in the order of the ranks that have them
    counts: torch.Tensor  #: ``[size]`` int32, how many of each rank
    order: IntArray  #: ``[n]`` the position of each in what was asked for


@dataclass(frozen=True, kw_only=True)
class RowReceive:
    """Rows on their way to this process."""

    rows: torch.Tensor  #: ``[n, row_bytes]`` uint8, in the order of the ranks that have them
    sent: torch.Tensor  #: ``[m, row_bytes]`` uint8, kept until they have left
    work: Any  #: that of torch which brings both about


class ShardExchange:
    """Exchanges over connections that nothing else uses, one after the other."""

    def __init__(
        self,
        group: Group,
        rows_groups: Sequence[Group],
        divided: ShardedFeatures,
        own: LocalShard,
        places: IntArray,
    ) -> None:
        """Exchange the rows of ``divided``.

        Args:
            own: reads those of this machine.
            group: all processes; over these connections they say what they want.
            rows_groups: the same several times; over the connections of each in turn rows go, so
                that those of an exchange need not wait until those of the one before have arrived.
            places: ``[num_vertices]`` the row of each vertex, -1 for those of other machines.
        """
        self._group, self._rows_groups = group, cycle(rows_groups)
        self._divided, self._own, self._places = divided, own, places
        self._row_bytes = int(divided.rows.shape[1]) * divided.itemsize

    def begin(self, wanted: RowRequest) -> RowReceive | None:
        """Say what is wanted, and begin to send what others want.

        Returns:
            None if rank 0 reads no more.

        Raises:
            OSError: rows cannot be read.
            RuntimeError: another process is gone.
            ValueError: it wants what this process has not.
        """
        asked = torch.empty_like(wanted.counts)
        self._group.start_swapping(asked, wanted.counts).wait()
        if int(asked.min()) == NO_MORE:
            return None
        counts, others = wanted.counts.tolist(), asked.tolist()
        if sum(others) > len(self._divided) * len(others) or min(others) < 0:
            raise ValueError(f"another process asks for {max(others)} rows")
        vertices = torch.empty(sum(others), dtype=wanted.vertices.dtype)
        self._group.start_swapping(vertices, wanted.vertices, (others, counts)).wait()
        places = self._places_of(vertices.numpy())
        sent = torch.empty(len(places), self._row_bytes, dtype=torch.uint8)
        rows = torch.empty(sum(counts), self._row_bytes, dtype=torch.uint8)
        swap = partial(next(self._rows_groups).start_swapping, rows, sent, (counts, others))
        work = self._own.send(places, sent.numpy(), swap)
        return RowReceive(rows=rows, sent=sent, work=work)

    def _places_of(self, vertices: Array) -> IntArray:
        """Return ``[n]`` the places of the rows of ``vertices``, which this machine has."""
        outside = (vertices < 0) | (vertices >= len(self._divided))
        places = self._places[np.where(outside, 0, vertices)]
        outside |= places < 0
        if outside.any():
            vertex = int(vertices[outside.argmax()])
            part = self._divided.part
            raise ValueError(f"another process asks for vertex {vertex}, which part {part} has not")
        return places
