"""Reading of tables of vertices and edges into a graph store."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from gnnscale.core import Array, GraphError, brief, pyarrow
from gnnscale.core.artifact import files
from gnnscale.data.labels import read_labels
from gnnscale.data.readers.edge_reading import edge_table, left_out, write_edges
from gnnscale.data.readers.feature_reading import columns_of, filled, log_unread, surveys_of
from gnnscale.data.readers.table_options import SPLIT, IdOptions, TableOptions
from gnnscale.data.storage import StoreWriter
from gnnscale.data.tables import roles, vertex_ids
from gnnscale.data.tables.batch import is_text
from gnnscale.data.tables.edge_columns import EdgeTable
from gnnscale.data.tables.feature_columns import FeatureColumns
from gnnscale.data.tables.label_columns import GroupColumn, LabelColumns
from gnnscale.data.tables.survey import ColumnSurvey, Surveyed
from gnnscale.data.tables.table import Table
from gnnscale.graph.store_format import write_ids

_LOG = logging.getLogger(__name__)
#: Bytes of memory per vertex: label, part of the split, in-degree and offset.
_VERTEX_BYTES = 48
#: Bytes of memory per id, at most, besides texts.
_ID_BYTES = 64


def read_tables(options: TableOptions, vertices: Table, table: Table, writer: StoreWriter) -> None:
    """Push vertices with labels and split, edges with their data, then vertex features.

    What was filled, added or left out goes, with counts, into the note ``changes``.
    """
    changes: list[str] = []
    id_type = _id_type(options.ids, vertices, table)
    edges = edge_table(options, table, id_type, writer, changes)
    read = _read_vertices(options, vertices, id_type, writer.path, changes)
    unknown = _unknown_ids(options, read, edges, changes)
    columns = [
        replace(column, num_empty=column.num_empty + len(unknown)) for column in read.columns
    ]
    changes += filled(columns, "vertices", len(unknown))
    features = FeatureColumns(vertices, columns, named=options.features is not None)
    if columns:
        writer.notes["columns"] = features.described()
    id_map = _write_vertices(options, read, unknown, writer, vertices.path)
    write_edges(options, edges, id_map, writer)
    changes += left_out(edges, options.missing)
    if changes:
        writer.notes["changes"] = changes
    if not columns:
        writer.set_featureless(source=vertices.path)
        return
    width, dtype, source = features.num_features, features.dtype, vertices.path
    rows = features.rows(num_empty=len(unknown))
    writer.write_features(rows, num_features=width, dtype=dtype, source=source)


def _id_type(ids: IdOptions, vertices: Table, edges: Table) -> str:
    """Return the type of ids: texts if CSV has whole numbers of vertices and texts of edges."""
    if ids.type == "auto" and vertices.is_csv and edges.is_csv and ids.id in vertices.types:
        ends = [edges.types[end] for end in (ids.source, ids.target) if end in edges.types]
        if pyarrow.types.is_integer(vertices.types[ids.id]) and any(map(is_text, ends)):
            _LOG.info("%s: ids are read as texts, as the edges have texts", vertices.path)
            return "string"
    return ids.type


@dataclass(kw_only=True)
class _Vertices:
    """Columns of the table of vertices, read."""

    ids: vertex_ids.IdColumn
    id_map: vertex_ids.IdMap
    labels: LabelColumns | None
    groups: GroupColumn | None
    #: labels, and names of classes; None: unread
    values: tuple[Array, list[str] | None] | None
    columns: list[Surveyed] = field(default_factory=list)  #: columns of features


def _read_vertices(
    options: TableOptions, table: Table, id_type: str, folder: Path, changes: list[str]
) -> _Vertices:
    """Read ids, labels and split, and survey the columns of features, in one pass.

    With ``missing`` of ``drop``, rows with an empty number are left out, in further passes.
    """
    surveys = surveys_of(options, table, _feature_names(options, table), "")
    num_rows = table.num_rows()
    if num_rows is not None:  # unknown for compressed files
        _check_memory(options, table, num_rows, folder)
    read = _pass_over(options, table, id_type, surveys)
    read.columns = columns_of(options, table, surveys, "")
    table.problems.raise_any()
    if num_rows is None:
        _check_memory(options, table, read.ids.num_vertices, folder)
    if options.missing == "drop" and any(column.has_gaps for column in read.columns):
        read = _without_empty(options, table, id_type, read, changes)
    if options.features is None:
        roles.warn_of_names(table, read.columns)
    return read


def _pass_over(
    options: TableOptions, table: Table, id_type: str, surveys: Sequence[ColumnSurvey]
) -> _Vertices:
    """Read ids, labels and split of all rows, and survey features; problems are reported."""
    id_column = options.ids.id
    ids = vertex_ids.IdColumn(
        id_column, id_type, vertex_ids.max_id_bytes(files.total_bytes(table.paths))
    )
    types: dict[str, Any] = {survey.name: survey.kind for survey in surveys}
    if id_column is not None:
        types[id_column] = vertex_ids.csv_id_type(id_type, table.types[id_column])
    labels = groups = None
    if options.label is not None and options._has_labels:
        name = table.require("label", options.label, otherwise="dataset.label=null")
        split = None
        if options.split == "published":
            split = roles.find_split(table, "split_column", options.split_column, SPLIT)
        labels = LabelColumns(table, name, options.label_kind, split, option="label_kind")
        types |= labels.csv_types
        if options.split_group is not None:
            groups = GroupColumn(table.require("split_group", options.split_group))
            types |= groups.csv_types
    if not types:  # rows are counted alone
        types[table.names[0]] = pyarrow.string()
    for batch in table.batches(list(types), types, 64 + 8 * len(surveys)):
        for column in (ids, labels, groups, *surveys):
            if column is not None:
                column.add(batch)
    if not ids.num_vertices:
        table.problems.raise_any()
    values = None if labels is None else labels.labels()
    return _Vertices(ids=ids, id_map=ids.map(), labels=labels, groups=groups, values=values)


def _without_empty(
    options: TableOptions, table: Table, id_type: str, read: _Vertices, changes: list[str]
) -> _Vertices:
    """Return the vertices without rows that have an empty number; GraphError: none is left."""
    features = FeatureColumns(table, read.columns, named=True)
    is_empty = np.concatenate([features.empty(batch) for batch in features.batches()])
    num_left = int(np.count_nonzero(~is_empty))
    gaps = ", ".join(column.told_gaps() for column in read.columns if column.has_gaps)
    if not num_left:
        raise GraphError(
            f"{table.path}: dataset.missing=drop leaves no row, as each has an empty number: {gaps}"
        )
    changes.append(
        f"vertices: {len(is_empty) - num_left:,} rows with an empty number left out, with their "
        f"edges: {gaps} (dataset.missing=drop)"
    )
    table.keep(~is_empty)
    filled_rows = _pass_over(options, table, id_type, ())
    filled_rows.id_map.dropped = read.id_map.all_ids().filter(pyarrow.array(is_empty))
    filled_rows.columns = [replace(column, num_empty=0) for column in read.columns]
    return filled_rows


def _unknown_ids(
    options: TableOptions, read: _Vertices, edges: EdgeTable, changes: list[str]
) -> Any:
    """Return the ids that only the edges have, to become vertices, as an Arrow array.

    GraphError: they would have empty features, which ``missing`` refuses.
    """
    has_numbers = any(column.categories is None for column in read.columns)
    all_empty = options.missing == "drop" and has_numbers
    adds = options.ids.unknown == "vertices"
    edges.drops_unknown = options.ids.unknown == "drop" or (adds and all_empty)
    if not adds or all_empty:
        return pyarrow.array([], read.id_map.type)
    max_bytes = vertex_ids.max_id_bytes(files.total_bytes(edges.table.paths))
    unknown = edges.unknown_ids(read.id_map, max_bytes)
    if len(unknown):
        example = brief(repr(unknown[0].as_py()))
        if options.missing == "refuse" and has_numbers:
            raise GraphError(
                f"{edges.table.path}: {len(unknown):,} ids such as {example} are of no vertex, and "
                "have no features; dataset.missing=mean fills them, dataset.unknown_ids=drop "
                "leaves out their edges"
            )
        changes.append(
            f"{len(unknown):,} ids that only the edges have, such as {example}, are vertices "
            "without a label and with empty features (dataset.unknown_ids=vertices)"
        )
    return unknown


def _write_vertices(
    options: TableOptions, read: _Vertices, unknown: Any, writer: StoreWriter, source: Path
) -> vertex_ids.IdMap:
    """Set number, labels and split of the vertices; write their ids.

    Return the map of the user's ids, and of ``unknown``, to vertex numbers.
    """
    writer.set_num_vertices(read.ids.num_vertices + len(unknown), source=source)
    if read.labels is None or read.values is None:
        writer.set_unlabeled()
    else:
        labels, names = read.values
        _set_labels(writer, labels, names, len(unknown), source)
        parts = read.labels.parts(labels, unlabeled=options.unlabelled, what="vertices")
        if parts is not None:
            writer.set_split(*parts, source=source)
    if read.groups is not None:
        writer.groups = np.append(read.groups.finish(), np.full(len(unknown), -1))
    id_map = read.id_map.extended(unknown) if len(unknown) else read.id_map
    if id_map.array is not None:
        writer.notes["ids"] = write_ids(writer.path, id_map.array)
        id_map.array = None
    return id_map


def _set_labels(
    writer: StoreWriter, labels: Array, names: list[str] | None, num_added: int, source: Path
) -> None:
    """Set the labels in ``writer``, unknown for vertices added; class names go into its notes."""
    unknown = np.full(num_added, -1 if labels.dtype.kind == "i" else np.nan, labels.dtype)
    labels = np.concatenate([labels, unknown]) if num_added else labels
    num_classes, count = None if names is None else len(names), writer.num_vertices
    result = read_labels(labels, count=count, source=source, num_classes=num_classes, advice="")
    num_classes, metric = result.num_classes, result.metric
    writer.set_labels(result.values, num_classes=num_classes, metric=metric, source=source)
    if names is not None:
        writer.notes["classes"] = names


def _feature_names(options: TableOptions, table: Table) -> list[str]:
    """Return the columns of the vertex features, the user's or by default."""
    id_column, chosen = options.ids.id, options.categories or ()
    if id_column is not None:
        table.require(
            "id", id_column, otherwise="dataset.id=null, so that ids are row numbers from 0"
        )
    used = {id_column, options.label, options.split_column, options.split_group}
    names = options.features
    if names is None:
        names = roles.default_features(table, used, chosen)
    else:
        log_unread(table, {*names, *used}, "features")
    for name in names:
        table.require("features", name)
    for name in chosen:
        table.require("categories", name)
    return names


def _check_memory(options: TableOptions, table: Table, num_vertices: int, folder: Path) -> None:
    """Log the estimated memory of writing a store of ``num_vertices`` vertices.

    NoSpaceError: the data of the vertices alone exceed the free memory.
    """
    id_bytes, data_bytes = _ID_BYTES * num_vertices, _VERTEX_BYTES * num_vertices
    what = f"{table.path}: about {num_vertices} vertices"
    files.check_space(what, folder, memory=data_bytes + id_bytes)
    sizes = (id_bytes, data_bytes, 12 * table.batch_bytes, options.memory_bytes)
    _LOG.info(
        "%s: about %s vertices; memory: up to %s for their ids, beside texts, %s for their "
        "other data, %s for reading, then up to %s for edges",
        *(table.path, f"{num_vertices:,}", *map(files.size, sizes)),
    )
