"""Writers of output rows, pair scores and best partners to Parquet or NumPy files, in chunks."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from gnnscale.core import Array, ConfigError, Float32Array, IntArray, brief, whole_file
from gnnscale.core import pyarrow as pa
from gnnscale.core.artifact.files import check_space
from gnnscale.core.artifact.npy import write_header
from gnnscale.inference.export.outputs import EMBEDDINGS, EdgeIds, RowIds, answer

#: Element type and shape of a ``.npy`` file.
_Form: TypeAlias = tuple[np.dtype[Any], tuple[int, ...]]

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

    def column(self, output: str, rows: Float32Array) -> pa.Array:
        """Return ``output`` of a model's ``rows`` ``[n, width]`` as a column of a table.

        Several values of a row are a list: of floats, or of the classes of multilabel.
        """
        values = self.values(output, rows)
        if output != "classes":
            flat = pa.array(np.ascontiguousarray(values, np.float32).reshape(-1))
            return pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
        numbers = values.nonzero()[1] if self.multilabel else values
        classes = pa.array(numbers)
        if self.classes is not None:
            classes = pa.array(self.classes).take(classes)
        if not self.multilabel:
            return classes
        ends = np.append(0, values.sum(axis=1).cumsum()).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(ends), classes)

    @property
    def columns(self) -> dict[str, str]:
        """Names of the columns of a table by their outputs."""
        names = {EMBEDDINGS: "embedding", "classes": "classes" if self.multilabel else "class"}
        return {output: names.get(output, output) for output in self.answers}

    @property
    def rows_at_once(self) -> int:
        """Number of rows whose class names take about the bytes of a row group."""
        lengths = [len(name.encode()) for name in self.classes or ()]
        bytes_of_names = (sum if self.multilabel else max)(lengths) if lengths else 0
        return max(_GROUP_BYTES // bytes_of_names, 1) if bytes_of_names else self.num_rows


def check_file(file: Path, *, force: bool) -> None:
    """Raise ConfigError for a file that cannot be written or overwritten.

    With ``force`` a file is replaced, and so is a link, whose target stays unchanged.
    """
    if file.suffix not in SUFFIXES:
        raise ConfigError(
            f"out={brief(file)}: expected a name that ends in {' or '.join(SUFFIXES)}"
        )
    if file.suffix == ".parquet" and importlib.util.find_spec("pyarrow") is None:
        raise ConfigError(
            "out: expected pyarrow for a .parquet file, which is not installed; pip install "
            "pyarrow, or use out=FILE.npy"
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


def check_room(file: Path, layout: Layout) -> None:
    """Raise an error if an output file of ``layout`` would be too large.

    Raises:
        ConfigError: the ids file of a ``.npy`` file is out of proportion to its text ids: NumPy
            makes all ids as wide as the longest. The file may take 64 MiB, plus 16 times the bytes
            of the texts.
        GraphError: the disk lacks the space.
    """
    _check_ids(file, layout)
    disk = layout.num_rows * row_bytes(file, layout)
    check_space(f"out={brief(file)}", file.parent, disk=disk)


def _check_ids(file: Path, layout: Layout) -> None:
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


def write_outputs(file: Path, layout: Layout, chunks: Iterable[Float32Array]) -> None:
    """Write the outputs of a model's rows ``[n, width]``, given in ``chunks``, atomically.

    ``check_file`` allows ``file``. A ``.npy`` file gets a second file with ids unless the ids are
    row indices. OSError: the file cannot be written.
    """
    first, ids = 0, layout.ids
    if file.suffix == ".npy":
        (output,) = layout.answers
        shape: tuple[int, ...] = (layout.num_rows, layout.width)
        dtype: np.dtype[Any] = np.dtype(np.float32)
        if output == "classes":
            dtype = np.dtype(np.uint8 if layout.multilabel else np.int64)
            shape = shape if layout.multilabel else shape[:1]
        of_ids = ids.array(0, 0)
        ids_form = of_ids.dtype, (layout.num_rows, *of_ids.shape[1:])
        with _open_npy(file, (dtype, shape), None if ids.are_rows else ids_form) as write:
            for rows in chunks:
                write(layout.values(output, rows), ids.array(first, len(rows)))
                first += len(rows)
        return
    with _open_parquet(file, ["class"] if layout.classes is not None else []) as append:
        for chunk in chunks:
            for start in range(0, len(chunk), layout.rows_at_once):
                rows = chunk[start : start + layout.rows_at_once]
                outputs = {
                    name: layout.column(output, rows) for output, name in layout.columns.items()
                }
                append({**ids.columns(first, len(rows)), **outputs})
                first += len(rows)


def write_scores(
    file: Path, pairs: IntArray, chunks: Iterable[Float32Array], user_ids: pa.Array | None
) -> None:
    """Write the scores of ``pairs`` ``[n, 2]``, given in ``chunks``, atomically.

    A ``.parquet`` file has columns ``source``, ``target`` and ``score``; a ``.npy`` file has the
    scores ``[n]``. ``user_ids`` are ``[num_vertices]``; None: ids are vertices. OSError: the file
    cannot be written.
    """
    if file.suffix == ".npy":
        with _open_npy(file, (np.dtype(np.float32), (len(pairs),)), None) as write:
            for scores in chunks:
                write(scores)
        return
    first, ids = 0, EdgeIds(vertices=pairs, user_ids=user_ids)
    with _open_parquet(file) as append:
        for scores in chunks:
            append({**ids.columns(first, len(scores)), "score": scores})
            first += len(scores)


def write_partners(
    file: Path,
    vertices: IntArray,
    chunks: Iterable[tuple[IntArray, Float32Array]],
    k: int,
    user_ids: pa.Array | None,
) -> None:
    """Write the ``k`` best partners of each vertex atomically.

    A ``.parquet`` file has ``k`` rows for each vertex, best first, with columns ``source``,
    ``target`` and ``score``, without rows of the score -inf. A ``.npy`` file has the scores
    ``[n, k]``, and the file ``.ids.npy`` next to it the partners. ``chunks`` have partners and
    scores ``[s, k]`` of consecutive vertices; ``user_ids`` are ``[num_vertices]``, None: ids are
    vertices.
    """
    if file.suffix == ".npy":
        shape = (len(vertices), k)
        ids_form = RowIds(vertices=vertices[:0], user_ids=user_ids).array(0, 0).dtype, shape
        with _open_npy(file, (np.dtype(np.float32), shape), ids_form) as write:
            for partners, scores in chunks:
                ids = RowIds(vertices=partners.reshape(-1), user_ids=user_ids)
                write(scores, ids.array(0, partners.size))
        return
    first = 0
    with _open_parquet(file) as append:
        for partners, scores in chunks:
            sources = np.repeat(vertices[first : first + len(partners)], k)
            exist = scores.reshape(-1) > -np.inf
            pairs = np.stack([sources, partners.reshape(-1)], axis=1)[exist]
            columns = EdgeIds(vertices=pairs, user_ids=user_ids).columns(0, len(pairs))
            append({**columns, "score": scores.reshape(-1)[exist]})
            first += len(partners)


@contextmanager
def _open_npy(file: Path, form: _Form, ids_form: _Form | None) -> Iterator[Callable[..., None]]:
    """Open ``file`` and, with ``ids_form``, its ids file; yield a function that appends to both.

    Without ids an old ids file, which would belong to other rows, is removed.
    """
    forms = {file: form} if ids_form is None else {file: form, ids_file(file): ids_form}
    with ExitStack() as stack:
        streams = [stack.enter_context(whole_file(path, wait=path != file)) for path in forms]
        for stream, (dtype, shape) in zip(streams, forms.values(), strict=True):
            write_header(stream, shape, dtype)

        def write(*arrays: Array) -> None:
            for stream, array in zip(streams, arrays, strict=False):
                stream.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)

        yield write
    if ids_form is None:
        ids_file(file).unlink(missing_ok=True)


@contextmanager
def _open_parquet(
    file: Path, repeated: Sequence[str] = ("source",)
) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Open ``file``; yield a function that appends columns by name.

    Columns in ``repeated`` are encoded by dictionaries: float values hardly repeat.
    """
    from pyarrow import parquet

    tables: list[Any] = []
    writer: Any = None
    with whole_file(file, wait=False) as stream:

        def flush() -> None:
            nonlocal writer
            table = pa.concat_tables(tables)
            if writer is None:
                encoded = list(repeated)
                writer = parquet.ParquetWriter(stream, table.schema, use_dictionary=encoded)
            writer.write_table(table, row_group_size=max(len(table), 1))
            tables.clear()

        def append(columns: dict[str, Any]) -> None:
            tables.append(pa.table(columns))
            if sum(table.nbytes for table in tables) >= _GROUP_BYTES:
                flush()

        yield append
        if tables:
            flush()
        writer.close()
