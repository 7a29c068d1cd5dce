"""Reads of remote rows outside of steps, by exchanges that the caller waits for."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from gnnscale.core import IntArray
from gnnscale.distributed.heartbeat import STATUS
from gnnscale.distributed.process_group import Group
from gnnscale.features.sharded.exchange import NO_MORE, RowRequest, ShardExchange
from gnnscale.features.sharded.transport import ShardTransport

#: Bytes that each process receives in a probe of the network, and number of probes.
_PROBE_BYTES, _NUM_PROBES = 4 << 20, 4
_NO_VERTICES = np.empty(0, np.int32)


class RemoteReader:
    """Reads remote rows before and between the steps of a run."""

    def __init__(
        self, exchange: ShardExchange, transport: ShardTransport, group: Group, *, row_bytes: int
    ) -> None:
        """Read over the connections of ``group``, and report failures to ``transport``."""
        self._exchange, self._transport, self._group = exchange, transport, group
        self._row_bytes = row_bytes
        self._reading = threading.Lock()

    def seconds_per_row(self, remote: IntArray) -> float:
        """Measure the seconds to gather and receive a row while all processes exchange.

        All processes call this at the same time.

        Args:
            remote: ``[n]`` all remote vertices.

        Raises:
            PeerLostError: another process is gone.
        """
        count = min(len(remote), max(_PROBE_BYTES // self._row_bytes, 1))
        request = self._exchange.request(np.random.default_rng(0).permutation(remote)[:count])
        seconds = []
        for _ in range(_NUM_PROBES):
            self._group.barrier()
            start = time.perf_counter()
            self.read(request)
            seconds.append(time.perf_counter() - start)
        # The first probe may read the rows of other machines from their disks.
        return min(seconds[1:]) / max(count, 1)

    @contextmanager
    def rank0_reads(self) -> Iterator[None]:
        """Let rank 0 ``read`` in the ``with`` block; other ranks serve it, then enter their block.

        All processes call this at the same time.

        Raises:
            PeerLostError: another process is gone.
        """
        if not self._group.is_rank0:
            with STATUS.waits():
                self._transport.guard(self._serve)
            self._transport.raise_failure()
        yield
        if self._group.is_rank0:
            end = self._exchange.request(_NO_VERTICES)
            end.counts.fill_(NO_MORE)
            self.read(end)

    def read(self, request: RowRequest) -> torch.Tensor:
        """Return the requested rows ``[n, row_bytes]`` uint8.

        Raises:
            PeerLostError: another process is gone.
        """
        received = torch.empty(0, self._row_bytes, dtype=torch.uint8)

        def exchange() -> None:
            nonlocal received
            receive = self._exchange.start(request)
            if receive is not None:
                receive.work.wait()
                received = receive.rows

        with self._reading, STATUS.waits():
            self._transport.guard(exchange)
        self._transport.raise_failure()
        return received

    def _serve(self) -> None:
        """Send the rows that rank 0 reads, until it reads no more."""
        nothing = self._exchange.request(_NO_VERTICES)
        while (receive := self._exchange.start(nothing)) is not None:
            receive.work.wait()
