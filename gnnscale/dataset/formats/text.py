"""Comma- or space-separated text in streams, parsed by Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from gnnscale.graph import GraphError

__all__ = ["csv_columns", "csv_table", "head_lines"]

_BLOCK_BYTES = 16 << 20


def csv_columns(
    file: Path | IO[bytes],
    types: Sequence[str],
    *,
    source: object,
    delimiter: str = ",",
    skip_lines: int = 0,
) -> Iterator[list[NDArray[Any]]]:
    """Yield the columns of a text file without a header, block by block, with bounded memory.

    Args:
        file: a path, decompressed on the way where it ends in .gz, or an open binary file.
        types: NumPy type of each column; columns after these are left out.
        source: named in errors.
        delimiter: one character.
        skip_lines: lines at the start that are not data.

    Raises:
        GraphError: the file is missing or truncated, or a value is not of its type.
    """
    try:
        with _stream(file) as stream:
            yield from _batches(stream, types, delimiter, skip_lines)
    except FileNotFoundError:
        raise GraphError(f"{source}: missing") from None
    except (pa.ArrowInvalid, OSError, EOFError) as error:
        reason = str(error).splitlines()[0]
        raise GraphError(f"{source}: cannot be read as {'/'.join(set(types))} ({reason})") from None


def csv_table(file: Path | IO[bytes], types: Sequence[str], *, source: object) -> NDArray[Any]:
    """Return a whole text file without a header as one array ``[rows, len(types)]``."""
    blocks = [np.stack(columns, axis=1) for columns in csv_columns(file, types, source=source)]
    return np.concatenate(blocks) if blocks else np.empty((0, len(types)), types[0])


def head_lines(file: Path, *, source: object) -> list[str]:
    """Return the lines in the first 64 KiB of a text file, decompressed where it ends in .gz."""
    try:
        with _stream(file) as stream:
            text: str = stream.read(1 << 16).decode(errors="replace")
    except FileNotFoundError:
        raise GraphError(f"{source}: missing") from None
    except (OSError, EOFError) as error:
        raise GraphError(f"{source}: cannot be read ({error})") from None
    if not text:
        raise GraphError(f"{source}: empty")
    return text.splitlines()


def _stream(file: Path | IO[bytes]) -> Any:
    if not isinstance(file, Path):
        return pa.PythonFile(file, "r")
    compression = "gzip" if file.suffix == ".gz" else None
    return pa.input_stream(str(file), compression=compression, buffer_size=1 << 20)


def _batches(
    stream: Any, types: Sequence[str], delimiter: str, skip_lines: int
) -> Iterator[list[NDArray[Any]]]:
    csv = pyarrow.csv
    names = [f"f{column}" for column in range(len(types))]
    arrow_types = {
        name: pa.from_numpy_dtype(np.dtype(kind)) for name, kind in zip(names, types, strict=True)
    }
    reader = csv.open_csv(
        stream,
        read_options=csv.ReadOptions(
            block_size=_BLOCK_BYTES, autogenerate_column_names=True, skip_rows=skip_lines
        ),
        parse_options=csv.ParseOptions(delimiter=delimiter),
        # An empty cell is an error, not a zero; NaN is for the checks to judge.
        convert_options=csv.ConvertOptions(
            column_types=arrow_types, include_columns=names, null_values=[]
        ),
    )
    for batch in reader:
        yield [column.to_numpy(zero_copy_only=False) for column in batch.columns]
