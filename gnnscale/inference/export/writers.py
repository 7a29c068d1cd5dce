"""Writers of output rows, pair scores and best partners to Parquet or NumPy files, in chunks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from gnnscale.core import (
    Array,
    ConfigError,
    Float32Array,
    IntArray,
    UInt8Array,
    brief,
    pyarrow,
    whole_file,
)
from gnnscale.inference.export.outputs import EMBEDDINGS, EdgeIds, RowIds, answer

SUFFIXES = (".parquet", ".npy")
#: Approximate bytes of a row group, the unit that readers of Parquet load.
_GROUP_BYTES = 32 << 20
#: Maximum bytes of fixed-width text ids in a ``.npy`` file: an allowance, plus a multiple of the
#: bytes of the texts.
_IDS_ALLOWANCE, _IDS_RATIO = 64 << 20, 16


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Rows of an output file: their number, width, outputs, class names and ids."""

    num_rows: int  #: number of rows
    width: int  #: width of a model's output row
    #: outputs per row, of ``ANSWERS``, ``EMBEDDINGS`` or ``VALUES``; exactly one in a ``.npy`` file
    answers: tuple[str, ...]
    multilabel: bool  #: whether a vertex may have several classes
    ids: RowIds  #: ids of the rows
    #: names of the classes, which a ``.parquet`` file stores instead of indices; None: no names
    classes: Sequence[str] | None = None
    thresholds: Sequence[float] | None = None  #: of ``binary_metrics.shifted``; None: 0.5

    def values(self, output: str, rows: Float32Array) -> Array:
        """Return ``output`` of a model's ``rows`` ``[n, width]``."""
        return answer(output, rows, multilabel=self.multilabel, thresholds=self.thresholds)


class OutputTable(Protocol):
    """Output file that is open for writing."""

    def write(self, rows: Float32Array) -> None:
        """Append the file's outputs, such as classes, of a model's rows ``[n, width]``."""


def check_file(file: Path, *, force: bool) -> None:
    """Raise ConfigError for a file that cannot be written or overwritten.

    With ``force`` a file is replaced, and so is a link, whose target stays unchanged.
    """
    if file.suffix not in SUFFIXES:
        raise ConfigError(
            f"out={brief(file)}: expected a name that ends in {' or '.join(SUFFIXES)}"
        )
    for path in (file, ids_file(file)) if file.suffix == ".npy" else (file,):
        replaceable = path.is_file() or path.is_symlink()
        if os.path.lexists(path) and not (force and replaceable):
            hint = ", force=true overwrites it" if replaceable else ""
            raise ConfigError(f"out={brief(file)}: {path} exists{hint}")
    if not file.parent.is_dir():
        raise ConfigError(f"out={brief(file)}: no such folder {file.parent}")


def ids_file(file: Path) -> Path:
    """Return the path of the second file, ``.ids.npy``, for the ids of a ``.npy`` file's rows."""
    return file.with_suffix(".ids.npy")


def check_ids(file: Path, layout: Layout) -> None:
    """Raise ConfigError if the ids file of a ``.npy`` file is out of proportion to its text ids.

    NumPy makes all ids as wide as the longest. The file may take 64 MiB, plus 16 times the bytes of
    the texts.
    """
    ids = layout.ids
    if file.suffix != ".npy" or not ids.are_texts:
        return
    count = layout.num_rows * ids.num_columns
    needed = count * ids.array_bytes
    if needed > _IDS_ALLOWANCE + _IDS_RATIO * count * ids.mean_bytes:
        raise ConfigError(
            f"out={brief(file)}: {ids_file(file).name} would take {needed:,} bytes, since ids have "
            f"up to {ids.longest:,} characters, and NumPy gives as many to each; "
            "out=FILE.parquet has no such width"
        )


def row_bytes(file: Path, layout: Layout) -> int:
    """Return the approximate bytes of a row of outputs and its id in an output file."""
    num_float = len([name for name in layout.answers if name != "classes"])
    ids = layout.ids.array_bytes if file.suffix == ".npy" else layout.ids.mean_bytes
    class_bytes = layout.width if layout.multilabel else 0
    return 8 + layout.ids.num_columns * ids + 4 * layout.width * num_float + class_bytes


