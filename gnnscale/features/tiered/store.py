"""Tiered feature store: some rows in host memory, all rows in a slower backing store."""

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
    BatchInFlight,
    BatchReader,
    MappedRows,
    RowBuffer,
    RowSource,
    SourceReads,
    read_rows,
)
from gnnscale.features.tiered.policies import TierPlanner
from gnnscale.sampling import Block


@dataclass(frozen=True, kw_only=True)
class ReadyRows:
    """Slots of a step's rows in a matrix in memory, and the reads that brought the rows."""

    rows: Array  #: matrix that has the rows in its slots
    slots: Int32Array  #: ``[n]`` slot of each row in the matrix
    #: rows read from the backing store for the step. None: no step expected them
    num_missing: int | None
    waited_s: float  #: seconds of waiting for the rows
    reads: SourceReads  #: reads of the backing store since the previous step

    @property
    def access(self) -> Access:
        """Hits and misses in host memory, and the reads of the misses."""
        missing = len(self.slots) if self.num_missing is None else self.num_missing
        return Access(
            hits=len(self.slots) - missing,
            misses=missing,
            link_bytes=self.reads.num_bytes,
            link_requests=self.reads.num_requests,
            waited_us=round(1e6 * self.waited_s),
        )


class TieredReader(Protocol):
    """Rows of a backing store for one worker, which expects its steps ahead of their reads."""

    lead: int  #: steps between the expectation of a step and its reads
    source: RowSource  #: backing store of all rows

    def expect(self, vertices: Array | None) -> None:
        """Append the next step's distinct ``vertices`` ``[n]``. None: the step reads no rows."""

    def end(self) -> None:
        """Announce that no step follows, so that the last steps need not wait for later steps."""

    def ready(self, vertices: Array) -> ReadyRows:
        """Wait for the rows of ``vertices``, the next step's array, and return their slots."""

    def served(self, ready: ReadyRows) -> None:
        """Free the slots of the step whose rows were ``ready``."""

    def read(self, vertices: Array, rows: Array) -> None:
        """Read the row of ``vertices[i]`` into ``rows[i]``, in its stored type, and wait."""

    def close(self) -> None:
        """Wait for pending reads, and release all resources."""


class TieredStore(FeatureStore):
    """Rows of a backing store, some of which host memory holds.

    The steps of a run are expected in gather order, each at least ``rows.lead`` steps before its
    gather. The missing rows of a step are read while earlier steps train. Any other gather, e.g. of
    a profiling run, reads the backing store at once and changes nothing.

    Example::

        store = TieredStore(reader)
        reader.expect(first)  # ... reader.lead more steps
        store.gather(first, dtype=torch.float32, num_threads=4)
    """

    def __init__(self, rows: TieredReader) -> None:
        """Gather rows from the reader ``rows``."""
        self.rows = rows  #: reader of the rows

    @property
    def num_rows(self) -> int:
        """Number of rows of the backing store."""
        return self.rows.source.num_rows

    @property
    def width(self) -> int:
        """Number of features of a row."""
        return self.rows.source.num_features

    @property
    def row_bytes(self) -> int:
        """Bytes of a row as it is stored."""
        return self.rows.source.width * self.rows.source.dtype.itemsize

    def gather(
        self, vertices: Array, *, dtype: torch.dtype, num_threads: int
    ) -> tuple[torch.Tensor, Traffic]:
        """Return the rows ``[n, width]`` of ``vertices`` and the traffic; free the step's slots."""
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
        """Return rows aggregated over ``block`` and the traffic; free the step's slots."""
        out = ops.empty((block.num_dst, aggregation.width(self.width)), dtype)
        ready = self.rows.ready(vertices)
        # Rows are indexed by slot, while ``edge_vertices`` are vertex ids.
        local = replace(block, edge_vertices=None)
        matrix = (ready.rows, self.rows.source.dtype_name)
        ids = ready.slots
        write_aggregated(matrix, local, aggregation, out=out, ids=ids, num_threads=num_threads)
        return out, self._served(ready)

    def _served(self, ready: ReadyRows) -> Traffic:
        """Free the slots of a step, and return its traffic."""
        self.rows.served(ready)
        rows = Access(host_bytes=len(ready.slots) * self.row_bytes)
        return Traffic(rows=rows, tier=ready.access, disk=ready.reads.disk)


