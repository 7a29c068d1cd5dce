"""Which rows of the coming batches a tier reads, when, and in place of which."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from gnnscale.cache.belady import CacheUpdate
from gnnscale.core import Array, Int32Array, IntArray

#: A staging area that is too small for a batch may grow to so many times its size.
_OVERFLOW = 4


class Policy(Protocol):
    """Which rows stay in memory, in numbered places; ``Belady`` is one, ``StaticRows`` another."""

    @property
    def num_expected(self) -> int:
        """Batches that are expected and not served."""
        ...

    def expect(self, vertices: Array) -> None:
        """Append the next batch."""
        ...

    def look_up(self) -> Int32Array:
        """Return ``[n]`` the place of each row of the oldest batch expected, -1 for none."""
        ...

    def advance(self) -> CacheUpdate:
        """Serve the oldest batch expected, and replace rows."""
        ...


@dataclass(frozen=True, kw_only=True)
class PlannedBatch:
    """The slots of a batch's rows in the pool, and what is to be read for it."""

    vertices: Array  #: ``[n]`` the rows that it needs, the very array that was expected
    slots: Int32Array  #: ``[n]`` the slot of each row in the pool
    missing: IntArray  #: ``[m]`` positions of the batch whose rows are read from the source
    leaving: Int32Array  #: slots that nothing needs once the batch has been served

    @property
    def num_hits(self) -> int:
        """Rows that are in memory, or on their way for a batch before."""
        return len(self.slots) - len(self.missing)


class TierPlanner:
    """Plans the batches of a run in their order: a pure function of the batches and the policy.

    All rows lie in one pool of slots. A row that is missing gets a free slot, into which it is
    read; if the policy keeps it, it stays there, so no row is ever copied. A row that leaves gives
    its slot back once the batches that were planned before have been served.

    One caller at a time.
    """

    def __init__(
        self, policy: Policy, *, num_kept: int, num_staged: int, window: int, num_fixed: int = 0
    ) -> None:
        """Begin with rows of the policy's first places in the first slots; ``Belady`` has no such.

        Args:
            policy: decides which rows stay.
            num_kept: rows that the policy keeps at most.
            num_staged: slots beside them, for rows that are read ahead or do not stay.
            window: batches after the one that is planned that the policy must know.
            num_fixed: slots before all others, whose rows are there for good. The policy's place
                of such a row is ``num_kept`` more than its slot.
        """
        self.num_fixed = num_fixed
        self._policy = policy
        self._window = window
        self._ended = False
        self._num_empty = 0
        #: Batches that are yet to be planned, and those beyond the window, unknown to the policy.
        self._known: deque[Array | None] = deque()
        self._later: deque[Array | None] = deque()
        #: The slot of each place of the policy, -1 for none. The last entry is that of no place.
        self._slot_of = np.full(num_kept + num_fixed + 1, -1, np.int32)
        self._slot_of[num_kept:-1] = np.arange(num_fixed, dtype=np.int32)
        #: Free slots, a stack: those that were used before are taken first.
        others = np.arange(num_kept + _OVERFLOW * num_staged, dtype=np.int32)
        self._free = num_fixed + others[::-1]
        self._num_free = len(self._free)
        self._num_hidden = (_OVERFLOW - 1) * num_staged
        self._in_flight = 0

    @property
    def num_slots(self) -> int:
        """Slots of the pool. Those beyond kept and staged rows are used only in need."""
        return self.num_fixed + len(self._free)

    @property
    def num_usual_slots(self) -> int:
        """Slots of kept and staged rows."""
        return self.num_slots - self._num_hidden

    def fill(self, num_rows: int) -> None:
        """Say that the policy's first places have their rows in the first slots."""
        self._slot_of[:num_rows] = self.num_fixed + np.arange(num_rows, dtype=np.int32)
        self._num_free -= num_rows

    def expect(self, vertices: Array | None) -> None:
        """Append the next batch, the distinct rows ``[n]`` that it needs; None if it reads none."""
        self._later.append(vertices)

    def end(self) -> None:
        """Say that no batch follows those that are expected: the last ones need no window."""
        self._ended = True

    def plan(self, vertices: Array | None = None) -> PlannedBatch | None:
        """Plan the next batch that reads rows.

        Args:
            vertices: plan this very batch, even if the batches after it are not known.

        Returns:
            None if the next batch is another, if too few batches are expected, or if no slots are
            free until a batch that was planned has been served.

        Raises:
            MemoryError: the batch misses more rows than the pool has slots for.
        """
        self._look_ahead()
        while self._known and self._known[0] is None:
            self._known.popleft()
            self._num_empty += 1
            self._look_ahead()
        if not self._known:
            return None
        if vertices is None:
            if len(self._known) <= self._window and not self._ended:
                return None
        elif self._known[0] is not vertices:
            return None
        found = self._policy.look_up()
        is_missing = found < 0
        missing = np.flatnonzero(is_missing)
        if not self._has_room(len(missing)):
            return None
        vertices = self._known.popleft()
        assert vertices is not None
        new = self._take(len(missing))
        slots = self._slot_of[found]
        slots[missing] = new
        leaving = self._replace(self._policy.advance(), slots, missing)
        self._in_flight += 1
        return PlannedBatch(vertices=vertices, slots=slots, missing=missing, leaving=leaving)

    def take_empty(self) -> int:
        """Return how many batches that read nothing were before the last plan, since last asked."""
        found, self._num_empty = self._num_empty, 0
        return found

    def served(self, batch: PlannedBatch) -> None:
        """Take back the slots that ``batch`` leaves; batches are served in the order of plans."""
        count = len(batch.leaving)
        self._free[self._num_free : self._num_free + count] = batch.leaving
        self._num_free += count
        self._in_flight -= 1

    def _look_ahead(self) -> None:
        """Pass the next batch, and the window after it, to the policy."""
        while self._later and len(self._known) <= self._window:
            vertices = self._later.popleft()
            if vertices is not None:
                self._policy.expect(vertices)
            self._known.append(vertices)

    def _has_room(self, count: int) -> bool:
        if count <= self._num_free - self._num_hidden:
            return True
        if self._in_flight:
            return False
        if count > self._num_free:
            raise MemoryError(
                f"a mini-batch misses {count:,} rows, there is memory for {self._num_free:,} of "
                "them; features.memory_bytes gives more"
            )
        return True

    def _take(self, count: int) -> Int32Array:
        self._num_free -= count
        slots: Int32Array = self._free[self._num_free : self._num_free + count][::-1].copy()
        return slots

    def _replace(self, replaced: CacheUpdate, slots: Int32Array, missing: IntArray) -> Int32Array:
        """Move rows in, and return the slots of those that they replace, or that do not stay."""
        before = self._slot_of[replaced.slots]
        self._slot_of[replaced.slots] = slots[replaced.positions]
        passes = np.zeros(len(slots), np.bool_)
        passes[missing] = True
        passes[replaced.positions] = False
        return np.concatenate([before[before >= 0], slots[passes]])
