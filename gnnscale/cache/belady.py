"""Belady's MIN over the batches of the next steps, with FastGL's Match as an option."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from gnnscale.cache.plan import LookAhead
from gnnscale.core import Array, Int32Array, check_range
from gnnscale.ops import NativeReplacement

#: Bytes per vertex (slot, last use) and per slot (key, next use; eviction candidate).
_VERTEX_BYTES, _SLOT_BYTES = 8, 24

#: Bytes per row of an expected batch, and additional bytes per row of the served batch.
_EXPECTED_BYTES, _SERVED_BYTES = 9, 60


@dataclass(frozen=True, kw_only=True)
class HitCounts:
    """Numbers of rows by the memory that served them."""

    num_hits: int = 0  #: rows in the cache
    num_previous: int = 0  #: rows of the previous batch that are not in the cache (Match)
    num_misses: int = 0  #: all other rows, which cross the link

    def __add__(self, other: "HitCounts") -> "HitCounts":
        return HitCounts(
            num_hits=self.num_hits + other.num_hits,
            num_previous=self.num_previous + other.num_previous,
            num_misses=self.num_misses + other.num_misses,
        )

    @property
    def hit_rate(self) -> float | None:
        """Share of the rows that were on the device, 0 to 1. None: no rows."""
        hits = self.num_hits + self.num_previous
        return hits / (hits + self.num_misses) if hits + self.num_misses else None


@dataclass(frozen=True, kw_only=True)
class CacheUpdate:
    """Hits of a served batch, and rows of the batch to copy into the cache, with their slots."""

    counts: HitCounts  #: hits before the replacements
    #: ``[m]`` int32 positions in the batch of the rows to copy into the cache
    positions: Int32Array
    slots: Int32Array  #: ``[m]`` int32 slot of each row of ``positions``


class Belady:
    """Replacement policy of a device cache when the batches of the next steps are known.

    Rows enter the cache only from a batch that has just read them, which takes no further transfer
    over the link. Of the rows in the cache and in the batch, those with the soonest next read are
    kept. If all batches are known, no other replacement has more hits (Belady 1966, MIN, with
    bypass and with all rows of a batch at a time). Ties, and rows without a read in the window, are
    kept by descending priority, then by ascending vertex.

    With ``match`` (FastGL, Match) the rows of a batch stay on the device until the next batch has
    been served. Rows that both batches read then take no slot.

    A step is: ``expect`` new batches of the window; ``look_up``; gather, and read the misses;
    ``advance``; copy rows into their slots as the update says. Slots 0 to ``capacity - 1`` are the
    cache's; with ``match``, ``capacity + i`` is row ``i`` of the previous batch.
    """

    def __init__(
        self,
        num_vertices: int,
        capacity: int,
        *,
        window: int,
        priority: Int32Array,
        match: bool = False,
        num_threads: int,
    ) -> None:
        """Start with an empty cache of ``capacity`` rows, which looks ``window`` steps ahead.

        ``priority`` ``[num_vertices]`` int32, e.g. out-degrees, decides among rows with the same
        next read, or none in the window; it is not copied. With ``match`` the rows of the previous
        batch stay on the device for one more batch.
        """
        check_range("window", window, 0)
        if len(priority) != num_vertices:
            raise ValueError(f"priority: expected {num_vertices} entries, got {len(priority)}")
        self._native = NativeReplacement(priority, capacity=capacity, match=match)
        self._num_threads = num_threads
        self._num_rows: deque[int] = deque()  # of the expected batches
        self.num_vertices = num_vertices
        self.capacity = capacity
        self.window = window

    @property
    def slots(self) -> Int32Array:
        """``[num_vertices]`` int32 slot of each vertex, -1 if not cached; a read-only view."""
        return self._native.slots

    @property
    def num_expected(self) -> int:
        """Number of batches passed to ``expect`` that ``advance`` has not yet served."""
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
        """Append the next batch, distinct ``vertices`` ``[n]``, to the window.

        Raises:
            ValueError: a vertex is out of range or repeats, or ``window + 1`` batches are unserved.
        """
        if self.num_expected > self.window:
            raise ValueError(
                f"vertices: expected at most {self.window + 1} unserved batches, the window and "
                f"the batch to serve, got {self.num_expected + 1}"
            )
        self._native.expect(vertices, num_threads=self._num_threads)
        self._num_rows.append(len(vertices))

    def look_up(self) -> Int32Array:
        """Return ``[n]`` int32 slots of the oldest expected batch's rows; -1: not on the device.

        The batch remains to be served. With ``match``, slot ``capacity + i`` is row ``i`` of the
        previous batch.
        """
        return self._native.look_up(num_threads=self._num_threads)

    def advance(self) -> CacheUpdate:
        """Serve the oldest expected batch, and choose the cache's new rows.

        Return the batch's hits, and the rows to copy into the cache. ValueError: no batch is
        expected.
        """
        hits, previous, misses, positions, slots = self._native.advance(
            num_threads=self._num_threads
        )
        self._num_rows.popleft()
        counts = HitCounts(num_hits=hits, num_previous=previous, num_misses=misses)
        return CacheUpdate(counts=counts, positions=positions, slots=slots)


def belady_bytes(num_vertices: int, capacity: int, *, window: int, batch_rows: int) -> int:
    """Return the approximate bytes of ``Belady`` for batches of at most ``batch_rows`` rows."""
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
    """Return the hits and misses of ``batches``, served in turn by an initially empty ``Belady``.

    The vertices of a batch are distinct.
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
    """Sequence of a dynamic cache's updates, step by step, computed on the host.

    The device of the cache samples the same batches and updates its cache by itself, or the host
    holds the cached rows and applies the updates. One thread may call ``expect`` while another
    takes updates; the number of steps between the two does not change the result.
    """

    def __init__(
        self, num_vertices: int, policy: LookAhead, *, priority: Int32Array, num_threads: int = 1
    ) -> None:
        """Start with an empty cache of the size and look-ahead of ``policy``.

        ``priority`` ``[num_vertices]`` chooses among rows read equally soon.
        """
        self._window = policy.window
        #: Steps that ``belady`` does not know yet, and steps that it knows, the next step first.
        #: None: the step reads no rows.
        self._later: deque[Array | None] = deque()
        self._expected: deque[Array | None] = deque()
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
        """Number of steps that the policy looks ahead."""
        return self._window

    def expect(self, vertices: Array | None) -> None:
        """Append a step with its input vertices ``[n]``. None: the step reads no rows."""
        self._later.append(vertices)

    def next_read(self) -> Array | None:
        """Drop steps that read no rows, and return the next step's input vertices.

        The step remains the next one. None: no expected step is left.
        """
        self._look_ahead()
        while self._expected and self._expected[0] is None:
            self._expected.popleft()
            self._look_ahead()
        return self._expected[0] if self._expected else None

    def take(self) -> CacheUpdate | None:
        """Serve the next step, and return its update of the cache.

        None: the step reads no rows, or no step is expected.
        """
        self._look_ahead()
        if self._expected and self._expected[0] is None:
            self._expected.popleft()
            return None
        return self.advance() if self._expected else None

    def advance(self) -> CacheUpdate:
        """Serve the step that ``next_read`` has just returned, and return its cache update."""
        self._expected.popleft()
        return self.belady.advance()

    def _look_ahead(self) -> None:
        """Pass the next steps' batches to the replacement policy, as many as it looks ahead."""
        while self._later and len(self._expected) <= self._window:
            vertices = self._later.popleft()
            if vertices is not None:
                self.belady.expect(vertices)
            self._expected.append(vertices)
