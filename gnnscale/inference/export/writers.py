"""Files of rows, written a chunk after the other: Parquet, and NumPy's .npy."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from gnnscale.core import Array, ConfigError, Float32Array, UInt8Array, shown
from gnnscale.core.files import whole_file
from gnnscale.inference.export.outputs import EMBEDDINGS, RowIds, answer

SUFFIXES = (".parquet", ".npy")
#: Rows of about so many bytes are a row group, which readers take at once.
_GROUP_BYTES = 32 << 20
#: What texts of one width may take in a ``.npy`` file, beyond a multiple of their own lengths.
_IDS_ALLOWANCE, _IDS_RATIO = 64 << 20, 16


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What a file holds."""

    num_rows: int  #: number of rows
    width: int  #: of a model's row
    #: what is made of it, of ``ANSWERS`` or ``EMBEDDINGS``. A ``.npy`` file has one.
    answers: tuple[str, ...]
    multilabel: bool  #: whether a vertex may have several classes
    ids: RowIds  #: of the rows
    #: names of the classes, which a ``.parquet`` file shows in place of their numbers; None if
    #: they have none
    classes: Sequence[str] | None = None


class OutputTable(Protocol):
    """A file that is being written."""

    def write(self, rows: Float32Array) -> None:
        """Add rows of the model, ``[n, width]``."""
        ...


def check_file(file: Path, *, force: bool) -> None:
    """Refuse a file that cannot be written, or is not to be.

    ``force`` replaces a file, or a link to one: what it leads to stays as it is.

    Raises:
        ConfigError: its kind is not known, it exists, or it has no folder.
    """
    if file.suffix not in SUFFIXES:
        raise ConfigError(f"out={shown(file)}: the name must end in {' or '.join(SUFFIXES)}")
    if file.suffix == ".parquet":
        load_pyarrow()
    for each in (file, ids_file(file)) if file.suffix == ".npy" else (file,):
        replaceable = each.is_file() or each.is_symlink()
        if os.path.lexists(each) and not (force and replaceable):
            more = ", force=true overwrites it" if replaceable else ""
            raise ConfigError(f"out={shown(file)}: {each} exists{more}")
    if not file.parent.is_dir():
        raise ConfigError(f"out={shown(file)}: no such folder {file.parent}")


def ids_file(file: Path) -> Path:
    """Return the file of the ids of the rows in a ``.npy`` file."""
    return file.with_suffix(".ids.npy")


def check_ids(file: Path, layout: Layout) -> None:
    """Refuse a ``.npy`` file of ids that one long id would blow up: NumPy's texts have one width.

    Raises:
        ConfigError: names the file, and the kind that holds such ids.
    """
    ids = layout.ids
    if file.suffix != ".npy" or not ids.are_texts:
        return
    count = layout.num_rows * ids.num_columns
    needed = count * ids.array_bytes
    if needed > _IDS_ALLOWANCE + _IDS_RATIO * count * ids.mean_bytes:
        raise ConfigError(
            f"out={shown(file)}: {ids_file(file).name} would take {needed:,} bytes, since ids have "
            f"up to {ids.longest:,} characters, and NumPy gives as many to each; "
            "out=FILE.parquet has no such width"
        )


def row_bytes(file: Path, layout: Layout) -> int:
    """Return about the bytes of a row in a file, and of its id."""
    wide = [each for each in layout.answers if each != "classes"]
    ids = layout.ids.array_bytes if file.suffix == ".npy" else layout.ids.mean_bytes
    chosen = layout.width if layout.multilabel else 0
    return 8 + layout.ids.num_columns * ids + 4 * layout.width * len(wide) + chosen


