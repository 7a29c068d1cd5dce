"""Graphs of data frames, with the encodings and options of tables in files."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from gnnscale.core import ConfigError, GraphError, brief, home, one_line, pyarrow, suggestion
from gnnscale.core.artifact import files
from gnnscale.data.array_inputs import type_name
from gnnscale.data.readers.tables import Tables
from gnnscale.data.readers.typed.typed_tables import TypedTables
from gnnscale.data.tables.table import Table
from gnnscale.graph import Graph

#: Options of tables in files that frames do not have.
_OF_FILES = frozenset(("raw", "store", "vertices", "edges", "delimiter", "decimal", "memory_bytes"))
_OPTIONS = {option.name for option in fields(Tables)} - _OF_FILES
_TYPED_OPTIONS = {option.name for option in fields(TypedTables)} - _OF_FILES


class FrameTables(Tables):
    """Tables of data frames, called ``vertices`` and ``edges`` in the log."""

    def _table(self, table: str) -> Table:
        frame = super()._table(table)
        frame.path = Path(table)
        return frame


class TypedFrameTables(TypedTables):
    """Tables of data frames by type, called as the types in the log."""

    def _open_tables(self) -> dict[str, Table]:
        tables = super()._open_tables()
        for table in tables.values():
            table.path = Path(table.path.stem)
        return tables


def from_tables(vertices: Any, edges: Any = None, *, name: str = "tables", **options: Any) -> Graph:
    """Return the Graph of two data frames, which columns of texts, dates and gaps may have.

    Columns are read as those of ``dataset=tables`` (docs/tables.md): texts become categories, dates
    days, empty numbers the mean. The graph is in a store below ``GNNSCALE_HOME``; equal frames and
    options reuse the store. Example::

        graph = from_tables(people, calls, id="person", label="churned", split="random")

    Frames by type make a graph with types of vertices and edges. Example::

        graph = from_tables(
            {"user": users, "item": items}, {("user", "buys", "item"): orders},
            target="user", label="churned",
        )

    Args:
        vertices: data frame of pandas or polars, or Arrow table, with a row per vertex. An index of
            pandas with a name is a column. Or frames by vertex type; None: the vertices of the type
            are the ids in the edges.
        edges: the same with a row per edge, and columns ``source`` and ``target`` of vertex ids. Or
            frames by edge type ``(source type, relation, target type)``, whose columns of ids may
            be named as the types too. None: ``foreign_keys`` are the edges.
        name: name in reports.
        **options: options of ``gnnscale.data.Tables``, such as ``id``, ``label``, ``features``,
            ``source``, ``target``, ``edge_features``, ``split`` and ``missing``; of ``TypedTables``
            for frames by type. ``id`` is by default the column ``id``, else the index of pandas,
            else the row number; without ``label`` no vertex has a label.

    Raises:
        ConfigError: an option is unknown or invalid.
        GraphError: a frame is of another type, a column is missing, or a cell cannot be read.
    """
    if _are_by_type(vertices):
        return _from_types(vertices, edges, name, options)
    _check_options(options, _OPTIONS)
    if "id" not in options:
        vertices = _with_ids(vertices)
    tables = {"vertices": as_arrow(vertices, "vertices"), "edges": as_arrow(edges, "edges")}
    defaults = {"id": _default_id(vertices, tables["vertices"]), "label": None}
    return _read(tables, name, {**defaults, **options}, FrameTables)


def _are_by_type(vertices: Any) -> bool:
    """Whether ``vertices`` are frames by type; a mapping of columns is one frame."""
    return isinstance(vertices, Mapping) and any(
        frame is None or isinstance(frame, Mapping) or hasattr(frame, "columns")
        for frame in vertices.values()
    )


def _from_types(
    vertices: Mapping[str, Any], edges: Any, name: str, options: dict[str, Any]
) -> Graph:
    """Return the graph of frames by type."""
    _check_options(options, _TYPED_OPTIONS)
    if not isinstance(edges, Mapping | None):
        raise GraphError(f"edges: expected frames by edge type, got {type_name(edges)}")
    if "id" not in options:
        vertices = {
            of_type: None if frame is None else _with_ids(frame)
            for of_type, frame in vertices.items()
        }
    frames = {of_type: frame for of_type, frame in vertices.items() if frame is not None}
    tables = {
        f"vertices/{of_type}": as_arrow(frame, str(of_type)) for of_type, frame in frames.items()
    }
    edge_types = {_joined(key, "-"): frame for key, frame in (edges or {}).items()}
    tables |= {f"edges/{key}": as_arrow(frame, key) for key, frame in edge_types.items()}
    for key in (*vertices, *edge_types):
        if not isinstance(key, str) or "/" in key or not key:
            raise GraphError(f"{brief(repr(key))}: expected a type whose name has no /")
    files: dict[str, Any] = {
        "vertices": {
            of_type: f"vertices/{of_type}.parquet" if of_type in frames else None
            for of_type in vertices
        },
        "edges": {key: f"edges/{key}.parquet" for key in edge_types},
    }
    ids = {
        of_type: _default_id(frame, tables[f"vertices/{of_type}"], f"{of_type}_id")
        for of_type, frame in frames.items()
    }
    for option, mark in (
        *(("ends", "-"), ("edge_features", "-"), ("edge_categories", "-"), ("foreign_keys", ".")),
        ("times", "-"),
    ):
        if options.get(option):
            options[option] = {_joined(key, mark): of for key, of in options[option].items()}
    return _read(tables, name, {"id": ids, **options, **files}, TypedFrameTables)


def _check_options(options: Iterable[str], allowed: Collection[str]) -> None:
    for option in options:
        if option not in allowed:
            raise ConfigError(
                f"from_tables: {brief(option)}: unknown option{suggestion(option, allowed)}"
            )


def _joined(key: Any, mark: str) -> str:
    """Return a tuple of names as one name, as options have it."""
    return mark.join(map(str, key)) if isinstance(key, tuple) else key


def _read(
    tables: Mapping[str, Any],
    name: str,
    options: dict[str, Any],
    dataset: type[FrameTables] | type[TypedFrameTables],
) -> Graph:
    """Return the graph of Arrow tables, by their paths without ending, as ``dataset`` reads it."""
    folder = home() / "graphs"
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".frames-", dir=folder) as raw:
        paths = [Path(raw, f"{table}.parquet") for table in tables]
        for path, table in zip(paths, tables.values(), strict=True):
            path.parent.mkdir(exist_ok=True)
            with files.readable(path):
                pyarrow.parquet.write_table(table, path)
        content = [files.file_sha256(path) for path in paths]
        # Another release may read the same frames in another way.
        identity = [version("gnnscale"), name, content, sorted(options.items())]
        store = folder / f"tables-{files.digest(identity)}"
        try:
            return dataset(name=name, raw=raw, store=str(store), **options).open()
        except (ConfigError, GraphError) as error:
            raise type(error)(_as_keywords(str(error), raw), limit=4000) from None


def as_arrow(frame: Any, what: str) -> Any:
    """Return a data frame as an Arrow table, a named index of pandas as its first columns.

    GraphError, in which ``what`` names the frame: it is no frame, or a column has values of several
    types.
    """
    try:
        if hasattr(frame, "reset_index"):  # of pandas
            named = [level for level in frame.index.names if level is not None]
            frame = frame.reset_index(level=named) if named else frame
            frame = frame.rename(columns=str)
            return pyarrow.Table.from_pandas(frame, preserve_index=False)
        if hasattr(frame, "to_arrow"):  # of polars
            return frame.to_arrow()
        return pyarrow.table(frame)
    except (TypeError, ValueError, pyarrow.ArrowException) as error:
        reason = one_line(" ".join(map(str, error.args)), 200)
        raise GraphError(
            f"{what}: expected a data frame of pandas or polars or an Arrow table, with values of "
            f"one type in each column, got {type_name(frame)} ({reason})"
        ) from None


def _with_ids(frame: Any) -> Any:
    """Return a frame of pandas whose index of ids, of whole numbers or texts, is named ``id``.

    The frame stays as it is if its index counts the rows from 0 or has a name, or if it has a
    column ``id``.
    """
    index: Any = getattr(frame, "index", None)
    names = getattr(index, "names", None) or ["polars"]
    if list(names) != [None] or "id" in frame.columns:
        return frame
    counts = np.array_equal(index, np.arange(len(frame)))
    return frame if counts or index.dtype.kind not in "iuO" else frame.rename_axis("id")


def _default_id(frame: Any, table: Any, other: str = "id") -> str | None:
    """Return the column of ids: ``id``, the named index of pandas, or ``other``.

    None: ids are row numbers.
    """
    if "id" in table.column_names:
        return "id"
    index = getattr(frame, "index", None)
    names = getattr(index, "names", None) or [None]
    if len(names) == 1 and names[0] is not None:
        return str(names[0])
    return other if other in table.column_names else None


def _as_keywords(text: str, folder: str) -> str:
    """Return an error's text with the frame in place of its file, and options as keywords."""
    text = re.sub(rf"{re.escape(folder)}/(?:(?:vertices|edges)/)?", "", text).replace(
        ".parquet", ""
    )
    return re.sub(r"\bdataset\.(\w+)", r"\1", text).replace("=null", "=None")
