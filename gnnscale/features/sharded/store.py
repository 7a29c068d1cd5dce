"""Feature rows that are divided among machines, and exchanged by all processes in lockstep.

All processes take part in the exchange of every step, those that want nothing with counts of zero.
So nobody waits for questions: in the exchange of its step a process serves the others.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from gnnscale.core import Array, Int32Array, IntArray
from gnnscale.distributed.heartbeat import STATUS
from gnnscale.distributed.process_group import Group, PeerLostError, hang_up, peer_lost
from gnnscale.features.disk import DiskRows
from gnnscale.features.sharded.exchange import (
    NO_MORE,
    LocalShard,
    RowReceive,
    RowRequest,
    ShardExchange,
    copy_rows,
)
from gnnscale.features.tiered.source import SourceReads
from gnnscale.graph.sharded import ShardedFeatures
from gnnscale.graph.store_format import vertex_dtype

log = logging.getLogger(__name__)

#: Bytes that each process receives to measure the network, and how often.
_PROBED_BYTES, _PROBES = 4 << 20, 4
#: Exchanges whose rows are on their way at once, each over separate connections.
_AT_ONCE = 3
#: Seconds in which threads end once the connections are closed.
_LEAVE_S = 5.0


@dataclass(kw_only=True)
class _ExchangeStep:
    """The exchange of a step, whose rows are on their way into ``pool``."""

    vertices: Array
    pool: Array
    slots: Int32Array
    order: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    arriving: RowReceive | None = None
    reads: SourceReads = field(default_factory=SourceReads)
    arrived: bool = False
    done: threading.Event = field(default_factory=threading.Event)  #: arrived, or it never will


class ShardedStore:
    """The rows of a graph that machines divide among them: a source of a tier.

    ``start`` begins the exchange of a step, and returns. A thread says what is wanted and sends
    what others want, another one brings what arrives to its place, so that both overlap with
    computation. Every process starts as many exchanges, in the order of steps.
    """

    def __init__(
        self,
        divided: ShardedFeatures,
        group: Group,
        owners: IntArray,
        *,
        dtype_name: str,
        num_features: int | None = None,
    ) -> None:
        """Prepare to exchange; all processes do so at the same time.

        Args:
            divided: the part of this machine.
            group: all processes.
            owners: ``[num_parts]`` the rank that this process gets the rows of each part of.
            dtype_name: the name of the element type.
            num_features: of a row; None for its elements, which are bytes of int8 and int4.
        """
        self.num_features = divided.shape[1] if num_features is None else num_features
        self.dtype_name = dtype_name
        self._divided = divided
        self._own = LocalShard(divided.rows)
        self._places = divided.places()
        self._owners = owners
        self._id_dtype = vertex_dtype(len(divided))
        self._group = group.with_own_connections()
        ids, *rows = (group.with_own_connections() for _ in range(1 + _AT_ONCE))
        self._steps = ShardExchange(ids, rows, divided, self._own, self._places)
        self._reading = ShardExchange(self._group, [self._group], divided, self._own, self._places)
        self._one_reads = threading.Lock()
        self._counting = threading.Lock()
        self._started: dict[int, _ExchangeStep] = {}
        self._num_started = 0
        self._reads = SourceReads()
        self._failure: PeerLostError | None = None
        self._ends = False
        self._left = False
        self._starting: queue.SimpleQueue[_ExchangeStep | None] = queue.SimpleQueue()
        self._arriving: queue.SimpleQueue[_ExchangeStep | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._guarded, args=(each,), name=name, daemon=True)
            for each, name in ((self._send, "rows-leave"), (self._take, "rows-arrive"))
        ]
        for thread in self._threads:
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
    def part(self) -> int:
        """The part that this machine has."""
        return self._divided.part

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
        return self._own.rows

    def read_own_in(self, rows: Array) -> None:
        """Read ``own`` in ``rows`` from now on: another mapping of them, so that one is used."""
        self._own.rows = rows

    def read_own_from(self, file: DiskRows) -> None:
        """Read ``own`` from the disk from now on, and send them so, since they exceed memory."""
        self._own.read_from(file)

    def own_places(self, vertices: Array) -> IntArray:
        """Return ``[n]`` the place of each row in ``own``, -1 for those of other machines."""
        places: IntArray = self._places[vertices]
        return places

    def start(self, vertices: Array, pool: Array, slots: Int32Array) -> int:
        """Begin the next step's exchange, of the row ``vertices[i]`` for ``pool[slots[i]]``.

        Args:
            vertices: rows of other machines.

        Returns:
            A ticket for ``finish``.

        Raises:
            PeerLostError: another process is gone, or this one takes part in no more exchanges.
        """
        step = _ExchangeStep(vertices=vertices, pool=pool, slots=slots)
        with self._counting:
            if self._failure is not None or self._ends:
                raise self._failure or PeerLostError("the run ends")
            self._num_started += 1
            self._started[self._num_started] = step
            self._starting.put(step)
            return self._num_started

    def skip(self) -> None:
        """Take part in the exchange of a step for which this process wants nothing."""
        nothing = np.empty(0, np.int32)
        ticket = self.start(nothing, nothing, nothing)
        with self._counting:
            del self._started[ticket]

    def finish(self, ticket: int) -> None:
        """Wait until the rows of ``ticket`` are there.

        Raises:
            PeerLostError: another process is gone.
        """
        with self._counting:
            step = self._started[ticket]
        with STATUS.waits():
            step.done.wait()
        if not step.arrived:
            raise self._failure or AssertionError(ticket)
        with self._counting:
            del self._started[ticket]
            self._reads = self._reads + step.reads

    def rehearse(self, vertices: Array) -> Array:
        """Return ``[n, width]`` rows as good as those of ``vertices`` before the first step.

        Rows of this machine stand for those of others: a rehearsal learns nothing that is kept, and
        the processes need not rehearse in lockstep.

        Raises:
            RuntimeError: steps have begun, in which all rows are expected.
        """
        if self._num_started:
            raise RuntimeError("features=shared: a step reads rows that were not expected")
        rows: Array = np.zeros((len(vertices), self.width), self.dtype)
        if self.num_own:
            places = self._places[vertices]
            places = np.where(places < 0, vertices % self.num_own, places)
            self._own.copy(places, rows, np.arange(len(rows)))
        return rows

    def seconds_a_row(self) -> float:
        """Measure a row of another machine, gathered there and sent, while all processes exchange.

        All processes come here at the same time, before the first step.

        Raises:
            PeerLostError: another process is gone.
        """
        others = np.flatnonzero(self._places < 0)
        count = min(len(others), max(_PROBED_BYTES // self.row_bytes, 1))
        wanted = self._wants(np.random.default_rng(0).permutation(others)[:count])
        seconds = []
        for _ in range(_PROBES):
            self._group.barrier()
            start = time.perf_counter()
            self._read(wanted)
            seconds.append(time.perf_counter() - start)
        # The first may read the disk on which the rows of the others are.
        return min(seconds[1:]) / max(count, 1)

    @contextmanager
    def rank0_reads(self) -> Iterator[None]:
        """Let rank 0 ``read`` in the ``with`` block; the others serve it before they enter theirs.

        All processes come here at the same time.

        Raises:
            PeerLostError: another process is gone.
        """
        if not self._group.is_rank0:
            with STATUS.waits():
                self._guarded(self._serve)
            if self._failure is not None:
                raise self._failure
        yield
        if self._group.is_rank0:
            end = self._wants(np.empty(0, self._id_dtype))
            end.counts.fill_(NO_MORE)
            self._read(end)

    def read(self, vertices: Array) -> Array:
        """Return the rows of ``vertices``, ``[n, width]``, within ``rank0_reads``.

        What crosses the network for it is not counted.
        """
        rows: Array = np.empty((len(vertices), self.width), self.dtype)
        places = self._places[vertices]
        others = np.flatnonzero(places < 0)
        own = np.flatnonzero(places >= 0)
        self._own.copy(places[own], rows, own)
        wanted = self._wants(vertices[others])
        found = self._read(wanted)
        copy_rows(found.numpy(), np.arange(len(found)), rows, others[wanted.order])
        return rows

    def take_reads(self) -> SourceReads:
        """Return what arrived for tickets that were finished since the last call."""
        with self._counting:
            reads, self._reads = self._reads, SourceReads()
        return reads

    def close(self) -> None:
        """Begin no more exchanges but those that another process has begun, and end all.

        All processes come here at the same time. Other threads may still wait for rows, which
        arrive, and are refused more.

        Raises:
            PeerLostError: another process is gone.
        """
        if self._left:
            return
        with self._counting:
            self._ends = True
        nothing = np.empty(0, np.int32)
        for _ in range(self._group.largest([self._num_started])[0] - self._num_started):
            self._starting.put(_ExchangeStep(vertices=nothing, pool=nothing, slots=nothing))
        self._starting.put(None)
        with STATUS.waits():
            for thread in self._threads:
                thread.join()
        if self._failure is not None:
            raise self._failure
        self._left = True
        self._own.close()

    def abandon(self) -> None:
        """Stop at once, as after an error: the others lose this process."""
        if self._left:
            return
        self._left = True
        self._fail(PeerLostError("this process has left"))
        hang_up()
        self._starting.put(None)
        for thread in self._threads:
            thread.join(_LEAVE_S)
        self._own.close()

    def _wants(self, vertices: Array) -> RowRequest:
        """Sort ``vertices``, rows of other machines, by the ranks that have them."""
        owner = self._owners[self._divided.owner[vertices]]
        order = np.argsort(owner, kind="stable")
        counts = np.bincount(owner, minlength=self._group.size).astype(np.int32)
        ordered = np.ascontiguousarray(vertices[order], dtype=self._id_dtype)
        return RowRequest(
            vertices=torch.from_numpy(ordered), counts=torch.from_numpy(counts), order=order
        )

    def _send(self) -> None:
        """Begin one exchange after the other: say what is wanted, and send what others want."""
        while (step := self._starting.get()) is not None:
            wanted = self._wants(step.vertices)
            step.order = wanted.order
            step.arriving = self._steps.begin(wanted)
            assert step.arriving is not None
            parts = step.arriving.rows, wanted.vertices, wanted.counts[1:]
            step.reads = SourceReads(
                num_bytes=sum(each.nbytes for each in parts),
                num_requests=int((wanted.counts > 0).sum()),
            )
            self._arriving.put(step)
        self._arriving.put(None)

    def _take(self) -> None:
        """Bring rows to their places, those of one exchange after the other's."""
        while (step := self._arriving.get()) is not None:
            assert step.arriving is not None
            step.arriving.work.wait()
            rows = step.arriving.rows.numpy()
            copy_rows(rows, np.arange(len(rows)), step.pool, step.slots[step.order])
            step.arriving, step.arrived = None, True
            step.done.set()

    def _serve(self) -> None:
        """Send rank 0 what it reads, until it reads no more."""
        nothing = self._wants(np.empty(0, self._id_dtype))
        while (arriving := self._reading.begin(nothing)) is not None:
            arriving.work.wait()

    def _read(self, wanted: RowRequest) -> torch.Tensor:
        found: list[torch.Tensor] = [torch.empty(0, self.row_bytes, dtype=torch.uint8)]

        def exchange() -> None:
            arriving = self._reading.begin(wanted)
            if arriving is not None:
                arriving.work.wait()
                found[0] = arriving.rows

        with self._one_reads, STATUS.waits():
            self._guarded(exchange)
        if self._failure is not None:
            raise self._failure
        return found[0]

    def _guarded(self, work: Callable[[], None]) -> None:
        """Do ``work``, and let all who wait for rows know if it cannot be done."""
        try:
            work()
        except (RuntimeError, MemoryError, ValueError, OSError) as error:
            if self._left:
                return
            if isinstance(error, RuntimeError):
                self._fail(peer_lost(error))
                return
            reason = str(error).strip().splitlines()[0] if str(error) else type(error).__name__
            log.error("features=shared: %s", reason)
            STATUS.verdict = f"the exchange of rows failed ({reason})"
            hang_up()
            self._fail(PeerLostError(STATUS.verdict))

    def _fail(self, error: PeerLostError) -> None:
        """Raise the error in all who start exchanges from now on, or wait."""
        with self._counting:
            self._failure = self._failure or error
            for step in self._started.values():
                step.done.set()
        self._starting.put(None)
        self._arriving.put(None)
