"""Feature rows that are divided among machines: each asks the others for what it lacks.

Every process has threads that answer the others, over connections of torch's own engine that
nothing else uses. So nobody has to be in the same step as anybody else: a process asks when it
has planned a step, when it evaluates alone, or never.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from gnnscale import ops
from gnnscale.artifact.divided import DividedRows
from gnnscale.artifact.graph_store import vertex_dtype
from gnnscale.core import Array, Int32Array, IntArray
from gnnscale.feature.source import SourceReads
from gnnscale.runtime.sync.group import Group, PeerLostError, hang_up
from gnnscale.runtime.sync.pulse import OWN

log = logging.getLogger(__name__)

#: Messages of a process to another one: what it asks for, and what it answers.
_ASKED, _ANSWERED = 1, 2
#: In place of a number of rows: nothing more will be asked for.
_NO_MORE = -1
#: Seconds in which threads end once the connections are closed.
_LEAVE_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Peers:
    """Who answers whom: of each machine the process with the same number there, if it has one."""

    owners: tuple[int, ...]  #: of each part, the rank that this process asks for its rows
    askers: tuple[int, ...]  #: ranks that ask this process

    @classmethod
    def of(cls, parts: Sequence[int], rank: int) -> Peers:
        """Return the peers of ``rank``, given the part whose rows each rank has.

        Processes of one part are those of one machine; their numbers rise with their ranks.
        """
        of_part: dict[int, list[int]] = {}
        for each, part in enumerate(parts):
            of_part.setdefault(part, []).append(each)

        def asked_by(asker: int) -> tuple[int, ...]:
            number = of_part[parts[asker]].index(asker)
            return tuple(ranks[number % len(ranks)] for _, ranks in sorted(of_part.items()))

        askers = (other for other in range(len(parts)) if parts[other] != parts[rank])
        return cls(
            owners=asked_by(rank), askers=tuple(each for each in askers if rank in asked_by(each))
        )


@dataclass(frozen=True, kw_only=True)
class _Answer:
    """Rows that another machine was asked for."""

    positions: IntArray  #: of the request
    rows: torch.Tensor  #: ``[n, row_bytes]`` uint8, which torch fills
    sent: tuple[torch.Tensor, ...]  #: the question, kept until it has left
    works: tuple[Any, ...]  #: those of torch that bring both about


@dataclass(kw_only=True)
class _Request:
    """Rows that are on their way into ``pool``."""

    pool: Array
    slots: Int32Array
    own_positions: IntArray  #: of rows of this machine
    own_vertices: Array  #: ``[n]`` their vertices
    answers: list[_Answer] = field(default_factory=list)  #: until they are brought to their places
    reads: SourceReads = field(default_factory=SourceReads)
    done: threading.Event = field(default_factory=threading.Event)
    failure: BaseException | None = None


class SharedRows:
    """The rows of a graph that machines divide among them: a source of a tier.

    ``start`` sends the missing vertices to the processes that have their rows, and returns. A
    thread brings what arrives to its place, so that both overlap with computation. ``start`` and
    ``finish`` may be called from several threads.
    """

    def __init__(
        self,
        divided: DividedRows,
        group: Group,
        peers: Peers,
        *,
        dtype_name: str,
        num_features: int | None = None,
    ) -> None:
        """Begin to answer; all processes do so at the same time.

        Args:
            divided: the part of this machine.
            group: all processes, over connections that nothing else uses.
            dtype_name: the name of the element type.
            num_features: of a row; None for its elements, which are bytes of int8 and int4.
        """
        self.num_features = divided.shape[1] if num_features is None else num_features
        self.dtype_name = dtype_name
        self._divided = divided
        self._places = divided.places()
        self._id_dtype = vertex_dtype(len(divided))
        self._group = group
        self._peers = peers
        self._sending = threading.Lock()
        self._counting = threading.Lock()
        self._requests: dict[int, _Request] = {}
        self._num_requests = 0
        self._reads = SourceReads()
        self._failure: PeerLostError | None = None
        self._left = False
        self._arriving: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._taker = threading.Thread(target=self._take, name="rows-arrive", daemon=True)
        self._answerers = [
            threading.Thread(target=self._answer, args=(rank,), name=f"rows-to-{rank}", daemon=True)
            for rank in peers.askers
        ]
        for thread in (self._taker, *self._answerers):
            thread.start()

    @property
    def num_rows(self) -> int:
        """Number of rows, of all machines."""
        return len(self._divided)

    @property
    def num_machines(self) -> int:
        """Machines that divide them."""
        return self._divided.num_parts

    @property
    def num_own(self) -> int:
        """Rows of this machine."""
        return len(self._divided.rows)

    @property
    def width(self) -> int:
        """Elements of a row."""
        return int(self._divided.shape[1])

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy type in which rows are stored, and cross the network; bfloat16 is uint16."""
        return self._divided.dtype

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.width * self.dtype.itemsize

    @property
    def own(self) -> Array:
        """``[num_own, width]`` rows of this machine."""
        return self._divided.rows

    def own_places(self, vertices: Array) -> IntArray:
        """Return ``[n]`` the place of each row in ``own``, -1 for those of other machines."""
        places: IntArray = self._places[vertices]
        return places

    def start(self, vertices: Array, pool: Array, slots: Int32Array) -> int:
        """Ask for the rows of ``vertices``, ``vertices[i]`` for ``pool[slots[i]]``.

        Returns:
            A ticket for ``finish``.

        Raises:
            PeerLostError: another process is gone.
        """
        request = self._ask(vertices, pool, slots)
        with self._counting:
            self._num_requests += 1
            ticket = self._num_requests
            self._requests[ticket] = request
        return ticket

    def finish(self, ticket: int) -> None:
        """Wait until the rows of ``ticket`` are there.

        Raises:
            PeerLostError: a process that has some of them is gone.
        """
        with self._counting:
            request = self._requests.pop(ticket)
        self._wait(request)
        with self._counting:
            self._reads = self._reads + request.reads

    def read(self, vertices: Array) -> Array:
        """Return the rows of ``vertices``, ``[n, width]``, which ``take_reads`` does not count."""
        rows: Array = np.empty((len(vertices), self.width), self.dtype)
        self._wait(self._ask(vertices, rows, np.arange(len(vertices), dtype=np.int32)))
        return rows

    def take_reads(self) -> SourceReads:
        """Return what arrived for tickets that were finished since the last call."""
        with self._counting:
            reads, self._reads = self._reads, SourceReads()
        return reads

    def close(self) -> None:
        """Say that nothing more is asked for, and answer the others until they all say so too.

        Raises:
            PeerLostError: another process is gone.
        """
        if self._left:
            return
        self._arriving.put(None)
        self._taker.join()
        end = torch.tensor([_NO_MORE])
        works = [
            self._group.start_sending(end, rank, tag=_ASKED)
            for rank in sorted({*self._peers.owners} - {self._group.rank})
        ]
        with OWN.waits():
            for thread in self._answerers:
                thread.join()
        if self._failure is not None:
            raise self._failure
        self._group.finish(works)
        self._left = True

    def abandon(self) -> None:
        """Stop at once, as after an error: the others lose this process."""
        if self._left:
            return
        self._left = True
        self._fail(PeerLostError("this process has left"))
        hang_up()
        with self._sending:  # nothing is asked for after this
            self._arriving.put(None)
        for thread in (self._taker, *self._answerers):
            thread.join(_LEAVE_S)

    def _ask(self, vertices: Array, pool: Array, slots: Int32Array) -> _Request:
        owner = np.asarray(self._divided.owner[vertices])
        order = np.argsort(owner, kind="stable")
        ends = np.cumsum(np.bincount(owner, minlength=self._divided.num_parts))
        positions = np.split(order, ends[:-1])
        own = positions[self._divided.part]
        request = _Request(pool=pool, slots=slots, own_positions=own, own_vertices=vertices[own])
        # Rows arrive in the order in which they were asked for.
        with self._sending:
            if self._failure is not None:
                raise self._failure
            for part, places in enumerate(positions):
                if part != self._divided.part and len(places):
                    rank = self._peers.owners[part]
                    request.answers.append(self._ask_one(rank, places, vertices[places]))
            request.reads = SourceReads(
                num_bytes=sum(
                    each.nbytes for one in request.answers for each in (one.rows, *one.sent)
                ),
                num_requests=len(request.answers),
            )
            self._arriving.put(request)
        return request

    def _ask_one(self, rank: int, positions: IntArray, vertices: Array) -> _Answer:
        """Ask rank ``rank`` for the rows of ``vertices``."""
        rows = torch.empty(len(vertices), self.row_bytes, dtype=torch.uint8)
        wanted = np.ascontiguousarray(vertices, dtype=self._id_dtype)
        sent = torch.tensor([len(wanted)]), torch.from_numpy(wanted)
        arrives = self._group.start_receiving(rows, rank, tag=_ANSWERED)
        leave = (self._group.start_sending(each, rank, tag=_ASKED) for each in sent)
        return _Answer(positions=positions, rows=rows, sent=sent, works=(*leave, arrives))

    def _wait(self, request: _Request) -> None:
        with OWN.waits():
            request.done.wait()
        if request.failure is not None:
            raise request.failure

    def _take(self) -> None:
        """Bring rows to their places, those of one request after the other's."""
        while (request := self._arriving.get()) is not None:
            try:
                if self._failure is not None:
                    raise self._failure
                self._place(request)
            except BaseException as error:
                request.failure = error
                if isinstance(error, PeerLostError):
                    self._fail(error)
            request.answers.clear()
            request.done.set()

    def _place(self, request: _Request) -> None:
        """Bring the rows of a request to their places, once they have arrived."""
        pool, slots = request.pool, request.slots
        if len(request.own_vertices):
            places = self._places[request.own_vertices]
            self._copy(self._divided.rows, places, pool, slots[request.own_positions])
        for each in request.answers:
            self._group.finish(each.works)
            rows = each.rows.numpy().view(self.dtype)
            self._copy(rows, np.arange(len(rows), dtype=np.int32), pool, slots[each.positions])

    def _copy(self, rows: Array, places: IntArray, pool: Array, slots: Int32Array) -> None:
        """Bring ``rows[places[i]]`` to ``pool[slots[i]]``, without Python's lock."""
        target = pool, self.dtype_name
        ops.copy_rows((rows, self.dtype_name), places, target, slots, num_threads=1)

    def _answer(self, rank: int) -> None:
        """Send rank ``rank`` the rows that it asks for, until it says that it needs no more."""
        try:
            sent: tuple[Any, torch.Tensor] | None = None
            while (wanted := self._next_question(rank)) is not None:
                rows = self._rows_of(wanted)
                if sent is not None:
                    sent[0].wait()
                sent = self._group.start_sending(rows, rank, tag=_ANSWERED), rows
            if sent is not None:
                sent[0].wait()
        except (RuntimeError, MemoryError, ValueError) as error:
            if self._left:
                return
            reason = str(error).strip().splitlines()[0] if str(error) else type(error).__name__
            if not isinstance(error, RuntimeError):
                log.error("rows of process %d: %s", rank, reason)
                OWN.verdict = f"process {rank} got no rows ({reason})"
                hang_up()
            self._fail(PeerLostError(OWN.verdict or f"lost the other processes ({reason})"))

    def _next_question(self, rank: int) -> Array | None:
        """Wait for what rank ``rank`` asks for next; None if it is done."""
        # This thread waits all the time: that says nothing of who is waited for in a step.
        header = torch.zeros(1, dtype=torch.int64)
        self._group.start_receiving(header, rank, tag=_ASKED).wait()
        count = int(header)
        if count == _NO_MORE:
            return None
        if not 0 < count <= len(self._divided):
            raise ValueError(f"it asks for {count} rows, there are {len(self._divided)}")
        wanted = np.empty(count, self._id_dtype)
        self._group.start_receiving(torch.from_numpy(wanted), rank, tag=_ASKED).wait()
        return wanted

    def _rows_of(self, wanted: Array) -> torch.Tensor:
        """Return the rows of ``wanted``, ``[n, row_bytes]`` uint8, all of them of this machine."""
        outside = (wanted < 0) | (wanted >= len(self._divided))
        places = self._places[np.where(outside, 0, wanted)]
        outside |= places < 0
        if outside.any():
            vertex = int(wanted[outside.argmax()])
            raise ValueError(
                f"it asks for vertex {vertex}, which part {self._divided.part} has not"
            )
        rows = np.empty((len(wanted), self.width), self.dtype)
        np.take(self._divided.rows, places, axis=0, out=rows, mode="clip")  # checked above
        return torch.from_numpy(rows.view(np.uint8).reshape(len(wanted), self.row_bytes))

    def _fail(self, error: PeerLostError) -> None:
        """Raise the error in all who ask from now on, or wait."""
        self._failure = self._failure or error
