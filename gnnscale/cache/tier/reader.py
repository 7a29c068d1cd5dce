"""Batches of a tier, planned in their order, whose missing rows are read ahead of their use."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from gnnscale.artifact.arrays import row_slices
from gnnscale.cache.tier.planner import PlannedBatch, TierPlanner
from gnnscale.cache.tier.pool import RowPool
from gnnscale.core import Array
from gnnscale.feature.source import BatchSource, RowSource

#: About so many bytes of rows are asked for at once if no step waits for them.
_READ_BYTES = 64 << 20


@dataclass(frozen=True, kw_only=True)
class BegunBatch:
    """A batch whose missing rows are on their way."""

    batch: PlannedBatch
    ticket: int  #: of the source


class BatchReader:
    """Plans batches and reads their rows from a source into a pool; one caller at a time."""

    def __init__(
        self, source: BatchSource, planner: TierPlanner, pool: RowPool, *, ahead: int
    ) -> None:
        """Read rows of ``source`` into ``pool`` as ``planner`` says.

        Args:
            ahead: batches whose rows may be on their way, or in use, at once.
        """
        self.source = source
        self.pool = pool
        self.begun: deque[BegunBatch] = deque()  #: batches that are not served yet
        self._planner = planner
        self._ahead = ahead
        pool.touch(planner.num_usual_slots)

    def fill(self, rows: Array, source: RowSource) -> None:
        """Read ``rows``, ``[k]`` vertices of ``source``, into the first slots, for good."""
        read_rows(source, rows, self.pool.rows[self._planner.num_fixed :])
        source.take_reads()
        self._planner.fill(len(rows))

    def expect(self, vertices: Array | None) -> None:
        """Append the rows of the next batch, ``[n]`` distinct; None if it reads nothing."""
        self._planner.expect(vertices)

    def end(self) -> None:
        """Say that no batch follows: the last ones are read ahead as those before them."""
        self._planner.end()

    def begin_all(self) -> list[BegunBatch]:
        """Plan the batches whose rows there is room for, and begin to read what they miss."""
        before = len(self.begun)
        while len(self.begun) < self._ahead and self.begin():
            pass
        return [self.begun[each] for each in range(before, len(self.begun))]

    def begin(self, vertices: Array | None = None) -> bool:
        """Plan a batch and begin to read what it misses; False if there is no room, or no batch.

        Args:
            vertices: begin this very batch, even if the batches after it are not known.
        """
        batch = self._planner.plan(vertices)
        for _ in range(self._planner.take_empty()):
            self.source.skip()
        if batch is None:
            return False
        missing = batch.missing
        slots = batch.slots[missing]
        ticket = self.source.start(batch.vertices[missing], self.pool.rows, slots)
        self.begun.append(BegunBatch(batch=batch, ticket=ticket))
        return True

    def served(self) -> None:
        """Give back the slots that the oldest batch leaves."""
        self._planner.served(self.begun.popleft().batch)

    def close(self) -> None:
        """Wait for reads that were begun, and release the source."""
        self.source.close()
        self.pool.close()


def read_rows(source: RowSource, vertices: Array, rows: Array) -> None:
    """Read the row of ``vertices[i]`` into ``rows[i]`` now, as it is stored."""
    width = source.width * source.dtype.itemsize
    for part in row_slices(len(vertices), width, _READ_BYTES):
        slots = np.arange(part.start, part.stop, dtype=np.int32)
        source.finish(source.start(vertices[part], rows, slots))
