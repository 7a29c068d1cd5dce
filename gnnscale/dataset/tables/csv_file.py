"""CSV with a header, parsed block by block in several threads, in order and in bounded memory."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gnnscale.core import GraphError, hardware, one_line, prefetch, shown
from gnnscale.dataset.formats.text import bad_line, head_lines, line_blocks, opened_text
from gnnscale.dataset.tables.batch import Batch, with_texts

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
        header = head_lines(path, source=path)[0].removeprefix("\ufeff")
        self.names = next(csv.reader([header], delimiter=delimiter), [])
        if next(self._lines(_SAMPLE_BYTES), None) is None:
            raise GraphError(f"{path}: empty, it has a header and no row")

    def num_rows(self) -> int | None:
        """Return the approximate number of rows; None for a compressed file."""
        if self.path.suffix == ".gz":
            return None
        _, text = next(self._lines(_SAMPLE_BYTES))
        # A text of one line may lack its end, and be empty.
        row_bytes = max(len(text), 1) / max(text.count(b"\n"), 1)
        return int(self.path.stat().st_size / row_bytes) + 1

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
