"""A table in one file or several, whatever their format."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeAlias

from gnnscale.core import GraphError, nearest, shown
from gnnscale.dataset.tables import batch, csv_file, parquet_file

_File: TypeAlias = csv_file.CsvFile | parquet_file.ParquetFile
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
            parquet_file.ParquetFile(file)
            if batch.is_parquet(file)
            else csv_file.CsvFile(file, delimiter)
            for file in files
        ]
        for file in self._files:
            twice = next((name for name in file.names if file.names.count(name) > 1), None)
            if twice is not None:
                raise GraphError(f"{file.path}: has two columns {shown(repr(twice))}")
        self.names = self._files[0].names
        self.is_csv = isinstance(self._files[0], csv_file.CsvFile)
        self.types = self._files[0].types()
        self.batch_bytes = min(max(memory_bytes // 64, _MIN_BATCH), _MAX_BATCH)

    def require(self, option: str, column: str) -> str:
        """Return ``column``, the value of an option; raise GraphError unless every file has it."""
        for file in self._files:
            if column not in file.names:
                listed = ", ".join(map(shown, file.names[:_MAX_NAMED]))
                more = len(file.names) - _MAX_NAMED
                raise GraphError(
                    f"{file.path}: has no column {shown(repr(column))} (dataset.{option}), it has "
                    f"{listed}{f' and {more} more' if more > 0 else ''}"
                    f"{nearest(column, file.names)}{self._hint(file)}"
                )
        return column

    @staticmethod
    def _hint(file: _File) -> str:
        alone = isinstance(file, csv_file.CsvFile) and len(file.names) == 1
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
            if isinstance(file, csv_file.CsvFile):
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
