"""Replacement in a tiered store: the planner of slots, reads and evictions, and its policies.

Rows that a device cache has are filtered out.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Protocol

import numpy as np

from gnnscale.cache import Belady, CachePlan, CacheUpdate, HitCounts, LookAhead
from gnnscale.cache.hotness.degree import out_degree
from gnnscale.core import Array, ConfigError, Int32Array, IntArray
from gnnscale.distributed.process_group import Group
from gnnscale.graph import Graph

#: Largest growth of a staging area that is too small for a batch.
_OVERFLOW = 4


class Policy(Protocol):
    """Replacement policy of rows in numbered cache slots, e.g. ``Belady``."""

    @property
    def num_expected(self) -> int:
        """Number of batches passed to ``expect`` that ``advance`` has not removed."""

    def expect(self, vertices: Array) -> None:
        """Append ``vertices`` ``[n]``, the next batch, to the expected batches."""

    def look_up(self) -> Int32Array:
        """Return ``[n]`` the cache slot of each row of the oldest expected batch, -1 if missing."""

    def advance(self) -> CacheUpdate:
        """Remove the oldest expected batch; return its hits, and its rows to copy into slots."""


def missing_rows(policy: Policy, batches: Sequence[Array], window: int) -> list[Array]:
    """Return the vertices of each of ``batches`` that miss in the cache of a new ``policy``.

    While it serves a batch, the policy knows the next ``window`` batches.
    """
    following = iter(batches)
    for batch in islice(following, window):
        policy.expect(batch)
    missing = []
    for batch in batches:
        next_batch = next(following, None)
        if next_batch is not None:
            policy.expect(next_batch)
        missing.append(batch[policy.look_up() < 0])
        policy.advance()
    return missing


@dataclass(frozen=True, kw_only=True)
class PlannedBatch:
    """Slots of a batch's rows in the buffer, and the rows to read."""

    vertices: Array  #: ``[n]`` the expected array, recognized by identity
    slots: Int32Array  #: ``[n]`` slot of each row in the buffer
    missing: IntArray  #: ``[m]`` positions in the batch of the rows to read from the backing store
    freed: Int32Array  #: slots that are free once the batch has been served

    @property
    def num_hits(self) -> int:
        """Number of rows that are in memory, or in flight for an earlier batch."""
        return len(self.slots) - len(self.missing)


