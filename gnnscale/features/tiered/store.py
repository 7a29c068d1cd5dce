"""Features of which host memory holds a part: the store over a tier."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch

from gnnscale import ops
from gnnscale.core import Access, Array, Int32Array, Traffic
from gnnscale.features.base import Aggregation, FeatureStore, write_aggregated
from gnnscale.features.tiered.buffer import (
    BatchReader,
    BegunBatch,
    MappedRows,
    RowBuffer,
    read_rows,
)
from gnnscale.features.tiered.planner import TierPlanner
from gnnscale.features.tiered.source import RowSource, SourceReads
from gnnscale.sampling import Block


@dataclass(frozen=True, kw_only=True)
class ReadyRows:
    """Rows that can be read now."""

    rows: Array  #: a matrix that has them
    slots: Int32Array  #: ``[n]`` the place of each in it
    #: rows that were read for the step; None of an unexpected gather
    num_missing: int | None
    waited_s: float  #: seconds that it took until they were there
    reads: SourceReads  #: what was read meanwhile

    @property
    def access(self) -> Access:
        """Rows found in memory, and what was read of the others."""
        missing = len(self.slots) if self.num_missing is None else self.num_missing
        return Access(
            hits=len(self.slots) - missing,
            misses=missing,
            link_bytes=self.reads.num_bytes,
            link_requests=self.reads.num_requests,
            waited_us=round(1e6 * self.waited_s),
        )


class TieredReader(Protocol):
    """The rows of a source for one worker, which expects its steps some time ahead.

    One thread may expect while another reads.
    """

    lead: int  #: steps that are to be expected ahead of the one that is read
    source: RowSource  #: has all rows

    def expect(self, vertices: Array | None) -> None:
        """Append the rows of the next step, ``[n]`` distinct; None if it reads nothing."""
        ...

    def end(self) -> None:
        """Say that no further step follows."""
        ...

    def ready(self, vertices: Array) -> ReadyRows:
        """Wait for the rows of ``vertices``, which ``served`` is to give back.

        They are those of the next step if that expected this very array.
        """
        ...

    def served(self, ready: ReadyRows) -> None:
        """Give back the rows of a step, which the worker has read."""
        ...

    def read(self, vertices: Array, rows: Array) -> None:
        """Read the row of ``vertices[i]`` into ``rows[i]`` now, as it is stored."""
        ...

    def close(self) -> None:
        """Wait for reads that were begun, and release everything."""
        ...


class TieredStore(FeatureStore):
    """Rows of a source, some of which host memory holds.

    The steps of a run are expected in the order in which they are gathered, each at least
    ``rows.lead`` steps ahead. What a step misses is read while steps before it are trained. Any
    other gather is a rehearsal's: it gets what the source has for that at once, and changes
    nothing.
    """

    def __init__(self, rows: TieredReader) -> None:
        """Gather ``rows``."""
        self.rows = rows  #: the rows, and what is expected of them

    @property
    def num_rows(self) -> int:
        """Number of rows of the source."""
        return self.rows.source.num_rows

    @property
    def width(self) -> int:
        """Features of a row."""
        return self.rows.source.num_features

    @property
    def row_bytes(self) -> int:
        """Bytes of a row as it is stored."""
        return self.rows.source.width * self.rows.source.dtype.itemsize

    def gather(
        self, vertices: Array, *, dtype: torch.dtype, num_threads: int
    ) -> tuple[torch.Tensor, Traffic]:
        """Return the rows of ``vertices``, ``[n, width]``."""
        out = ops.empty((len(vertices), self.width), dtype)
        ready = self.rows.ready(vertices)
        matrix = (ready.rows, self.rows.source.dtype_name)
        ops.gather(matrix, ready.slots, out=out, num_threads=num_threads)
        return out, self._served(ready)

    def aggregate(
        self,
        vertices: Array,
        block: Block,
        aggregation: Aggregation,
        *,
        dtype: torch.dtype,
        num_threads: int,
    ) -> tuple[torch.Tensor, Traffic]:
        """Return the rows of ``vertices``, aggregated in their slots."""
        out = ops.empty((block.num_dst, aggregation.width(self.width)), dtype)
        ready = self.rows.ready(vertices)
        # Rows are found by their slots, and not as vertices.
        local = replace(block, edge_vertices=None)
        matrix = (ready.rows, self.rows.source.dtype_name)
        ids = ready.slots
        write_aggregated(matrix, local, aggregation, out=out, ids=ids, num_threads=num_threads)
        return out, self._served(ready)

    def _served(self, ready: ReadyRows) -> Traffic:
        """Give back the slots that a step leaves, and return what it has read."""
        self.rows.served(ready)
        rows = Access(host_bytes=len(ready.slots) * self.row_bytes)
        return Traffic(rows=rows, tier=ready.access, disk=ready.reads.disk)


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
        pool = RowBuffer(planner.num_slots, source.width, source.dtype, file=file)
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
