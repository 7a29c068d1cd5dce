"""Tiers that stack: a device's memory over host memory, which holds some rows of a slower source.

The tiers are planned one after the other. Once the batches that the device's policy looks at are
known, it is decided which rows of a step the device has by then. The others are what host memory is
asked for: its own window consists of them, and so nothing is read that the device has.
"""

from __future__ import annotations

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
from gnnscale.features.base import FeatureStore
from gnnscale.features.cached import count_by_name, found_rows
from gnnscale.features.tiered.planner import Policy
from gnnscale.features.tiered.store import ReadyRows, TieredReader, TieredStore


@dataclass(frozen=True, kw_only=True)
class DeviceCacheRows:
    """The rows that a device has in its memory, or reads in that of its peers."""

    policy: Policy  #: says which rows these are, and what replaces them
    #: ``[n_k, stored_width]`` the rows of each member of the clique, whose places follow each other
    members: Sequence[Array]
    own: int = 0  #: which member the device is
    names: Sequence[str] = ()  #: the members' names in reports
    window: int = 0  #: steps that the policy looks ahead
    match: bool = False  #: whether rows of the batch before are read on the device


@dataclass(frozen=True, kw_only=True)
class _PlannedStep:
    """What was decided of a step, before any of its rows were read."""

    vertices: Array  #: ``[n]`` the very array that was expected
    #: ``[n]`` the place of each row on the device, or -1; those of the batch before follow
    #: the members' places
    places: Int32Array
    missing: IntArray  #: ``[m]`` positions of the rows that the device lacks
    asked: Array  #: ``[m]`` their vertices, the very array that host memory expects
    replaced: CacheUpdate  #: what the device does once it has the rows
    members: Sequence[Array]  #: those of the places, when this was decided


