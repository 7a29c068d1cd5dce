"""Parquet file, decoded in batches of bounded memory."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gnnscale.core import GraphError, brief, pyarrow
from gnnscale.core.artifact.files import file_bytes, readable
from gnnscale.data.tables.batch import Batch, Problems, with_texts
from gnnscale.data.tables.parquet_pages import ColumnChunk, read_footer, read_pages

#: Bytes of a column that are read at a time.
_BUFFER_BYTES = 1 << 20
#: Row groups whose page headers are checked at a time, before their rows are decoded.
_GROUPS = 16
#: Limits of the pages decompressed at a time, and of the lists of a row group: allowance plus ratio
#: times their bytes in the file.
_PAGE_ALLOWANCE, _LIST_ALLOWANCE, _RATIO = 128 << 20, 256 << 20, 100
#: Bytes of a value by physical type, for types of fixed size.
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}


class ParquetFile:
    """Parquet file, read in batches; its footer is checked before pyarrow opens it.

    Batches report to ``problems``.
    """

    def __init__(self, path: Path, problems: Problems) -> None:
        self.path = path
        self._problems = problems
        file_bytes(path)
        # Before pyarrow, which allocates 700 bytes for a column chunk of 3 bytes.
        with readable(path), path.open("rb") as stream:
            self._footer = read_footer(stream, str(path))
        with self._open() as file, readable(path):
            schema, metadata = file.schema_arrow, file.metadata
            self._metadata = metadata
            self._group_rows = [
                metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)
            ]
            self.names: list[str] = list(schema.names)
            # Inside ``readable``: types and names come from the file and may be damaged.
            self._types = {field.name: field.type for field in schema}
            self.index_columns = _index_columns(schema.metadata)
        shape = [metadata.num_columns] * len(self._group_rows)
        if [len(group) for group in self._footer] != shape:
            raise GraphError(f"{path}: its footer is damaged")
        if not self.num_rows():
            raise GraphError(f"{path}: empty, it has no row")

    def num_rows(self) -> int:
        """Return the number of rows."""
        return sum(self._group_rows)

    def types(self) -> dict[str, Any]:
        """Return the Arrow type of each column."""
        return dict(self._types)

    def text(self, row: int, column: str) -> None:
        """Return None: cells are no texts."""

    def batches(
        self, columns: Sequence[str], types: object, batch_rows: int, batch_bytes: int
    ) -> Iterator[Batch]:
        """Yield columns, of their own types, in batches of up to ``batch_rows`` rows.

        A batch has about ``batch_bytes`` of texts, or a single row. Damaged files, and files that
        unpack to much more memory than their size, are refused.
        """
        row, num_groups = 1, len(self._group_rows)
        with self._open(metadata=self._metadata) as file:
            for first in range(0, num_groups, _GROUPS):
                groups = range(first, min(first + _GROUPS, num_groups))
                rows = min(
                    self._safe_rows(group, columns, batch_rows, batch_bytes) for group in groups
                )
                # pyarrow silently drops a structure column if one of its fields is missing.
                options = {"row_groups": list(groups), "columns": list(columns)}
                with readable(self.path):
                    for part in file.iter_batches(rows, **options, use_threads=False):
                        if len(part):
                            arrays = {name: part.column(name) for name in columns}
                            yield with_texts(Batch(self.path, row, arrays, self._problems))
                        row += len(part)
        if row != self.num_rows() + 1:
            raise GraphError(
                f"{self.path}: row {row - 1} is the last, its end says {self.num_rows()}"
            )

    def _safe_rows(
        self, group: int, columns: Sequence[str], batch_rows: int, batch_bytes: int
    ) -> int:
        """Return how many rows of a row group to decode at a time to stay within ``batch_bytes``.

        A value of a few bits may be any entry of a dictionary, so the longest entry limits the
        rows. GraphError if the row group would unpack to too much.
        """
        chunks = self._chunks(group, columns)
        self._check_sizes(group, chunks)
        number = max(_WIDTHS.values())
        texts = [c for c in chunks if not c.nested and (c.width is None or c.width > number)]
        sizes = {chunk.path: chunk.value_bytes(batch_bytes) for chunk in texts}
        num_rows = min(batch_rows, self._group_rows[group])
        if num_rows * sum(sizes.values()) > batch_bytes:
            for chunk in texts:
                if chunk.width is None and chunk.begins_with_dictionary:
                    longest = self._longest_entry(group, chunk.path)
                    sizes[chunk.path] = chunk.value_bytes(batch_bytes, longest)
        return max(min(batch_rows, batch_bytes // max(sum(sizes.values()), 1)), 1)

    def _chunks(self, group: int, columns: Sequence[str]) -> list[ColumnChunk]:
        source = f"{self.path}: row group {group}"
        chunks = []
        schema = self._metadata.schema
        with readable(self.path), self.path.open("rb") as stream:
            for index, location in enumerate(self._footer[group]):
                column = schema.column(index)
                path = column.path
                if not any(path == name or path.startswith(f"{name}.") for name in columns):
                    continue
                pages = read_pages(stream, location, f"{source}, column {brief(repr(path))}")
                fixed = column.physical_type == "FIXED_LEN_BYTE_ARRAY"
                chunks.append(
                    ColumnChunk(
                        path=path,
                        num_rows=self._group_rows[group],
                        nested=column.max_repetition_level > 0,
                        width=column.length if fixed else _WIDTHS.get(column.physical_type),
                        pages=pages,
                    )
                )
        return chunks

    def _check_sizes(self, group: int, chunks: Sequence[ColumnChunk]) -> None:
        """Raise GraphError for wrong counts of values, or pages that unpack to far too much."""
        source = f"{self.path}: row group {group}"
        for chunk in chunks:
            if not chunk.nested and chunk.num_values != chunk.num_rows:
                raise GraphError(
                    f"{source}: column {brief(repr(chunk.path))} has {chunk.num_values} values in "
                    f"{chunk.num_rows} rows"
                )
            entry = chunk.value_bytes(_LIST_ALLOWANCE)
            if chunk.nested and chunk.num_values * entry > _LIST_ALLOWANCE + _RATIO * chunk.packed:
                raise GraphError(
                    f"{source}: column {brief(repr(chunk.path))} has {chunk.num_values} values in "
                    f"lists, too many for its {chunk.packed} bytes; write fewer rows a group"
                )
        needed = sum(chunk.page_bytes for chunk in chunks)
        allowed = _PAGE_ALLOWANCE + _RATIO * sum(chunk.packed for chunk in chunks)
        if needed > allowed:
            raise GraphError(
                f"{source}: its pages unpack to {needed} bytes at a time, allowed are {allowed}; "
                "write smaller pages, or do not compress them"
            )

    def _longest_entry(self, group: int, path: str) -> int | None:
        """Return the bytes of the longest dictionary entry of column ``path`` in a row group.

        None: unknown.
        """
        with (
            self._open(read_dictionary=[path], metadata=self._metadata) as file,
            readable(self.path),
        ):
            # Dictionary-encoded, so that each entry is in memory once.
            for part in file.iter_batches(row_groups=[group], columns=[path], use_threads=False):
                array = part.column(0)
                if not pyarrow.types.is_dictionary(array.type):  # a part of a structure
                    return None
                if len(array.dictionary):
                    return int(
                        pyarrow.compute.max(pyarrow.compute.binary_length(array.dictionary)).as_py()
                        or 0
                    )
        return None

    def _open(self, **options: Any) -> Any:
        with readable(self.path):
            # Not mapped: mapped pages would count as memory of this process. Without pre_buffer,
            # pages and not full column chunks are in memory.
            return pyarrow.parquet.ParquetFile(
                str(self.path),
                pre_buffer=False,
                buffer_size=_BUFFER_BYTES,
                memory_map=False,
                **options,
            )


def _index_columns(metadata: Mapping[bytes, bytes] | None) -> set[str]:
    """Return the names of a data frame's index columns, from the metadata of pandas."""
    try:
        names = json.loads((metadata or {})[b"pandas"])["index_columns"]
        return {name for name in names if isinstance(name, str)}
    except (KeyError, TypeError, ValueError, RecursionError):
        return set()
