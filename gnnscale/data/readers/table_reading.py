"""Reading of tables of vertices and edges into a graph store."""

import logging
from dataclasses import replace
from typing import Any

import numpy as np

from gnnscale.core import Array, GraphError, brief, pyarrow
from gnnscale.core.artifact import files
from gnnscale.data.readers.column_reading import (
    FeatureSurvey,
    filled,
    label_columns,
    log_unread,
)
from gnnscale.data.readers.edge_reading import EdgeReader
from gnnscale.data.readers.table_options import IdOptions, TableOptions
from gnnscale.data.storage import StoreWriter
from gnnscale.data.tables import roles
from gnnscale.data.tables.batch import is_text
from gnnscale.data.tables.feature_columns import FeatureColumns
from gnnscale.data.tables.label_columns import GroupColumn
from gnnscale.data.tables.table import Table
from gnnscale.data.tables.vertex_ids import IdColumn, IdMap, csv_id_type, max_id_bytes
from gnnscale.graph.store_format import write_ids

_LOG = logging.getLogger(__name__)
#: Bytes of memory per vertex: label, part of the split, in-degree and offset.
_VERTEX_BYTES = 48
#: Bytes of memory per id, at most, besides texts.
_ID_BYTES = 64


def read_tables(options: TableOptions, vertices: Table, edges: Table, writer: StoreWriter) -> None:
    """Push vertices with labels and split, edges with their data, then vertex features.

    What was filled, added or left out goes, with counts, into the note ``changes``.
    """
    changes: list[str] = []
    id_type = _id_type(options.ids, vertices, edges)
    edge_reader = EdgeReader(options, edges, id_type, writer, changes)
    vertex_reader = _VertexReader(options, vertices, id_type, writer, changes)
    unknown = _unknown_ids(options, vertex_reader, edges, edge_reader, changes)
    columns = [
        replace(column, num_empty=column.num_empty + len(unknown))
        for column in vertex_reader.columns
    ]
    changes += filled(columns, "vertices", len(unknown))
    features = FeatureColumns(vertices, columns, named=options.features is not None)
    if columns:
        writer.notes["columns"] = features.described()
    edge_reader.write(vertex_reader.write(unknown))
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


