"""Selection of vertices and pairs by the user: ids, a part of the split, or a file of ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gnnscale.core import (
    Array,
    ConfigError,
    GraphError,
    Int32Array,
    IntArray,
    brief,
    pyarrow,
    suggestion,
)
from gnnscale.core.artifact.npy import map_npy
from gnnscale.data.array_inputs import refuse_masked
from gnnscale.data.tables.batch import plain
from gnnscale.data.tables.table import Table
from gnnscale.data.tables.vertex_ids import csv_id_type
from gnnscale.graph import Graph, Split

_SPLITS = ("train", "valid", "test")
#: Files of ids: ``.npy``, and tables with the columns of ``_LISTS``.
_TABLES = (".csv", ".csv.gz", ".parquet")
_FILES = (".npy", *_TABLES)
#: Allowed files, and an example of a list, for errors, by the columns of a table.
_LISTS = {
    ("id",): (
        f"all, {', '.join(_SPLITS)}, a file of ids ({', '.join(_FILES)})",
        "a list of ids such as [1,2,3]",
    ),
    ("source", "target"): (
        f"a file of pairs ({', '.join(_FILES)})",
        "a list of pairs such as [[1,2],[1,3]]",
    ),
}
#: Bytes of prefetched batches of a table.
_TABLE_BYTES = 64 << 20


def find_vertices(
    selection: Any,
    graph: Graph,
    vertex_ids: pyarrow.Array | None = None,
    *,
    option: str = "vertices",
) -> IntArray | None:
    """Return ``[n]`` selected vertices in the order of the selection. None: all vertices.

    ``selection`` is None or ``all``; ``train``, ``valid`` or ``test``; path of a file of ids:
    ``.npy``, or a ``.csv`` or ``.parquet`` table with a column ``id``; or ids. ``vertex_ids`` are
    the user's ``[num_vertices]`` ids. None: ids are vertex numbers. Raises ConfigError if an id is
    unknown or repeats, or no vertex is selected, and GraphError if the file is missing or has no
    ids.
    """
    if selection is None or (isinstance(selection, str) and selection == "all"):
        return None
    if isinstance(selection, str) and selection in _SPLITS:
        option = f"{option}={selection}"
        vertices: IntArray = getattr(graph, f"{selection}_idx")
    else:
        option, (ids,) = _read_selection(selection, option, vertex_ids, ("id",))
        vertices = _vertex_numbers(ids, graph, vertex_ids, option)
    _check_distinct(vertices, graph, vertex_ids, option)
    return np.ascontiguousarray(vertices, graph.indices.dtype)


@dataclass(frozen=True, kw_only=True)
class VertexSelection:
    """Vertices that a user selects, all of one type, and the user's ids."""

    #: ``[n]`` selected vertices, counted from 0 within their type; None: all of the type
    rows: IntArray | None
    span: range  #: vertices of the type in the graph
    vertex_type: str | None = None  #: name of the type; None: vertices have no types
    #: Arrow array of the user's ids of all vertices of the type; None: they count from 0
    ids: Any

    @property
    def vertices(self) -> IntArray:
        """``[n]`` selected vertices of the graph."""
        rows = np.arange(len(self.span)) if self.rows is None else self.rows
        vertices: IntArray = rows + self.span.start
        return vertices

    def vertices_of(self, graph: Graph) -> IntArray | None:
        """Return ``vertices``; None: they are all vertices of ``graph``, in order."""
        is_all = self.rows is None and len(self.span) == graph.num_vertices
        return None if is_all else self.vertices