class MultiLevelStore(FeatureStore):
    """Rows in a device's memory, and below it those of a tier in host memory.

    The values are the source's, bit for bit. The steps of a run are expected in the order in which
    they are gathered, each at least ``lead`` steps ahead. Any other gather, e.g. of a rehearsal,
    reads host memory and its source, and changes nothing.

    One thread may expect while another gathers; how far the first is ahead does not change what is
    found on the device.
    """

    def __init__(self, tier: TieredStore, rows: DeviceCacheRows) -> None:
        """Read ``rows`` on the device, and what it lacks from ``tier``."""
        #: steps that are to be expected ahead of a gather
        self.lead = rows.window + tier.rows.lead
        self.tier: TieredReader = tier.rows  #: the rows that the device lacks
        self._host = tier  #: gathers them, unless a step expects them
        self._rows = rows
        self._num_places = sum(map(len, rows.members))
        #: The rows of the batch before, and memory for those of the next one.
        self._previous: Array = np.empty((0, self.tier.source.width), self.tier.source.dtype)
        self._spare = self._previous
        self._nothing: Array = np.zeros((1, self.tier.source.width), self.tier.source.dtype)
        #: Steps that are not decided yet, and those that are; None for one that reads nothing.
        self._known: deque[Array | None] = deque()
        self._decided: deque[_PlannedStep | None] = deque()
        self._deciding = threading.Lock()
        self._counting = threading.Lock()
        self._found = [0] * (len(rows.members) + 1)

    @property
    def num_rows(self) -> int:
        """Number of rows of the source."""
        return self.tier.source.num_rows

    @property
    def width(self) -> int:
        """Features of a row."""
        return self.tier.source.num_features

    @property
    def row_bytes(self) -> int:
        """Bytes of a row as it is stored."""
        return self._host.row_bytes

    def expect(self, vertices: Array | None) -> None:
        """Append the rows of the next step, ``[n]`` distinct; None if it reads nothing.

        ``gather`` recognises the step by this very array.
        """
        with self._deciding:
            self._known.append(vertices)
            if vertices is not None:
                self._rows.policy.expect(vertices)
            while len(self._known) > self._rows.window:
                self._decide()

    def end(self) -> None:
        """Say that no further step follows: the last ones are read ahead as those before them."""
        with self._deciding:
            while self._known:
                self._decide()
        self.tier.end()

    def gather(
        self, vertices: Array, *, dtype: torch.dtype, num_threads: int
    ) -> tuple[torch.Tensor, Traffic]:
        """Return the rows of ``vertices``, ``[n, width]``, each read from one of the tiers."""
        step = self._next(vertices)
        if step is None:
            return self._host.gather(vertices, dtype=dtype, num_threads=num_threads)
        out = ops.empty((len(vertices), self.width), dtype)
        ready = self.tier.ready(step.asked)
        matrices = [*step.members, self._previous, ready.rows]
        places = step.places.copy()
        places[step.missing] = ready.slots + (self._num_places + len(self._previous))
        found = ops.gather_cached(
            # Every row is in one of the matrices.
            (np.broadcast_to(self._nothing, (len(places), self.tier.source.width)), self._name),
            [(rows, self._name) for rows in matrices],
            places,
            np.arange(len(places), dtype=np.int32),
            out=out,
            num_threads=num_threads,
        ).tolist()
        self._keep(step, matrices, places, num_threads)
        with self._deciding:
            self._decided.popleft()
        return out, self._served(ready, found)

    def replace(self, rows: DeviceCacheRows) -> None:
        """Have other rows on the device in the steps that are not decided yet.

        They are as many as before, and stay: nothing replaces them.
        """
        with self._deciding:
            self._rows = rows

    def take_counters(self) -> dict[str, float]:
        """Return the rows read at each member and below the device since the last call, by name."""
        with self._counting:
            found, self._found = self._found, [0] * len(self._found)
        return count_by_name(found, self._rows.names)

    def close(self) -> None:
        """Wait for reads that were begun, and release the source."""
        self.tier.close()

    @property
    def _name(self) -> str:
        return self.tier.source.dtype_name

    def _decide(self) -> None:
        """Decide what the next step reads on the device, and expect the others in host memory."""
        vertices = self._known.popleft()
        if vertices is None:
            self._decided.append(None)
            self.tier.expect(None)
            return
        policy = self._rows.policy
        places = policy.look_up()
        missing = np.flatnonzero(places < 0)
        asked = vertices[missing]
        self._decided.append(
            _PlannedStep(
                vertices=vertices,
                places=places,
                missing=missing,
                asked=asked,
                replaced=policy.advance(),
                members=self._rows.members,
            )
        )
        self.tier.expect(asked)

    def _next(self, vertices: Array) -> _PlannedStep | None:
        """Return the next step if it is the one of ``vertices``."""
        with self._deciding:
            decided = (each.vertices for each in self._decided if each is not None)
            known = (each for each in self._known if each is not None)
            if next(chain(decided, known), None) is not vertices:
                return None
            # The run ends before a window, or what host memory is to know ahead, is full.
            self._pass_over()
            while self._known and len(self._decided) <= self.tier.lead:
                self._decide()
                self._pass_over()
            return self._decided[0]

    def _pass_over(self) -> None:
        """Forget steps that read nothing, before the next one that does."""
        while self._decided and self._decided[0] is None:
            self._decided.popleft()

    def _keep(
        self, step: _PlannedStep, matrices: Sequence[Array], places: Int32Array, num_threads: int
    ) -> None:
        """Copy rows of a step that the device keeps, from their places."""
        if self._rows.match:
            self._keep_matching(matrices, places, num_threads)
        replaced, own = step.replaced, step.members[self._rows.own]
        self._copy(matrices, places[replaced.positions], own, replaced.slots, num_threads)
        if self._rows.match:
            self._previous, self._spare = self._spare, self._previous

    def _keep_matching(self, matrices: Sequence[Array], places: Int32Array, threads: int) -> None:
        """Keep the rows of a step that the next one shares, or all if that is unknown yet."""
        if len(self._spare) < len(places):
            self._spare = np.empty((len(places), self.tier.source.width), self.tier.source.dtype)
        with self._deciding:
            later = (each for each in islice(self._decided, 1, None) if each is not None)
            following = next(later, None)
        if following is None:
            matching = np.arange(len(places), dtype=np.int32)
        else:
            matching = following.places - np.int32(self._num_places)
            matching = matching[matching >= 0]
        self._copy(matrices, places[matching], self._spare, matching, threads)

    def _copy(
        self,
        matrices: Sequence[Array],
        places: Int32Array,
        target: Array,
        slots: Int32Array,
        num_threads: int,
    ) -> None:
        """Copy rows as they are stored, from their places in all ``matrices``."""
        first = 0
        for rows in matrices:
            inside = (places >= first) & (places < first + len(rows))
            if inside.any():
                ids = places[inside] - np.int32(first)
                goal = (target, self._name)
                ops.copy_rows((rows, self._name), ids, goal, slots[inside], num_threads=num_threads)
            first += len(rows)

    def _served(self, ready: ReadyRows, found: list[int]) -> Traffic:
        """Return what a step has read; of each member, of the batch before, and in host memory."""
        *members, previous, missed, _ = found
        members[self._rows.own] += previous
        with self._counting:
            counts = [*members, missed]
            self._found = [before + each for before, each in zip(self._found, counts, strict=True)]
        rows = found_rows(counts, own=self._rows.own, row_bytes=self.row_bytes).rows
        self.tier.served(ready)
        return Traffic(rows=rows, tier=ready.access, disk=ready.reads.disk)