class WorkerBuffer:
    """Reader of a backing store's rows into a buffer that a single worker uses."""

    def __init__(
        self,
        source: RowSource,
        planner: TierPlanner,
        *,
        window: int,
        ahead: int,
        file: MappedRows | None = None,
    ) -> None:
        """Read rows of ``source`` into slots that ``planner`` assigns, ``ahead`` steps at a time.

        The planner looks ``window`` steps ahead. ``file`` has the rows of the planner's fixed
        slots.
        """
        self.lead = window + ahead  #: steps between the expectation of a step and its reads
        buffer = RowBuffer(planner.num_slots, source.width, source.dtype, file=file)
        self._reader = BatchReader(source, planner, buffer, ahead=ahead)
        self.source = source  #: backing store of all rows
        self._planning = threading.Lock()

    @property
    def slots(self) -> Array:
        """``[num_slots, width]`` the buffer, fixed rows first."""
        return self._reader.buffer.rows

    def fill(self, rows: Array) -> None:
        """Cache the rows of vertices ``rows`` ``[k]`` before the first step: read them now."""
        self._reader.fill(rows, self.source)

    def read(self, vertices: Array, rows: Array) -> None:
        """Read the row of ``vertices[i]`` into ``rows[i]``, in its stored type, and wait.

        The reads are not counted, unless reads of a step are pending: the step then includes them.
        """
        read_rows(self.source, vertices, rows)
        with self._planning:
            if not self._reader.in_flight:
                self.source.take_reads()

    def expect(self, vertices: Array | None) -> None:
        """Append the next step's distinct ``vertices`` ``[n]``. None: the step reads no rows.

        Reads start for up to ``ahead`` steps that have a full look-ahead window and free slots.
        """
        with self._planning:
            self._reader.expect(vertices)
            self._reader.start_all()

    def end(self) -> None:
        """Announce that no step follows, and start the last steps' reads without a full window."""
        with self._planning:
            self._reader.end()
            self._reader.start_all()

    def ready(self, vertices: Array) -> ReadyRows:
        """Wait for the rows of ``vertices``, whose slots stay in use until ``served``.

        An array other than the next step's belongs to a profiling run: its rows are read at once.
        """
        with self._planning:
            step = self._next(vertices)
        start = time.perf_counter()
        if step is None:
            rows = self.source.profile_rows(vertices)
            slots = np.arange(len(vertices), dtype=np.int32)
        else:
            rows, slots = self._reader.buffer.rows, step.batch.slots
            self.source.finish(step.ticket)
        return ReadyRows(
            rows=rows,
            slots=slots,
            num_missing=None if step is None else len(step.batch.missing),
            waited_s=time.perf_counter() - start,
            reads=self.source.take_reads(),
        )

    def served(self, ready: ReadyRows) -> None:
        """Free the slots of the step whose rows were ``ready``, and start reads of later steps."""
        if ready.num_missing is None:
            return
        with self._planning:
            self._reader.served()
            self._reader.start_all()

    def close(self) -> None:
        """Wait for pending reads, and release the backing store."""
        self._reader.close()

    def _next(self, vertices: Array) -> BatchInFlight | None:
        """Return the oldest started step, or start one. None: its array is not ``vertices``."""
        in_flight = self._reader.in_flight
        if not in_flight:
            # No slots were free before the previous step was served, or the window is not full.
            self._reader.start(vertices)
        if not in_flight or in_flight[0].batch.vertices is not vertices:
            return None
        return in_flight[0]
