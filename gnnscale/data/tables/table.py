"""Table of Parquet or CSV files, read in batches by threads in bounded memory."""

import csv
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from gnnscale.core import (
    BoolArray,
    GraphError,
    Pipeline,
    brief,
    hardware,
    one_line,
    pyarrow,
    suggestion,
)
from gnnscale.data.formats.text import head_lines, line_blocks, opened_text
from gnnscale.data.tables import cells
from gnnscale.data.tables.batch import Batch, Problems, is_text, with_texts
from gnnscale.data.tables.parquet_file import ParquetFile

#: Bytes that one byte of a .gz may unpack to; edges between few vertices compress well.
_RATIO = 100
#: Bytes of the first rows, from which types are inferred.
_SAMPLE_BYTES = 1 << 20
#: Columns listed in an error, at most.
_MAX_NAMED = 12
#: Bytes of a batch.
_MIN_BATCH, _MAX_BATCH = 64 << 10, 16 << 20
#: Rows of a batch, at most: larger batches leave the caches before they are used.
_MAX_ROWS = 1 << 17
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def mapped(
    work: Callable[[_Item], _Result], items: Iterator[_Item], *, num_threads: int, limit: int
) -> Iterator[_Result]:
    """Yield ``work`` of each item in order, done by threads for up to ``limit`` items ahead."""

    def run(slot: list[Any]) -> None:
        slot[0] = work(slot[0])

    slots: Iterator[list[Any]] = ([item] for item in items)
    with Pipeline(slots, [[run]], limit=limit, num_threads=num_threads, adaptive=False) as pipeline:
        for slot in pipeline:
            yield slot.pop()


