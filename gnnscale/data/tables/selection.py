"""Vertices, and pairs of them, that a user names: by ids, the part of a split, or a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gnnscale.core import Array, ConfigError, GraphError, Int32Array, IntArray, shown
from gnnscale.core.artifact.npy import map_npy
from gnnscale.data.array_inputs import refuse_masked
from gnnscale.data.tables.batch import plain, refuse_nulls
from gnnscale.data.tables.table import Table
from gnnscale.data.tables.vertex_ids import csv_id_type
from gnnscale.graph import Graph

if TYPE_CHECKING:
    import pyarrow


_SPLITS = ("train", "valid", "test")
#: Files of ids: NumPy's, and tables with columns of these names.
_TABLES = (".csv", ".csv.gz", ".parquet")
_FILES = (".npy", *_TABLES)
_ID, _PAIR = ("id",), ("source", "target")
#: Memory for what is read ahead of a table.
_TABLE_BYTES = 64 << 20


def find_vertices(
    given: Any, graph: Graph, own: pyarrow.Array | None = None, *, option: str = "vertices"
) -> IntArray | None:
    """Return the vertices that are meant, in their order; None for all.

    Args:
        given: None or ``all``; ``train``, ``valid`` or ``test``; a file of ids, by its path:
            ``.npy``, or a ``.csv`` or ``.parquet`` table with a column ``id``; or ids.
        own: ``[num_vertices]`` the user's ids, which are then meant; None for numbers from 0 on.
        option: names ``given`` in errors.

    Returns:
        ``[n]`` distinct numbers of vertices, of the graph's type.

    Raises:
        ConfigError: an id is not one of the graph's or given twice, or nothing is given.
        GraphError: the file is missing, or holds something else than ids.
    """
    if given is None or (isinstance(given, str) and given == "all"):
        return None
    if isinstance(given, str) and given in _SPLITS:
        option = f"{option}={given}"
        found: IntArray = getattr(graph, f"{given}_idx")
    else:
        allowed = f"all, {', '.join(_SPLITS)}, a file of ids ({', '.join(_FILES)})"
        option, (ids,) = _given(given, option, own, allowed, _ID, "a list of ids such as [1,2,3]")
        found = _numbers(ids, own, graph, option)
    return np.ascontiguousarray(_distinct(found, graph, own, option), graph.indices.dtype)


def _distinct(found: IntArray, graph: Graph, own: pyarrow.Array | None, option: str) -> IntArray:
    """Return the vertices ``found``, at least one and each once; ConfigError otherwise."""
    if not len(found):
        raise ConfigError(f"{option}: {graph.name} has no such vertex, nothing is to be predicted")
    seen = np.zeros(graph.num_vertices, np.bool_)
    seen[found] = True
    if np.count_nonzero(seen) < len(found):
        ordered = np.sort(found)
        twice = ordered[1:][ordered[1:] == ordered[:-1]][0]
        name = twice if own is None else own[int(twice)].as_py()
        raise ConfigError(f"{option}: {shown(name)} is given twice")
    return found


def find_pairs(given: Any, graph: Graph, own: pyarrow.Array | None = None) -> IntArray:
    """Return the pairs of vertices that are meant, in their order.

    Args:
        given: a file: ``.npy`` of ids ``[n, 2]``, or a ``.csv`` or ``.parquet`` table with columns
            ``source`` and ``target``; or ids ``[n, 2]``.
        own: as in ``find_vertices``.

    Returns:
        ``[n, 2]`` numbers of vertices, of the graph's type.

    Raises:
        ConfigError: an id is not one of the graph's, or there is no pair.
        GraphError: the file is missing, or holds something else than pairs of ids.
    """
    allowed = f"a file of pairs ({', '.join(_FILES)})"
    what = "a list of pairs such as [[1,2],[1,3]]"
    option, ends = _given(given, "pairs", own, allowed, _PAIR, what)
    if not len(ends[0]):
        raise ConfigError(f"{option}: holds no pair")
    found = np.stack([_numbers(each, own, graph, option) for each in ends], axis=1)
    return np.ascontiguousarray(found, graph.indices.dtype)


def _given(
    given: Any,
    option: str,
    own: pyarrow.Array | None,
    allowed: str,
    columns: tuple[str, ...],
    listed: str,
) -> tuple[str, list[Any]]:
    """Return the option with its file for errors, and ids ``[n]`` of each of ``columns``."""
    if not isinstance(given, (str, Path)):
        ids = _listed_ids(given, option, listed, num_columns=len(columns), own=own)
        return option, ids
    text = str(given)
    if not text.endswith(_FILES):
        raise ConfigError(f"{option}={shown(given)}: allowed are {allowed}, or {listed}")
    option = f"{option}={shown(given)}"
    if text.endswith(".npy"):
        array = map_npy(Path(given), axes=len(columns), kinds="iu")
        if array.ndim == 2 and array.shape[1] != 2:
            raise ConfigError(f"{option}: has {array.shape[1]} columns, must be source and target")
        return option, [array] if array.ndim == 1 else list(array.T)
    return option, _table_ids(Path(given), columns, own)


def _listed_ids(
    given: Any, option: str, listed: str, *, num_columns: int, own: pyarrow.Array | None
) -> list[Array]:
    refuse_masked(given, option)
    values = given if isinstance(given, (Sequence, np.ndarray)) else _as_list(given)
    texts = own is not None and not _is_integer(own)
    try:
        ids = np.asarray(values, np.object_ if texts else None)
    except (ValueError, OverflowError):  # a ragged list; a number of many digits
        ids = np.empty(0, np.object_)
    if num_columns == 2 and not ids.size:
        ids = ids.reshape(0, 2)
    good = ids.ndim == num_columns and (num_columns == 1 or ids.shape[1] == 2)
    if not good or (not texts and ids.dtype.kind not in "iu" and len(values)):
        what = "ids" if texts else "whole numbers"
        raise ConfigError(f"{option}={shown(given)}: must be {what}, {listed}")
    if texts:
        ids = np.array([str(each) for each in ids.reshape(-1)], np.object_).reshape(ids.shape)
    return list(ids.reshape(len(ids), num_columns).T)


def _as_list(given: Any) -> Any:
    # A tensor, an array of another library, or one id.
    if hasattr(given, "numpy"):
        return given.numpy()
    return np.asarray(given) if hasattr(type(given), "__array__") else [given]


def _is_integer(own: pyarrow.Array) -> bool:
    return str(own.type) in ("int64", "uint64")


def _table_ids(file: Path, columns: tuple[str, ...], own: pyarrow.Array | None) -> list[Any]:
    """Return the Arrow arrays of ids in ``columns`` of a table."""
    import pyarrow

    table = Table([file], ",", _TABLE_BYTES)
    _check_columns(table, file, columns)
    kind = pyarrow.int64() if own is None else own.type
    types = {each: csv_id_type("auto", kind) for each in columns}
    found: list[list[Any]] = [[] for _ in columns]
    for batch in table.batches(columns, types, 32):
        for arrays, column in zip(found, columns, strict=True):
            refuse_nulls(batch, column)
            arrays.append(plain(batch.columns[column]))
    return [pyarrow.concat_arrays(arrays) for arrays in found]


def _check_columns(table: Table, file: Path, columns: Sequence[str]) -> None:
    missing = next((each for each in columns if each not in table.names), None)
    if missing is not None:
        have = ", ".join(map(shown, table.names[:12]))
        raise GraphError(f"{file}: has no column {shown(missing)}, it has {have}")


def _numbers(ids: Any, own: pyarrow.Array | None, graph: Graph, option: str) -> IntArray:
    """Return the number ``[n]`` of the vertex that each id names: NumPy's array, or Arrow's."""
    if own is not None:
        return _own_numbers(ids, own, graph, option)
    if not isinstance(ids, np.ndarray):
        if str(ids.type) not in ("int64", "int32", "uint32", "int16", "uint16", "int8", "uint8"):
            raise ConfigError(f"{option}: holds {shown(ids.type)}, ids are whole numbers")
        ids = ids.to_numpy(zero_copy_only=False)
    wrong = (ids < 0) | (ids >= graph.num_vertices)
    if wrong.any():
        raise ConfigError(
            f"{option}: {ids[wrong.argmax()]} is no vertex of {graph.name}, whose ids are 0 to "
            f"{graph.num_vertices - 1}"
        )
    return ids  # type: ignore[no-any-return]


def _own_numbers(ids: Any, own: pyarrow.Array, graph: Graph, option: str) -> IntArray:
    """Return the number of the vertex that each id of the user's names."""
    import pyarrow
    from pyarrow import compute

    try:
        wanted = (pyarrow.array(ids) if isinstance(ids, np.ndarray) else ids).cast(own.type)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError, UnicodeError):
        # One does not fit the type, or is not UTF-8.
        raise ConfigError(
            f"{option}: ids of {graph.name} are {own.type}, and not all of these are"
        ) from None
    found = compute.index_in(wanted, value_set=own)
    if found.null_count:
        missing = wanted.filter(compute.is_null(found))[0].as_py()
        raise ConfigError(f"{option}: {shown(missing)} is no id of a vertex of {graph.name}")
    return np.asarray(found.to_numpy())


