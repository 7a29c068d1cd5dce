"""Problems of a table, counted by kind, so that one error shows them all."""

import threading
from pathlib import Path

from gnnscale.core import GraphError

#: Kinds of problems that an error shows, at most.
_MAX_SHOWN = 12
#: Characters of an error, at most.
_MAX_MESSAGE = 4000


class Problems:
    """Collector of the problems of a table: of each kind the first row, the message and a count.

    Threads may add problems in any order. Memory depends on the number of kinds alone.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: file, row, message and number of cells of each kind
        self._by_kind: dict[tuple[str, ...], tuple[Path, int, str, int]] = {}
        self._settled: set[tuple[str, ...]] = set()

    @property
    def exist(self) -> bool:
        """Whether there is any problem."""
        return bool(self._by_kind)

    def settle(self) -> None:
        """End a pass over the table: a further pass does not count the kinds so far again."""
        self._settled = set(self._by_kind)

    def add(self, kind: tuple[str, ...], file: Path, row: int, message: str, count: int) -> None:
        """Count ``count`` more cells with a problem, the first of them in ``row`` of ``file``."""
        if kind in self._settled:
            return
        with self._lock:
            *first, total = self._by_kind.get(kind, (file, row, message, 0))
            first = min(first, [file, row, message])
            self._by_kind[kind] = *first, total + count  # type: ignore[assignment]

    def raise_any(self) -> None:
        """Raise a GraphError of one line that shows all problems, if there are any."""
        if not self._by_kind:
            return
        problems, parts, last = sorted(self._by_kind.values()), [], None
        for file, row, message, count in problems[:_MAX_SHOWN]:
            again = f" (and {count - 1:,} more like it)" if count > 1 else ""
            parts.append(f"{'' if file == last else f'{file}: '}row {row}: {message}{again}")
            last = file
        more = len(problems) - _MAX_SHOWN
        kinds = f"; and {more} more kinds of problems" if more > 0 else ""
        raise GraphError(" | ".join(parts) + kinds, limit=_MAX_MESSAGE)