def select_vertices(
    selection: Any,
    graph: Graph,
    vertex_ids: pyarrow.Array | None,
    target: str | None,
    *,
    option: str = "vertices",
) -> VertexSelection:
    """Return the vertices of one type that a ``selection`` of ``find_vertices`` names.

    In a graph with types the selection is of type ``target``; or it is the name of another type,
    whose vertices are all selected, or a pair ``(type, selection)``. Ids of a type count from 0
    unless the graph has the user's ids. ConfigError: there is no such type, or as in
    ``find_vertices``.
    """
    if graph.types is None:
        rows = find_vertices(selection, graph, vertex_ids, option=option)
        return VertexSelection(rows=rows, span=range(graph.num_vertices), ids=vertex_ids)
    names = graph.vertex_types
    target = names[0] if len(names) == 1 else target
    if isinstance(selection, Mapping) and len(selection) == 1:
        ((target, selection),) = selection.items()
    elif isinstance(selection, tuple) and len(selection) == 2 and selection[0] in names:
        target, selection = selection
    elif isinstance(selection, str) and selection in names:
        target, selection = selection, None
    elif isinstance(selection, str) and not _is_selection(selection):
        raise ConfigError(
            f"vertices={brief(selection)}: expected a vertex type of {graph.name} "
            f"({', '.join(names)}), {_LISTS[('id',)][0]}{suggestion(selection, names)}"
        )
    if target not in names:
        chosen = selection if target is None else target
        raise ConfigError(
            f"{option}={brief(chosen)}: expected a vertex type of {graph.name} "
            f"({', '.join(names)}), or some of it as {{{names[0]}: test}}, where no type alone has "
            "labels"
        )
    part = graph.schema.vertices(names.index(target))
    ids = None if vertex_ids is None else vertex_ids.slice(part.start, part.stop - part.start)
    rows = find_vertices(selection, _of_type(graph, target, part), ids, option=option)
    span = range(part.start, part.stop)
    return VertexSelection(rows=rows, span=span, ids=ids, vertex_type=target)


def _is_selection(text: str) -> bool:
    """Whether ``text`` selects vertices without naming a type."""
    return text in ("all", *_SPLITS) or text.endswith(_FILES)


def _of_type(graph: Graph, name: str, part: slice) -> Graph:
    """Return the vertices of a type with their part of the split, without edges."""
    count = part.stop - part.start
    parts = {}
    for split in _SPLITS:
        ids = getattr(graph, f"{split}_idx")
        parts[f"{split}_idx"] = ids[(ids >= part.start) & (ids < part.stop)] - part.start
    return Graph(
        name=f"{graph.name}: {name}",
        indptr=np.zeros(count + 1, np.int64),
        indices=np.empty(0, graph.indices.dtype),
        features=np.empty((count, 0), np.float32),
        feature_dtype="float32",
        labels=np.full(count, -1),
        num_classes=0,
        split=Split(**parts),
    )


def find_pairs(
    selection: Any,
    graph: Graph,
    vertex_ids: pyarrow.Array | None = None,
    *,
    types: tuple[str, str] | None = None,
) -> IntArray:
    """Return the selected pairs ``[n, 2]`` of vertices in the order of the selection.

    ``selection`` is a file, ``.npy`` of ids ``[n, 2]`` or a ``.csv`` or ``.parquet`` table with
    columns ``source`` and ``target``; or ids ``[n, 2]``. ``vertex_ids`` are the user's
    ``[num_vertices]`` ids. None: ids are vertex numbers. With the ``types`` of sources and targets
    they count from 0 in each type. Raises ConfigError if an id is unknown or there is no pair, and
    GraphError if the file is missing or has no ids.
    """
    option, ends = _read_selection(selection, "pairs", vertex_ids, ("source", "target"))
    if not len(ends[0]):
        raise ConfigError(f"{option}: expected at least one pair, got none")
    if types is None:
        columns = [_vertex_numbers(ids, graph, vertex_ids, option) for ids in ends]
    else:
        columns = [
            _numbers_of_type(ids, graph, vertex_ids, option, name)
            for ids, name in zip(ends, types, strict=True)
        ]
    return np.ascontiguousarray(np.stack(columns, axis=1), graph.indices.dtype)


