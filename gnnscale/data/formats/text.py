"""Comma- or space-separated numbers in streams, parsed by Arrow block by block."""

import codecs
import gzip
import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from gnnscale.core import Array, GraphError, brief, one_line, pyarrow
from gnnscale.core.artifact.files import file_bytes, readable
from gnnscale.graph.store_format import MAX_FEATURES

_BLOCK_BYTES = 16 << 20
_BLANKS = " \t"
_TEXT = "string"
#: First characters of comments in edge lists, of SNAP and of KONECT.
COMMENTS = ("#", "%")
_NO_EDGE = re.compile(rb"(?m)^[ \t]*(?:[#%].*|\r?)$")
#: Bytes of the head of a file and of a line: 65,536 features of 24 characters have 1.5 MiB.
_HEAD_BYTES = 4 << 20
#: Bytes that a .gz may unpack to beyond a multiple of its size.
_TEXT_ALLOWANCE = 64 << 20
#: Limit of a table in memory: allowance plus ratio times the size of its file.
_TABLE_ALLOWANCE, _TABLE_RATIO = 256 << 20, 20


def csv_columns(
    file: Path | IO[bytes],
    types: Sequence[str],
    *,
    source: object,
    delimiter: str = ",",
    skip_lines: int = 0,
    ratio: int = 20,
    block_bytes: int = _BLOCK_BYTES,
) -> Iterator[list[Array]]:
    """Yield the columns of a text file without a header in blocks of about ``block_bytes``.

    A path that ends in .gz is decompressed (GraphError beyond 64 MiB plus ``ratio`` times its
    size). ``types`` are NumPy types of the first columns, or ``string``, for Arrow arrays; further
    columns are skipped. A blank or a tab as ``delimiter`` stands for any run of blanks and tabs (a
    tab before texts for itself), and lines that begin with # or % are then comments. GraphError,
    naming the line, for a value of another type.
    """
    names: list[str] = []
    with opened_text(file, source, ratio) as stream:
        for line, block in line_blocks(stream, skip_lines, source, block_bytes):
            if not names:
                names = _names(line, block, types, delimiter, source)
            yield _parsed(line, block, names, types, delimiter, source)
    if not names:
        raise GraphError(f"{source}: empty, it has no line of {len(types)} numbers")


def csv_table(
    file: Path,
    types: Sequence[str],
    *,
    source: object,
    max_rows: int | None = None,
    allowance: int = _TABLE_ALLOWANCE,
) -> Array:
    """Return comma-separated text without a header as one array ``[rows, len(types)]``.

    ``types`` are the columns' NumPy types; a .gz is decompressed. GraphError: over ``max_rows``
    rows, or over ``allowance`` bytes plus 20 times the file's size.
    """
    limit = allowance + _TABLE_RATIO * file_bytes(file)
    blocks: list[Array] = []
    num_rows = 0
    for columns in csv_columns(file, types, source=source):
        num_rows += len(columns[0])
        if max_rows is not None and num_rows > max_rows:
            raise GraphError(f"{source}: over {max_rows} rows, which is all that there can be")
        if num_rows * len(types) * columns[0].itemsize > limit:
            raise GraphError(f"{source}: a table of over {limit} bytes from a smaller file")
        blocks.append(np.stack(columns, axis=1))
    return np.concatenate(blocks)


def head_lines(file: Path, *, source: object) -> list[str]:
    """Return the whole lines in the first 4 MiB of a text file, decompressed if it ends in .gz."""
    with opened_text(file, source, ratio=20) as stream, readable(source):
        data: bytes = stream.read(_HEAD_BYTES)
    whole = data if len(data) < _HEAD_BYTES else data[: data.rfind(b"\n") + 1]
    if not data:
        raise GraphError(f"{source}: empty")
    if not whole:
        raise GraphError(f"{source}: line 1 is longer than {_HEAD_BYTES} bytes")
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise GraphError(f"{source}: is UTF-16; save the file as UTF-8")
    lines = whole.decode("utf-8", "replace").removesuffix("\n").split("\n")
    refuse_lone_cr(lines[0], 1, source)
    return [line.removesuffix("\r") for line in lines]


