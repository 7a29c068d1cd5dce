"""Batches of table rows as Arrow arrays, with their location in the file."""

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
from gnnscale.core.artifact.files import file_bytes
from gnnscale.data.tables.problems import Problems


@dataclass(frozen=True)
class Batch:
    """Rows of a file in order, as Arrow arrays."""

    file: Path  #: file of the rows
    row: int  #: number of the first row, counted from 1
    columns: Mapping[str, Any]  #: Arrow arrays of equal length, by name
    #: number of each row. None: the rows are consecutive
    rows: Int64Array | None = None
    #: collector of problems. None: the first problem is an error.
    problems: Problems | None = None
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

    def report(self, wrong: BoolArray, kind: tuple[str, ...], tell: Callable[[int], str]) -> None:
        """Report the rows that ``wrong`` marks: to the collector, else by a GraphError.

        ``kind`` tells problems apart; ``tell`` returns the message of the row at an index.
        """
        if not wrong.any():
            return
        index = int(wrong.argmax())
        if self.problems is None:
            raise GraphError(f"{self.locate(index)}: {tell(index)}")
        count = int(np.count_nonzero(wrong))
        self.problems.add(kind, self.file, self.number(index), tell(index), count)

    def kept(self, keep: BoolArray) -> "Batch":
        """Return the batch with the rows that ``keep`` marks."""
        if keep.all():
            return self
        rows = self.row + np.arange(len(self)) if self.rows is None else self.rows
        mask = pyarrow.array(keep)
        columns = {name: array.filter(mask) for name, array in self.columns.items()}
        unread = {name: mask[keep] for name, mask in self.unread.items()}
        return replace(self, columns=columns, rows=rows[keep], unread=unread)


class RowLocations:
    """Map from row numbers of a table to file and row, made of the table's batches in order."""

    def __init__(self) -> None:
        #: First row of each batch in the table; file and first row of each batch in the file.
        self._firsts = [0]
        self._starts: list[Batch] = []  # without columns

    @property
    def num_rows(self) -> int:
        """Number of rows of the batches added."""
        return self._firsts[-1]

    @property
    def first_file(self) -> Path:
        """File of the first batch added."""
        return self._starts[0].file

    def add(self, batch: Batch) -> None:
        """Append the rows of the table's next batch."""
        self._firsts.append(self._firsts[-1] + len(batch))
        self._starts.append(replace(batch, columns={}))

    def locate(self, index: int) -> str:
        """Return ``FILE: row N``, for errors, for the row at ``index`` of the table."""
        batch, index = self._batch(index)
        return batch.locate(index)

    def report(
        self,
        wrong: BoolArray,
        kind: tuple[str, ...],
        tell: Callable[[int], str],
        *,
        first: int = 0,
    ) -> None:
        """Report the rows that ``wrong`` marks, of the table's rows from ``first`` on.

        ``kind`` and ``tell`` are those of ``Batch.report``.
        """
        if not wrong.any():
            return
        index = int(wrong.argmax())
        batch, row = self._batch(first + index)
        if batch.problems is None:
            raise GraphError(f"{batch.locate(row)}: {tell(index)}")
        count = int(np.count_nonzero(wrong))
        batch.problems.add(kind, batch.file, batch.number(row), tell(index), count)

    def _batch(self, index: int) -> tuple[Batch, int]:
        """Return the batch of the row at ``index`` of the table, and its index in the batch."""
        number = int(np.searchsorted(self._firsts, index, side="right")) - 1
        return self._starts[number], index - self._firsts[number]


ENDINGS = (".parquet", ".csv", ".csv.gz")


def table_files(folder: Path, table: str, name: str | None) -> list[Path]:
    """Return the files of ``vertices`` or ``edges``, at ``name`` or, if None, a default name.

    GraphError: no file, an empty file, several default names, or both Parquet and CSV.
    """
    if name is not None:
        path = folder / name
        if not path.exists():
            raise GraphError(f"dataset.{table}={brief(name)}: {path} is missing")
    else:
        candidates = [folder / name for name in usual_names(table) if (folder / name).exists()]
        if len(candidates) != 1:
            endings = ", ".join(ENDINGS)
            what = " and ".join(path.name for path in candidates) or f"no {table} with {endings}"
            which = "remove all but one, or name" if candidates else "name"
            raise GraphError(f"{folder}: has {what}: {which} the table by dataset.{table}=FILE")
        (path,) = candidates
    files = _in_folder(path) if path.is_dir() else [path]
    for file in files:
        if not file_bytes(file):
            raise GraphError(f"{file}: empty")
    return files