def _numbers_of_type(
    ids: Any, graph: Graph, vertex_ids: pyarrow.Array | None, option: str, name: str
) -> IntArray:
    """Return the vertices ``[n]`` of the graph that ids of vertices of type ``name`` mean."""
    part = graph.schema.vertices(graph.vertex_types.index(name))
    of_type = None if vertex_ids is None else vertex_ids.slice(part.start, part.stop - part.start)
    rows = _vertex_numbers(ids, _of_type(graph, name, part), of_type, option)
    vertices: IntArray = rows.astype(np.int64) + part.start
    return vertices


def find_kinds(
    table: Table,
    columns: tuple[str, str],
    graph: Graph,
    vertex_ids: pyarrow.Array | None,
    *,
    option: str,
) -> tuple[Int32Array, list[str]]:
    """Return the kind of each vertex, ``[num_vertices]`` int32, and the names of the kinds.

    ``columns`` of ``table`` have vertices' ids, and their kinds as texts, which are numbered by
    first appearance. A vertex that the table lacks has the kind -1. ConfigError, which names
    ``option``: both columns are the same, or an id repeats or is unknown. GraphError: a column is
    missing, or has an empty cell.
    """
    id_column, column = columns
    if column == id_column:
        raise ConfigError(f"{option}: expected a column of kinds other than the ids, got {column}")
    text = pyarrow.large_string()
    ids, values = table_columns(table, {id_column: csv_type(vertex_ids), column: text})
    vertices = _vertex_numbers(ids, graph, vertex_ids, option)
    _check_distinct(vertices, graph, vertex_ids, option)
    encoded = values.cast(text).dictionary_encode()
    kinds = np.full(graph.num_vertices, -1, np.int32)
    kinds[vertices] = encoded.indices.to_numpy()
    return kinds, encoded.dictionary.to_pylist()


def is_table(file: str) -> bool:
    """Whether ``file`` has the name of a table of ids."""
    return file.endswith(_TABLES)


def open_table(file: Path) -> Table:
    """Open a Parquet file, or a CSV file with commas, of ids."""
    return Table([file], ",", _TABLE_BYTES)


def _read_selection(
    selection: Any, option: str, vertex_ids: pyarrow.Array | None, columns: tuple[str, ...]
) -> tuple[str, list[Any]]:
    """Return the option's name for errors, and ``[n]`` selected ids for each of ``columns``.

    ``selection`` is a list of ids, or a file; the name is then ``OPTION=FILE``.
    """
    allowed, example = _LISTS[columns]
    if not isinstance(selection, (str, Path)):
        return option, _listed_ids(selection, option, example, len(columns), vertex_ids)
    option = f"{option}={brief(selection)}"
    if not str(selection).endswith(_FILES):
        raise ConfigError(f"{option}: allowed are {allowed}, or {example}")
    if str(selection).endswith(".npy"):
        array = map_npy(Path(selection), axes=len(columns), kinds="iu")
        if array.ndim == 2 and array.shape[1] != 2:
            raise ConfigError(f"{option}: has {array.shape[1]} columns, must be source and target")
        return option, [array] if array.ndim == 1 else list(array.T)
    types = dict.fromkeys(columns, csv_type(vertex_ids))
    return option, table_columns(open_table(Path(selection)), types)


def _listed_ids(
    selection: Any, option: str, example: str, num_columns: int, vertex_ids: pyarrow.Array | None
) -> list[Array]:
    refuse_masked(selection, option)
    values = selection
    if hasattr(values, "numpy"):  # a tensor
        values = values.numpy()
    elif not isinstance(values, Sequence) and not hasattr(type(values), "__array__"):
        values = [values]  # a single id
    texts = vertex_ids is not None and str(vertex_ids.type) not in ("int64", "uint64")
    try:
        ids = np.asarray(values, np.object_ if texts else None)
    except (ValueError, OverflowError):  # a ragged list; a number of many digits
        ids = np.empty(0, np.object_)
    if num_columns == 2 and not ids.size:
        ids = ids.reshape(0, 2)
    good = ids.ndim == num_columns and (num_columns == 1 or ids.shape[1] == 2)
    if not good or (not texts and ids.dtype.kind not in "iu" and len(values)):
        what = "ids" if texts else "whole numbers"
        raise ConfigError(f"{option}={brief(selection)}: must be {what}, {example}")
    if texts:
        ids = np.array([str(id_) for id_ in ids.reshape(-1)], np.object_).reshape(ids.shape)
    return list(ids.reshape(len(ids), num_columns).T)


