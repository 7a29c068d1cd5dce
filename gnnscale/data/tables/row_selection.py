"""Selection of task rows by the user: vertices with cut-offs, in a table or in two arrays."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gnnscale.core import (
    ConfigError,
    GraphError,
    Int64Array,
    IntArray,
    brief,
    pyarrow,
)
from gnnscale.data.tables.selection import csv_type, is_table, open_table, table_columns
from gnnscale.data.time_inputs import read_times
from gnnscale.graph import UNITS_PER_DAY, Graph, TimeUnit, format_time

#: Columns of a table, unless it has those of the graph's own rows.
_COLUMNS = ("id", "cutoff")
_ALLOWED = (
    "a table (.csv, .csv.gz or .parquet) with columns id and cutoff, or those of the task's own "
    "table; or ids and cut-offs as a pair"
)
#: Microseconds of a day, in which dates and times of a text are read.
_DAY_US = UNITS_PER_DAY["us"]


def select_rows(
    selection: Any, graph: Graph, vertex_ids: pyarrow.Array | None, target: str | None
) -> tuple[IntArray, Int64Array]:
    """Return the vertices ``[n]`` of the rows of ``selection``, and their cut-offs ``[n]``.

    Args:
        selection: a table with the columns of ``graph.rows``, or ``id`` and ``cutoff``; or a pair
            of ids ``[n]`` and cut-offs ``[n]``, integers in the graph's unit or datetime64.
        graph: graph with times.
        vertex_ids: the user's ``[num_vertices]`` ids. None: ids are vertex numbers.
        target: type of the vertices, of which ids count from 0 unless there are the user's. None:
            vertices have no types.

    Raises:
        ConfigError: ids are no vertices, cut-offs are before all times of the graph or in another
            form, there is no row, or the graph has no times.
        GraphError: the file is missing, or lacks a column or a cell.
    """
    if graph.times is None:
        raise ConfigError(f"rows: expected a graph with times, got {graph.name} without")
    columns = _COLUMNS if graph.rows is None else graph.rows.columns
    option, (ids, cutoffs) = _columns(selection, vertex_ids, columns)
    if not len(ids):
        raise ConfigError(f"{option}: expected at least one row, got none")
    span = slice(0, graph.num_vertices)
    if graph.types is not None:
        names = graph.vertex_types
        span = graph.schema.vertices(names.index(names[0] if target is None else target))
    type_ids = None if vertex_ids is None else vertex_ids.slice(span.start, span.stop - span.start)
    numbers = _vertex_numbers(ids, span.stop - span.start, type_ids, option, graph.name)
    times = _cutoffs(cutoffs, graph.times.unit, option)
    _check_begun(times, graph, option)
    return (numbers + span.start).astype(graph.indices.dtype), times


def _columns(
    selection: Any, vertex_ids: pyarrow.Array | None, names: tuple[str, str]
) -> tuple[str, list[Any]]:
    """Return the option's name for errors, and the columns of ids and cut-offs.

    They have ``names``, or ``_COLUMNS`` if the table has these.
    """
    if isinstance(selection, str | Path):
        option = f"rows={brief(str(selection))}"
        if not is_table(str(selection)):
            raise ConfigError(f"{option}: expected {_ALLOWED}")
        table = open_table(Path(selection))
        id_column, cutoff = _COLUMNS if {*_COLUMNS} <= {*table.names} else names
        types = {id_column: csv_type(vertex_ids), cutoff: pyarrow.large_string()}
        return option, table_columns(table, types)
    if isinstance(selection, Sequence) and len(selection) == len(_COLUMNS):
        ids, cutoffs = (np.asarray(column) for column in selection)
        if ids.ndim == cutoffs.ndim == 1 and len(ids) == len(cutoffs):
            return "rows", [ids, cutoffs]
    raise ConfigError(f"rows={brief(selection)}: expected {_ALLOWED}")


def _vertex_numbers(
    ids: Any, count: int, type_ids: pyarrow.Array | None, option: str, graph: str
) -> Int64Array:
    """Return ``[n]`` the number of each of ``ids`` among ``type_ids``; ConfigError: one is unknown.

    ``type_ids`` None: ids are numbers from 0 to ``count`` - 1.
    """
    column = pyarrow.array(ids) if isinstance(ids, np.ndarray) else ids
    kind = pyarrow.int64() if type_ids is None else type_ids.type
    try:
        column = column.cast(kind)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError, UnicodeError):
        raise ConfigError(f"{option}: expected ids of {kind}, as {graph} has") from None
    if type_ids is None:
        numbers: Int64Array = column.to_numpy(zero_copy_only=False)
        is_unknown = (numbers < 0) | (numbers >= count)
    else:
        positions = pyarrow.compute.index_in(column, value_set=type_ids)
        numbers = positions.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        is_unknown = numbers < 0
    if is_unknown.any():
        first = column[int(is_unknown.argmax())].as_py()
        raise ConfigError(
            f"{option}: {int(is_unknown.sum()):,} of {len(numbers):,} rows are of ids that "
            f"{graph} does not have, such as {brief(first)}"
        )
    return numbers


def _cutoffs(column: Any, unit: TimeUnit, option: str) -> Int64Array:
    """Return ``column`` as int64 in ``unit``; ConfigError: it is neither integers nor dates."""
    if isinstance(column, np.ndarray) and column.dtype.kind == "U":
        column = pyarrow.array(column)
    if isinstance(column, np.ndarray):
        try:
            of_column = read_times(column, len(column), f"{option}: cut-offs")
        except GraphError as error:
            raise ConfigError(str(error)) from None
        if of_column.unit is None:
            return of_column.values
        column = pyarrow.array(column)
    types = pyarrow.types
    if types.is_string(column.type) or types.is_large_string(column.type):
        column = _parsed(column, option)
    if types.is_integer(column.type):
        cutoffs: Int64Array = column.cast(pyarrow.int64()).to_numpy(zero_copy_only=False)
        return cutoffs
    if not (types.is_timestamp(column.type) or types.is_date(column.type)):
        raise ConfigError(f"{option}: expected cut-offs as integers or dates, got {column.type}")
    if unit == "step":
        raise ConfigError(f"{option}: expected cut-offs as integers, which count steps, got dates")
    return _in_unit(column, unit, option)


def _parsed(column: Any, option: str) -> Any:
    """Return texts as integers or timestamps; ConfigError: they are neither."""
    if (parsed := _cast(column)) is not None:
        return parsed
    read, unread = 0, len(column)  # so many first values are of one form, and are not
    while unread - read > 1:
        middle = (read + unread) // 2
        if _cast(column[:middle]) is None:
            unread = middle
        else:
            read = middle
    raise ConfigError(
        f"{option}: expected cut-offs such as 2024-01-31, 2024-01-31 12:00:00 or integers, all of "
        f"one form, got {brief(column[read].as_py())} in row {unread}"
    )


def _cast(column: Any) -> Any:
    """Return texts as integers, or else as timestamps. None: a text does not fit."""
    for kind in (pyarrow.int64(), pyarrow.timestamp("us"), pyarrow.timestamp("us", "UTC")):
        try:
            return column.cast(kind)
        except pyarrow.ArrowInvalid:
            continue
    return None


def _in_unit(column: Any, unit: TimeUnit, option: str) -> Int64Array:
    """Return dates or timestamps as int64 in ``unit``; ConfigError: that is too coarse for one."""
    try:
        stamps = column.cast(pyarrow.timestamp("us" if unit == "day" else unit, _zone(column)))
    except pyarrow.ArrowInvalid:
        stamps = None
    counts = None if stamps is None else stamps.cast(pyarrow.int64()).to_numpy(zero_copy_only=False)
    if counts is None or (unit == "day" and (counts % _DAY_US).any()):
        raise ConfigError(
            f"{option}: expected cut-offs that are whole in the graph's unit of time, {unit}"
        )
    whole: Int64Array = counts // _DAY_US if unit == "day" else counts
    return whole


def _zone(column: Any) -> str | None:
    """Return the time zone of a column of timestamps. None: it has none."""
    return column.type.tz if pyarrow.types.is_timestamp(column.type) else None


def _check_begun(cutoffs: Int64Array, graph: Graph, option: str) -> None:
    """Raise ConfigError if a cut-off is before all times of edges and vertices."""
    times = graph.times
    assert times is not None
    first = times.first
    early = np.zeros(len(cutoffs), np.bool_) if first is None else cutoffs < first
    if first is not None and early.any():
        raise ConfigError(
            f"{option}: {int(early.sum()):,} of {len(cutoffs):,} cut-offs are before "
            f"{graph.name} begins, such as {format_time(int(cutoffs[early][0]), times.unit)}; its "
            f"first time is {format_time(first, times.unit)}"
        )
