"""Features of which host memory holds a part: the store over a tier."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from gnnscale import ops
from gnnscale.artifact.arrays import row_slices
from gnnscale.cache.tier.planner import PlannedBatch, TierPlanner
from gnnscale.cache.tier.pool import MappedRows, RowPool
from gnnscale.core import Access, Array, Int32Array, Traffic
from gnnscale.feature import Aggregation, FeatureStore
from gnnscale.feature.source import RowSource
from gnnscale.feature.store import write_aggregated
from gnnscale.sampler import Block

#: About so many bytes of rows are asked for at once if no step waits for them.
_READ_BYTES = 64 << 20


@dataclass(kw_only=True)
class _Begun:
    """A batch whose missing rows are on their way."""

    batch: PlannedBatch
    ticket: int


@dataclass(frozen=True, kw_only=True)
class ReadyRows:
    """Rows that can be read now."""

    rows: Array  #: a matrix that has them
    slots: Int32Array  #: ``[n]`` the place of each in it
    batch: PlannedBatch | None  #: the step that they are of; None of an unexpected gather
    waited_s: float  #: seconds that it took until they were there


class TieredFeatures(FeatureStore):
    """Rows of a source, some of which host memory holds.

    The steps of a run are expected in the order in which they are gathered, each at least
    ``lead`` steps ahead. What a step misses is read while steps before it are trained. Any other
    gather is a rehearsal's: it gets what the source has for that at once, and changes nothing.

    One thread may expect while another gathers.
    """

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
        self.lead = window + ahead  #: steps that are to be expected ahead of a gather
        self._source = source
        self._planner = planner
        self._ahead = ahead
        self._pool = RowPool(planner.num_slots, source.width, source.dtype, file=file)
        self._pool.touch(planner.num_usual_slots)
        self._begun: deque[_Begun] = deque()
        self._planning = threading.Lock()

    @property
    def num_rows(self) -> int:
        """Number of rows of the source."""
        return self._source.num_rows

    @property
    def width(self) -> int:
        """Features of a row."""
        return self._source.num_features

    @property
    def row_bytes(self) -> int:
        """Bytes of a row as it is stored."""
        return self._source.width * self._source.dtype.itemsize

    @property
    def stored_width(self) -> int:
        """Elements of a row as it is stored."""
        return self._source.width

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy type in which rows are stored."""
        return self._source.dtype

    @property
    def dtype_name(self) -> str:
        """The name of the element type."""
        return self._source.dtype_name

    @property
    def fixed_rows(self) -> Array:
        """``[num_fixed, stored width]`` the slots that the file's rows begin."""
        rows: Array = self._pool.rows[: self._planner.num_fixed]
        return rows

    def fill(self, rows: Array) -> None:
        """Read ``rows``, ``[k]`` vertices, into the first slots, for good."""
        self.read(rows, self._pool.rows[self._planner.num_fixed :])
        self._planner.fill(len(rows))

    def read(self, vertices: Array, rows: Array) -> None:
        """Read the row of ``vertices[i]`` into ``rows[i]`` now, as it is stored.

        What it reads counts as a step's if reads of one are on their way, and is not counted
        otherwise.
        """
        for part in row_slices(len(vertices), self.row_bytes, _READ_BYTES):
            slots = np.arange(part.start, part.stop, dtype=np.int32)
            self._source.finish(self._source.start(vertices[part], rows, slots))
        with self._planning:
            if not self._begun:
                self._source.take_reads()

    def expect(self, vertices: Array | None) -> None:
        """Append the rows of the next step, ``[n]`` distinct; None if it reads nothing.

        ``gather`` and ``aggregate`` recognise the step by this very array.
        """
        with self._planning:
            self._planner.expect(vertices)
            self._begin_reads()

    def end(self) -> None:
        """Say that no further step follows: the last ones are read ahead as those before them."""
        with self._planning:
            self._planner.end()
            self._begin_reads()

    def gather(
        self, vertices: Array, *, dtype: torch.dtype, num_threads: int
    ) -> tuple[torch.Tensor, Traffic]:
        """Return the rows of ``vertices``, ``[n, width]``."""
        out = ops.empty((len(vertices), self.width), dtype)
        ready = self.ready(vertices)
        matrix = (ready.rows, self._source.dtype_name)
        ops.gather(matrix, ready.slots, out=out, num_threads=num_threads)
        return out, self.served(ready)

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
        ready = self.ready(vertices)
        # Rows are found by their slots, and not as vertices.
        local = replace(block, edge_vertices=None)
        matrix = (ready.rows, self._source.dtype_name)
        ids = ready.slots
        write_aggregated(matrix, local, aggregation, out=out, ids=ids, num_threads=num_threads)
        return out, self.served(ready)

    def close(self) -> None:
        """Wait for reads that were begun, and release the source."""
        self._source.close()
        self._pool.close()

    def _begin_reads(self) -> None:
        """Plan the steps whose rows there is room for, and begin to read what they miss."""
        while len(self._begun) < self._ahead and self._begin():
            pass

    def _begin(self, vertices: Array | None = None) -> bool:
        """Plan a step and begin to read what it misses; False if there is no room, or no step."""
        batch = self._planner.plan(vertices)
        for _ in range(self._planner.take_empty()):
            self._source.skip()
        if batch is None:
            return False
        missing = batch.missing
        ticket = self._source.start(batch.vertices[missing], self._pool.rows, batch.slots[missing])
        self._begun.append(_Begun(batch=batch, ticket=ticket))
        return True

    def ready(self, vertices: Array) -> ReadyRows:
        """Wait for the rows of ``vertices``, which ``served`` is to give back."""
        with self._planning:
            begun = self._next(vertices)
        start = time.perf_counter()
        if begun is None:
            rows, batch = self._source.rehearse(vertices), None
            slots = np.arange(len(vertices), dtype=np.int32)
        else:
            rows, batch = self._pool.rows, begun.batch
            slots = batch.slots
            self._source.finish(begun.ticket)
        waited_s = time.perf_counter() - start
        return ReadyRows(rows=rows, slots=slots, batch=batch, waited_s=waited_s)

    def _next(self, vertices: Array) -> _Begun | None:
        """Return the next step if it is the one of ``vertices``, which is planned by now."""
        if not self._begun:
            # There was no room until the step before was served, or steps follow unexpected.
            self._begin(vertices)
        if not self._begun or self._begun[0].batch.vertices is not vertices:
            return None
        return self._begun[0]

    def served(self, ready: ReadyRows) -> Traffic:
        """Give back the slots that a step leaves, and return what it has read."""
        num_rows = num_missing = len(ready.slots)
        reads = self._source.take_reads()
        if ready.batch is not None:
            num_missing = len(ready.batch.missing)
            with self._planning:
                self._begun.popleft()
                self._planner.served(ready.batch)
                self._begin_reads()
        tier = Access(
            hits=num_rows - num_missing,
            misses=num_missing,
            link_bytes=reads.num_bytes,
            link_requests=reads.num_requests,
            waited_us=round(1e6 * ready.waited_s),
        )
        rows = Access(host_bytes=num_rows * self.row_bytes)
        return Traffic(rows=rows, tier=tier, disk=reads.disk)