def refuse_lone_cr(line: str, number: int, source: object) -> None:
    """Raise GraphError if line ``number`` has a CR before its end, as in old Macintosh files."""
    if "\r" in line.removesuffix("\r"):
        raise GraphError(
            f"{source}: line {number} has a CR without LF, and lines that end in CR alone are not "
            "read; save the file with LF, or with CR LF"
        )


def num_columns(file: Path, *, source: object) -> int:
    """Return the number of comma-separated values on the first line of a text file."""
    return head_lines(file, source=source)[0].count(",") + 1


@contextmanager
def opened_text(file: Path | IO[bytes], source: object, ratio: int) -> Iterator[Any]:
    """Yield a byte stream of a path, without a byte order mark of UTF-8, or ``file``, a stream.

    A .gz is decompressed: GraphError beyond 64 MiB plus ``ratio`` times its size.
    """
    if not isinstance(file, Path):
        yield file
        return
    size = file_bytes(file)
    try:
        stream = file.open("rb")
    except OSError as error:
        raise GraphError(f"{source}: cannot be read ({error.strerror})") from None
    with stream:
        if file.suffix != ".gz":
            _skip_mark(stream, source)
            yield stream
            return
        with gzip.GzipFile(fileobj=stream) as unpacked:
            _skip_mark(unpacked, source)
            yield _Limited(unpacked, _TEXT_ALLOWANCE + ratio * size, source)


def _skip_mark(stream: Any, source: object) -> None:
    """Move ``stream``, at its start, behind a byte order mark of UTF-8."""
    with readable(source):
        if stream.read(len(codecs.BOM_UTF8)) != codecs.BOM_UTF8:
            stream.seek(0)


class _Limited:
    """Stream of a decompressed file that raises GraphError once over ``limit`` bytes are read."""

    def __init__(self, stream: gzip.GzipFile, limit: int, source: object) -> None:
        self._stream = stream
        self._limit = self._num_free = limit
        self._source = source

    def read(self, num_bytes: int) -> bytes:
        data = self._stream.read(num_bytes)
        self._num_free -= len(data)
        if self._num_free < 0:
            raise GraphError(
                f"{self._source}: unpacks to over {self._limit} bytes, too many for its size; "
                "text that is not compressed has no such limit"
            )
        return data


def line_blocks(
    stream: Any, skip_lines: int, source: object, block_bytes: int
) -> Iterator[tuple[int, bytes]]:
    """Yield the number of the first line, from 1, and the bytes of blocks of full lines.

    ``skip_lines`` lines and blank blocks are left out.
    """
    line, partial_line = 1, b""
    while True:
        with readable(source):
            data = stream.read(block_bytes)
        cut = data.rfind(b"\n") + 1
        if data and not cut:
            partial_line += data
            if len(partial_line) > _HEAD_BYTES:
                raise GraphError(f"{source}: line {line} is longer than {_HEAD_BYTES} bytes")
            continue
        block, partial_line = partial_line + data[:cut], data[cut:]
        while skip_lines and block:
            skip_lines -= 1
            block = block[block.find(b"\n") + 1 or len(block) :]
            line += 1
        if block.strip():
            yield line, block
        line += block.count(b"\n")
        if not data:
            return


def _names(
    line: int, block: bytes, types: Sequence[str], delimiter: str, source: object
) -> list[str]:
    text = block.lstrip(b"\r\n")
    line += block[: len(block) - len(text)].count(b"\n")
    first = text[: text.find(b"\n") + 1 or len(text)]
    refuse_lone_cr(first.removesuffix(b"\n").decode("utf-8", "replace"), line, source)
    count = first.count(delimiter.encode()) + 1
    if delimiter == " " or (delimiter in _BLANKS and _TEXT not in types):
        count = max(count, len(first.split()))
    if not len(types) <= count <= MAX_FEATURES:
        raise GraphError(
            f"{source}: line {line} has {count} columns and cannot be read as "
            f"{'/'.join(sorted(set(types)))}; allowed are {len(types)} to {MAX_FEATURES}"
        )
    return [f"f{column}" for column in range(count)]


