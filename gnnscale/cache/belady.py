"""Belady's MIN over the batches of the next steps, and FastGL's Match on top of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from gnnscale.cache.plan import LookAhead
from gnnscale.core import Array, Int32Array, check_range
from gnnscale.ops import NativeReplacement

#: Bytes for a vertex (its slot, its last use) and for a slot (key, next use; what may leave it).
_VERTEX_BYTES, _SLOT_BYTES = 8, 24

#: Bytes for a row of a batch that is expected, and more for one of the batch that is served.
_EXPECTED_BYTES, _SERVED_BYTES = 9, 60


@dataclass(frozen=True, kw_only=True)
class HitCounts:
    """Where rows were found."""

    num_hits: int = 0  #: in the cache
    num_previous: int = 0  #: in what is kept of the batch before, and not in the cache
    num_misses: int = 0  #: in neither; they cross the link

    def __add__(self, other: HitCounts) -> HitCounts:
        return HitCounts(
            num_hits=self.num_hits + other.num_hits,
            num_previous=self.num_previous + other.num_previous,
            num_misses=self.num_misses + other.num_misses,
        )

    @property
    def hit_rate(self) -> float | None:
        """The part that was on the device; None of no rows."""
        found = self.num_hits + self.num_previous
        return found / (found + self.num_misses) if found + self.num_misses else None


@dataclass(frozen=True, kw_only=True)
class CacheUpdate:
    """A batch that was served, and what it changes in the cache."""

    counts: HitCounts  #: where its rows were, before anything changed
    #: ``[m]`` int32 rows of the batch that are to be copied into the cache
    positions: Int32Array
    slots: Int32Array  #: ``[m]`` int32, the slot of each


class Belady:
    """Which rows a device keeps if the batches of the next steps are known.

    Rows enter the cache only from a batch that has just read them, so they cross no link twice. Of
    the rows in the cache and those of the batch, the ones that are read again soonest are kept. If
    all batches are known, no other replacement has more hits (Belady 1966, MIN, with bypass and
    with all rows of a batch at once). Rows read equally soon, or not within the window, are kept by
    descending priority, then by ascending vertex.

    With ``match`` (FastGL, Match) the rows of a batch stay on the device until the next one was
    served. Rows that both read then take no slot.

    A step is: ``expect`` what is new in the window; ``look_up``; gather, and read the misses;
    ``advance``; copy the rows that it names into their slots. Slots 0 to ``capacity - 1`` are the
    cache's; with ``match``, ``capacity + i`` is row ``i`` of the batch before.
    """

    def __init__(
        self,
        num_vertices: int,  # of the graph
        capacity: int,  # rows that the cache holds; at most ``num_vertices``
        *,
        window: int,  # N, the steps that are known beyond the one that is served
        priority: Int32Array,  # ``[num_vertices]`` int32, e.g. out-degrees; used in place
        match: bool = False,  # whether the rows of the batch before are still on the device
        num_threads: int,  # does not change the result
    ) -> None:
        """Begin with an empty cache.

        Raises:
            TypeError: ``priority`` is of another type.
            ValueError: a number is out of range, or ``priority`` has another length.
            MemoryError: there is not enough memory.
        """
        check_range("window", window, 0)
        if len(priority) != num_vertices:
            raise ValueError(f"priority: {len(priority)} entries, must be {num_vertices}")
        self._native = NativeReplacement(priority, capacity=capacity, match=match)
        self._num_threads = num_threads
        self._num_rows: deque[int] = deque()  # of the batches expected
        self.num_vertices = num_vertices
        self.capacity = capacity
        self.window = window

    @property
    def slots(self) -> Int32Array:
        """``[num_vertices]`` int32 slot of each vertex, -1 for none; a read-only view."""
        return self._native.slots

    @property
    def num_expected(self) -> int:
        """Batches that are expected and not served."""
        return len(self._num_rows)

    @property
    def num_bytes(self) -> int:
        """Approximate bytes of host memory in use; see ``belady_bytes``."""
        return (
            _VERTEX_BYTES * self.num_vertices
            + _SLOT_BYTES * self.capacity
            + _EXPECTED_BYTES * sum(self._num_rows)
            + _SERVED_BYTES * max(self._num_rows, default=0)
        )

    def expect(self, vertices: Array) -> None:
        """Append the next batch: ``vertices`` ``[n]``, int32 or int64, distinct; copied.

        Raises:
            ValueError: a vertex is out of range or repeats, or the window is full.
        """
        if self.num_expected > self.window:
            raise ValueError(
                f"vertices: batch {self.num_expected + 1} at once, allowed are {self.window + 1}, "
                "the one to serve and the window"
            )
        self._native.expect(vertices, num_threads=self._num_threads)
        self._num_rows.append(len(vertices))

    def look_up(self) -> Int32Array:
        """Return ``[n]`` int32, the slot of each row of the oldest expected batch, -1 for none.

        Raises:
            ValueError: no batch is expected.
        """
        return self._native.look_up(num_threads=self._num_threads)

    def advance(self) -> CacheUpdate:
        """Serve the oldest expected batch, and replace rows.

        Raises:
            ValueError: no batch is expected.
        """
        hits, previous, misses, positions, slots = self._native.advance(
            num_threads=self._num_threads
        )
        self._num_rows.popleft()
        counts = HitCounts(num_hits=hits, num_previous=previous, num_misses=misses)
        return CacheUpdate(counts=counts, positions=positions, slots=slots)


def belady_bytes(num_vertices: int, capacity: int, *, window: int, batch_rows: int) -> int:
    """Return about how many bytes ``Belady`` takes, for batches of at most ``batch_rows`` rows."""
    return (
        _VERTEX_BYTES * num_vertices
        + _SLOT_BYTES * capacity
        + (_EXPECTED_BYTES * (window + 1) + _SERVED_BYTES) * batch_rows
    )


def count_hits(
    batches: Iterable[Array],
    *,
    num_vertices: int,
    capacity: int,
    window: int,
    priority: Int32Array,
    match: bool = False,
    num_threads: int,
) -> HitCounts:
    """Serve ``batches`` from a cache that is empty at first, and count where rows were found.

    ``batches`` are the distinct vertices ``[n]`` of each step, int32 or int64; they are read up to
    ``window`` ahead. The other arguments are those of ``Belady``.

    Raises:
        ValueError: a batch holds an id that is no vertex, or one twice; or as ``Belady``.
    """
    cache = Belady(
        num_vertices,
        capacity,
        window=window,
        priority=priority,
        match=match,
        num_threads=num_threads,
    )
    counts = HitCounts()
    for batch in batches:
        cache.expect(batch)
        if cache.num_expected > window:
            counts += cache.advance().counts
    while cache.num_expected:
        counts += cache.advance().counts
    return counts


class LookAheadReplay:
    """Knows which rows of each step enter a cache, and in place of which.

    The host has the rows itself, or replays the cache of a device that draws the same batches. One
    thread may expect while another takes; how far the first is ahead does not change the result.
    """

    def __init__(
        self, num_vertices: int, policy: LookAhead, *, priority: Int32Array, num_threads: int = 1
    ) -> None:
        """Begin with an empty cache.

        Args:
            priority: ``[num_vertices]``, the order of rows that are read equally soon.
        """
        self._window = policy.window
        #: Expected steps, and those before them that ``belady`` knows, beginning with the next one.
        #: None for a step that reads nothing.
        self._expected: deque[Array | None] = deque()
        self._known: deque[Array | None] = deque()
        self.belady = Belady(
            num_vertices,
            policy.num_rows,
            window=policy.window,
            priority=priority,
            match=policy.match,
            num_threads=num_threads,
        )

    @property
    def window(self) -> int:
        """Steps that are looked ahead."""
        return self._window

    def expect(self, vertices: Array | None) -> None:
        """Append the input vertices of the next step, ``[n]``; None if it reads nothing."""
        self._expected.append(vertices)

    def next_read(self) -> Array | None:
        """Pass over steps that read nothing; return what the next one reads, None if unexpected."""
        self._look_ahead()
        while self._known and self._known[0] is None:
            self._known.popleft()
            self._look_ahead()
        return self._known[0] if self._known else None

    def take(self) -> CacheUpdate | None:
        """Return what the next step replaces; None if it reads nothing.

        None as well of a step that was not expected: one of a rehearsal, which changes nothing.
        """
        self._look_ahead()
        if self._known and self._known[0] is None:
            self._known.popleft()
            return None
        return self.advance() if self._known else None

    def advance(self) -> CacheUpdate:
        """Return what the step of ``next_read`` replaces, which is then done."""
        self._known.popleft()
        return self.belady.advance()

    def _look_ahead(self) -> None:
        """Pass the next step, and the window after it, to the policy."""
        while self._expected and len(self._known) <= self._window:
            vertices = self._expected.popleft()
            if vertices is not None:
                self.belady.expect(vertices)
            self._known.append(vertices)