def usual_names(table: str) -> list[str]:
    """Return the default names of the folder or file of a table, ``vertices`` or ``edges``."""
    return [table, *(f"{table}{ending}" for ending in ENDINGS)]


def is_parquet(file: Path) -> bool:
    """Whether the name of a file ends in .parquet; all other files are CSV."""
    return file.name.endswith(".parquet")


def _in_folder(path: Path) -> list[Path]:
    # What writers leave beside their files, such as _SUCCESS and .part-0.crc, is no table.
    files = sorted(file for file in path.iterdir() if file.name[0] not in "._")
    tables = [file for file in files if file.name.endswith(ENDINGS)]
    if not tables:
        raise GraphError(f"{path}: has no file that ends in {', '.join(ENDINGS)}")
    if len({is_parquet(file) for file in tables}) > 1:
        raise GraphError(f"{path}: has both Parquet and CSV files, one kind is allowed")
    return tables


#: Largest number of UTF-8 bytes of a text: an id, a label or a word of the split.
MAX_TEXT_BYTES = 1 << 16


def plain(array: Any) -> Any:
    """Return an Arrow array decoded from a dictionary encoding, with texts as large_string."""
    if pyarrow.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return pyarrow.compute.cast(array, pyarrow.large_string()) if is_text(array.type) else array


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is one of texts, not dictionary-encoded."""
    # pyarrow 15 reads string_view, and has no function that tells it.
    return bool(
        pyarrow.types.is_string(kind)
        or pyarrow.types.is_large_string(kind)
        or str(kind) == "string_view"
    )


def is_binary(kind: Any) -> bool:
    """Whether an Arrow type is one of bytes, as CSV has if it is not UTF-8."""
    return bool(pyarrow.types.is_binary(kind) or pyarrow.types.is_large_binary(kind))


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


def first_null(array: Any) -> int | None:
    """Return the index of the first null in an Arrow array, or None."""
    if not array.null_count:
        return None
    return int(array.is_null().to_numpy(zero_copy_only=False).argmax())


def null_mask(array: Any) -> BoolArray:
    """Return which values of an Arrow array are null, ``[n]``."""
    if not array.null_count:
        return np.zeros(len(array), np.bool_)
    mask: BoolArray = array.is_null().to_numpy(zero_copy_only=False)
    return mask


def refuse_nulls(batch: Batch, column: str) -> BoolArray:
    """Report the nulls of a column; return which rows have one, ``[n]``."""
    empty = null_mask(batch.columns[column])
    known = empty & ~batch.unread.get(column, np.False_)
    batch.report(known, (column, "empty"), lambda index: f"{brief(column)} is empty")
    return empty


def floats(batch: Batch, column: str, dtype: type[np.floating[Any]]) -> Array:
    """Return a column of numbers or booleans as ``dtype``, nulls as NaN; GraphError: other type."""
    array = plain(batch.columns[column])
    if not is_number(array.type):
        raise GraphError(
            f"{batch.file}: column {brief(repr(column))}: expected numbers, got {brief(array.type)}"
        )
    try:
        array = pyarrow.compute.cast(array, pyarrow.from_numpy_dtype(np.dtype(dtype)), safe=False)
    except pyarrow.ArrowInvalid as error:
        raise GraphError(
            f"{batch.file}: column {brief(repr(column))}: {one_line(error, 200)}"
        ) from None
    values: Array = array.to_numpy(zero_copy_only=False)
    return values


def is_number(kind: Any) -> bool:
    """Whether an Arrow type is one of numbers, booleans, or nulls alone."""
    numeric = (
        pyarrow.types.is_integer(kind)
        or pyarrow.types.is_floating(kind)
        or pyarrow.types.is_decimal(kind)
    )
    return bool(numeric or pyarrow.types.is_boolean(kind) or pyarrow.types.is_null(kind))


def text_buffers(array: Any) -> tuple[Int64Array, UInt8Array]:
    """Return offsets, which start at 0, and bytes of a large_string array without nulls."""
    _, offsets, data = array.buffers()
    whole = np.frombuffer(offsets, np.int64, len(array) + 1, array.offset * 8)
    text = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    first, last = int(whole[0]), int(whole[-1])
    return (whole - first if first else whole), text[first:last]
