"""Writers of output rows, pair scores and best partners to Parquet or NumPy files, in chunks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

import numpy as np

from gnnscale.core import Array, ConfigError, Float32Array, IntArray, UInt8Array, brief, whole_file
from gnnscale.inference.export.outputs import EMBEDDINGS, RowIds, answer

if TYPE_CHECKING:
    import pyarrow


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
    if file.suffix == ".parquet":
        load_pyarrow()
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
        with whole_file(file, wait=False) as stream:
            table = _Parquet(stream, layout)
            yield table
            table.close()
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


class _Parquet:
    """Writer of a ``.parquet`` table: ids, and outputs such as class and list of probabilities."""

    def __init__(self, stream: IO[bytes], layout: Layout) -> None:
        self._pa = load_pyarrow()
        self._stream, self._layout = stream, layout
        self._writer: Any = None
        self._buffer: list[Any] = []
        self._first = self._buffer_bytes = 0
        # Maximum bytes of the class names in a row.
        lengths = [len(name.encode()) for name in layout.classes or ()]
        self._name_bytes = (sum if layout.multilabel else max)(lengths) if lengths else 0

    def write(self, rows: Float32Array) -> None:
        step = _GROUP_BYTES // self._name_bytes if self._name_bytes else len(rows)
        for first in range(0, len(rows), max(step, 1)):
            self._write(rows[first : first + max(step, 1)])

    def _write(self, rows: Float32Array) -> None:
        layout = self._layout
        ids = layout.ids.columns(self._first, len(rows))
        columns = {name: self._pa.array(values) for name, values in ids.items()}
        for output in layout.answers:
            values = layout.values(output, rows)
            name = "class" if output == "classes" and not layout.multilabel else output
            name = "embedding" if output == EMBEDDINGS else name
            columns[name] = self._column(output, values)
        table = self._pa.table(columns)
        self._first += len(rows)
        self._buffer.append(table)
        self._buffer_bytes += table.nbytes
        if self._buffer_bytes >= _GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        """Write the remaining rows and the end of the file."""
        if self._buffer:
            self._flush()
        self._writer.close()

    def _column(self, output: str, values: Array) -> Any:
        pa = self._pa
        if output == "classes":
            names = self._layout.classes
            numbers = values if values.ndim == 1 else values.nonzero()[1]
            classes = pa.array(numbers) if names is None else pa.array(names).take(numbers)
            return classes if values.ndim == 1 else _class_lists(pa, values, classes)
        flat = pa.array(np.ascontiguousarray(values, np.float32).reshape(-1))
        return pa.FixedSizeListArray.from_arrays(flat, values.shape[1])

    def _flush(self) -> None:
        from pyarrow import parquet

        table = self._pa.concat_tables(self._buffer)
        if self._writer is None:
            # Float values hardly repeat: a dictionary would only take space.
            repeated: Any = ["class"] if self._layout.classes is not None else False
            self._writer = parquet.ParquetWriter(
                self._stream, table.schema, use_dictionary=repeated
            )
        self._writer.write_table(table, row_group_size=max(len(table), 1))
        self._buffer, self._buffer_bytes = [], 0


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


def _class_lists(pa: Any, is_class: UInt8Array, classes: Any) -> Any:
    """Return an Arrow list of classes for each row of the 0/1 matrix ``is_class``.

    ``classes`` has the class of each 1, row by row.
    """
    ends = np.append(0, is_class.sum(axis=1).cumsum()).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), classes)


def load_pyarrow() -> Any:
    """Return the module ``pyarrow``; ConfigError: it is not installed."""
    try:
        import pyarrow
    except ImportError:
        raise ConfigError(
            "out: expected pyarrow for a .parquet file, which is not installed; pip install "
            "pyarrow, or use out=FILE.npy"
        ) from None
    return pyarrow


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
            ends = pairs[first : first + len(chunk)]
            write(_ids(ends[:, 0], user_ids), _ids(ends[:, 1], user_ids), chunk)
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
            exist = scores.reshape(-1) > -np.inf
            pairs = sources[exist], partners.reshape(-1)[exist]
            write(*(_ids(ends, user_ids) for ends in pairs), scores.reshape(-1)[exist])
            first += len(partners)


def _ids(vertices: IntArray, user_ids: pyarrow.Array | None) -> Any:
    return RowIds(vertices=vertices, own=user_ids).slice(0, len(vertices))


@contextmanager
def _open_parquet(file: Path) -> Iterator[Any]:
    """Open ``file``; yield a function that appends rows of sources, targets and scores."""
    pa = load_pyarrow()
    from pyarrow import parquet

    writer: Any = None
    with whole_file(file, wait=False) as stream:

        def write(sources: Any, targets: Any, scores: Float32Array) -> None:
            nonlocal writer
            columns = {"source": sources, "target": targets, "score": scores}
            table = pa.table(columns)
            if writer is None:
                writer = parquet.ParquetWriter(stream, table.schema)
            writer.write_table(table)

        yield write
        writer.close()
