"""Vertex ids of the user and class names: read from tables, stored with the graph."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gnnscale import ops
from gnnscale.core import Array, BoolArray, GraphError, Int64Array, brief, pyarrow
from gnnscale.core.artifact import file_bytes, file_sha256, map_npy
from gnnscale.data.tables.batch import (
    Batch,
    Problems,
    RowLocations,
    is_text,
    null_mask,
    plain,
    text_buffers,
)
from gnnscale.data.tables.parquet_file import ParquetFile
from gnnscale.graph import GRAPH_STORE, ID_FILES, MAX_CLASSES, Graph, read_meta

#: Types of ids: by the column, integers, or texts.
ID_TYPES = ("auto", "integer", "string")
#: Limit of the memory of text ids: allowance plus ratio times the bytes of their files.
_ALLOWANCE, _RATIO = 256 << 20, 100


def max_id_bytes(file_bytes: int) -> int:
    """Return the most bytes of memory that text ids from files of ``file_bytes`` may take."""
    return _ALLOWANCE + _RATIO * file_bytes


def csv_id_type(id_type: str, guessed: Any) -> Any:
    """Return the Arrow type to parse ids of CSV as: int64 or string.

    ``guessed``, the type of the first rows, decides if ``id_type`` is ``auto``.
    """
    whole = id_type == "integer" or (id_type == "auto" and pyarrow.types.is_integer(guessed))
    return pyarrow.int64() if whole else pyarrow.string()


def _uniform(batch: Batch, column: str, id_type: str) -> Any:
    """Return the ids in a column as an Arrow array of int64, uint64 or large_string.

    ``id_type`` string makes texts of integers. A null becomes an empty text or 0. GraphError: ids
    are not of ``id_type``.
    """
    array = plain(batch.columns[column])
    if pyarrow.types.is_floating(array.type):  # pandas makes floats of integers with gaps
        with suppress(pyarrow.ArrowInvalid):  # a fraction
            array = pyarrow.compute.cast(array, pyarrow.int64())
    whole = pyarrow.types.is_integer(array.type)
    if not (whole or is_text(array.type)) or (id_type == "integer" and not whole):
        raise GraphError(
            f"{batch.name(column)} holds {brief(array.type)}, ids are whole "
            f"numbers{'' if id_type == 'integer' else ' or strings'} (dataset.id_type={id_type})"
        )
    array = array.fill_null(0 if whole else "")
    if whole and id_type == "string":
        return array.cast(pyarrow.large_string())
    return array.cast(pyarrow.int64()) if whole and array.type != pyarrow.uint64() else array


class IdColumn:
    """Ids of all vertices, gathered in batches; texts take at most ``max_bytes``.

    If ``column`` is None, ids are row numbers from 0. ``what`` are the vertices, for messages.
    """

    def __init__(
        self, column: str | None, id_type: str, max_bytes: int, *, what: str = "vertices"
    ) -> None:
        self.column, self.what = column, what
        self.id_type = id_type
        self._max_bytes = self._text_bytes_left = max_bytes
        self._arrays: list[Any] = []
        self._empty: list[BoolArray] = []
        self.locations = RowLocations()

    @property
    def num_vertices(self) -> int:
        """Number of ids added."""
        return self.locations.num_rows

    def add(self, batch: Batch) -> None:
        """Append the ids of a batch; GraphError: types differ, or texts exceed ``max_bytes``."""
        if self.column is None:
            first = self.num_vertices
            array = pyarrow.array(np.arange(first, first + len(batch)))
        else:
            self._empty.append(batch.report_nulls(self.column))
            array = _uniform(batch, self.column, self.id_type)
            self._check(batch, self.column, array)
        self._arrays.append(array)
        self.locations.add(batch)

    def _check(self, batch: Batch, column: str, array: Any) -> None:
        self._text_bytes_left -= len(text_buffers(array)[1]) if is_text(array.type) else 0
        if self._text_bytes_left < 0:
            raise GraphError(
                f"{batch.file}: texts of column {brief(repr(column))} take over {self._max_bytes} "
                "bytes, too many for the size of the table; one that is not compressed has no such "
                "limit"
            )
        if self._arrays and self._arrays[0].type != array.type:
            raise GraphError(
                f"{batch.name(column)} holds {brief(array.type)}, and {self.locations.first_file} "
                f"has {brief(self._arrays[0].type)}; set dataset.id_type=string"
            )

    def array(self) -> Any:
        """Return the ids as an Arrow array of int64, uint64 or large_string, and release them."""
        arrays, self._arrays = self._arrays, []
        return pyarrow.concat_arrays(arrays)

    def map(self) -> IdMap:
        """Return the map from ids to vertices, and release the ids; report ids that repeat."""
        array = self.array()
        id_map = IdMap(self, array)
        if id_map.repeated is not None:
            codes = array.dictionary_encode().indices.to_numpy()  # values by appearance
            firsts = np.unique(codes, return_index=True)[1][codes]
            self.locations.report(
                (firsts < np.arange(len(array))) & ~np.concatenate(self._empty),
                (self.column or "", "repeated"),
                lambda row: (
                    f"{brief(self.column)} {brief(repr(array[row].as_py()))} is that of another "
                    f"vertex too ({self.locations.locate(int(firsts[row]))})"
                ),
            )
        return id_map


class IdMap:
    """Map from the user's ids to vertex numbers."""

    def __init__(self, column: IdColumn, array: Any) -> None:
        self._column = column
        self.type = array.type
        self.size = len(array)  #: number of ids
        self._table: ops.IntegerIds | ops.TextIds | None = None
        if is_text(array.type):
            self._table = ops.TextIds(*text_buffers(array))
        elif not _counts_up(numbers := _bits(array)):
            self._table = ops.IntegerIds(numbers)
        #: ids as an Arrow array. None: ids are the vertex numbers, or were released.
        self.array: Any = None if self._table is None else array
        #: two vertices with the same id. None: ids are unique.
        self.repeated = None if self._table is None else self._table.repeated
        #: ids of rows that were left out, an Arrow array. None: all rows are vertices.
        self.dropped: Any = None

    def all_ids(self) -> Any:
        """Return all ids as an Arrow array, unless they were released."""
        numbers = pyarrow.array(np.arange(self.size)).cast(self.type)
        return numbers if self.array is None else self.array

    def extended(self, ids: Any) -> IdMap:
        """Return a map with further vertices, whose ids are the Arrow array ``ids``, at its end."""
        return IdMap(self._column, pyarrow.concat_arrays([self.all_ids(), ids]))

    def find(self, batch: Batch, column: str) -> Array:
        """Return the vertex, int32 or int64, of each id in a column; -1: unknown id."""
        batch.report_nulls(column)
        return self._find(self._ids(batch, column))

    def unknown(self, batch: Batch, column: str) -> tuple[Any, bool]:
        """Return the distinct unknown ids in a column, and whether any other id is in it."""
        batch.report_nulls(column)
        array = self._ids(batch, column)
        is_unknown = self._find(array) < 0
        ids = array.filter(pyarrow.array(is_unknown)).unique()
        try:
            return ids.cast(self.type), not is_unknown.all()
        except pyarrow.ArrowInvalid:
            raise GraphError(
                f"{batch.name(column)} has ids that {brief(self.type)}, the type of the ids of the "
                f"{self._column.what}, cannot hold; set dataset.id_type=string"
            ) from None

    def report_unknown(self, batch: Batch, column: str, is_unknown: BoolArray) -> None:
        """Report the ids that ``is_unknown`` marks in a column.

        Empty cells, which are reported already, and ids of rows that were left out do not count.
        """
        is_unknown = is_unknown & ~null_mask(batch.columns[column])
        if self.dropped is not None:
            ids = self._ids(batch, column)
            was_row = pyarrow.compute.is_in(ids, value_set=self.dropped.cast(ids.type))
            is_unknown &= ~was_row.to_numpy(zero_copy_only=False)
        of, what = brief(self._column.column or "row number"), self._column.what
        batch.report(
            is_unknown,
            (column, "unknown"),
            lambda index: (
                f"{brief(column)} is {brief(repr(batch.columns[column][index].as_py()))}, which is "
                f"the {of} of none of the {self.size} {what}; dataset.unknown_ids=vertices makes "
                "such ids vertices, and drop leaves out their edges"
            ),
        )

    def _ids(self, batch: Batch, column: str) -> Any:
        """Return the ids in a column; GraphError: they are of another type than the vertices'."""
        array = _uniform(batch, column, self._column.id_type)
        if is_text(array.type) != is_text(self.type):
            raise GraphError(
                f"{batch.name(column)} holds {brief(array.type)}, the ids of the "
                f"{self._column.what} are {brief(self.type)}; set dataset.id_type=string"
            )
        return array

    def _find(self, array: Any) -> Array:
        """Return the vertex of each id, -1 for an unknown id."""
        if isinstance(self._table, ops.TextIds):
            return self._table.find(*text_buffers(array), num_threads=1)[0]
        numbers = _bits(array)
        if self._table is not None:
            vertices, _ = self._table.find(numbers, num_threads=1)
        else:
            is_vertex = (numbers >= 0) & (numbers < self.size)
            vertices = numbers if is_vertex.all() else np.where(is_vertex, numbers, -1)
        if array.type != self.type and numbers.size and numbers.min() < 0:
            # One type is signed, the other not: the sign bit means different numbers.
            vertices = np.where(numbers < 0, -1, vertices)
        return vertices