def _first_fields(text: bytes, count: int) -> bytes:
    """Return the first ``count`` fields of each line, separated by tabs instead of any blanks.

    A line with fewer fields stays as it is.
    """
    field = rb"[ \t]*([^ \t\r\n]+)"
    replacement = rb"\t".join(rb"\%d" % number for number in range(1, count + 1))
    return re.sub(rb"(?m)^" + rb"[ \t]".join([field] * count) + rb"(?=\s|\Z).*$", replacement, text)


def _parsed(
    line: int, block: bytes, names: list[str], types: Sequence[str], delimiter: str, source: object
) -> list[Array]:
    used = names[: len(types)]
    kinds = {
        name: pyarrow.large_string() if kind == _TEXT else pyarrow.from_numpy_dtype(kind)
        for name, kind in zip(used, types, strict=True)
    }
    # An empty cell is an error, not a zero; NaN is for the checks to judge.
    convert = pyarrow.csv.ConvertOptions(column_types=kinds, include_columns=used, null_values=[])

    def strict(text: bytes, mark: str, columns: list[str]) -> list[Array]:
        table = pyarrow.csv.read_csv(
            io.BytesIO(text),
            read_options=pyarrow.csv.ReadOptions(block_size=len(text) + 1, column_names=columns),
            parse_options=pyarrow.csv.ParseOptions(delimiter=mark),
            convert_options=convert,
        )
        return [_values(column) for column in table.columns]

    def parse(text: bytes) -> list[Array]:
        has_texts = _TEXT in types
        if not has_texts and delimiter not in _BLANKS:
            return strict(text, delimiter, names)
        if not has_texts:
            with suppress(Exception):  # of Arrow, whose delimiter is a single character
                return strict(text, delimiter, names)
        text = _NO_EDGE.sub(b"", text)
        if not text.strip():
            return [_values(pyarrow.chunked_array([], kinds[name])) for name in used]
        if has_texts and delimiter != " ":  # texts may have blanks
            return strict(text, delimiter, names)
        return strict(_first_fields(text, len(types)), "\t", used)

    try:
        return parse(block)
    except Exception as error:  # of Arrow, whose message may be as long as the file
        start, stop = bad_line(block, parse)
        number = line + block.count(b"\n", 0, start)
        text = brief(block[start:stop].decode("utf-8", "replace"))
        reason, count = one_line(error, 200), len(block[start:stop].split())
        if delimiter in _BLANKS and count < len(types):
            reason = f"expected {len(types)} columns, got {count}"
        raise GraphError(
            f"{source}: line {number} is '{text}' and cannot be read as "
            f"{'/'.join(sorted(set(types)))} ({reason})"
        ) from None


def _values(column: Any) -> Any:
    """Return numbers as an array, texts as an Arrow array; ValueError: a text is empty."""
    if not pyarrow.types.is_large_string(column.type):
        return column.to_numpy()
    texts = pyarrow.compute.utf8_trim_whitespace(column).combine_chunks()
    if pyarrow.compute.any(pyarrow.compute.equal(texts, "")).as_py():
        raise ValueError("a text is empty")
    return texts


def bad_line(block: bytes, parse: Callable[[bytes], Any]) -> tuple[int, int]:
    """Return start and end of the first line of ``block`` that ``parse`` refuses; one exists."""
    start, stop = 0, len(block)
    while True:
        middle = (start + stop) // 2
        cut = block.find(b"\n", middle, stop - 1) + 1 or block.rfind(b"\n", start, middle) + 1
        if not cut:
            return start, stop
        try:
            if block[start:cut].strip():
                parse(block[start:cut])
            start = cut
        except Exception:  # of a parser of any library
            stop = cut
