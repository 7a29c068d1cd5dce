"""Readers of the table of vertices and the table of edges of the layout ``tables``."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gnnscale.core import brief
from gnnscale.core.artifact import files
from gnnscale.core.types import Array
from gnnscale.data.labels import read_labels
from gnnscale.data.storage.writer import StoreWriter
from gnnscale.data.tables import vertex_ids
from gnnscale.data.tables.categories import holds_texts
from gnnscale.data.tables.edge_columns import EdgeLabelColumns, EdgeTable
from gnnscale.data.tables.feature_columns import FeatureColumns
from gnnscale.data.tables.label_columns import LabelColumn, csv_label_type
from gnnscale.data.tables.roles import default_features, find_split, log_features, warn_of_names
from gnnscale.data.tables.table import Table

_LOG = logging.getLogger(__name__)
#: Default name of the column of weights, which may be missing.
WEIGHT = "weight"
#: Default name of the column of the split, which masks may replace.
SPLIT = "split"
#: Bytes of memory per vertex: label, part of the split, in-degree and offset.
_VERTEX_BYTES = 48
#: Bytes of memory per id, at most, besides texts.
_ID_BYTES = 64
#: Bytes of disk per edge: row, both ends, label and split.
_EDGE_ROW_BYTES = 28
#: Bytes of memory per edge: raw label, stored label and split.
_EDGE_LABEL_BYTES = 32


class VertexReader:
    """Reader of the table of vertices: ids, labels, split and feature columns, by a ``Tables``."""

    def __init__(self, options: Any, table: Table, *, has_labels: bool) -> None:
        self._options = options
        self._table = table
        self._has_labels = has_labels

    def feature_columns(self) -> FeatureColumns | None:
        """Return the feature columns. None: vertices have no features."""
        options, table = self._options, self._table
        names, chosen = options.features, options.categories or ()
        if names is None:
            used = (table.require("id", options.id), options.label, options.split_column)
            names = default_features(table, used, chosen)
        for name in names:
            table.require("features", name)
        for name in chosen:
            table.require("categories", name)
        if not names:
            return None
        categories = _category_columns(table, names, chosen)
        log_features(table, names)
        if options.features is None:
            warn_of_names(table, names, categories)
        return FeatureColumns(
            table, names, named=options.features is not None, categories=categories
        )

    def read(self, writer: StoreWriter) -> vertex_ids.IdMap:
        """Set number, labels and split of the vertices; return the vertex of each id."""
        options, table = self._options, self._table
        expected = table.num_rows()
        if expected is not None:  # unknown for compressed files
            self._check_memory(expected, writer.path)
        max_bytes = vertex_ids.max_id_bytes(files.total_bytes(table.paths))
        ids = vertex_ids.IdColumn(table.require("id", options.id), options.id_type, max_bytes)
        types = {options.id: vertex_ids.csv_id_type(options.id_type, table.types[options.id])}
        labels = split = None
        if options.label is not None and self._has_labels:
            table.require_or("label", options.label, "dataset.label=null")
            labels = LabelColumn(options.label, options.label_kind)
            types[options.label] = csv_label_type(table.types[options.label])
        if labels is not None and options.split == "published":
            split = find_split(table, "split_column", options.split_column, SPLIT)
            types |= split.csv_types
        for batch in table.batches(list(types), types, 64):
            for column in (ids, labels, split):
                if column is not None:
                    column.add(batch)
        writer.set_num_vertices(ids.num_vertices, source=table.path)
        values = None if labels is None else _set_labels(writer, labels, ids, table.path)
        if values is None:
            writer.set_unlabeled()
        elif split is not None:
            parts = split.finish(values, ids, unlabeled=options.unlabelled, source=table.path)
            writer.set_split(*parts, source=table.path)
        id_map = ids.map()
        if id_map.array is not None:
            writer.notes["ids"] = vertex_ids.write_ids(writer.path, id_map.array)
            id_map.array = None
        if expected is None:
            self._check_memory(writer.num_vertices, writer.path)
        return id_map

    def _check_memory(self, num_vertices: int, folder: Path) -> None:
        """Log the memory that preparing takes; NoSpaceError if it is not available."""
        table, id_bytes = self._table, _ID_BYTES * num_vertices
        data_bytes = _VERTEX_BYTES * num_vertices
        what = f"{table.path}: about {num_vertices} vertices"
        files.check_space(what, folder, memory=data_bytes + id_bytes)
        sizes = (id_bytes, data_bytes, 12 * table.batch_bytes, self._options.memory_bytes)
        _LOG.info(
            "%s: about %s vertices; memory: up to %s for their ids, beside texts, %s for their "
            "other data, %s for reading, then up to %s for edges",
            *(table.path, f"{num_vertices:,}", *map(files.size, sizes)),
        )


def open_edge_table(
    options: Any, table: Table, writer: StoreWriter, *, has_labels: bool
) -> EdgeTable:
    """Return the columns of the table of edges; note the names of the feature columns."""
    ends = (table.require("source", options.source), table.require("target", options.target))
    weight = None
    if options.weight is not None and (options.weight != WEIGHT or WEIGHT in table.names):
        weight = table.require("weight", options.weight)
    labels = _edge_labels(options, table) if has_labels else None
    names = [table.require("edge_features", name) for name in options.edge_features or ()]
    read = {*ends, weight, *names, *(labels.csv_types if labels else ())}
    unread = [name for name in table.names if name not in read]
    if unread:
        listed = ", ".join(brief(name or "''") for name in unread)
        _LOG.info("%s: not read: %s; see dataset.edge_features", table.path, listed)
    features = None
    if names:
        features = FeatureColumns(
            table,
            names,
            named=True,
            categories=_category_columns(table, names, options.edge_categories or ()),
            options=("edge_features", "edge_categories"),
        )
        writer.notes["edge_columns"] = features.described()
    _check_edge_space(table, features, labels is not None, writer.path)
    return EdgeTable(
        table=table,
        ends=ends,
        weight=weight,
        features=features,
        labels=labels,
        id_type=options.id_type,
    )


def _edge_labels(options: Any, table: Table) -> EdgeLabelColumns | None:
    if options.edge_label is None:
        return None
    name = table.require("edge_label", options.edge_label)
    split = None
    if options.split == "published":
        split = find_split(table, "edge_split_column", options.edge_split_column, SPLIT)
    label = LabelColumn(name, options.edge_label_kind, "edge_label_kind")
    return EdgeLabelColumns(table, label, split)


def _check_edge_space(
    table: Table, features: FeatureColumns | None, has_labels: bool, folder: Path
) -> None:
    """Raise NoSpaceError if features and labels of the edges exceed memory or disk."""
    num_edges = table.num_rows()
    if num_edges is None or not (features or has_labels):
        return
    what = f"{table.path}: features and labels of about {num_edges} edges"
    row = _EDGE_ROW_BYTES + 4 * (features.num_features if features else 0)
    memory = _EDGE_LABEL_BYTES * num_edges * has_labels
    files.check_space(what, folder, memory=memory, disk=row * num_edges)


def _category_columns(table: Table, names: Sequence[str], chosen: Sequence[str]) -> dict[str, bool]:
    """Return the columns of categories among ``names``, with whether the user chose them."""
    return {
        name: name in chosen for name in names if name in chosen or holds_texts(table.types[name])
    }


def _set_labels(
    writer: StoreWriter, column: LabelColumn, ids: vertex_ids.IdColumn, source: Path
) -> Array:
    """Set classes with their names, or regression targets; return the labels."""
    labels, names = column.finish(ids)
    result = read_labels(
        labels,
        count=writer.num_vertices,
        source=source,
        num_classes=None if names is None else len(names),
        advice="",
    )
    writer.set_labels(
        result.values, num_classes=result.num_classes, metric=result.metric, source=source
    )
    if names is not None:
        writer.notes["classes"] = names
    return result.values
