"""A device's cache, as host memory below it sees it: which rows of a mini-batch it lacks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from gnnscale.cache import CachePlan
from gnnscale.cache.belady import Belady, CacheUpdate, HitCounts
from gnnscale.cache.hotness.degree import out_degree
from gnnscale.cache.plan import LookAhead
from gnnscale.core import Array, ConfigError, Int32Array, IntArray
from gnnscale.distributed.process_group import Group
from gnnscale.features.tiered.planner import Policy
from gnnscale.graph import Graph

_NOTHING = np.zeros(0, np.int32)


class StaticPolicy:
    """Keeps the same rows from the first batch to the last."""

    def __init__(self, num_vertices: int, rows: Array) -> None:
        """Keep ``rows``, ``[k]`` distinct vertices; row ``rows[i]`` has place ``i``."""
        self._places = np.full(num_vertices, -1, np.int32)
        self._places[rows] = np.arange(len(rows), dtype=np.int32)
        self._expected: deque[Array] = deque()

    @property
    def num_expected(self) -> int:
        """Batches that are expected and not served."""
        return len(self._expected)

    def expect(self, vertices: Array) -> None:
        """Append the next batch, ``[n]`` vertices."""
        self._expected.append(vertices)

    def look_up(self) -> Int32Array:
        """Return ``[n]`` the place of each row of the oldest batch expected, -1 for none."""
        return self._places[self._expected[0]]

    def advance(self) -> CacheUpdate:
        """Serve the oldest batch expected; nothing is replaced."""
        places = self._places[self._expected.popleft()]
        hits = int((places >= 0).sum())
        counts = HitCounts(num_hits=hits, num_misses=len(places) - hits)
        return CacheUpdate(counts=counts, positions=_NOTHING, slots=_NOTHING)


#: Bytes of a policy for each vertex: the place of its row, and its next use.
_POLICY_BYTES = 8

#: Bytes of what is decided of each row of a step: its place; its position and vertex, if it lacks.
_STEP_BYTES = 20


@dataclass(frozen=True, kw_only=True)
class DeviceCacheFilter:
    """The cache of this worker's device, or what its clique keeps."""

    num_vertices: int
    #: vertices whose rows each member of the clique keeps, in their order; none if rows follow
    kept: Sequence[Array]
    look_ahead: LookAhead | None  #: how rows follow the batches; None if they stay
    priority: Int32Array | None  #: ``[num_vertices]`` of rows that follow and are read equally soon

    @classmethod
    def of(cls, plan: CachePlan | None, graph: Graph, position: int) -> DeviceCacheFilter | None:
        """Return the cache of the device at ``position``; None if it gets rows from the host."""
        if plan is None or not plan.has(position) or plan.of(position).host_aggregates:
            return None
        ahead = plan.of(position).look_ahead
        clique = plan.clique_of(position) if ahead is None else ()
        return cls(
            num_vertices=graph.num_vertices,
            kept=[np.sort(plan.of(each).features) for each in clique],
            look_ahead=ahead,
            priority=None if ahead is None else out_degree(graph),
        )

    @property
    def window(self) -> int:
        """Steps that it looks ahead."""
        return 0 if self.look_ahead is None else self.look_ahead.window

    def step_bytes(self, num_rows: int) -> int:
        """Return the memory of what is decided of a step that reads ``num_rows``."""
        return _STEP_BYTES * num_rows

    def policy(self) -> Policy:
        """Return what decides which rows it has, before the first step."""
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

    def priority_below(self, priority: Int32Array) -> Int32Array:
        """Return the order of rows that host memory reads equally soon: last those of the device.

        Rows that stay are known. Of rows that follow, those that come first in ``priority`` are on
        the device most of the time.
        """
        below: Int32Array = priority.copy()
        for rows in self.kept:
            below[rows] = -1
        if self.look_ahead is not None:
            below[np.argsort(-priority, kind="stable")[: self.look_ahead.num_rows]] = -1
        return below

    def lacks(self, batches: Iterable[Array]) -> list[Array]:
        """Return the rows that it lacks of each of a run's first ``batches``."""
        every = list(batches)
        policy, ahead = self.policy(), iter(every)
        for each in islice(ahead, self.window):
            policy.expect(each)
        found = []
        for batch in every:
            following = next(ahead, None)
            if following is not None:
                policy.expect(following)
            found.append(batch[policy.look_up() < 0])
            policy.advance()
        return found


def held_bytes(plan: CachePlan | None, graph: Graph, group: Group) -> int:
    """Return the host memory that emulated devices of this machine take for their caches."""
    if plan is None:
        return 0
    first = group.rank - group.local_rank
    here = [each for each in plan.devices if 0 <= each.device - first < group.local_size]
    rows = sum(each.feature_bytes + 2 * each.matched_bytes for each in here)
    return rows + len(here) * _POLICY_BYTES * graph.num_vertices


def check_follows(plan: CachePlan | None) -> None:
    """Refuse caches whose rows stay above other machines, which would have to fill them.

    Raises:
        ConfigError: in every worker alike.
    """
    if plan is None:
        return
    for each in plan.devices:
        if each.look_ahead is None and not each.host_aggregates:
            raise ConfigError(
                f"features=shared: the cache of {each.name} is filled before the first step, from "
                "rows that other machines have; cache_planner=belady, belady_match and match go "
                "with it, whose rows come with mini-batches"
            )


class RemoteOnlyPolicy:
    """Asks another policy about the rows of other machines; own ones are never held a second time.

    To the planner, own rows have places after those of the policy.
    """

    def __init__(self, policy: Policy, own: Callable[[Array], Array], *, num_kept: int) -> None:
        """Wrap ``policy``.

        Args:
            own: returns of ``[n]`` vertices the number of each row among those of this machine, -1
                for rows of others.
            num_kept: rows that the policy keeps at most.
        """
        self._policy = policy
        self._own = own
        self._num_kept = num_kept
        #: The places of each batch that is expected, those of own rows for now, and the positions
        #: of other machines' rows.
        self._expected: deque[tuple[Int32Array, IntArray]] = deque()

    @property
    def num_expected(self) -> int:
        """Batches that are expected and not served."""
        return len(self._expected)

    def expect(self, vertices: Array) -> None:
        """Append the next batch, ``[n]`` vertices."""
        own = self._own(vertices)
        others = np.flatnonzero(own < 0)
        self._policy.expect(vertices[others])
        self._expected.append(((own + self._num_kept).astype(np.int32), others))

    def look_up(self) -> Int32Array:
        """Return ``[n]`` the place of each row of the oldest batch expected, -1 for none."""
        places, others = self._expected[0]
        places[others] = self._policy.look_up()
        return places

    def advance(self) -> CacheUpdate:
        """Serve the oldest batch expected; counts are of other machines' rows."""
        _, others = self._expected.popleft()
        found = self._policy.advance()
        return CacheUpdate(
            counts=found.counts,
            positions=others[found.positions].astype(np.int32),
            slots=found.slots,
        )