class TierPlanner:
    """Planner of the batches of a run in order: a pure function of the batches and the policy.

    All rows are in one buffer of slots. A missing row gets a free slot and is read into it. If the
    policy caches the row, it stays in that slot, so rows are never copied. The slot of an evicted
    row is free once all batches planned before the eviction have been served. Not thread-safe.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        num_kept: int,
        num_staged: int,
        window: int,
        num_fixed: int = 0,
        num_overflow: int = 0,
    ) -> None:
        """Start with an empty cache of ``num_kept`` rows, the capacity of the policy.

        Args:
            num_staged: additional slots, for rows that are prefetched or not cached.
            window: batches after the planned batch that the policy must know.
            num_fixed: first slots of the buffer, whose rows never change. The policy's slot of a
                fixed row is ``num_kept`` plus its slot in the buffer.
            num_overflow: least number of overflow slots, whose memory only large batches take.
        """
        self.num_fixed = num_fixed
        self._policy = policy
        self._window = window
        self._ended = False
        self._num_empty = 0
        #: Batches that the policy knows, and later batches that it does not know yet.
        self._expected: deque[Array | None] = deque()
        self._later: deque[Array | None] = deque()
        #: Buffer slot of each cache slot, -1 if empty. The last entry stands for missing rows.
        self._slot_of = np.full(num_kept + num_fixed + 1, -1, np.int32)
        self._slot_of[num_kept:-1] = np.arange(num_fixed, dtype=np.int32)
        #: Stack of free slots: recently used slots are on top.
        self._num_overflow = max((_OVERFLOW - 1) * num_staged, num_overflow)
        slots = np.arange(num_kept + num_staged + self._num_overflow, dtype=np.int32)
        self._free = num_fixed + slots[::-1]
        self._num_free = len(self._free)
        self._in_flight = 0

    @property
    def num_slots(self) -> int:
        """Number of slots of the buffer, with overflow slots for batches too large to stage."""
        return self.num_fixed + len(self._free)

    @property
    def num_usual_slots(self) -> int:
        """Number of slots of the buffer without overflow slots."""
        return self.num_slots - self._num_overflow

    def fill(self, num_rows: int) -> None:
        """Take the first buffer slots after fixed slots as cache slots 0 to ``num_rows`` - 1."""
        self._slot_of[:num_rows] = self.num_fixed + np.arange(num_rows, dtype=np.int32)
        self._num_free -= num_rows

    def expect(self, vertices: Array | None) -> None:
        """Append the next batch's distinct ``vertices`` ``[n]``. None: the batch reads no rows."""
        self._later.append(vertices)

    def end(self) -> None:
        """Announce that no batch follows: the last ones need no full look-ahead window."""
        self._ended = True

    def plan(self, vertices: Array | None = None) -> PlannedBatch | None:
        """Plan the next batch that reads rows: assign the slots, and choose the rows to read.

        The batch waits for a full window if ``vertices`` is None; otherwise it must have this
        array. None: the next batch has another array, too few batches are expected, or no slots are
        free until an earlier batch has been served. MemoryError: the batch misses more rows than
        there are slots.
        """
        self._look_ahead()
        while self._expected and self._expected[0] is None:
            self._expected.popleft()
            self._num_empty += 1
            self._look_ahead()
        if not self._expected:
            return None
        if vertices is None:
            if len(self._expected) <= self._window and not self._ended:
                return None
        elif self._expected[0] is not vertices:
            return None
        cache_slots = self._policy.look_up()
        is_missing = cache_slots < 0
        missing = np.flatnonzero(is_missing)
        if not self._has_slots(len(missing)):
            return None
        vertices = self._expected.popleft()
        assert vertices is not None
        slots = self._slot_of[cache_slots]
        slots[missing] = self._pop_free(len(missing))
        freed = self._replace(self._policy.advance(), slots, missing)
        self._in_flight += 1
        return PlannedBatch(vertices=vertices, slots=slots, missing=missing, freed=freed)

    def take_empty(self) -> int:
        """Return the number of batches without rows that ``plan`` passed since the last call."""
        num_empty, self._num_empty = self._num_empty, 0
        return num_empty

    def served(self, batch: PlannedBatch) -> None:
        """Free the slots that ``batch``, now used, releases; batches are served in plan order."""
        count = len(batch.freed)
        self._free[self._num_free : self._num_free + count] = batch.freed
        self._num_free += count
        self._in_flight -= 1

    def _look_ahead(self) -> None:
        """Pass the next batch, and the window after it, to the policy."""
        while self._later and len(self._expected) <= self._window:
            vertices = self._later.popleft()
            if vertices is not None:
                self._policy.expect(vertices)
            self._expected.append(vertices)

    def _has_slots(self, count: int) -> bool:
        if count <= self._num_free - self._num_overflow:
            return True
        if self._in_flight:
            return False
        if count > self._num_free:
            raise MemoryError(
                f"features.memory_bytes: expected memory for the {count:,} rows that a mini-batch "
                f"misses, got memory for {self._num_free:,}; a larger value gives more"
            )
        return True

    def _pop_free(self, count: int) -> Int32Array:
        self._num_free -= count
        slots: Int32Array = self._free[self._num_free : self._num_free + count][::-1].copy()
        return slots

    def _replace(self, update: CacheUpdate, slots: Int32Array, missing: IntArray) -> Int32Array:
        """Update the cache's slots by ``update``; return the buffer slots that this frees.

        These are the slots of evicted rows, and of missing rows that are not cached. ``slots`` are
        those of the batch's rows; ``missing`` are positions in the batch.
        """
        evicted = self._slot_of[update.slots]
        self._slot_of[update.slots] = slots[update.positions]
        is_uncached = np.zeros(len(slots), np.bool_)
        is_uncached[missing] = True
        is_uncached[update.positions] = False
        return np.concatenate([evicted[evicted >= 0], slots[is_uncached]])


_NO_ROWS = np.zeros(0, np.int32)


class StaticPolicy:
    """Replacement policy of a static cache: it never replaces rows."""

    def __init__(self, num_vertices: int, rows: Array) -> None:
        """Cache ``rows``, ``[k]`` distinct vertices; ``rows[i]`` has slot ``i``."""
        self._slots = np.full(num_vertices, -1, np.int32)
        self._slots[rows] = np.arange(len(rows), dtype=np.int32)
        self._expected: deque[Array] = deque()

    @property
    def num_expected(self) -> int:
        """Number of batches passed to ``expect`` that ``advance`` has not removed."""
        return len(self._expected)

    def expect(self, vertices: Array) -> None:
        """Append the next batch, ``[n]`` vertices."""
        self._expected.append(vertices)

    def look_up(self) -> Int32Array:
        """Return ``[n]`` the slot of each row of the oldest expected batch, -1 if missing."""
        return self._slots[self._expected[0]]

    def advance(self) -> CacheUpdate:
        """Remove the oldest expected batch, and return its hits and misses; no row is replaced."""
        slots = self._slots[self._expected.popleft()]
        hits = int((slots >= 0).sum())
        counts = HitCounts(num_hits=hits, num_misses=len(slots) - hits)
        return CacheUpdate(counts=counts, positions=_NO_ROWS, slots=_NO_ROWS)


#: Bytes of a policy per vertex: cache slot and next use.
_POLICY_BYTES = 8

#: Bytes of a step's plan per row: slot; position and vertex if missing.
_STEP_BYTES = 20