def csv_type(vertex_ids: pyarrow.Array | None) -> Any:
    """Return the Arrow type as which ids of CSV are parsed, by the user's ids of the graph."""
    return csv_id_type("auto", pyarrow.int64() if vertex_ids is None else vertex_ids.type)


def table_columns(table: Table, types: Mapping[str, Any]) -> list[Any]:
    """Return an Arrow array of each column named in ``types``, from a table.

    CSV is parsed as these types. GraphError: a column is missing, or has an empty cell.
    """
    missing = next((column for column in types if column not in table.names), None)
    if missing is not None:
        have = ", ".join(map(brief, table.names[:12]))
        raise GraphError(f"{table.path}: has no column {brief(missing)}, it has {have}")
    batches = []
    for batch in table.batches([*types], types, 32):
        for column in types:
            batch.report_nulls(column)
        batches.append(batch)
    table.problems.raise_any()
    return [
        pyarrow.concat_arrays([plain(batch.columns[column]) for batch in batches])
        for column in types
    ]


def _vertex_numbers(
    ids: Any, graph: Graph, vertex_ids: pyarrow.Array | None, option: str
) -> IntArray:
    """Return ``[n]`` the vertex number of each of ``ids``; ConfigError: an id is unknown.

    ``vertex_ids`` are the user's ids of all vertices. None: ids are vertex numbers.
    """
    if vertex_ids is None:
        vertices: IntArray = ids
        if not isinstance(ids, np.ndarray):
            if not pyarrow.types.is_integer(ids.type):
                raise ConfigError(f"{option}: holds {brief(ids.type)}, ids are whole numbers")
            vertices = ids.to_numpy(zero_copy_only=False)
        wrong = (vertices < 0) | (vertices >= graph.num_vertices)
        if wrong.any():
            raise ConfigError(
                f"{option}: {vertices[wrong.argmax()]} is no vertex of {graph.name}, whose ids are "
                f"0 to {graph.num_vertices - 1}"
            )
        return vertices
    try:
        requested = pyarrow.array(ids) if isinstance(ids, np.ndarray) else ids
        requested = requested.cast(vertex_ids.type)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError, UnicodeError):
        # An id does not fit the type, or is not UTF-8.
        what = f"{option}: expected ids of {vertex_ids.type}, as {graph.name} has"
        raise ConfigError(what) from None
    numbers = pyarrow.compute.index_in(requested, value_set=vertex_ids)
    if numbers.null_count:
        missing = requested.filter(numbers.is_null())[0].as_py()
        raise ConfigError(f"{option}: {brief(missing)} is no id of a vertex of {graph.name}")
    return np.asarray(numbers.to_numpy())


def _check_distinct(
    vertices: IntArray, graph: Graph, vertex_ids: pyarrow.Array | None, option: str
) -> None:
    """Raise ConfigError if ``vertices`` are empty or a vertex repeats."""
    if not len(vertices):
        raise ConfigError(f"{option}: expected at least one vertex of {graph.name}, got none")
    counts = np.bincount(vertices.astype(np.int64), minlength=graph.num_vertices)
    if counts.max() > 1:
        twice = int(counts.argmax())
        name = twice if vertex_ids is None else vertex_ids[twice].as_py()
        raise ConfigError(f"{option}: expected each vertex once, got {brief(name)} twice")
