"""Multi-level feature store: device memory above host memory above a slower backing store.

The levels are planned one after the other. Once the look-ahead window of the device's policy is
full, the rows that the device will have in the next step are known. Host memory expects only the
remaining rows, so the backing store reads no row that the device has.
"""

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np
import torch

from gnnscale import ops
from gnnscale.cache.belady import CacheUpdate
from gnnscale.core import Array, Int32Array, IntArray, Traffic
from gnnscale.features.base import WrappedStore
from gnnscale.features.cached import add_counts, count_by_name, row_traffic
from gnnscale.features.tiered.policies import Policy
from gnnscale.features.tiered.store import ReadyRows, TieredReader, TieredStore


@dataclass(frozen=True, kw_only=True)
class DeviceCacheRows:
    """Rows cached in the memory of a device and its peers, with the replacement policy."""

    policy: Policy  #: replacement policy: looks up rows and replaces them
    #: ``[n_k, stored_width]`` rows of each clique member; slots number the members' rows in turn
    members: Sequence[Array]
    own: int = 0  #: index of this device among the members
    names: Sequence[str] = ()  #: the members' names in reports
    window: int = 0  #: steps that the policy looks ahead
    match: bool = False  #: whether the device also reads rows of the previous batch


@dataclass(frozen=True, kw_only=True)
class _PlannedStep:
    """Plan of a step: its rows on the device, the missing rows, and the update of the cache."""

    vertices: Array  #: ``[n]`` the expected array, recognized by identity
    #: ``[n]`` slot of each row on the device, -1 if missing; the slots of the previous batch
    #: follow those of the members
    slots: Int32Array
    missing: IntArray  #: ``[m]`` positions of the rows that the device lacks
    missing_vertices: Array  #: ``[m]`` vertices of ``missing``, the array that host memory expects
    update: CacheUpdate  #: replacements on the device after the step
    members: Sequence[Array]  #: the members' rows at planning time


