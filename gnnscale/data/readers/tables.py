"""Tables of vertices and edges, CSV or Parquet, as databases and data frames write them."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any, ClassVar

from gnnscale.core import ConfigError, GraphError, check_choice, shown
from gnnscale.core.artifact import files
from gnnscale.core.config.untrusted import names
from gnnscale.core.types import Array
from gnnscale.data import base
from gnnscale.data.labels import read_labels
from gnnscale.data.storage import remote
from gnnscale.data.storage import writer as store
from gnnscale.data.tables import vertex_ids as id_columns
from gnnscale.data.tables.batch import table_files, usual_names
from gnnscale.data.tables.categories import Column, holds_texts
from gnnscale.data.tables.edge_columns import EdgeLabelColumns, EdgeTable
from gnnscale.data.tables.feature_columns import FeatureColumns
from gnnscale.data.tables.label_columns import LABEL_KINDS, UNLABELLED, LabelColumn, csv_label_type
from gnnscale.data.tables.roles import (
    default_features,
    find_split,
    log_features,
    warn_of_names,
    warn_of_store,
)
from gnnscale.data.tables.table import Table
from gnnscale.data.tables.vertex_ids import ID_TYPES
from gnnscale.graph.store_format import read_meta

_LOG = logging.getLogger(__name__)
#: Name of the column of weights that may be missing.
_WEIGHT = "weight"
#: Name of the column of the split, which masks may replace.
_SPLIT = "split"
#: Bytes a vertex, beside its id: label, part of the split, in-degree, where its list begins.
_VERTEX_BYTES = 48
#: And of a table of ids, at most; texts come on top.
_ID_BYTES = 64
#: Of an edge, on disk: its row and both ends, label and place in the split; in memory: its label
#: as read and as stored, and the split.
_EDGE_ROW_BYTES, _EDGE_LABEL_BYTES = 28, 32


@dataclass(frozen=True, kw_only=True)
class Tables(base.Dataset):
    """A folder with a table of vertices and a table of edges.

    A table is ``vertices.parquet``, ``vertices.csv`` or ``vertices.csv.gz``, or a folder
    ``vertices`` of such files; ``edges`` likewise. Vertex ``i`` is row ``i`` of the vertices.

    Attributes:
        vertices: file or folder of the vertices in ``raw``, None for the names above.
        edges: likewise.
        id: column of the vertices' ids, which are whole numbers or texts.
        id_type: one of ``ID_TYPES``; ``string`` reads whole numbers as texts too.
        label: column of the labels, null for unknown; None for a graph without labels, which
            has no split either.
        label_kind: one of ``LABEL_KINDS``. By default, a column of texts or whole numbers has
            classes, and any other has values.
        split_column: column of words that name the part of each vertex; masks ``train_mask``,
            ``val_mask`` and ``test_mask`` replace a missing one of the default's name.
        unlabelled: one of ``UNLABELLED``: vertices in the split to train or validate that have no
            label are refused, or taken out of it.
        features: columns of numbers, of lists of numbers, or of categories; None for all columns
            without another role, but columns without a name, an index of pandas, masks and splits.
        categories: features that are categories beside those that hold texts, such as codes that
            are numbers; each of up to 256 categories is a feature of 0 or 1.
        source: column of the ids that edges come from.
        target: column of the ids that edges go to.
        weight: column of the weights of edges, read if there is one of the default's name; None
            if every edge counts the same.
        edge_features: columns of the edges with numbers, lists of numbers, or categories; null for
            edges without features.
        edge_categories: those of ``edge_features`` that are categories beside those that hold
            texts, as ``categories``.
        edge_label: column of the edges with their labels, as ``label``; null for edges without
            labels.
        edge_label_kind: one of ``LABEL_KINDS``, as ``label_kind``.
        edge_split_column: column of words that name the part of each edge, of edges with labels;
            masks replace it as for ``split_column``.
        edge_split_by: unit of a random split of edges: ``pair`` keeps all edges between two
            vertices in one part, ``edge`` divides each edge by itself.
        delimiter: one character between the values of CSV, or ``tab``.
    """

    vertices: str | None = field(default=None, metadata=names("text"))
    edges: str | None = field(default=None, metadata=names("text"))
    id: str = field(default="id", metadata=names("text"))
    id_type: str = "auto"
    label: str | None = field(default="label", metadata=names("text"))
    label_kind: str = "auto"
    split_column: str = field(default=_SPLIT, metadata=names("text"))
    unlabelled: str = "refuse"
    features: list[str] | None = field(default=None, metadata=names("text"))
    categories: list[str] | None = field(default=None, metadata=names("text"))
    source: str = field(default="source", metadata=names("text"))
    target: str = field(default="target", metadata=names("text"))
    weight: str | None = field(default=_WEIGHT, metadata=names("text"))
    edge_features: list[str] | None = field(default=None, metadata=names("text"))
    edge_categories: list[str] | None = field(default=None, metadata=names("text"))
    edge_label: str | None = field(default=None, metadata=names("text"))
    edge_label_kind: str = "auto"
    edge_split_column: str = field(default=_SPLIT, metadata=names("text"))
    edge_split_by: str = "pair"
    delimiter: str = ","

    _is_users: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for option, name in (("vertices", self.vertices), ("edges", self.edges)):
            path = PurePath("." if name is None else name)
            if name == "" or path.is_absolute() or ".." in path.parts:
                raise ConfigError(
                    f"dataset.{option}={shown(name)}: must be a file or folder in dataset.raw"
                )
        check_choice("dataset.id_type", self.id_type, ID_TYPES)
        check_choice("dataset.label_kind", self.label_kind, LABEL_KINDS)
        check_choice("dataset.edge_label_kind", self.edge_label_kind, LABEL_KINDS)
        check_choice("dataset.unlabelled", self.unlabelled, UNLABELLED)
        check_choice("dataset.edge_split_by", self.edge_split_by, base.EDGE_UNITS)
        if self.delimiter != "tab" and (
            len(self.delimiter.encode()) != 1 or self.delimiter in '"\r\n'
        ):
            raise ConfigError(
                f"dataset.delimiter={shown(repr(self.delimiter))}: allowed are tab, and one "
                "character of ASCII that is neither a quote nor a line end"
            )
        if self.label is None and self.edge_label is None and self.split == "random":
            raise ConfigError("dataset.split=random: dataset.label=null leaves nothing to split")
        taken = (self.id, self.label, self.split_column)
        _check_named("features", self.features, taken)
        _check_edge_label(self.edge_label, self.weight)
        ends = (self.source, self.target, self.weight, self.edge_label)
        _check_named("edge_features", self.edge_features, ends)
        if self.edge_features == []:
            raise ConfigError(
                "dataset.edge_features=[]: name a column, or null for no features of edges"
            )
        for column in self.categories or ():
            if column in taken or (self.features is not None and column not in self.features):
                raise ConfigError(f"dataset.categories: {shown(column)} is no column of features")
        for column in self.edge_categories or ():
            if column not in (self.edge_features or ()):
                raise ConfigError(
                    f"dataset.edge_categories: {shown(column)} is no column of edge_features"
                )

    def to_predict(
        self,
        columns: Sequence[Column] | None,
        edge_columns: Sequence[Column] | None,
        *,
        splits: bool,
    ) -> base.Dataset:
        """Return the tables without labels, and with the columns of the run unless they are given.

        Raises:
            ConfigError: such a column has another role by the options.
        """
        given: dict[str, Any] = {}
        if not self._is_prepared():
            if columns and self.features is None:
                names, given["features"] = _named_alike(columns)
                given["categories"] = self.categories or names
            if edge_columns and self.edge_features is None:
                names, given["edge_features"] = _named_alike(edge_columns)
                given["edge_categories"] = self.edge_categories or names
            if self.label in given.get("features", ()) and not splits:
                given["label"] = None
            if self.weight == _WEIGHT and _WEIGHT in given.get("edge_features", ()):
                given["weight"] = None
        found = replace(self, **given) if given else self
        return super(Tables, found).to_predict(columns, edge_columns, splits=splits)

    def prepare(self, force: bool = False) -> Path:
        """Return the store as ``Dataset.prepare`` does, with a warning of what no feature is."""
        path = super().prepare(force)
        if self.features is None:
            columns = read_meta(path).entries.get("columns")
            warn_of_store(columns, self.categories or (), path)
        return path

    def raw_files(self) -> list[Path]:
        """Return the files of the vertices, and those of the edges."""
        return [*self._files("vertices", self.vertices), *self._files("edges", self.edges)]

    def raw_path(self) -> Path:
        """Return the folder with the tables, copied first if it is remote."""
        if self.raw is None or not remote.is_remote(self.raw):
            return super().raw_path()
        names = (("vertices", self.vertices), ("edges", self.edges))
        wanted = [[name] if name else usual_names(table) for table, name in names]
        return remote.copy_remote(self.raw, [*wanted[0], *wanted[1]])

    def _files(self, table: str, name: str | None) -> list[Path]:
        folder = self.raw_path()
        if not folder.is_dir():
            raise GraphError(f"dataset.raw={folder}: no folder with vertices and edges")
        return table_files(folder, table, name)

    def _table(self, table: str, name: str | None) -> Table:
        delimiter = "\t" if self.delimiter == "tab" else self.delimiter
        return Table(self._files(table, name), delimiter, self.memory_bytes)

    def read(self, writer: store.StoreWriter) -> None:
        """Push the vertices, then the edges."""
        vertices, edges = self._table("vertices", self.vertices), self._edge_table(writer)
        columns = self._feature_columns(vertices)
        if columns is not None:
            writer.notes["columns"] = columns.described()
        expected = vertices.num_rows()
        if expected is not None:  # else told when they are decompressed
            self._check_memory(vertices, expected, writer.path)
        ids = self._read_vertices(vertices, writer)
        if expected is None:
            self._check_memory(vertices, writer.num_vertices, writer.path)
        writer.lists_edges, writer.counts_repeated = self.edge_label is not None, True
        for each in edges.mapped(ids):
            writer.add_edges(
                *(each.src, each.dst),
                weights=each.weights,
                features=each.features,
                source=edges.table.path,
            )
        del ids
        if edges.labels is not None:
            self._set_edge_labels(writer, edges.labels, edges.table.path)
        if columns is None:
            writer.set_featureless(source=vertices.path)
            return
        width, dtype = columns.num_features, columns.dtype
        writer.write_features(columns.rows(), num_features=width, dtype=dtype, source=vertices.path)

    @property
    def _splits_pairs(self) -> bool:
        return self.edge_split_by == "pair"

    def _set_edge_labels(
        self, writer: store.StoreWriter, columns: EdgeLabelColumns, source: Path
    ) -> None:
        labels, names, parts = columns.finish(unlabelled=self.unlabelled)
        writer.set_edge_labels(labels, source=source)
        if names is not None:
            writer.notes["edge_classes"] = names
        if parts is not None:
            writer.set_edge_split(*parts, source=source)

    def _edge_table(self, writer: store.StoreWriter) -> EdgeTable:
        """Return what is read of the edges; the store keeps the names of their features."""
        table = self._table("edges", self.edges)
        ends = (table.require("source", self.source), table.require("target", self.target))
        weight = None
        if self.weight is not None and (self.weight != _WEIGHT or _WEIGHT in table.names):
            weight = table.require("weight", self.weight)
        labels = self._edge_labels(table)
        names = [table.require("edge_features", name) for name in self.edge_features or ()]
        read = {*ends, weight, *names, *(labels.csv_types if labels else ())}
        unread = [name for name in table.names if name not in read]
        if unread:
            listed = ", ".join(shown(name or "''") for name in unread)
            _LOG.info("%s: not read: %s; see dataset.edge_features", table.path, listed)
        features = None
        if names:
            features = FeatureColumns(
                table,
                names,
                named=True,
                categories=_categories(table, names, self.edge_categories),
                options=("edge_features", "edge_categories"),
            )
            writer.notes["edge_columns"] = features.described()
        self._check_edge_space(table, features, labels is not None, writer.path)
        return EdgeTable(
            table=table,
            ends=ends,
            weight=weight,
            features=features,
            labels=labels,
            id_type=self.id_type,
        )

    def _edge_labels(self, table: Table) -> EdgeLabelColumns | None:
        if self.edge_label is None or not self._has_labels:
            return None
        name = table.require("edge_label", self.edge_label)
        split = None
        if self.split == "published":
            split = find_split(table, "edge_split_column", self.edge_split_column, _SPLIT)
        return EdgeLabelColumns(
            table, LabelColumn(name, self.edge_label_kind, "edge_label_kind"), split
        )

    @staticmethod
    def _check_edge_space(
        table: Table, features: FeatureColumns | None, labelled: bool, folder: Path
    ) -> None:
        """Refuse rows and labels of edges that do not fit, if their number is known."""
        num_edges = table.num_rows()
        if num_edges is None or not (features or labelled):
            return
        what = f"{table.path}: features and labels of about {num_edges} edges"
        row = _EDGE_ROW_BYTES + 4 * (features.num_features if features else 0)
        memory = _EDGE_LABEL_BYTES * num_edges * labelled
        files.check_space(what, folder, memory=memory, disk=row * num_edges)

    def _feature_columns(self, table: Table) -> FeatureColumns | None:
        """Return the columns of features; None if vertices have no features."""
        names = self.features
        if names is None:
            taken = (table.require("id", self.id), self.label, self.split_column)
            names = default_features(table, taken, self.categories or ())
        for name in names:
            table.require("features", name)
        for name in self.categories or ():
            table.require("categories", name)
        if not names:
            return None
        categories = _categories(table, names, self.categories)
        log_features(table, names)
        if self.features is None:
            warn_of_names(table, names, categories)
        return FeatureColumns(table, names, named=self.features is not None, categories=categories)

    def _read_vertices(self, table: Table, writer: store.StoreWriter) -> id_columns.IdMap:
        """Set number, labels and split of the vertices; keep their ids in the store."""
        max_bytes = id_columns.max_id_bytes(
            files.total_bytes(self._files("vertices", self.vertices))
        )
        ids = id_columns.IdColumn(table.require("id", self.id), self.id_type, max_bytes)
        types = {self.id: id_columns.csv_id_type(self.id_type, table.types[self.id])}
        labels = split = None
        if self.label is not None and self._has_labels:
            table.require_or("label", self.label, "dataset.label=null")
            labels = LabelColumn(self.label, self.label_kind)
            types[self.label] = csv_label_type(table.types[self.label])
        if labels is not None and self.split == "published":
            split = find_split(table, "split_column", self.split_column, _SPLIT)
            types |= split.csv_types
        for batch in table.batches(list(types), types, 64):
            for column in (ids, labels, split):
                if column is not None:
                    column.add(batch)
        writer.set_num_vertices(ids.num_vertices, source=table.path)
        values = None if labels is None else _set_labels(writer, labels, ids, table.path)
        if values is None:
            writer.set_unlabelled()
        elif split is not None:
            parts = split.finish(values, ids, unlabelled=self.unlabelled, source=table.path)
            writer.set_split(*parts, source=table.path)
        found = ids.map()
        if found.array is not None:
            writer.notes["ids"] = id_columns.write_ids(writer.path, found.array)
            found.array = None
        return found

    def _check_memory(self, table: Table, num_vertices: int, folder: Path) -> None:
        """Log and check the memory that it takes; ``num_vertices`` may be an estimate."""
        each = _VERTEX_BYTES * num_vertices
        ids = _ID_BYTES * num_vertices
        files.check_space(f"{table.path}: about {num_vertices} vertices", folder, memory=each + ids)
        _LOG.info(
            "%s: about %s vertices; memory: up to %s for their ids, beside texts, %s for their "
            "other data, %s for reading, then up to %s for edges",
            table.path,
            f"{num_vertices:,}",
            *map(files.size, (ids, each, 12 * table.batch_bytes, self.memory_bytes)),
        )


def _categories(table: Table, names: Sequence[str], given: list[str] | None) -> dict[str, bool]:
    """Return which of the columns ``names`` hold categories, and whether they are ``given``."""
    asked = given or ()
    return {
        name: name in asked for name in names if name in asked or holds_texts(table.types[name])
    }


def _named_alike(columns: Sequence[Column]) -> tuple[list[str] | None, list[str]]:
    """Return the names of those with categories, None without, and the names of all."""
    categories = [each.name for each in columns if each.categories is not None]
    return categories or None, [each.name for each in columns]


def _check_named(option: str, columns: list[str] | None, taken: Sequence[str | None]) -> None:
    """Refuse columns of features that are named twice."""
    for column in columns or ():
        if column in taken or (columns or []).count(column) > 1:
            raise ConfigError(f"dataset.{option}: {shown(column)} is named twice")


def _check_edge_label(column: str | None, weight: str | None) -> None:
    """Refuse one column for both: messages would carry the labels of test edges as weights."""
    if column is not None and column == weight:
        raise ConfigError(
            f"dataset.edge_label={shown(column)}: expected another column than dataset.weight, "
            f"which messages carry, got {shown(weight)}; dataset.weight=null leaves edges without "
            "weights"
        )


def _set_labels(
    writer: store.StoreWriter, column: LabelColumn, ids: id_columns.IdColumn, source: Path
) -> Array:
    """Give the writer classes and their names, or regression targets; return them."""
    labels, names = column.finish(ids)
    found = read_labels(
        labels,
        count=writer.num_vertices,
        source=source,
        num_classes=None if names is None else len(names),
        advice="",
    )
    writer.set_labels(
        found.values, num_classes=found.num_classes, metric=found.metric, source=source
    )
    if names is not None:
        writer.notes["classes"] = names
    return found.values