class _VertexReader:
    """Reader of the table of vertices: ids, labels, split and groups, in one pass.

    The pass surveys the columns of features, too. With ``missing`` of ``drop``, rows with an empty
    number are left out, in further passes; ``changes`` gets their number.
    """

    def __init__(
        self,
        options: TableOptions,
        table: Table,
        id_type: str,
        writer: StoreWriter,
        changes: list[str],
    ) -> None:
        self._options, self._table, self._writer = options, table, writer
        self._ids, self._id_type = options.ids.id, id_type
        survey = FeatureSurvey(options, table, _feature_names(options, table), "")
        num_rows = table.num_rows()
        if num_rows is not None:  # unknown for compressed files
            self._check_memory(num_rows)
        self._pass_over(survey)
        self.columns = survey.finish()  #: columns of features
        table.problems.raise_any()
        if num_rows is None:
            self._check_memory(self._num_vertices)
        if options.missing == "drop" and any(column.has_gaps for column in self.columns):
            self._drop_empty(changes)
        if options.features is None:
            roles.warn_of_names(table, self.columns)

    def _pass_over(self, survey: FeatureSurvey | None) -> None:
        """Read ids, labels and split of all rows, and survey features; problems are reported."""
        options, table = self._options, self._table
        ids = IdColumn(self._ids, self._id_type, max_id_bytes(files.total_bytes(table.paths)))
        types: dict[str, Any] = {} if survey is None else dict(survey.types)
        if self._ids is not None:
            types[self._ids] = csv_id_type(self._id_type, table.types[self._ids])
        labels = label_columns(options, table, "", otherwise="dataset.label=null")
        groups = None
        if labels is not None:
            types |= labels.csv_types
        if labels is not None and options.split_group is not None:
            groups = GroupColumn(table.require("split_group", options.split_group))
            types |= groups.csv_types
        if not types:  # rows are counted alone
            types[table.names[0]] = pyarrow.string()
        for batch in table.batches(list(types), types, 64 + 8 * len(types)):
            for column in (ids, labels, groups, survey):
                if column is not None:
                    column.add(batch)
        if not ids.num_vertices:
            table.problems.raise_any()
        self._labels, self._groups, self._num_vertices = labels, groups, ids.num_vertices
        self._values = None if labels is None else labels.labels()
        self.id_map = ids.map()

    def _drop_empty(self, changes: list[str]) -> None:
        """Leave out rows that have an empty number; GraphError: none is left."""
        features = FeatureColumns(self._table, self.columns, named=True)
        is_empty = np.concatenate([features.empty(batch) for batch in features.batches()])
        gaps = ", ".join(column.told_gaps() for column in self.columns if column.has_gaps)
        if is_empty.all():
            raise GraphError(
                f"{self._table.path}: dataset.missing=drop leaves no row, as each has an empty "
                f"number: {gaps}"
            )
        changes.append(
            f"vertices: {np.count_nonzero(is_empty):,} rows with an empty number left out, with "
            f"their edges: {gaps} (dataset.missing=drop)"
        )
        dropped = self.id_map.all_ids().filter(pyarrow.array(is_empty))
        self._table.keep(~is_empty)
        self._pass_over(None)
        self.id_map.dropped = dropped
        self.columns = [replace(column, num_empty=0) for column in self.columns]

    def write(self, unknown: Any) -> IdMap:
        """Write the vertices: their number, labels, split and ids.

        Return the map from ids to vertices, in which the ids ``unknown`` are further vertices.
        """
        writer, source, num_added = self._writer, self._table.path, len(unknown)
        writer.set_num_vertices(self._num_vertices + num_added, source=source)
        if self._labels is None or self._values is None:
            writer.set_unlabeled()
        else:
            labels, names = self._values
            self._write_labels(labels, names, num_added)
            unlabeled = self._options.unlabelled
            parts = self._labels.parts(labels, unlabeled=unlabeled, what="vertices")
            if parts is not None:
                writer.set_split(*parts, source=source)
        if self._groups is not None:
            writer.groups = np.append(self._groups.finish(), np.full(num_added, -1))
        id_map = self.id_map.extended(unknown) if num_added else self.id_map
        if id_map.array is not None:
            writer.notes["ids"] = write_ids(writer.path, id_map.array)
            id_map.array = None
        return id_map

    def _write_labels(self, labels: Array, names: list[str] | None, num_added: int) -> None:
        """Set the labels, unknown for vertices added; class names go into the notes."""
        writer, source = self._writer, self._table.path
        unknown = np.full(num_added, -1 if labels.dtype.kind == "i" else np.nan, labels.dtype)
        labels = np.concatenate([labels, unknown]) if num_added else labels
        num_classes = None if names is None else len(names)
        writer.set_labels(labels, num_classes=num_classes, metric=None, advice="", source=source)
        if names is not None:
            writer.notes["classes"] = names

    def _check_memory(self, num_vertices: int) -> None:
        """Log the estimated memory of writing a store of ``num_vertices`` vertices.

        NoSpaceError: the data of the vertices alone exceed the free memory.
        """
        table = self._table
        id_bytes, data_bytes = _ID_BYTES * num_vertices, _VERTEX_BYTES * num_vertices
        what = f"{table.path}: about {num_vertices} vertices"
        files.check_space(what, self._writer.path, memory=data_bytes + id_bytes)
        sizes = (id_bytes, data_bytes, 12 * table.batch_bytes, self._options.memory_bytes)
        _LOG.info(
            "%s: about %s vertices; memory: up to %s for their ids, beside texts, %s for their "
            "other data, %s for reading, then up to %s for edges",
            *(table.path, f"{num_vertices:,}", *map(files.size, sizes)),
        )


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


def _unknown_ids(
    options: TableOptions,
    vertices: _VertexReader,
    table: Table,
    edges: EdgeReader,
    changes: list[str],
) -> Any:
    """Return the ids that only the edges have, to become vertices, as an Arrow array.

    GraphError: they would have empty features, which ``missing`` refuses.
    """
    has_numbers = any(column.categories is None for column in vertices.columns)
    all_empty = options.missing == "drop" and has_numbers
    adds = options.ids.unknown == "vertices"
    edges.drops_unknown = options.ids.unknown == "drop" or (adds and all_empty)
    if not adds or all_empty:
        return pyarrow.array([], vertices.id_map.type)
    unknown = edges.unknown_ids(vertices.id_map)
    if len(unknown):
        example = brief(repr(unknown[0].as_py()))
        if options.missing == "refuse" and has_numbers:
            raise GraphError(
                f"{table.path}: {len(unknown):,} ids such as {example} are of no vertex, and have "
                "no features; dataset.missing=mean fills them, dataset.unknown_ids=drop leaves out "
                "their edges"
            )
        changes.append(
            f"{len(unknown):,} ids that only the edges have, such as {example}, are vertices "
            "without a label and with empty features (dataset.unknown_ids=vertices)"
        )
    return unknown