def find_kinds(
    file: str, column: str | None, graph: Graph, own: pyarrow.Array | None, *, option: str
) -> Int32Array:
    """Return the kind of each vertex that a file lists, numbered in order of appearance.

    Args:
        file: of ids, as in ``find_vertices``; with ``column`` a table that has it.
        column: values are kinds; None if all vertices of the file are of one kind.
        graph: whose vertices are listed.
        own: as in ``find_vertices``.
        option: names ``file`` in errors.

    Returns:
        ``[num_vertices]`` int32; -1 for a vertex that the file does not list.

    Raises:
        ConfigError: an id is not one of the graph's or listed twice, or the file lists none.
        GraphError: the file is missing, has no such column, or a cell is empty.
    """
    kinds = np.full(graph.num_vertices, -1, np.int32)
    if column is None:
        vertices = find_vertices(file, graph, own, option=option)
        kinds[slice(None) if vertices is None else vertices] = 0
        return kinds
    if not file.endswith(_TABLES):
        raise ConfigError(
            f"{option}={shown(file)}: expected a table with columns id and {shown(column)} "
            f"({', '.join(_TABLES)})"
        )
    if column in _ID:
        raise ConfigError(
            f"{option}={shown(file)}: expected kinds in another column than the ids, got {column}"
        )
    ids, values = _table_columns(Path(file), own, column)
    option = f"{option}={shown(file)}"
    vertices = _distinct(_numbers(ids, own, graph, option), graph, own, option)
    kinds[vertices] = values.dictionary_encode().indices.to_numpy()
    return kinds


def _table_columns(
    file: Path, own: pyarrow.Array | None, column: str
) -> tuple[pyarrow.Array, pyarrow.Array]:
    """Return the ids of a table, and the values of another column as texts."""
    import pyarrow

    table = Table([file], ",", _TABLE_BYTES)
    _check_columns(table, file, (*_ID, column))
    kind = pyarrow.int64() if own is None else own.type
    types = {_ID[0]: csv_id_type("auto", kind), column: pyarrow.large_string()}
    found: dict[str, list[Any]] = {name: [] for name in types}
    for batch in table.batches([*types], types, 32):
        for name, arrays in found.items():
            refuse_nulls(batch, name)
            arrays.append(plain(batch.columns[name]))
    ids, values = (pyarrow.concat_arrays(arrays) for arrays in found.values())
    return ids, values.cast(pyarrow.large_string())