@contextmanager
def open_table(file: Path, layout: Layout) -> Iterator[OutputTable]:
    """Write ``file``, whole or not at all.

    Args:
        file: ``check_file`` allows it. Beside a ``.npy`` file goes one of the rows' ids, if
            these are not their numbers.

    Raises:
        OSError: it cannot be written.
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
        # One of an earlier file would name other rows.
        ids_file(file).unlink(missing_ok=True)


class _Parquet:
    """Rows as columns of ids, ``class``, and lists of probabilities, logits or an embedding."""

    def __init__(self, stream: IO[bytes], layout: Layout) -> None:
        self._pa = load_pyarrow()
        self._stream, self._layout = stream, layout
        self._writer: Any = None
        self._waiting: list[Any] = []
        self._first = self._waiting_bytes = 0
        # What names of classes take in a row, at most.
        lengths = [len(name.encode()) for name in layout.classes or ()]
        self._name_bytes = (sum if layout.multilabel else max)(lengths) if lengths else 0

    def write(self, rows: Float32Array) -> None:
        step = _GROUP_BYTES // self._name_bytes if self._name_bytes else len(rows)
        for first in range(0, len(rows), max(step, 1)):
            self._write(rows[first : first + max(step, 1)])

    def _write(self, rows: Float32Array) -> None:
        layout = self._layout
        ids = layout.ids.columns(self._first, len(rows))
        columns = {name: self._pa.array(each) for name, each in ids.items()}
        for what in layout.answers:
            found = answer(what, rows, multilabel=layout.multilabel)
            name = "class" if what == "classes" and not layout.multilabel else what
            name = "embedding" if what == EMBEDDINGS else name
            columns[name] = self._column(what, found)
        table = self._pa.table(columns)
        self._first += len(rows)
        self._waiting.append(table)
        self._waiting_bytes += table.nbytes
        if self._waiting_bytes >= _GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        """Write what is left, and the file's end."""
        if self._waiting:
            self._flush()
        self._writer.close()

    def _column(self, what: str, found: Array) -> Any:
        pa = self._pa
        if what == "classes":
            names = self._layout.classes
            chosen = found if found.ndim == 1 else found.nonzero()[1]
            classes = pa.array(chosen) if names is None else pa.array(names).take(chosen)
            return classes if found.ndim == 1 else _lists(pa, found, classes)
        values = pa.array(np.ascontiguousarray(found, np.float32).reshape(-1))
        return pa.FixedSizeListArray.from_arrays(values, found.shape[1])

    def _flush(self) -> None:
        from pyarrow import parquet

        table = self._pa.concat_tables(self._waiting)
        if self._writer is None:
            # Numbers in rows hardly repeat, and a dictionary of them would only take room.
            repeated: Any = ["class"] if self._layout.classes is not None else False
            self._writer = parquet.ParquetWriter(
                self._stream, table.schema, use_dictionary=repeated
            )
        self._writer.write_table(table, row_group_size=max(len(table), 1))
        self._waiting, self._waiting_bytes = [], 0


class _Npy:
    """Rows of one answer, and perhaps their ids in a file beside."""

    def __init__(self, stream: IO[bytes], layout: Layout, ids: IO[bytes] | None) -> None:
        (self._what,) = layout.answers
        self._stream, self._layout, self._ids = stream, layout, ids
        self._first = 0
        dtype: np.dtype[Any] = np.dtype(np.float32)
        shape: Sequence[int] = (layout.num_rows, layout.width)
        if self._what == "classes":
            dtype = np.dtype(np.uint8 if layout.multilabel else np.int64)
            shape = shape if layout.multilabel else shape[:1]
        write_header(stream, dtype, shape)
        if ids is not None:
            wide = (layout.ids.num_columns,) if layout.ids.num_columns > 1 else ()
            write_header(ids, layout.ids.array(0, 0).dtype, (layout.num_rows, *wide))

    def write(self, rows: Float32Array) -> None:
        found = answer(self._what, rows, multilabel=self._layout.multilabel)
        self._stream.write(np.ascontiguousarray(found).reshape(-1).view(np.uint8).data)
        if self._ids is not None:
            ids = np.ascontiguousarray(self._layout.ids.array(self._first, len(rows)))
            self._ids.write(ids.view(np.uint8).data)
        self._first += len(rows)


def write_header(stream: IO[bytes], dtype: np.dtype[Any], shape: Sequence[int]) -> None:
    """Write the header of a ``.npy`` file, which an array in C order follows."""
    descr = np.lib.format.dtype_to_descr(dtype)
    header = {"descr": descr, "fortran_order": False, "shape": tuple(shape)}
    np.lib.format.write_array_header_1_0(stream, header)


def _lists(pa: Any, chosen: UInt8Array, classes: Any) -> Any:
    """Return for each row the ``classes`` that are chosen."""
    ends = np.append(0, chosen.sum(axis=1).cumsum()).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), classes)


def load_pyarrow() -> Any:
    """Return the module ``pyarrow``.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        import pyarrow
    except ImportError:
        raise ConfigError(
            "out: a .parquet file needs pyarrow, which is not installed; pip install pyarrow, or "
            "out=FILE.npy"
        ) from None
    return pyarrow
