"""Table of Parquet or CSV files, read in batches by threads in bounded memory."""

import csv
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeAlias

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
from gnnscale.data.tables import batch, cells, parquet_file
from gnnscale.data.tables.batch import Batch, is_text, with_texts
from gnnscale.data.tables.problems import Problems

#: Bytes that one byte of a .gz may unpack to; edges between few vertices compress well.
_RATIO = 100
#: Bytes of the first rows, from which types are inferred.
_SAMPLE_BYTES = 1 << 20


class _Block:
    """Lines of a file, and the batch parsed from the lines."""

    def __init__(self, line: int, text: bytes) -> None:
        self.line = line
        self.text = text
        self.batch: Batch | None = None


class CsvFile:
    """CSV file with a header and one row per line, decompressed if its name ends in .gz.

    No value contains a line end. Blanks around a value do not count. An empty cell is null; a word
    such as NA is null in columns of numbers and dates. ``decimal`` is the mark of decimals.
    """

    def __init__(
        self, path: Path, delimiter: str, decimal: str = ".", problems: Problems | None = None
    ) -> None:
        self.path = path
        self._delimiter = delimiter
        self._decimal = decimal
        self._problems = problems
        first = head_lines(path, source=path)[0]
        self._header_bytes = len(first.encode()) + 1
        if "\ufffd" in first:
            raise GraphError(f"{path}: row 0, the header, is not UTF-8; save the table as UTF-8")
        names = next(csv.reader([first], delimiter=delimiter), [])
        self.names = [name.strip() for name in names]
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
        self, columns: Sequence[str], types: Mapping[str, Any], batch_bytes: int
    ) -> Iterator[Batch]:
        """Yield ``columns`` in batches of about ``batch_bytes``, parsed as ``types`` by threads."""

        def parse(block: _Block) -> None:
            block.batch = self._read(block, columns, types)
            block.text = b""

        cores = hardware.usable_cores()
        with Pipeline(
            (_Block(line, text) for line, text in self._lines(batch_bytes)),
            [[parse]],
            limit=cores + 1,
            num_threads=cores,
            adaptive=False,
        ) as blocks:
            for block in blocks:
                if block.batch is not None and block.batch.columns:
                    yield block.batch

    def text(self, row: int, column: str) -> str:
        """Return the text of a cell; empty if the file was changed."""
        for line, text in self._lines(_SAMPLE_BYTES):
            lines = text.split(b"\n")
            if row - (line - 1) < len(lines):
                cells = lines[row - (line - 1)].decode(errors="replace")
                values = next(csv.reader([cells], delimiter=self._delimiter), [])
                return dict(zip(self.names, values, strict=False)).get(column, "")
        return ""

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
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                decimal_point=self._decimal,
            ),
        )
        if b" " in text or b"\t" in text:
            for number, field in enumerate(table.schema):
                if is_text(field.type):
                    column = cells.without_blanks(table.column(number))
                    table = table.set_column(number, field, column)
        return table

    def _read(self, block: _Block, columns: Sequence[str], types: Mapping[str, Any]) -> Batch:
        """Return ``columns`` of a block of rows, which are parsed as ``types``."""
        try:
            table = self._parsed(block.text, columns, types).combine_chunks()
        except Exception:  # of Arrow, for a row of another length or a cell of another type
            return self._salvaged(block, columns, types)
        arrays = [column.chunk(0) for column in table.columns] if table.num_rows else []
        columns_of = dict(zip(columns, arrays, strict=False))
        return with_texts(Batch(self.path, block.line - 1, columns_of, problems=self._problems))

    def _salvaged(self, block: _Block, columns: Sequence[str], types: Mapping[str, Any]) -> Batch:
        """Return what can be read of a block of rows; report all rows and cells that cannot.

        GraphError, for a cell or row that cannot be read, if the file collects no problems.
        """
        # Arrow counts lines that are not blank.
        filled = [bool(line.strip(b"\r")) for line in block.text.split(b"\n")]
        rows = block.line - 1 + np.flatnonzero(filled)
        is_good = np.ones(len(rows), np.bool_)
        texts: list[tuple[str, int]] = []

        def note(row: Any) -> str:
            is_good[min(row.number, len(rows)) - 1] = False
            texts.append((row.text, row.actual_columns))
            return "skip"

        as_texts = dict.fromkeys(self.names, pyarrow.string())
        text = block.text.decode(errors="replace").encode()  # ``note`` gets texts
        try:
            table = self._parsed(text, columns, as_texts, note).combine_chunks()
        except Exception as error:  # of Arrow, whose message may be as long as the file
            where = f"{self.path}: rows from {block.line - 1} on"
            raise GraphError(f"{where} cannot be read ({one_line(error, 200)})") from None
        everything = Batch(self.path, 0, {"": rows}, rows, self._problems)
        everything.report(~is_good, ("length",), lambda index: self._wrong_length(*texts[0]))
        good = rows[is_good] if np.count_nonzero(is_good) == table.num_rows else None
        batch = Batch(self.path, block.line - 1, {}, good, self._problems)
        arrays: dict[str, Any] = {}
        unread: dict[str, BoolArray] = {}
        for name, column in zip(columns, table.columns if table.num_rows else (), strict=False):
            kind = types.get(name, pyarrow.string())
            arrays[name] = column.chunk(0)
            _report_undecoded(batch, name, arrays[name])
            if not is_text(kind):
                arrays[name], unread[name] = self._converted(batch, name, arrays[name], kind)
        return with_texts(replace(batch, columns=arrays, unread=unread))

    def _converted(self, batch: Batch, name: str, texts: Any, kind: Any) -> tuple[Any, BoolArray]:
        """Return texts as ``kind``, and report and return which are not of it, ``[n]``."""
        array, wrong = cells.parsed(texts, kind, self._decimal)
        expected = cells.noun(kind)
        batch.report(
            wrong,
            (name, "kind"),
            lambda index: (
                f"{brief(name)} is {brief(repr(texts[index].as_py()))}, expected {expected}"
            ),
        )
        return array, wrong

    def _wrong_length(self, text: str, count: int) -> str:
        """Return the message for a row of ``count`` values."""
        hint = ""
        if text.count('"') % 2:
            hint = "; a quoted value seems to hold a line end, which is not read"
        elif count == len(self.names) + 1 and text.endswith(self._delimiter):
            hint = "; it ends in a delimiter, and the header does not"
        return (
            f"'{brief(text)}' has {count} values, expected {len(self.names)} as in the header{hint}"
        )