def _bits(array: Any) -> Int64Array:
    numbers: Array = array.to_numpy()
    return numbers.view(np.int64)


def _counts_up(numbers: Int64Array) -> bool:
    """Whether the ids are 0, 1, 2 and so on, compared in slices."""
    step = 1 << 20
    parts = ((first, numbers[first : first + step]) for first in range(0, len(numbers), step))
    return all(np.array_equal(part, np.arange(first, first + len(part))) for first, part in parts)


_BATCH_ROWS, _BATCH_BYTES = 1 << 17, 16 << 20


def read_ids(graph: Graph) -> pyarrow.Array | None:
    """Return the user's ids ``[num_vertices]``, an Arrow array. None: ids are vertex numbers."""
    if graph.path is None:
        return graph.origin.ids
    entry = _ids_entry(graph.path)
    if entry is None:
        return None

    path = graph.path / entry.file
    if path.name == ID_FILES[0]:
        ids = pyarrow.array(map_npy(path, axes=1, kinds="iu"))
    else:
        ids = _read_texts(path, graph.num_vertices)
    if len(ids) != graph.num_vertices:
        raise GraphError(f"{path}: {len(ids)} ids, the graph has {graph.num_vertices} vertices")
    return ids


def _read_texts(path: Path, num_vertices: int) -> pyarrow.Array:
    """Return the text ids ``[num_vertices]`` of a Parquet file; GraphError: other content."""
    file = ParquetFile(path, problems := Problems())
    if file.names != ["id"] or file.num_rows() != num_vertices:
        raise GraphError(
            f"{path}: expected {num_vertices} rows of 'id', got {file.num_rows()} of "
            f"{brief(file.names)}"
        )
    texts = IdColumn("id", "auto", max_id_bytes(file_bytes(path)))
    for batch in file.batches(["id"], {}, _BATCH_ROWS, _BATCH_BYTES):
        texts.add(batch)
    problems.raise_any()
    ids = texts.array()
    if ids.type != pyarrow.large_string():
        raise GraphError(f"{path}: expected texts as ids, got {brief(ids.type)}")
    return ids