@dataclass(frozen=True, kw_only=True)
class DeviceCacheFilter:
    """Model of a device's cache, or its clique's, that predicts the rows to read from the host."""

    num_vertices: int
    #: vertices of each clique member's rows, in slot order; empty for a dynamic cache
    kept: Sequence[Array]
    look_ahead: LookAhead | None  #: size and window of a dynamic cache. None: the cache is static
    priority: Int32Array | None  #: ``[num_vertices]`` tie-break order of a dynamic cache

    @classmethod
    def of(cls, plan: CachePlan | None, graph: Graph, position: int) -> "DeviceCacheFilter | None":
        """Return the model of device ``position`` of ``plan``. None: it has no cache of rows."""
        if plan is None or not plan.has(position) or plan.of(position).host_aggregates:
            return None
        look_ahead = plan.of(position).look_ahead
        clique = plan.clique_of(position) if look_ahead is None else ()
        return cls(
            num_vertices=graph.num_vertices,
            kept=[np.sort(plan.of(member).features) for member in clique],
            look_ahead=look_ahead,
            priority=None if look_ahead is None else out_degree(graph),
        )

    @property
    def window(self) -> int:
        """Number of steps that the cache's policy looks ahead; 0 for a static cache."""
        return 0 if self.look_ahead is None else self.look_ahead.window

    def step_bytes(self, num_rows: int) -> int:
        """Return the bytes of the cache's plan for a step that reads ``num_rows`` rows."""
        return _STEP_BYTES * num_rows

    def policy(self) -> Policy:
        """Return the cache's policy in its state before the first step."""
        if self.look_ahead is None:
            return StaticPolicy(self.num_vertices, np.concatenate(self.kept))
        assert self.priority is not None
        return Belady(
            self.num_vertices,
            self.look_ahead.num_rows,
            window=self.window,
            priority=self.priority,
            match=self.look_ahead.match,
            num_threads=1,
        )

    def host_priority(self, priority: Int32Array) -> Int32Array:
        """Return a copy of ``priority`` ``[num_vertices]``, -1 for rows that the device caches.

        A dynamic cache counts as its rows of highest priority, which it has most of the time.
        """
        host_priority: Int32Array = priority.copy()
        for rows in self.kept:
            host_priority[rows] = -1
        if self.look_ahead is not None:
            highest = np.argsort(-priority, kind="stable")[: self.look_ahead.num_rows]
            host_priority[highest] = -1
        return host_priority

    def lacks(self, batches: Iterable[Array]) -> list[Array]:
        """Return the vertices that the cache misses in each of a run's first ``batches``."""
        return missing_rows(self.policy(), list(batches), self.window)


def emulated_cache_bytes(plan: CachePlan | None, graph: Graph, group: Group) -> int:
    """Return the host bytes of the caches of this machine's emulated devices, policies included."""
    if plan is None:
        return 0
    first = group.rank - group.local_rank
    local = [cache for cache in plan.devices if 0 <= cache.device - first < group.local_size]
    rows = sum(cache.feature_bytes + 2 * cache.matched_bytes for cache in local)
    return rows + len(local) * _POLICY_BYTES * graph.num_vertices


def check_dynamic_caches(plan: CachePlan | None) -> None:
    """Raise ConfigError if ``plan`` has a static cache, which sharded features cannot fill."""
    if plan is None:
        return
    for cache in plan.devices:
        if cache.look_ahead is None and not cache.host_aggregates:
            raise ConfigError(
                f"features=shared: expected a dynamic cache, got a static cache of {cache.name}, "
                "whose rows other machines have; cache_planner=belady, belady_match and match "
                "fill caches from mini-batches"
            )


class RemoteOnlyPolicy:
    """Replacement policy that caches remote rows; local rows have fixed slots after the cache."""

    def __init__(
        self, policy: Policy, local_indices: Callable[[Array], Array], *, num_kept: int
    ) -> None:
        """Wrap ``policy``, a cache of ``num_kept`` remote rows.

        ``local_indices`` returns each vertex's row in the local shard, -1 for remote vertices.
        """
        self._policy = policy
        self._local_indices = local_indices
        self._num_kept = num_kept
        #: The slots of each expected batch, set for local rows, and the positions of remote rows.
        self._expected: deque[tuple[Int32Array, IntArray]] = deque()

    @property
    def num_expected(self) -> int:
        """Number of batches passed to ``expect`` that ``advance`` has not removed."""
        return len(self._expected)

    def expect(self, vertices: Array) -> None:
        """Append the next batch, ``[n]`` vertices."""
        indices = self._local_indices(vertices)
        remote = np.flatnonzero(indices < 0)
        self._policy.expect(vertices[remote])
        self._expected.append(((indices + self._num_kept).astype(np.int32), remote))

    def look_up(self) -> Int32Array:
        """Return ``[n]`` slots of the oldest batch: ``num_kept`` + index if local; -1: missing."""
        slots, remote = self._expected[0]
        slots[remote] = self._policy.look_up()
        return slots

    def advance(self) -> CacheUpdate:
        """Remove the oldest expected batch; return its cache update, which counts remote rows."""
        _, remote = self._expected.popleft()
        update = self._policy.advance()
        return replace(update, positions=remote[update.positions].astype(np.int32))