class CsvFile:
    """CSV file with a header and one row per line, decompressed if its name ends in .gz.

    No value contains a line end. Blanks around a value do not count. An empty cell is null; a word
    such as NA is null in columns of numbers and dates, and the word ``null`` in all columns.
    ``decimal`` is the mark of decimals.
    """

    index_columns: frozenset[str] = frozenset()  #: as of ``ParquetFile``

    def __init__(
        self,
        path: Path,
        delimiter: str,
        decimal: str,
        problems: Problems,
        *,
        null: str | None = None,
    ) -> None:
        self.path = path
        self._nulls = [""] if null is None else ["", null]
        self._delimiter = delimiter
        self._decimal = decimal
        self._problems = problems
        first = head_lines(path, source=path)[0]
        self._header_bytes = len(first.encode()) + 1
        if "\ufffd" in first:
            raise GraphError(f"{path}: row 0, the header, is not UTF-8; save the table as UTF-8")
        self.names = [name.strip() for name in self._cells(first)]
        if next(self._lines(_SAMPLE_BYTES), None) is None:
            raise GraphError(f"{path}: expected at least one row, got only a header")

    def num_rows(self) -> int | None:
        """Return the approximate number of rows; None for a compressed file."""
        if self.path.suffix == ".gz":
            return None
        _, text = next(self._lines(_SAMPLE_BYTES))
        # The last line may lack its line end, and may be empty.
        num_lines = text.count(b"\n") + (not text.endswith(b"\n"))
        row_bytes = max(len(text), 1) / num_lines
        return max(1, round((self.path.stat().st_size - self._header_bytes) / row_bytes))

    def types(self) -> dict[str, Any]:
        """Return the Arrow type of each column, inferred from the first rows."""
        _, text = next(self._lines(_SAMPLE_BYTES))
        text = text.decode(errors="replace").encode()  # a function gets the text of a bad row
        try:
            table = self._parsed(text, self.names, {}, lambda row: "skip")
        except pyarrow.ArrowInvalid as error:
            raise GraphError(f"{self.path}: cannot be read ({one_line(error, 200)})") from None
        return {field.name: field.type for field in table.schema}

    def batches(
        self, columns: Sequence[str], types: Mapping[str, Any], batch_rows: int, batch_bytes: int
    ) -> Iterator[Batch]:
        """Yield ``columns`` in batches of about ``batch_bytes``, parsed as ``types`` by threads."""
        cores = hardware.usable_cores()
        return mapped(
            lambda block: self._read(block[0] - 1, block[1], columns, types),
            self._lines(batch_bytes),
            num_threads=cores,
            limit=cores + 1,
        )

    def text(self, row: int, column: str) -> str:
        """Return the text of a cell; empty if the file was changed."""
        for line, text in self._lines(_SAMPLE_BYTES):
            lines = text.split(b"\n")
            if row - (line - 1) < len(lines):
                values = self._cells(lines[row - (line - 1)].decode(errors="replace"))
                return dict(zip(self.names, values, strict=False)).get(column, "")
        return ""

    def _cells(self, line: str) -> list[str]:
        return next(csv.reader([line], delimiter=self._delimiter), [])

    def _lines(self, block_bytes: int) -> Iterator[tuple[int, bytes]]:
        with opened_text(self.path, self.path, _RATIO) as stream:
            yield from line_blocks(stream, 1, self.path, block_bytes)

    def _parsed(
        self,
        text: bytes,
        columns: Sequence[str],
        types: Mapping[str, Any],
        bad_row: Callable[[Any], str] | None = None,
    ) -> Any:
        """Return ``columns`` of rows as an Arrow table; ``bad_row`` gets rows of another length."""
        table = pyarrow.csv.read_csv(
            pyarrow.BufferReader(text),
            read_options=pyarrow.csv.ReadOptions(
                block_size=len(text) + 1, column_names=self.names, use_threads=False
            ),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=self._delimiter, invalid_row_handler=bad_row
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=types,
                include_columns=list(columns),
                null_values=self._nulls,
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                decimal_point=self._decimal,
            ),
        ).combine_chunks()
        if b" " in text or b"\t" in text:
            for number, field in enumerate(table.schema):
                if is_text(field.type):
                    column = cells.without_blanks(table.column(number))
                    table = table.set_column(number, field, column)
        return table

    def _read(
        self, row: int, text: bytes, columns: Sequence[str], types: Mapping[str, Any]
    ) -> Batch:
        """Return ``columns`` of a block of rows from ``row`` on, which are parsed as ``types``."""
        try:
            table = self._parsed(text, columns, types)
        except Exception:  # of Arrow, for a row of another length or a cell of another type
            return self._salvaged(row, text, columns, types)
        return with_texts(Batch(self.path, row, _arrays(table), self._problems))

    def _salvaged(
        self, row: int, text: bytes, columns: Sequence[str], types: Mapping[str, Any]
    ) -> Batch:
        """Return the rows of a block that can be read; report rows and cells that cannot."""
        # Arrow counts lines that are not blank.
        is_filled = [bool(line.strip(b"\r")) for line in text.split(b"\n")]
        rows = row + np.flatnonzero(is_filled)
        is_good = np.ones(len(rows), np.bool_)
        bad_rows: list[Any] = []

        def skip(bad_row: Any) -> str:
            is_good[min(bad_row.number, len(rows)) - 1] = False
            bad_rows.append(bad_row)
            return "skip"

        as_texts = dict.fromkeys(self.names, pyarrow.string())
        text = text.decode(errors="replace").encode()  # ``skip`` gets texts
        try:
            table = self._parsed(text, columns, as_texts, skip)
        except Exception as error:  # of Arrow, whose message may be as long as the file
            where = f"{self.path}: rows from {row} on"
            raise GraphError(f"{where} cannot be read ({one_line(error, 200)})") from None
        lines = Batch(self.path, 0, {"": rows}, self._problems, rows)
        lines.report(~is_good, ("length",), lambda index: self._wrong_length(bad_rows[0]))
        good_rows = rows[is_good] if np.count_nonzero(is_good) == table.num_rows else None
        batch = Batch(self.path, row, _arrays(table), self._problems, good_rows)
        arrays, unread = dict(batch.columns), {}
        for name, texts in batch.columns.items():
            kind = types.get(name, pyarrow.string())
            is_broken = cells.matches(texts, "\ufffd")
            _report_cells(batch, name, is_broken, "encoding", "UTF-8; save the table as UTF-8")
            if not is_text(kind):
                arrays[name], unread[name] = cells.parsed(texts, kind, self._decimal)
                _report_cells(batch, name, unread[name], "kind", cells.noun(kind))
        return with_texts(replace(batch, columns=arrays, unread=unread))

    def _wrong_length(self, row: Any) -> str:
        """Return the message for a row of Arrow with another number of values than the header."""
        hint = ""
        if row.text.count('"') % 2:
            hint = "; a quoted value seems to hold a line end, which is not read"
        elif row.actual_columns == len(self.names) + 1 and row.text.endswith(self._delimiter):
            hint = "; it ends in a delimiter, and the header does not"
        return (
            f"'{brief(row.text)}' has {row.actual_columns} values, expected {len(self.names)} as "
            f"in the header{hint}"
        )


def _arrays(table: Any) -> dict[str, Any]:
    """Return the columns of an Arrow table of at most one chunk, as arrays by name."""
    return {
        name: column.chunk(0) if column.num_chunks else pyarrow.array([], column.type)
        for name, column in zip(table.column_names, table.columns, strict=True)
    }


def _report_cells(batch: Batch, name: str, wrong: BoolArray, kind: str, expected: str) -> None:
    """Report the texts of a column that ``wrong`` marks, which are not as ``expected``."""
    texts = batch.columns[name]
    batch.report(
        wrong,
        (name, kind),
        lambda index: f"{brief(name)} is {brief(repr(texts[index].as_py()))}, expected {expected}",
    )


