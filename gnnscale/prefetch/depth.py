"""How many mini-batches a pipeline keeps ahead, told by its queue's length (PaGraph's feedback)."""

from __future__ import annotations

__all__ = ["PrefetchDepth"]

#: Waits, with no full queue in between, after which the queue gets deeper.
_WAITS = 2
#: Full queues in a row after which it gets shallower; twice as many each time that was too early.
_FULL = 32
_MAX_FULL = 1024


class PrefetchDepth:
    """The depth to use, from the length that the queue has whenever the consumer takes from it.

    It begins at ``limit``. A queue that is always full holds more than is needed, in memory: found
    full 32 times in a row, it gets one shallower. A consumer that has to wait wants more ahead, to
    even out mini-batches of different cost: two waits make the queue one deeper, and where that
    takes back the last step down, twice as many full queues are asked for before the next one.

    So a pipeline that prepares more slowly than the trainer consumes stays at ``limit``, and one
    that is always ahead ends at 1.

    Attributes:
        limit: the largest depth.
        depth: the depth to use now, from 1 to ``limit``.
    """

    def __init__(self, *, limit: int) -> None:
        """Begin at ``limit``, which is at least 1."""
        self.limit = limit
        self.depth = limit
        self._waits = 0
        self._full = 0
        self._patience = _FULL
        self._went_down = False

    def observe(self, length_when_taken: int, waited: bool) -> int:
        """Take note of one taking, and return the depth to use.

        Args:
            length_when_taken: mini-batches that were ready, the one taken included.
            waited: whether the consumer had to wait, since none was.
        """
        full = not waited and length_when_taken >= self.depth
        self._full = self._full + 1 if full else 0
        self._waits = 0 if full else self._waits + waited
        if self._waits >= _WAITS:
            self._deeper()
        elif self._full >= self._patience:
            self._shallower()
        return self.depth

    def _deeper(self) -> None:
        self._waits = 0
        if self._went_down:
            self._patience = min(2 * self._patience, _MAX_FULL)
            self._went_down = False
        self.depth = min(self.depth + 1, self.limit)

    def _shallower(self) -> None:
        self._full = 0
        if self.depth > 1:
            self.depth -= 1
            self._went_down = True
