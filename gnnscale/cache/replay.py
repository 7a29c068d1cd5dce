"""The host's replay of a cache that a device keeps, whose rows follow the batches to come."""

from __future__ import annotations

from collections import deque

from gnnscale.cache.belady import Belady, Replaced
from gnnscale.cache.cache_plan import LookAhead
from gnnscale.core import Array, Int32Array


class LookAheadReplay:
    """Knows which rows of each step enter a cache, and in place of which.

    Batches are drawn on the host ahead of the device, which draws the same. One thread may expect
    while another takes; how far the first is ahead does not change the result.
    """

    def __init__(
        self, num_vertices: int, policy: LookAhead, *, priority: Int32Array, num_threads: int = 1
    ) -> None:
        """Begin with an empty cache.

        Args:
            priority: ``[num_vertices]``, the order of rows that are read equally soon.
        """
        self._window = policy.window
        #: Expected steps, and those of them that ``_belady`` knows: whether each reads anything.
        self._expected: deque[Array | None] = deque()
        self._known: deque[bool] = deque()
        self._belady = Belady(
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

    def take(self) -> Replaced | None:
        """Return what the next step replaces; None if it reads nothing.

        None as well of a step that was not expected: one of a rehearsal, which changes nothing.
        """
        while self._expected and len(self._known) <= self._window:
            vertices = self._expected.popleft()
            if vertices is not None:
                self._belady.expect(vertices)
            self._known.append(vertices is not None)
        reads = bool(self._known) and self._known.popleft()
        return self._belady.advance() if reads else None
