"""The rows of a tier in a pool that one worker has to itself."""

from __future__ import annotations

import threading
import time

import numpy as np

from gnnscale.cache.tier.planner import TierPlanner
from gnnscale.cache.tier.pool import MappedRows, RowPool
from gnnscale.cache.tier.reader import BatchReader, BegunBatch, read_rows
from gnnscale.cache.tier.rows import ReadyRows
from gnnscale.core import Array
from gnnscale.feature.source import RowSource


class WorkerPool:
    """Rows in a pool that one worker has to itself."""

    def __init__(
        self,
        source: RowSource,
        planner: TierPlanner,
        *,
        window: int,
        ahead: int,
        file: MappedRows | None = None,
    ) -> None:
        """Hold rows of ``source`` as ``planner`` says.

        Args:
            window: steps that the planner looks ahead of what it plans.
            ahead: steps whose rows may be on their way at once.
            file: has the rows of the planner's fixed slots; None without such.
        """
        self.lead = window + ahead  #: steps that are to be expected ahead of the one that is read
        pool = RowPool(planner.num_slots, source.width, source.dtype, file=file)
        self._reader = BatchReader(source, planner, pool, ahead=ahead)
        self.source = source  #: has all rows
        self._planning = threading.Lock()

    @property
    def slots(self) -> Array:
        """``[num_slots, width]`` the pool; fixed rows come first."""
        return self._reader.pool.rows

    def fill(self, rows: Array) -> None:
        """Read ``rows``, ``[k]`` vertices, into the first slots, for good."""
        self._reader.fill(rows, self.source)

    def read(self, vertices: Array, rows: Array) -> None:
        """Read the row of ``vertices[i]`` into ``rows[i]`` now, as it is stored.

        What it reads counts as a step's if reads of one are on their way, and is not counted
        otherwise.
        """
        read_rows(self.source, vertices, rows)
        with self._planning:
            if not self._reader.begun:
                self.source.take_reads()

    def expect(self, vertices: Array | None) -> None:
        """Append the rows of the next step, ``[n]`` distinct; None if it reads nothing.

        ``ready`` recognises the step by this very array.
        """
        with self._planning:
            self._reader.expect(vertices)
            self._reader.begin_all()

    def end(self) -> None:
        """Say that no further step follows: the last ones are read ahead as those before them."""
        with self._planning:
            self._reader.end()
            self._reader.begin_all()

    def ready(self, vertices: Array) -> ReadyRows:
        """Wait for the rows of ``vertices``, which ``served`` is to give back.

        Unless the next step expects this very array, it is a rehearsal's: it gets what the source
        has for that at once, and changes nothing.
        """
        with self._planning:
            begun = self._next(vertices)
        start = time.perf_counter()
        if begun is None:
            rows = self.source.rehearse(vertices)
            slots = np.arange(len(vertices), dtype=np.int32)
        else:
            rows, slots = self._reader.pool.rows, begun.batch.slots
            self.source.finish(begun.ticket)
        waited_s = time.perf_counter() - start
        return ReadyRows(
            rows=rows,
            slots=slots,
            num_missing=None if begun is None else len(begun.batch.missing),
            waited_s=waited_s,
            reads=self.source.take_reads(),
        )

    def served(self, ready: ReadyRows) -> None:
        """Give back the slots that a step leaves."""
        if ready.num_missing is None:
            return
        with self._planning:
            self._reader.served()
            self._reader.begin_all()

    def close(self) -> None:
        """Wait for reads that were begun, and release the source."""
        self._reader.close()

    def _next(self, vertices: Array) -> BegunBatch | None:
        """Return the next step if it is the one of ``vertices``, which is planned by now."""
        begun = self._reader.begun
        if not begun:
            # There was no room until the step before was served, or steps follow unexpected.
            self._reader.begin(vertices)
        if not begun or begun[0].batch.vertices is not vertices:
            return None
        return begun[0]