def read_classes(graph: Graph, *, edges: bool = False) -> list[str] | None:
    """Return the names of the classes of vertices or, with ``edges``, edges. None: no names."""
    if graph.path is None or (graph.origin.classes is not None and not edges):
        return None if edges else graph.origin.classes
    entry = "edge_classes" if edges else "classes"
    names = read_meta(graph.path).entries.get(entry)
    if names is None:
        return None
    count = graph.edge_labels.num_classes if edges and graph.edge_labels else graph.num_classes
    if not (isinstance(names, list) and len(names) == count <= MAX_CLASSES and _are_texts(names)):
        raise GraphError(
            f"{graph.path / 'meta.json'}: {entry}: expected the names of {count} classes"
        )
    return names


def _are_texts(names: list[Any]) -> bool:
    """Whether ``names`` are texts without lone surrogates, which JSON can contain."""
    try:
        "".join(names).encode()
    except (TypeError, UnicodeEncodeError):
        return False
    return True


def check_ids_file(store: Path) -> str | None:
    """Return a message if the checksum of a store's file of ids differs, else None."""
    entry = _ids_entry(store)
    if entry is None:
        return None
    digest = file_sha256(store / entry.file)
    if digest == entry.sha256:
        return None
    return f"{store / entry.file}: expected SHA-256 {brief(entry.sha256)}, got {digest}"


@dataclass(frozen=True, kw_only=True)
class _IdFile:
    """Entry ``ids`` of ``meta.json``: name, size and checksum of the file of vertex ids."""

    file: str
    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class _WithIds:
    ids: _IdFile | None = None


def _ids_entry(store: Path) -> _IdFile | None:
    """Return the entry ``ids`` of ``meta.json``, or None; GraphError: the file has another size."""
    entry = GRAPH_STORE.record(_WithIds, read_meta(store).entries, store).ids
    if entry is None:
        return None
    if entry.file not in ID_FILES:
        raise GRAPH_STORE.refused(
            store, f"ids.file={brief(entry.file)}: expected one of {', '.join(ID_FILES)}"
        )
    path = store / entry.file
    if (size := file_bytes(path)) != entry.bytes:
        raise GraphError(f"{path}: expected {entry.bytes} bytes, got {size} (truncated?)")
    return entry