@contextmanager
def open_table(file: Path, layout: Layout) -> Iterator[OutputTable]:
    """Open ``file``, which ``check_file`` allows, for atomic writing.

    A ``.npy`` file gets a second file with ids unless the ids are row indices; an old second file
    is then removed.
    """
    if file.suffix == ".parquet":
        # Float values hardly repeat: a dictionary would only take space.
        dictionary: Any = ["class"] if layout.classes is not None else False
        with _open_parquet(file, dictionary) as write:
            yield _Parquet(write, layout)
    elif not layout.ids.are_rows:
        with whole_file(file, wait=False) as stream, whole_file(ids_file(file)) as ids:
            yield _Npy(stream, layout, ids)
    else:
        with whole_file(file, wait=False) as stream:
            yield _Npy(stream, layout, None)
        _remove_ids(file)


def _remove_ids(file: Path) -> None:
    """Remove the ids next to an earlier ``.npy`` file, since they would belong to other rows."""
    ids_file(file).unlink(missing_ok=True)


@contextmanager
def _open_parquet(
    file: Path, dictionary: Any = True
) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Open ``file`` for atomic writing; yield a function that appends columns of rows by name.

    Rows are written in groups of about 32 MiB. Columns in ``dictionary``, of names or all, have
    values that repeat.
    """
    tables: list[Any] = []
    writer: Any = None

    def flush() -> None:
        nonlocal writer
        table = pyarrow.concat_tables(tables)
        if writer is None:
            writer = pyarrow.parquet.ParquetWriter(stream, table.schema, use_dictionary=dictionary)
        writer.write_table(table, row_group_size=max(len(table), 1))
        tables.clear()

    def write(columns: Mapping[str, Any]) -> None:
        tables.append(pyarrow.table(columns))
        if sum(table.nbytes for table in tables) >= _GROUP_BYTES:
            flush()

    with whole_file(file, wait=False) as stream:
        yield write
        if tables:
            flush()
        writer.close()


class _Parquet:
    """Writer of a ``.parquet`` table: ids, and outputs such as class and list of probabilities."""

    def __init__(self, append: Callable[[Mapping[str, Any]], None], layout: Layout) -> None:
        self._append, self._layout = append, layout
        self._first = 0
        # Maximum bytes of the class names in a row.
        lengths = [len(name.encode()) for name in layout.classes or ()]
        name_bytes = (sum if layout.multilabel else max)(lengths) if lengths else 0
        self._max_rows = max(_GROUP_BYTES // name_bytes, 1) if name_bytes else None

    def write(self, rows: Float32Array) -> None:
        step = self._max_rows or max(len(rows), 1)
        for first in range(0, len(rows), step):
            part = rows[first : first + step]
            columns = self._layout.ids.columns(self._first, len(part))
            for output in self._layout.answers:
                name = {EMBEDDINGS: "embedding", "classes": "class"}.get(output, output)
                name = output if output == "classes" and self._layout.multilabel else name
                columns[name] = self._column(output, self._layout.values(output, part))
            self._append(columns)
            self._first += len(part)

    def _column(self, output: str, values: Array) -> Any:
        if output == "classes":
            names = self._layout.classes
            numbers = values if values.ndim == 1 else values.nonzero()[1]
            classes = pyarrow.array(numbers)
            classes = classes if names is None else pyarrow.array(names).take(classes)
            return classes if values.ndim == 1 else _class_lists(values, classes)
        flat = pyarrow.array(np.ascontiguousarray(values, np.float32).reshape(-1))
        return pyarrow.FixedSizeListArray.from_arrays(flat, values.shape[1])


class _Npy:
    """Writer of one output to a ``.npy`` file, and of ids, if given a stream, to a second file."""

    def __init__(self, stream: IO[bytes], layout: Layout, ids: IO[bytes] | None) -> None:
        (self._output,) = layout.answers
        self._stream, self._layout, self._ids = stream, layout, ids
        self._first = 0
        dtype: np.dtype[Any] = np.dtype(np.float32)
        shape: Sequence[int] = (layout.num_rows, layout.width)
        if self._output == "classes":
            dtype = np.dtype(np.uint8 if layout.multilabel else np.int64)
            shape = shape if layout.multilabel else shape[:1]
        write_header(stream, dtype, shape)
        if ids is not None:
            columns = (layout.ids.num_columns,) if layout.ids.num_columns > 1 else ()
            write_header(ids, layout.ids.array(0, 0).dtype, (layout.num_rows, *columns))

    def write(self, rows: Float32Array) -> None:
        values = self._layout.values(self._output, rows)
        _append(self._stream, values)
        if self._ids is not None:
            _append(self._ids, self._layout.ids.array(self._first, len(rows)))
        self._first += len(rows)


def _append(stream: IO[bytes], array: Any) -> None:
    stream.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def write_header(stream: IO[bytes], dtype: np.dtype[Any], shape: Sequence[int]) -> None:
    """Write the header of a ``.npy`` file for an array in C order."""
    descr = np.lib.format.dtype_to_descr(dtype)
    header = {"descr": descr, "fortran_order": False, "shape": tuple(shape)}
    np.lib.format.write_array_header_1_0(stream, header)


def _class_lists(is_class: UInt8Array, classes: Any) -> Any:
    """Return an Arrow list of classes for each row of the 0/1 matrix ``is_class``.

    ``classes`` has the class of each 1, row by row.
    """
    ends = np.append(0, is_class.sum(axis=1).cumsum()).astype(np.int32)
    return pyarrow.ListArray.from_arrays(pyarrow.array(ends), classes)


def write_scores(
    file: Path, pairs: IntArray, scores: Iterable[Float32Array], user_ids: pyarrow.Array | None
) -> None:
    """Write chunks of the scores of ``pairs`` ``[n, 2]`` atomically.

    A ``.parquet`` file has columns ``source``, ``target`` and ``score``; a ``.npy`` file has the
    scores ``[n]``. ``user_ids`` are ``[num_vertices]``; None: ids are vertices. OSError: the file
    cannot be written.
    """
    first = 0
    if file.suffix == ".npy":
        with whole_file(file, wait=False) as stream:
            write_header(stream, np.dtype(np.float32), (len(pairs),))
            for chunk in scores:
                _append(stream, chunk)
        _remove_ids(file)
        return
    with _open_parquet(file) as write:
        for chunk in scores:
            write(_scored(pairs[first : first + len(chunk)], chunk, user_ids))
            first += len(chunk)


def write_partners(
    file: Path,
    vertices: IntArray,
    chunks: Iterable[tuple[IntArray, Float32Array]],
    k: int,
    user_ids: pyarrow.Array | None,
) -> None:
    """Write the ``k`` best partners of each vertex atomically.

    A ``.parquet`` file has ``k`` rows for each vertex, best first, with columns ``source``,
    ``target`` and ``score``, without rows of the score -inf. A ``.npy`` file has the scores
    ``[n, k]``, and the file ``.ids.npy`` next to it the partners. ``chunks`` have partners and
    scores ``[s, k]`` of consecutive vertices; ``user_ids`` are ``[num_vertices]``, None: ids are
    vertices.
    """
    first = 0
    if file.suffix == ".npy":
        dtype = RowIds(vertices=vertices[:0], own=user_ids).array(0, 0).dtype
        with whole_file(file, wait=False) as stream, whole_file(ids_file(file)) as ids:
            write_header(stream, np.dtype(np.float32), (len(vertices), k))
            write_header(ids, dtype, (len(vertices), k))
            for partners, scores in chunks:
                _append(stream, scores)
                flat = RowIds(vertices=partners.reshape(-1), own=user_ids)
                _append(ids, flat.array(0, partners.size))
        return
    with _open_parquet(file) as write:
        for partners, scores in chunks:
            sources = np.repeat(vertices[first : first + len(partners)], k)
            pairs = np.stack([sources, partners.reshape(-1)], axis=1)
            exist = scores.reshape(-1) > -np.inf
            write(_scored(pairs[exist], scores.reshape(-1)[exist], user_ids))
            first += len(partners)


def _scored(
    pairs: IntArray, scores: Float32Array, user_ids: pyarrow.Array | None
) -> dict[str, Any]:
    """Return the columns of ``pairs`` ``[n, 2]`` and their ``scores`` ``[n]``."""
    ids = EdgeIds(vertices=pairs, own=user_ids)
    return {**ids.columns(0, len(pairs)), "score": scores}
