"""A table of Parquet or CSV files; threads parse CSV in blocks, in order and in bounded memory."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeAlias

from gnnscale.core import GraphError, hardware, nearest, one_line, shown
from gnnscale.core import pipeline as prefetch
from gnnscale.data.formats.text import bad_line, head_lines, line_blocks, opened_text
from gnnscale.data.tables import batch, parquet_file
from gnnscale.data.tables.batch import Batch, with_texts

#: What one byte of a .gz may give. Edges between few vertices compress well.
_RATIO = 100
#: Types are guessed from the first rows.
_SAMPLE_BYTES = 1 << 20


class _Block:
    """Lines of a file, and the batch that they are parsed to."""

    def __init__(self, line: int, text: bytes) -> None:
        self.line = line
        self.text = text
        self.batch: Batch | None = None


class CsvFile:
    """One file: a header, then one row per line, decompressed if it ends in .gz.

    No value contains a line end. An empty cell is null, and no word is. The column's type decides
    what else a cell may hold.
    """

    def __init__(self, path: Path, delimiter: str) -> None:
        self.path = path
        self._delimiter = delimiter
        first = head_lines(path, source=path)[0]
        self._header_bytes = len(first.encode()) + 1
        header = first.removeprefix("\ufeff")
        self.names = next(csv.reader([header], delimiter=delimiter), [])
        if next(self._lines(_SAMPLE_BYTES), None) is None:
            raise GraphError(f"{path}: empty, it has a header and no row")

    def num_rows(self) -> int | None:
        """Return the approximate number of rows; None for a compressed file."""
        if self.path.suffix == ".gz":
            return None
        _, text = next(self._lines(_SAMPLE_BYTES))
        # A file's last line may lack its end, and be empty.
        num_lines = text.count(b"\n") + (not text.endswith(b"\n"))
        row_bytes = max(len(text), 1) / num_lines
        return max(1, round((self.path.stat().st_size - self._header_bytes) / row_bytes))

    def types(self) -> dict[str, Any]:
        """Return the Arrow type that the first rows of each column suggest."""
        line, text = next(self._lines(_SAMPLE_BYTES))
        table = self._read(_Block(line, text), self.names, {})
        return {field.name: field.type for field in table.schema}

    def batches(
        self, columns: Sequence[str], types: Mapping[str, Any], batch_bytes: int
    ) -> Iterator[Batch]:
        """Yield columns, each of its Arrow type, in batches of ``batch_bytes`` of text.

        Raises:
            GraphError: a value is not of its type; names the row.
        """

        def parse(block: _Block) -> None:
            table = self._read(block, columns, types).combine_chunks()
            arrays = [column.chunk(0) for column in table.columns] if table.num_rows else []
            batch = Batch(self.path, block.line - 1, dict(zip(columns, arrays, strict=False)))
            block.batch = with_texts(batch)
            block.text = b""

        cores = hardware.usable_cores()
        with prefetch.Pipeline(
            (_Block(line, text) for line, text in self._lines(batch_bytes)),
            [[parse]],
            limit=cores + 1,
            num_threads=cores,
            adaptive=False,
        ) as blocks:
            for block in blocks:
                if block.batch is not None and block.batch.columns:
                    yield block.batch

    def _lines(self, block_bytes: int) -> Iterator[tuple[int, bytes]]:
        with opened_text(self.path, self.path, _RATIO) as stream:
            yield from line_blocks(stream, 1, self.path, block_bytes)

    def _read(self, block: _Block, columns: Sequence[str], types: Mapping[str, Any]) -> Any:
        import pyarrow  # takes a while, and a run whose store exists needs none
        from pyarrow import csv

        convert = csv.ConvertOptions(
            column_types=types,
            include_columns=list(columns),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )

        def parse(text: bytes) -> Any:
            return csv.read_csv(
                pyarrow.BufferReader(text),
                read_options=csv.ReadOptions(
                    block_size=len(text) + 1, column_names=self.names, use_threads=False
                ),
                parse_options=csv.ParseOptions(delimiter=self._delimiter),
                convert_options=convert,
            )

        try:
            return parse(block.text)
        except Exception as error:  # a foreign parser, whose messages can be as long as the file
            start, stop = bad_line(block.text, parse)
            line = block.line + block.text.count(b"\n", 0, start)
            text = shown(block.text[start:stop].decode("utf-8", "replace"))
            raise GraphError(
                f"{self.path}: row {line - 1} is '{text}' and cannot be read ({_reason(error)})"
            ) from None


def _reason(error: Exception) -> str:
    # Arrow puts places of the block first: 'In CSV column #1: Row #2: CSV conversion error to ...'.
    text = str(error)
    return one_line(text[max(text.rfind("CSV conversion"), text.rfind("CSV parse"), 0) :], 200)


_File: TypeAlias = CsvFile | parquet_file.ParquetFile
#: Names of columns that an error lists.
_MAX_NAMED = 12
_MIN_BATCH, _MAX_BATCH = 64 << 10, 16 << 20
#: More rows leave the caches before somebody reads them, and take memory that is fresh each time.
_MAX_ROWS = 1 << 17


class Table:
    """Named columns, with rows in the order of ``files``, which are all Parquet or all CSV.

    Batches that are read ahead take about ``memory_bytes`` together; a row of any length is read.

    Raises:
        GraphError: a file is empty or damaged, or names a column twice.
    """

    def __init__(self, files: Sequence[Path], delimiter: str, memory_bytes: int) -> None:
        self.path = files[0].parent if len(files) > 1 else files[0]
        self._files: list[_File] = [
            parquet_file.ParquetFile(file) if batch.is_parquet(file) else CsvFile(file, delimiter)
            for file in files
        ]
        for file in self._files:
            # Columns without a name are not read, however many there are.
            named = [name for name in file.names if name.strip()]
            twice = next((name for name in named if named.count(name) > 1), None)
            if twice is not None:
                raise GraphError(f"{file.path}: has two columns {shown(repr(twice))}")
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

    def require(self, option: str, column: str) -> str:
        """Return ``column``, the value of an option; raise GraphError unless every file has it."""
        for file in self._files:
            if file.names.count(column) > 1:
                raise GraphError(f"{file.path}: has two columns {shown(repr(column))}")
            if column not in file.names:
                listed = ", ".join(shown(name or "''") for name in file.names[:_MAX_NAMED])
                more = len(file.names) - _MAX_NAMED
                raise GraphError(
                    f"{file.path}: has no column {shown(repr(column))} (dataset.{option}), it has "
                    f"{listed}{f' and {more} more' if more > 0 else ''}"
                    f"{nearest(column, file.names)}{self._hint(file)}"
                )
        return column

    def require_or(self, option: str, column: str, other: str) -> str:
        """Return as ``require``; the error names ``other``, the option for tables without it."""
        try:
            return self.require(option, column)
        except GraphError as error:
            raise GraphError(f"{error}; if there is none, set {other}") from None

    @staticmethod
    def _hint(file: _File) -> str:
        alone = isinstance(file, CsvFile) and len(file.names) == 1
        return "; dataset.delimiter says what is between the values" if alone else ""

    def num_rows(self) -> int | None:
        """Return the number of rows, approximate for CSV; None if a file is compressed."""
        counts = [file.num_rows() for file in self._files]
        return None if None in counts else sum(filter(None, counts))

    def batches(
        self, columns: Sequence[str], types: Mapping[str, Any], row_bytes: int
    ) -> Iterator[batch.Batch]:
        """Yield columns, batch by batch; a row takes about ``row_bytes``.

        ``types`` are Arrow types for the columns of CSV; Parquet has its own.

        Raises:
            GraphError: a file is damaged, or a value is not of its type; names the row.
        """
        for file in self._files:
            if isinstance(file, CsvFile):
                yield from file.batches(columns, types, self.batch_bytes)
            else:
                yield from file.batches(columns, self._rows(row_bytes), self.batch_bytes)

    def shares(
        self, columns: Sequence[str], types: Mapping[str, Any], row_bytes: int, num_shares: int
    ) -> list[Iterator[batch.Batch]]:
        """Return what ``batches`` yields in up to ``num_shares`` parts, for concurrent readers.

        There are no more parts than row groups of Parquet, and one of CSV, which several threads
        parse.
        """
        files = [file for file in self._files if isinstance(file, parquet_file.ParquetFile)]
        groups = [(file, number) for file in files for number in range(file.num_groups)]
        count = min(num_shares, len(groups))
        if count < 2:
            return [self.batches(columns, types, row_bytes)]
        bounds = [len(groups) * share // count for share in range(count + 1)]
        rows = self._rows(row_bytes)
        return [
            _of_groups(groups[a:b], columns, rows, self.batch_bytes) for a, b in pairwise(bounds)
        ]

    def _rows(self, row_bytes: int) -> int:
        return min(max(self.batch_bytes // max(row_bytes, 1), 1), _MAX_ROWS)


def _of_groups(
    groups: Sequence[tuple[parquet_file.ParquetFile, int]],
    columns: Sequence[str],
    batch_rows: int,
    batch_bytes: int,
) -> Iterator[batch.Batch]:
    """Yield the rows of consecutive row groups."""
    for file, numbers in groupby(groups, key=itemgetter(0)):
        wanted = [number for _, number in numbers]
        yield from file.batches(columns, batch_rows, batch_bytes, range(wanted[0], wanted[-1] + 1))
