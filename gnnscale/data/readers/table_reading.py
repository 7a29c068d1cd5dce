"""Reading of tables of vertices and edges into a graph store."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gnnscale.core import Array, GraphError, Int64Array, brief, pyarrow
from gnnscale.core.artifact import files
from gnnscale.data.readers.edge_reading import edge_table, left_out, write_edges
from gnnscale.data.readers.feature_reading import columns_of, filled, log_unread, surveys_of
from gnnscale.data.readers.table_options import SPLIT, TableOptions
from gnnscale.data.storage import StoreWriter
from gnnscale.data.tables import label_columns, roles, vertex_ids
from gnnscale.data.tables.batch import is_text
from gnnscale.data.tables.edge_columns import EdgeTable
from gnnscale.data.tables.feature_columns import FeatureColumns
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
    if options.id_type == "auto" and _are_texts(options, vertices, table):
        options = replace(options, id_type="string")
        _LOG.info("%s: ids are read as texts, as the edges have texts", vertices.path)
    edges = edge_table(options, table, writer, changes)
    found = _read_vertices(options, vertices, writer.path, changes)
    unknown = _unknown_ids(options, found, edges, changes)
    columns = [column.with_empty_rows(len(unknown)) for column in found.columns]
    changes += filled(columns, "vertices", len(unknown))
    features = FeatureColumns(vertices, columns, named=options.features is not None)
    if columns:
        writer.notes["columns"] = features.described()
    id_map = _write_vertices(options, found, unknown, writer, vertices.path)
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


def _are_texts(options: TableOptions, vertices: Table, edges: Table) -> bool:
    """Whether ids of CSV are whole numbers of the vertices, and texts of the edges, at first."""
    if not (vertices.is_csv and edges.is_csv and options.id in vertices.types):
        return False
    ends = [edges.types.get(end) for end in (options.source, options.target)]
    return pyarrow.types.is_integer(vertices.types[options.id]) and any(
        end is not None and is_text(end) for end in ends
    )


@dataclass(kw_only=True)
class _Vertices:
    """Columns of the table of vertices, read."""

    ids: vertex_ids.IdColumn
    labels: tuple[Array, list[str] | None] | None  #: labels, and names of classes; None: unread
    split: label_columns.SplitColumn | None
    groups: Int64Array | None  #: group of each vertex, for a random split; None: there are none
    id_map: vertex_ids.IdMap
    columns: list[Surveyed]  #: columns of features


def _read_vertices(
    options: TableOptions, table: Table, folder: Path, changes: list[str]
) -> _Vertices:
    """Read ids, labels and split, and survey the columns of features, in one pass.

    With ``missing`` of ``drop``, rows with an empty number are left out, in further passes.
    """
    names, option_names = _feature_names(options, table), ("features", "categories")
    surveys = surveys_of(table, names, options.categories or (), option_names)
    num_rows = table.num_rows()
    if num_rows is not None:  # unknown for compressed files
        _check_memory(options, table, num_rows, folder)
    found = _pass_over(options, table, surveys)
    found.columns = columns_of(
        *(surveys, table),
        missing=options.missing,
        named={*(options.features or ()), *(options.categories or ())},
        trains=options._advises,
        option="features",
    )
    table.problems.raise_any()
    if num_rows is None:
        _check_memory(options, table, found.ids.num_vertices, folder)
    if options.missing == "drop" and any(column.has_gaps for column in found.columns):
        found = _without_empty(options, table, found, changes)
    if options.features is None:
        roles.warn_of_names(table, found.columns)
    return found


def _pass_over(options: TableOptions, table: Table, surveys: Sequence[ColumnSurvey]) -> _Vertices:
    """Read ids, labels and split of all rows, and survey features; problems are reported."""
    ids = vertex_ids.IdColumn(
        options.id, options.id_type, vertex_ids.max_id_bytes(files.total_bytes(table.paths))
    )
    types: dict[str, Any] = {survey.name: survey.kind for survey in surveys}
    if options.id is not None:
        types[options.id] = vertex_ids.csv_id_type(options.id_type, table.types[options.id])
    labels = split = None
    if options.label is not None and options._has_labels:
        table.require("label", options.label, otherwise="dataset.label=null")
        labels = label_columns.LabelColumn(options.label, options.label_kind)
        types[options.label] = label_columns.csv_label_type(table.types[options.label])
    if labels is not None and options.split == "published":
        split = roles.find_split(table, "split_column", options.split_column, SPLIT)
        types |= split.csv_types
    groups = None
    if labels is not None and options.split_group is not None:
        groups = label_columns.GroupColumn(table.require("split_group", options.split_group))
        types[groups.name] = groups.csv_type
    if not types:  # rows are counted alone
        types[table.names[0]] = pyarrow.string()
    for batch in table.batches(list(types), types, 64 + 8 * len(surveys)):
        for column in (ids, labels, split, groups, *surveys):
            if column is not None:
                column.add(batch)
    if not ids.num_vertices:
        table.problems.raise_any()
    found = None if labels is None else labels.finish(ids.locations)
    return _Vertices(
        ids=ids,
        labels=found,
        split=split,
        groups=None if groups is None else groups.finish(),
        id_map=ids.map(),
        columns=[],
    )


def _without_empty(
    options: TableOptions, table: Table, found: _Vertices, changes: list[str]
) -> _Vertices:
    """Return the vertices without rows that have an empty number; GraphError: none is left."""
    features = FeatureColumns(table, found.columns, named=True)
    is_empty = np.concatenate([features.empty(batch) for batch in features.batches()])
    num_left = int(np.count_nonzero(~is_empty))
    gaps = ", ".join(column.told_gaps() for column in found.columns if column.has_gaps)
    if not num_left:
        raise GraphError(
            f"{table.path}: dataset.missing=drop leaves no row, as each has an empty number: {gaps}"
        )
    changes.append(
        f"vertices: {len(is_empty) - num_left:,} rows with an empty number left out, with their "
        f"edges: {gaps} (dataset.missing=drop)"
    )
    table.keep(~is_empty)
    left = _pass_over(options, table, ())
    left.id_map.dropped = found.id_map.all_ids().filter(pyarrow.array(is_empty))
    left.columns = [replace(column, num_empty=0, num_rows=num_left) for column in found.columns]
    return left


def _unknown_ids(
    options: TableOptions, found: _Vertices, edges: EdgeTable, changes: list[str]
) -> Any:
    """Return the ids that only the edges have, to become vertices, as an Arrow array.

    GraphError: they would have empty features, which ``missing`` refuses.
    """
    id_map, has_numbers = found.id_map, any(each.categories is None for each in found.columns)
    edges.drops_unknown = options.unknown_ids == "drop"
    if options.unknown_ids == "vertices" and options.missing == "drop" and has_numbers:
        edges.drops_unknown = True  # all their numbers are empty
    elif options.unknown_ids == "vertices":
        max_bytes = vertex_ids.max_id_bytes(files.total_bytes(edges.table.paths))
        unknown = edges.unknown_ids(id_map, max_bytes)
        if len(unknown) and options.missing == "refuse" and has_numbers:
            raise GraphError(
                f"{edges.table.path}: {len(unknown):,} ids such as "
                f"{brief(repr(unknown[0].as_py()))} are of no vertex, and have no features; "
                "dataset.missing=mean fills them, dataset.unknown_ids=drop leaves out their edges"
            )
        if len(unknown):
            changes.append(
                f"{len(unknown):,} ids that only the edges have, such as "
                f"{brief(repr(unknown[0].as_py()))}, are vertices without a label and with empty "
                "features (dataset.unknown_ids=vertices)"
            )
        return unknown
    return pyarrow.array([], id_map.type)


def _write_vertices(
    options: TableOptions, found: _Vertices, unknown: Any, writer: StoreWriter, source: Path
) -> vertex_ids.IdMap:
    """Set number, labels and split of the vertices; write their ids.

    Return the map of the user's ids, and of ``unknown``, to vertex numbers.
    """
    writer.set_num_vertices(found.ids.num_vertices + len(unknown), source=source)
    if found.labels is None:
        writer.set_unlabeled()
    else:
        _set_labels(writer, found, len(unknown), source)
    if found.split is not None:
        labels, rows = writer.labels[: found.ids.num_vertices], found.ids.locations
        parts = found.split.finish(labels, rows, unlabeled=options.unlabelled, source=source)
        writer.set_split(*parts, source=source)
    if found.groups is not None:
        writer.groups = np.append(found.groups, np.full(len(unknown), -1))
    id_map = found.id_map.extended(unknown) if len(unknown) else found.id_map
    if id_map.array is not None:
        writer.notes["ids"] = write_ids(writer.path, id_map.array)
        id_map.array = None
    return id_map


def _set_labels(writer: StoreWriter, found: _Vertices, num_added: int, source: Path) -> None:
    """Set the labels in ``writer``, unknown for vertices added; class names go into its notes."""
    assert found.labels is not None
    labels, names = found.labels
    unknown = np.full(num_added, -1 if labels.dtype.kind == "i" else np.nan, labels.dtype)
    labels = np.concatenate([labels, unknown]) if num_added else labels
    num_classes = None if names is None else len(names)
    writer.set_labels(labels, num_classes=num_classes, metric=None, advice="", source=source)
    if names is not None:
        writer.notes["classes"] = names


def _feature_names(options: TableOptions, table: Table) -> list[str]:
    """Return the columns of the vertex features, the user's or by default."""
    names, chosen = options.features, options.categories or ()
    if options.id is not None:
        table.require(
            "id", options.id, otherwise="dataset.id=null, so that ids are row numbers from 0"
        )
    if names is None:
        used = (options.id, options.label, options.split_column, options.split_group)
        names = roles.default_features(table, used, chosen)
    for name in names:
        table.require("features", name)
    for name in chosen:
        table.require("categories", name)
    if options.features is not None:
        others = {*names, options.id, options.label, options.split_column, options.split_group}
        log_unread(table, others, "features")
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
