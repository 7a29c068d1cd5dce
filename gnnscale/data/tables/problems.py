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
        self._found: dict[tuple[str, ...], tuple[Path, int, str, int]] = {}
        self._settled: set[tuple[str, ...]] = set()

    @property
    def found(self) -> bool:
        """Whether there is any problem."""
        return bool(self._found)

    def settle(self) -> None:
        """End a pass over the table: a further pass does not count the kinds found so far again."""
        self._settled = set(self._found)

    def add(self, kind: tuple[str, ...], file: Path, row: int, message: str, count: int) -> None:
        """Count ``count`` more cells with a problem, the first of them in ``row`` of ``file``."""
        with self._lock:
            found = self._found.get(kind)
            if kind in self._settled:
                return
            if found is None:
                self._found[kind] = file, row, message, count
            elif (file, row) < found[:2]:
                self._found[kind] = file, row, message, found[3] + count
            else:
                self._found[kind] = *found[:3], found[3] + count

    def raise_any(self) -> None:
        """Raise a GraphError of one line that shows all problems, if there are any."""
        if not self._found:
            return
        found = sorted(self._found.values())
        shown = []
        for number, (file, row, message, count) in enumerate(found[:_MAX_SHOWN]):
            where = f"{file}: row" if not number or file != found[number - 1][0] else "row"
            again = f" (and {count - 1:,} more like it)" if count > 1 else ""
            shown.append(f"{where} {row}: {message}{again}")
        more = len(found) - _MAX_SHOWN
        kinds = f"; and {more} more kinds of problems" if more > 0 else ""
        raise GraphError(" | ".join(shown) + kinds, limit=_MAX_MESSAGE)
