"""Belady's cache, step by step, of batches that are drawn ahead."""

from __future__ import annotations

from collections import deque

from gnnscale.cache.belady import Belady, Replaced
from gnnscale.cache.cache_plan import LookAhead
from gnnscale.core import Array, Int32Array


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

    def take(self) -> Replaced | None:
        """Return what the next step replaces; None if it reads nothing.

        None as well of a step that was not expected: one of a rehearsal, which changes nothing.
        """
        self._look_ahead()
        if self._known and self._known[0] is None:
            self._known.popleft()
            return None
        return self.advance() if self._known else None

    def advance(self) -> Replaced:
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