def _report_undecoded(batch: Batch, name: str, texts: Any) -> None:
    """Report cells that are not UTF-8, whose bytes have become the sign of replacement."""
    batch.report(
        cells.matches(texts, "\ufffd"),
        (name, "encoding"),
        lambda index: (
            f"{brief(name)} is {brief(repr(texts[index].as_py()))}, expected UTF-8; save the table "
            "as UTF-8"
        ),
    )


_File: TypeAlias = CsvFile | parquet_file.ParquetFile
#: Columns listed in an error, at most.
_MAX_NAMED = 12
#: Bytes of a batch.
_MIN_BATCH, _MAX_BATCH = 64 << 10, 16 << 20
#: Rows of a batch, at most: larger batches leave the caches before they are used.
_MAX_ROWS = 1 << 17


class Table:
    """Table of named columns, with rows in the order of its files: all Parquet, or all CSV.

    Batches report to ``problems``, whose error the reader raises at the end.
    """

    def __init__(
        self, files: Sequence[Path], delimiter: str, memory_bytes: int, decimal: str = "."
    ) -> None:
        self.path = files[0].parent if len(files) > 1 else files[0]
        self.problems = Problems()
        self.decimal = decimal  #: mark of decimals in CSV
        self._files: list[_File] = [
            parquet_file.ParquetFile(file, self.problems)
            if batch.is_parquet(file)
            else CsvFile(file, delimiter, decimal, self.problems)
            for file in files
        ]
        self._keep: BoolArray | None = None
        for file in self._files:
            # Unnamed columns are not read, so any number is fine.
            named = [name for name in file.names if name.strip()]
            twice = next((name for name in named if named.count(name) > 1), None)
            if twice is not None:
                hint = _header_hint(named)
                raise GraphError(f"{file.path}: has two columns {brief(repr(twice))}{hint}")
        self.names = self._files[0].names
        self.is_csv = isinstance(self._files[0], CsvFile)
        self.types = self._files[0].types()
        #: columns of Parquet that pandas wrote as its index
        self.index_columns = {
            name
            for file in self._files
            if isinstance(file, parquet_file.ParquetFile)
            for name in file.index_columns
        }
        self.batch_bytes = min(max(memory_bytes // 64, _MIN_BATCH), _MAX_BATCH)

    @property
    def paths(self) -> list[Path]:
        """Paths of the files."""
        return [file.path for file in self._files]

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
                hint = _header_hint(file.names) if isinstance(file, CsvFile) else ""
                if not hint:
                    hint = suggestion(column, file.names)
                    hint += f"; if there is none, set {otherwise}" if otherwise else ""
                raise GraphError(
                    f"{file.path}: has no column {brief(repr(column))} (dataset.{option}), it has "
                    f"{listed}{f' and {more} more' if more > 0 else ''}{hint}"
                )
        return column

    def num_rows(self) -> int | None:
        """Return the number of rows, approximate for CSV; None if a CSV file is compressed."""
        counts = [file.num_rows() for file in self._files]
        return None if None in counts else sum(filter(None, counts))

    def csv_text(self, path: Path, row: int, column: str) -> str | None:
        """Return the text of a cell of CSV, which is read again; None for Parquet."""
        for file in self._files:
            if file.path == path and isinstance(file, CsvFile):
                return file.text(row, column)
        return None

    def keep(self, rows: BoolArray) -> None:
        """Leave out, from now on, the rows that the mask ``[num_rows]`` does not mark."""
        self._keep = rows

    def batches(
        self, columns: Sequence[str], types: Mapping[str, Any], row_bytes: int
    ) -> Iterator[batch.Batch]:
        """Yield ``columns`` in batches; CSV is parsed as ``types``.

        A batch of Parquet has at most as many rows of about ``row_bytes`` each as
        ``batch_bytes`` holds, or a single row.
        """
        first = 0
        for file in self._files:
            parts = (
                file.batches(columns, types, self.batch_bytes)
                if isinstance(file, CsvFile)
                else file.batches(columns, self._rows(row_bytes), self.batch_bytes)
            )
            for part in parts:
                last = first + len(part)
                kept = part if self._keep is None else part.kept(self._keep[first:last])
                first = last
                if len(kept):
                    yield kept

    def shares(
        self, columns: Sequence[str], types: Mapping[str, Any], row_bytes: int, num_shares: int
    ) -> list[Iterator[batch.Batch]]:
        """Return up to ``num_shares`` iterators that together yield the rows of ``batches``.

        Parquet is divided by row groups; CSV has one iterator, since threads parse it already.
        """
        files = [file for file in self._files if isinstance(file, parquet_file.ParquetFile)]
        groups = [(file, number) for file in files for number in range(file.num_groups)]
        count = min(num_shares, len(groups))
        if count < 2:
            return [self.batches(columns, types, row_bytes)]
        bounds = [len(groups) * share // count for share in range(count + 1)]
        rows = self._rows(row_bytes)
        return [
            _group_batches(groups[a:b], columns, rows, self.batch_bytes)
            for a, b in pairwise(bounds)
        ]

    def _rows(self, row_bytes: int) -> int:
        return min(max(self.batch_bytes // max(row_bytes, 1), 1), _MAX_ROWS)


def _group_batches(
    groups: Sequence[tuple[parquet_file.ParquetFile, int]],
    columns: Sequence[str],
    batch_rows: int,
    batch_bytes: int,
) -> Iterator[batch.Batch]:
    """Yield ``columns`` of consecutive Parquet row groups in batches of up to ``batch_rows`` rows.

    ``groups`` are pairs of a file and a row group's number in the file. A batch has about
    ``batch_bytes`` of texts, or a single row.
    """
    for file, numbers in groupby(groups, key=itemgetter(0)):
        group_numbers = [number for _, number in numbers]
        yield from file.batches(
            columns, batch_rows, batch_bytes, range(group_numbers[0], group_numbers[-1] + 1)
        )


def _header_hint(names: Sequence[str]) -> str:
    """Return a hint for a header of numbers, or of one column, which may have another delimiter."""
    if all(re.match(cells.NUMBER, name) for name in names):
        return "; the first line holds numbers: add a header, a line with the names of the columns"
    if len(names) != 1:
        return ""
    found = next((mark for mark in ";\t|" if mark in names[0]), None)
    if found is None:
        return "; dataset.delimiter says what is between the values"
    return f"; set dataset.delimiter={'tab' if found == chr(9) else repr(found)}"