class Table:
    """Table of named columns, with rows in the order of its files: all Parquet, or all CSV.

    Batches report to ``problems``, whose error the reader raises at the end. In CSV the word
    ``null`` stands for an empty cell. None: no word does.
    """

    def __init__(
        self,
        files: Sequence[Path],
        delimiter: str,
        memory_bytes: int,
        decimal: str = ".",
        *,
        null: str | None = None,
    ) -> None:
        self.path = files[0].parent if len(files) > 1 else files[0]
        self.paths = list(files)  #: paths of the files
        self.problems = Problems()
        self.decimal = decimal  #: mark of decimals in CSV
        self._files: list[CsvFile | ParquetFile] = [
            ParquetFile(file, self.problems)
            if file.name.endswith(".parquet")
            else CsvFile(file, delimiter, decimal, self.problems, null=null)
            for file in files
        ]
        for file in self._files:
            # Unnamed columns are not read, so any number is fine.
            named = [name for name in file.names if name.strip()]
            twice = next((name for name in named if named.count(name) > 1), None)
            if twice is not None:
                hint = _header_hint(named)
                raise GraphError(f"{file.path}: has two columns {brief(repr(twice))}{hint}")
        #: type of the vertices or edges. None: there are no types
        self.row_type: str | None = None
        self.names = self._files[0].names
        self.is_csv = isinstance(self._files[0], CsvFile)
        self.types = self._files[0].types()
        #: columns of Parquet that pandas wrote as its index
        self.index_columns = {name for file in self._files for name in file.index_columns}
        self.batch_bytes = min(max(memory_bytes // 64, _MIN_BATCH), _MAX_BATCH)
        self._mask: BoolArray | None = None

    def require(self, option: str, column: str, *, otherwise: str = "") -> str:
        """Return ``column``, the value of an option; GraphError unless each file has it once.

        ``otherwise``, if not empty, is what to set if there is no such column.
        """
        for file in self._files:
            if file.names.count(column) > 1:
                raise GraphError(f"{file.path}: has two columns {brief(repr(column))}")
            if column not in file.names:
                listed = ", ".join(brief(name or "''") for name in file.names[:_MAX_NAMED])
                more = len(file.names) - _MAX_NAMED
                listed += f" and {more} more" if more > 0 else ""
                hint = _header_hint(file.names) if isinstance(file, CsvFile) else ""
                if not hint:
                    hint = suggestion(column, file.names)
                    hint += f"; if there is none, set {otherwise}" if otherwise else ""
                raise GraphError(
                    f"{file.path}: has no column {brief(repr(column))} (dataset.{option}), it has "
                    f"{listed}{hint}"
                )
        return column

    def option(self, name: str) -> str:
        """Return the full name of an option on this table, for messages."""
        return f"dataset.{name}"

    def setting(self, option: str, value: str) -> str:
        """Return how to set an option for this table, for messages: ``dataset.OPTION=VALUE``."""
        if self.row_type is not None:
            value = f"{{{brief(self.row_type)}: {value}}}"
        return f"dataset.{option}={value}"

    def num_rows(self) -> int | None:
        """Return the number of rows, approximate for CSV; None if a CSV file is compressed."""
        counts = [file.num_rows() for file in self._files]
        return None if None in counts else sum(filter(None, counts))

    def csv_text(self, path: Path, row: int, column: str) -> str | None:
        """Return the text of a cell of CSV, which is read again; None for Parquet."""
        return next(file for file in self._files if file.path == path).text(row, column)

    def keep(self, rows: BoolArray) -> None:
        """Leave out, from now on, the rows that the mask ``[num_rows]`` does not mark."""
        self._mask = rows

    def batches(
        self, columns: Sequence[str], types: Mapping[str, Any], row_bytes: int
    ) -> Iterator[Batch]:
        """Yield ``columns`` in batches; CSV is parsed as ``types``.

        A batch of Parquet has at most as many rows of about ``row_bytes`` each as
        ``batch_bytes`` holds, or a single row.
        """
        num_rows = min(max(self.batch_bytes // max(row_bytes, 1), 1), _MAX_ROWS)
        first = 0
        for file in self._files:
            for batch in file.batches(columns, types, num_rows, self.batch_bytes):
                last = first + len(batch)
                part = batch if self._mask is None else batch.filtered(self._mask[first:last])
                first = last
                if len(part):
                    yield part


def _header_hint(names: Sequence[str]) -> str:
    """Return a hint for a header of numbers, or of one column, which may have another delimiter."""
    if all(re.match(cells.NUMBER, name) for name in names):
        return "; the first line holds numbers: add a header, a line with the names of the columns"
    if len(names) != 1:
        return ""
    mark = next((mark for mark in ";\t|" if mark in names[0]), None)
    if mark is None:
        return "; dataset.delimiter says what is between the values"
    return f"; set dataset.delimiter={'tab' if mark == chr(9) else repr(mark)}"
