"""Batches of table rows as Arrow arrays, with their location in the file, and problems."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from gnnscale.core import (
    Array,
    BoolArray,
    GraphError,
    Int64Array,
    UInt8Array,
    brief,
    one_line,
    pyarrow,
)

#: Largest number of UTF-8 bytes of a text: an id, a label or a word of the split.
MAX_TEXT_BYTES = 1 << 16
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
            earlier = self._by_kind.get(kind, (file, row, message, 0))
            first = min(earlier[:3], (file, row, message))
            self._by_kind[kind] = (*first, earlier[3] + count)

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


@dataclass(frozen=True)
class Batch:
    """Rows of a file in order, as Arrow arrays."""

    file: Path  #: file of the rows
    row: int  #: number of the first row, counted from 1
    columns: Mapping[str, Any]  #: Arrow arrays of equal length, by name
    problems: Problems  #: collector of problems
    #: number of each row. None: the rows are consecutive
    rows: Int64Array | None = None
    #: by column, which cells could not be read, and are null, ``[n]``; they are reported
    unread: Mapping[str, BoolArray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def number(self, index: int) -> int:
        """Return the number, in the file, of the row at ``index`` of the batch."""
        return self.row + index if self.rows is None else int(self.rows[index])

    def locate(self, index: int) -> str:
        """Return ``FILE: row N``, for errors, for the row at ``index`` of the batch."""
        return f"{self.file}: row {self.number(index)}"

    def name(self, column: str) -> str:
        """Return ``FILE: column 'NAME'``, for errors."""
        return f"{self.file}: column {brief(repr(column))}"

    def report(self, wrong: BoolArray, kind: tuple[str, ...], tell: Callable[[int], str]) -> None:
        """Report the rows that ``wrong`` marks to the collector.

        ``kind`` tells problems apart; ``tell`` returns the message of the row at an index.
        """
        if wrong.any():
            index, count = int(wrong.argmax()), int(np.count_nonzero(wrong))
            self.problems.add(kind, self.file, self.number(index), tell(index), count)

    def report_nulls(self, column: str) -> BoolArray:
        """Report the nulls of a column; return which rows have one, ``[n]``."""
        is_empty = null_mask(self.columns[column])
        is_new = is_empty & ~self.unread.get(column, np.False_)
        self.report(is_new, (column, "empty"), lambda index: f"{brief(column)} is empty")
        return is_empty

    def filtered(self, mask: BoolArray) -> "Batch":
        """Return the batch with the rows that ``mask`` marks."""
        if mask.all():
            return self
        rows = self.row + np.arange(len(self)) if self.rows is None else self.rows
        arrow_mask = pyarrow.array(mask)
        columns = {name: array.filter(arrow_mask) for name, array in self.columns.items()}
        unread = {name: cells[mask] for name, cells in self.unread.items()}
        return replace(self, columns=columns, rows=rows[mask], unread=unread)

    def floats(self, column: str, dtype: type[np.floating[Any]], array: Any = None) -> Array:
        """Return a column of numbers or booleans as ``dtype``, nulls as NaN.

        ``array`` replaces the column's. GraphError: it is of another type.
        """
        array = plain(self.columns[column] if array is None else array)
        if not is_number(array.type):
            raise GraphError(f"{self.name(column)}: expected numbers, got {brief(array.type)}")
        kind = pyarrow.from_numpy_dtype(np.dtype(dtype))
        try:
            values: Array = array.cast(kind, safe=False).to_numpy(zero_copy_only=False)
        except pyarrow.ArrowInvalid as error:
            raise GraphError(f"{self.name(column)}: {one_line(error, 200)}") from None
        return values


class RowLocations:
    """Map from row numbers of a table to file and row, made of the table's batches in order."""

    def __init__(self) -> None:
        #: first row of each batch in the table, and the batches without columns
        self._firsts = [0]
        self._batches: list[Batch] = []

    @property
    def num_rows(self) -> int:
        """Number of rows of the batches added."""
        return self._firsts[-1]

    @property
    def first_file(self) -> Path:
        """File of the first batch added."""
        return self._batches[0].file

    def add(self, batch: Batch) -> None:
        """Append the rows of the table's next batch."""
        self._firsts.append(self._firsts[-1] + len(batch))
        self._batches.append(replace(batch, columns={}))

    def locate(self, index: int) -> str:
        """Return ``FILE: row N``, for errors, for the row at ``index`` of the table."""
        batch, row = self._find(index)
        return batch.locate(row)

    def report(self, wrong: BoolArray, kind: tuple[str, ...], tell: Callable[[int], str]) -> None:
        """Report the rows ``[num_rows]`` of the table that ``wrong`` marks, as ``Batch.report``."""
        if wrong.any():
            index, count = int(wrong.argmax()), int(np.count_nonzero(wrong))
            batch, row = self._find(index)
            batch.problems.add(kind, batch.file, batch.number(row), tell(index), count)

    def _find(self, index: int) -> tuple[Batch, int]:
        """Return the batch of the row at ``index`` of the table, and its index in the batch."""
        number = int(np.searchsorted(self._firsts, index, side="right")) - 1
        return self._batches[number], index - self._firsts[number]


def plain(array: Any) -> Any:
    """Return an Arrow array decoded from a dictionary encoding, with texts as large_string."""
    if pyarrow.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return array.cast(pyarrow.large_string()) if is_text(array.type) else array


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is one of texts, not dictionary-encoded."""
    # pyarrow 15 reads string_view, and has no function that tells it.
    return str(kind) in ("string", "large_string", "string_view")


def is_number(kind: Any) -> bool:
    """Whether an Arrow type is one of numbers, booleans, or nulls alone."""
    types = pyarrow.types
    tests = (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean, types.is_null)
    return any(test(kind) for test in tests)


def with_texts(batch: Batch) -> Batch:
    """Return the batch with texts as large_string; GraphError: a text is too long or not UTF-8.

    Neither Parquet nor Arrow checks that texts are UTF-8; errors name the row.
    """
    columns = dict(batch.columns)
    for column, array in batch.columns.items():
        array = plain(array)
        if not is_text(array.type):
            continue
        columns[column] = array
        lengths = np.diff(text_buffers(array)[0])
        if lengths.max(initial=0) > MAX_TEXT_BYTES:
            index = int(lengths.argmax())
            raise GraphError(
                f"{batch.locate(index)}: {brief(column)} has {lengths[index]} bytes, allowed are "
                f"{MAX_TEXT_BYTES}"
            )
        if not _is_valid(array):
            index = next(i for i in range(len(array)) if not _is_valid(array.slice(i, 1)))
            raise GraphError(f"{batch.locate(index)}: {brief(column)} is not UTF-8")
    return replace(batch, columns=columns)


def _is_valid(array: Any) -> bool:
    try:
        array.validate(full=True)
    except pyarrow.ArrowInvalid:
        return False
    return True


def null_mask(array: Any) -> BoolArray:
    """Return which values of an Arrow array are null, ``[n]``."""
    mask: BoolArray = array.is_null().to_numpy(zero_copy_only=False)
    return mask


def text_buffers(array: Any) -> tuple[Int64Array, UInt8Array]:
    """Return offsets, which start at 0, and bytes of a large_string array without nulls."""
    _, offsets, data = array.buffers()
    whole = np.frombuffer(offsets, np.int64, len(array) + 1, array.offset * 8)
    text = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    first, last = int(whole[0]), int(whole[-1])
    return (whole - first if first else whole), text[first:last]