class MultiLevelStore(WrappedStore):
    """Rows cached in device memory, backed by a tiered store in host memory.

    The values equal the backing store's, bit for bit. The caller announces a run's steps by
    ``expect``, in gather order, each at least ``lead`` steps before its gather. Any other gather,
    e.g. of a profiling run, reads host memory and the backing store, and changes nothing. One
    thread may expect while another gathers, at any distance.
    """

    def __init__(self, tier: TieredStore, rows: DeviceCacheRows) -> None:
        """Read ``rows`` on the device, and all other rows from ``tier``."""
        #: steps between the expectation of a step and its gather
        self.lead = rows.window + tier.rows.lead
        self.tier: TieredReader = tier.rows  #: reader of rows that the device lacks
        self.inner = tier  #: gathers rows that no step expects
        self._rows = rows
        self._num_slots = sum(map(len, rows.members))
        #: Rows of the previous batch, and a spare buffer for the next batch.
        self._previous: Array = np.empty((0, self.tier.source.width), self.tier.source.dtype)
        self._spare = self._previous
        self._empty_row: Array = np.zeros((1, self.tier.source.width), self.tier.source.dtype)
        #: Expected steps without and with a plan. None: the step reads no rows.
        self._expected: deque[Array | None] = deque()
        self._planned: deque[_PlannedStep | None] = deque()
        self._planning = threading.Lock()
        self._counting = threading.Lock()
        self._row_counts = [0] * (len(rows.members) + 1)

    def expect(self, vertices: Array | None) -> None:
        """Announce the vertices of the next step, ``[n]`` distinct. None: the step reads no rows.

        This plans the steps whose look-ahead window is now full; host memory expects the rows that
        the device lacks. ``gather`` recognizes a step by the identity of the array.
        """
        with self._planning:
            self._expected.append(vertices)
            if vertices is not None:
                self._rows.policy.expect(vertices)
            while len(self._expected) > self._rows.window:
                self._plan_step()

    def end(self) -> None:
        """Announce that no step follows; plan the last steps, whose windows do not fill up."""
        with self._planning:
            while self._expected:
                self._plan_step()
        self.tier.end()

    def gather(
        self, vertices: Array, *, dtype: torch.dtype, num_threads: int
    ) -> tuple[torch.Tensor, Traffic]:
        """Return the rows ``[n, width]`` of ``vertices``, and the traffic.

        If ``expect`` announced the step, update the device's cache.
        """
        step = self._next(vertices)
        if step is None:
            return self.inner.gather(vertices, dtype=dtype, num_threads=num_threads)
        out = ops.empty((len(vertices), self.width), dtype)
        ready = self.tier.ready(step.missing_vertices)
        matrices = [*step.members, self._previous, ready.rows]
        slots = step.slots.copy()
        slots[step.missing] = ready.slots + (self._num_slots + len(self._previous))
        counts = ops.gather_cached(
            # Every row is in one of the matrices.
            (np.broadcast_to(self._empty_row, (len(slots), self.tier.source.width)), self._name),
            [(rows, self._name) for rows in matrices],
            slots,
            np.arange(len(slots), dtype=np.int32),
            out=out,
            num_threads=num_threads,
        ).tolist()
        self._update_cache(step, matrices, slots, num_threads)
        with self._planning:
            self._planned.popleft()
        return out, self._count(ready, counts)

    def replace(self, rows: DeviceCacheRows) -> None:
        """Use other static ``rows``, as many as before, from the next step to plan on."""
        with self._planning:
            self._rows = rows

    def take_counters(self) -> dict[str, float]:
        """Return rows read from each member and the host since the last call, by report key."""
        with self._counting:
            counts, self._row_counts = self._row_counts, [0] * len(self._row_counts)
        return count_by_name(counts, self._rows.names)

    def close(self) -> None:
        """Wait for pending reads, and release the backing store."""
        self.tier.close()

    @property
    def _name(self) -> str:
        return self.tier.source.dtype_name

    def _plan_step(self) -> None:
        """Plan the oldest unplanned step; let host memory expect the rows that the device lacks."""
        vertices = self._expected.popleft()
        if vertices is None:
            self._planned.append(None)
            self.tier.expect(None)
            return
        policy = self._rows.policy
        slots = policy.look_up()
        missing = np.flatnonzero(slots < 0)
        missing_vertices = vertices[missing]
        self._planned.append(
            _PlannedStep(
                vertices=vertices,
                slots=slots,
                missing=missing,
                missing_vertices=missing_vertices,
                update=policy.advance(),
                members=self._rows.members,
            )
        )
        self.tier.expect(missing_vertices)

    def _next(self, vertices: Array) -> _PlannedStep | None:
        """Return the next step's plan, made now if needed. None: its array is not ``vertices``."""
        with self._planning:
            planned = (step.vertices for step in self._planned if step is not None)
            expected = (vertices for vertices in self._expected if vertices is not None)
            if next(chain(planned, expected), None) is not vertices:
                return None
            # At the end of a run, the look-ahead windows do not fill up.
            self._drop_empty_steps()
            while self._expected and len(self._planned) <= self.tier.lead:
                self._plan_step()
                self._drop_empty_steps()
            return self._planned[0]

    def _drop_empty_steps(self) -> None:
        """Drop the planned steps that read no rows, up to the next step that reads rows."""
        while self._planned and self._planned[0] is None:
            self._planned.popleft()

    def _update_cache(
        self, step: _PlannedStep, matrices: Sequence[Array], slots: Int32Array, num_threads: int
    ) -> None:
        """Copy entering rows to the device's cache and, with Match, keep rows for the next step.

        Row i of the step is row ``slots[i]`` of the concatenated ``matrices``.
        """
        if self._rows.match:
            self._keep_matching(matrices, slots, num_threads)
        update, cache = step.update, step.members[self._rows.own]
        self._copy(matrices, slots[update.positions], cache, update.slots, num_threads)
        if self._rows.match:
            self._previous, self._spare = self._spare, self._previous

    def _keep_matching(self, matrices: Sequence[Array], slots: Int32Array, threads: int) -> None:
        """Keep a copy of the rows that the next planned step reads; of all if none is planned.

        Row i of the step is row ``slots[i]`` of the concatenated ``matrices``.
        """
        if len(self._spare) < len(slots):
            self._spare = np.empty((len(slots), self.tier.source.width), self.tier.source.dtype)
        with self._planning:
            later = (step for step in islice(self._planned, 1, None) if step is not None)
            next_step = next(later, None)
        if next_step is None:
            matching = np.arange(len(slots), dtype=np.int32)
        else:
            matching = next_step.slots - np.int32(self._num_slots)
            matching = matching[matching >= 0]
        self._copy(matrices, slots[matching], self._spare, matching, threads)

    def _copy(
        self,
        matrices: Sequence[Array],
        source_slots: Int32Array,
        target: Array,
        target_slots: Int32Array,
        num_threads: int,
    ) -> None:
        """Copy rows ``source_slots`` of the joined ``matrices`` to ``target[target_slots]``."""
        first = 0
        for rows in matrices:
            inside = (source_slots >= first) & (source_slots < first + len(rows))
            if inside.any():
                ops.copy_rows(
                    (rows, self._name),
                    source_slots[inside] - np.int32(first),
                    (target, self._name),
                    target_slots[inside],
                    num_threads=num_threads,
                )
            first += len(rows)

    def _count(self, ready: ReadyRows, counts: list[int]) -> Traffic:
        """Add a step's ``counts`` of rows to the counters, free its slots, and return its traffic.

        ``counts`` are by memory: clique members, previous batch, host memory.
        """
        *members, previous, missed, _ = counts
        members[self._rows.own] += previous
        with self._counting:
            self._row_counts = add_counts(self._row_counts, [*members, missed])
        traffic = row_traffic([*members, missed], member=self._rows.own, row_bytes=self.row_bytes)
        self.tier.served(ready)
        return Traffic(rows=traffic.rows, tier=ready.access, disk=ready.reads.disk)
