"""Parquet, decoded batch by batch: columns in several threads, pages as they are needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gnnscale.dataset.formats.plain import readable
from gnnscale.dataset.tables.batch import Batch
from gnnscale.graph import GraphError

__all__ = ["ParquetFile"]

#: What is read of each column at a time.
_BUFFER_BYTES = 1 << 20


class ParquetFile:
    """One file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._open() as file:
            self._schema = file.schema_arrow
            self._num_rows = file.metadata.num_rows
        self.names: list[str] = list(self._schema.names)
        if not self._num_rows:
            raise GraphError(f"{path}: empty, it has no row")

    def num_rows(self) -> int:
        """Return how many rows there are."""
        return int(self._num_rows)

    def types(self) -> dict[str, Any]:
        """Return the Arrow type of each column."""
        return {field.name: field.type for field in self._schema}

    def batches(self, columns: Sequence[str], batch_rows: int) -> Iterator[Batch]:
        """Yield some of the columns, ``batch_rows`` rows at a time.

        Raises:
            GraphError: the file is damaged.
        """
        row = 1
        with self._open() as file, readable(self.path):
            # A field that is a structure would be left out silently where one of its parts is.
            for part in file.iter_batches(batch_rows, columns=list(columns), use_threads=True):
                if len(part):
                    yield Batch(self.path, row, {name: part.column(name) for name in columns})
                row += len(part)
        if row - 1 != self._num_rows:
            raise GraphError(f"{self.path}: {row - 1} rows, its end says {self._num_rows}")

    def _open(self) -> Any:
        from pyarrow import parquet  # takes a while, and a run whose store exists needs none

        with readable(self.path):
            # Not mapped: mapped pages count as memory of this process. Pages, not whole chunks of
            # columns, are in memory.
            return parquet.ParquetFile(
                str(self.path), pre_buffer=False, buffer_size=_BUFFER_BYTES, memory_map=False
            )
