"""Replacement policies of a tiered store, and the filter of rows that a device cache has."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gnnscale.cache import CachePlan
from gnnscale.cache.belady import Belady, CacheUpdate, HitCounts
from gnnscale.cache.hotness.degree import out_degree
from gnnscale.cache.plan import LookAhead
from gnnscale.core import Array, ConfigError, Int32Array, IntArray
from gnnscale.distributed.process_group import Group
from gnnscale.features.tiered.planner import Policy, missing_rows
from gnnscale.graph import Graph

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
        """Number of expected batches that are not served."""
        return len(self._expected)

    def expect(self, vertices: Array) -> None:
        """Append the next batch, ``[n]`` vertices."""
        self._expected.append(vertices)

    def look_up(self) -> Int32Array:
        """Return ``[n]`` the slot of each row of the oldest expected batch, -1 if missing."""
        return self._slots[self._expected[0]]

    def advance(self) -> CacheUpdate:
        """Serve the oldest expected batch, and return its hits; no row is replaced."""
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
    """Cache of this worker's device, or of its clique, as host memory below it sees the cache."""

    num_vertices: int
    #: vertices of each clique member's rows, in slot order; empty for a dynamic cache
    kept: Sequence[Array]
    look_ahead: LookAhead | None  #: size and window of a dynamic cache. None: the cache is static
    priority: Int32Array | None  #: ``[num_vertices]`` tie-break order of a dynamic cache

    @classmethod
    def of(cls, plan: CachePlan | None, graph: Graph, position: int) -> DeviceCacheFilter | None:
        """Return the cache of the device at ``position``. None: the device has no cache."""
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
        """Number of steps that the cache's policy looks ahead."""
        return 0 if self.look_ahead is None else self.look_ahead.window

    def step_bytes(self, num_rows: int) -> int:
        """Return the bytes of the plan of a step that reads ``num_rows``."""
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
        """Return ``priority`` for host memory, with -1 for rows that the device has.

        For a dynamic cache, the rows of highest priority stand in: they are there most of the time.
        """
        host_priority: Int32Array = priority.copy()
        for rows in self.kept:
            host_priority[rows] = -1
        if self.look_ahead is not None:
            highest = np.argsort(-priority, kind="stable")[: self.look_ahead.num_rows]
            host_priority[highest] = -1
        return host_priority

    def lacks(self, batches: Iterable[Array]) -> list[Array]:
        """Return the rows that the cache misses in each of a run's first ``batches``."""
        return missing_rows(self.policy(), list(batches), self.window)


def emulated_cache_bytes(plan: CachePlan | None, graph: Graph, group: Group) -> int:
    """Return the bytes of host memory of the caches of this machine's emulated devices."""
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
    """Replacement policy that caches remote rows only; local rows have slots after the cache's."""

    def __init__(
        self, policy: Policy, local_indices: Callable[[Array], Array], *, num_kept: int
    ) -> None:
        """Wrap ``policy`` of ``num_kept`` remote rows; remote rows have local index -1."""
        self._policy = policy
        self._local_indices = local_indices
        self._num_kept = num_kept
        #: The slots of each expected batch, set for local rows, and the positions of remote rows.
        self._expected: deque[tuple[Int32Array, IntArray]] = deque()

    @property
    def num_expected(self) -> int:
        """Number of expected batches that are not served."""
        return len(self._expected)

    def expect(self, vertices: Array) -> None:
        """Append the next batch, ``[n]`` vertices."""
        indices = self._local_indices(vertices)
        remote = np.flatnonzero(indices < 0)
        self._policy.expect(vertices[remote])
        self._expected.append(((indices + self._num_kept).astype(np.int32), remote))

    def look_up(self) -> Int32Array:
        """Return ``[n]`` the slot of each row of the oldest expected batch, -1 if missing."""
        slots, remote = self._expected[0]
        slots[remote] = self._policy.look_up()
        return slots

    def advance(self) -> CacheUpdate:
        """Serve the oldest expected batch, and return its update; counts are of remote rows."""
        _, remote = self._expected.popleft()
        update = self._policy.advance()
        return replace(update, positions=remote[update.positions].astype(np.int32))
