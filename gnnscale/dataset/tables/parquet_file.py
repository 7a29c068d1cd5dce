"""Parquet, decoded batch by batch, pages as they are needed."""

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
            metadata = file.metadata
            self._group_rows = [
                metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)
            ]
        self.names: list[str] = list(self._schema.names)
        if not self.num_rows():
            raise GraphError(f"{path}: empty, it has no row")

    def num_rows(self) -> int:
        """Return how many rows there are."""
        return sum(self._group_rows)

    @property
    def num_groups(self) -> int:
        """Number of row groups, which can be read by themselves."""
        return len(self._group_rows)

    def types(self) -> dict[str, Any]:
        """Return the Arrow type of each column."""
        return {field.name: field.type for field in self._schema}

    def batches(
        self, columns: Sequence[str], batch_rows: int, groups: range | None = None
    ) -> Iterator[Batch]:
        """Yield some of the columns, ``batch_rows`` rows at a time.

        Args:
            columns: names.
            batch_rows: at most.
            groups: numbers of the row groups that are read; None for all.

        Raises:
            GraphError: the file is damaged.
        """
        groups = range(self.num_groups) if groups is None else groups
        row = 1 + sum(self._group_rows[: groups.start])
        end = row + sum(self._group_rows[groups.start : groups.stop])
        with self._open() as file, readable(self.path):
            # A field that is a structure would be left out silently where one of its parts is.
            for part in file.iter_batches(
                batch_rows, row_groups=list(groups), columns=list(columns), use_threads=False
            ):
                if len(part):
                    yield Batch(self.path, row, {name: part.column(name) for name in columns})
                row += len(part)
        if row != end:
            raise GraphError(f"{self.path}: row {row - 1} is the last, its end says {end - 1}")

    def _open(self) -> Any:
        from pyarrow import parquet  # takes a while, and a run whose store exists needs none

        with readable(self.path):
            # Not mapped: mapped pages count as memory of this process. Pages, not whole chunks of
            # columns, are in memory.
            return parquet.ParquetFile(
                str(self.path), pre_buffer=False, buffer_size=_BUFFER_BYTES, memory_map=False
            )
