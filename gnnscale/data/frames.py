"""Graphs of data frames, with the encodings and options of tables in files."""

import re
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
from gnnscale.data.tables.table import Table
from gnnscale.graph import Graph

#: Options of tables in files that frames do not have.
_OF_FILES = frozenset(("raw", "store", "vertices", "edges", "delimiter", "decimal", "memory_bytes"))
_OPTIONS = {option.name for option in fields(Tables)} - _OF_FILES


class FrameTables(Tables):
    """Tables of data frames, called ``vertices`` and ``edges`` in the log."""

    def _table(self, table: str) -> Table:
        frame = super()._table(table)
        frame.path = Path(table)
        return frame


def from_tables(vertices: Any, edges: Any, *, name: str = "tables", **options: Any) -> Graph:
    """Return the Graph of two data frames, which columns of texts, dates and gaps may have.

    Columns are read as those of ``dataset=tables`` (docs/tables.md): texts become categories, dates
    days, empty numbers the mean. The graph is in a store below ``GNNSCALE_HOME``; equal frames and
    options reuse the store. Example::

        graph = from_tables(people, calls, id="person", label="churned", split="random")

    Args:
        vertices: data frame of pandas or polars, or Arrow table, with a row per vertex. An index of
            pandas with a name is a column.
        edges: the same with a row per edge, and columns ``source`` and ``target`` of vertex ids.
        name: name in reports.
        **options: options of ``gnnscale.data.Tables``, such as ``id``, ``label``, ``features``,
            ``source``, ``target``, ``edge_features``, ``split`` and ``missing``. ``id`` is by
            default the column ``id``, else the index of pandas, else the row number; without
            ``label`` no vertex has a label.

    Raises:
        ConfigError: an option is unknown or invalid.
        GraphError: a frame is of another type, a column is missing, or a cell cannot be read.
    """
    for option in options.keys() - _OPTIONS:
        raise ConfigError(
            f"from_tables: {brief(option)}: unknown option{suggestion(option, _OPTIONS)}"
        )
    if "id" not in options:
        vertices = _with_ids(vertices)
    tables = {"vertices": as_arrow(vertices, "vertices"), "edges": as_arrow(edges, "edges")}
    defaults = {"id": _default_id(vertices, tables["vertices"]), "label": None}
    options = {**defaults, **options}
    folder = home() / "graphs"
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".frames-", dir=folder) as raw:
        paths = [Path(raw, f"{table}.parquet") for table in tables]
        for path, table in zip(paths, tables.values(), strict=True):
            with files.readable(path):
                pyarrow.parquet.write_table(table, path)
        content = [files.file_sha256(path) for path in paths]
        # Another release may read the same frames in another way.
        identity = [version("gnnscale"), name, content, sorted(options.items())]
        store = folder / f"tables-{files.digest(identity)}"
        try:
            return FrameTables(name=name, raw=raw, store=str(store), **options).open()
        except (ConfigError, GraphError) as error:
            raise type(error)(_as_keywords(str(error), raw)) from None


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


def _default_id(frame: Any, table: Any) -> str | None:
    """Return the column of ids: ``id``, or else the named index of pandas. None: row numbers."""
    if "id" in table.column_names:
        return "id"
    index = getattr(frame, "index", None)
    names = getattr(index, "names", None) or [None]
    return None if len(names) > 1 or names[0] is None else str(names[0])


def _as_keywords(text: str, folder: str) -> str:
    """Return an error's text with the frame in place of its file, and options as keywords."""
    text = text.replace(f"{folder}/", "").replace(".parquet", "")
    return re.sub(r"\bdataset\.(\w+)", r"\1", text).replace("=null", "=None")
