"""Process-wide settings that several threads set at a time."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class SharedSetting:
    """Setting that the first of several overlapping blocks sets, and the last one restores."""

    def __init__(self, begin: Callable[[], Callable[[], None]]) -> None:
        """Share a setting. ``begin`` sets it and returns the function that restores it."""
        self._begin = begin
        self._lock = threading.Lock()
        self._num_blocks = 0
        self._restore: Callable[[], None] = lambda: None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep the setting during the ``with`` block."""
        with self._lock:
            if not self._num_blocks:
                self._restore = self._begin()
            self._num_blocks += 1
        try:
            yield
        finally:
            with self._lock:
                self._num_blocks -= 1
                if not self._num_blocks:
                    self._restore()
