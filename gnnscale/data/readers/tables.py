"""Tables of vertices and edges, CSV or Parquet, as databases and data frames write them."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any, ClassVar

from gnnscale.core import ConfigError, GraphError, brief, check_choice
from gnnscale.core.artifact import files
from gnnscale.core.config.untrusted import names
from gnnscale.data import base
from gnnscale.data.labels import read_labels
from gnnscale.data.storage import StoreWriter, remote
from gnnscale.data.tables import label_columns, roles, vertex_ids
from gnnscale.data.tables.batch import table_files, usual_names
from gnnscale.data.tables.categories import Column, holds_texts
from gnnscale.data.tables.edge_columns import EdgeLabelColumns, EdgeTable
from gnnscale.data.tables.feature_columns import FeatureColumns
from gnnscale.data.tables.label_columns import LABEL_KINDS, UNLABELED_POLICIES
from gnnscale.data.tables.table import Table
from gnnscale.data.tables.vertex_ids import ID_TYPES
from gnnscale.graph.store_format import read_meta

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


@dataclass(frozen=True, kw_only=True)
class Tables(base.Dataset):
    """Folder with a table of vertices and a table of edges.

    A table is ``vertices.parquet``, ``vertices.csv`` or ``vertices.csv.gz``, or a folder
    ``vertices`` of such files; ``edges`` accordingly. Vertex ``i`` is row ``i`` of the vertices.
    Example::

        Tables(name="fraud", raw="fraud/", label="is_fraud", edge_features=["amount"]).open()

    Attributes:
        vertices: file or folder of the vertices in ``raw``. None: one of the names above.
        edges: file or folder of the edges in ``raw``. None: one of the names above.
        id: column of the vertex ids, integers or texts.
        id_type: one of ``ID_TYPES``; ``string`` reads integers as texts too.
        label: column of the labels, null if unknown. None: vertices have no labels and no split.
        label_kind: one of ``LABEL_KINDS``; ``auto`` reads texts and integers as classes, other
            numbers as regression targets.
        split_column: column of words that name the part of each vertex. If the default column is
            missing, masks ``train_mask``, ``val_mask`` and ``test_mask`` replace it.
        unlabelled: one of ``UNLABELED_POLICIES`` for training and validation vertices without a
            label: ``refuse`` raises an error, ``drop`` removes them from the split.
        features: columns of numbers, lists of numbers, or categories. None: all columns without
            another role, except unnamed columns, an index of pandas, masks and splits.
        categories: feature columns of categories that are not texts, such as numeric codes; a
            column of up to 256 categories becomes that many features of 0 or 1.
        source: column of the source ids of edges.
        target: column of the destination ids of edges.
        weight: column of the edge weights; the default column may be missing. None: all weights
            are 1.
        edge_features: columns of the edges with numbers, lists of numbers, or categories. None:
            edges have no features.
        edge_categories: columns of ``edge_features`` that are categories and not texts.
        edge_label: column of the edge labels, null if unknown. None: edges have no labels.
        edge_label_kind: one of ``LABEL_KINDS``, for ``edge_label``.
        edge_split_column: column of the part of each labeled edge, or masks as for vertices.
        edge_split_by: unit of a random split of edges: ``pair`` has all edges between two vertices
            in one part, ``edge`` splits edge by edge.
        delimiter: one character between the values of CSV, or ``tab``.
    """

    vertices: str | None = field(default=None, metadata=names("text"))
    edges: str | None = field(default=None, metadata=names("text"))
    id: str = field(default="id", metadata=names("text"))
    id_type: str = "auto"
    label: str | None = field(default="label", metadata=names("text"))
    label_kind: str = "auto"
    split_column: str = field(default=SPLIT, metadata=names("text"))
    unlabelled: str = "refuse"
    features: list[str] | None = field(default=None, metadata=names("text"))
    categories: list[str] | None = field(default=None, metadata=names("text"))
    source: str = field(default="source", metadata=names("text"))
    target: str = field(default="target", metadata=names("text"))
    weight: str | None = field(default=WEIGHT, metadata=names("text"))
    edge_features: list[str] | None = field(default=None, metadata=names("text"))
    edge_categories: list[str] | None = field(default=None, metadata=names("text"))
    edge_label: str | None = field(default=None, metadata=names("text"))
    edge_label_kind: str = "auto"
    edge_split_column: str = field(default=SPLIT, metadata=names("text"))
    edge_split_by: str = "pair"
    delimiter: str = ","

    _is_users: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for option, name in (("vertices", self.vertices), ("edges", self.edges)):
            path = PurePath("." if name is None else name)
            if name == "" or path.is_absolute() or ".." in path.parts:
                raise ConfigError(
                    f"dataset.{option}={brief(name)}: expected a file or folder in dataset.raw"
                )
        check_choice("dataset.id_type", self.id_type, ID_TYPES)
        check_choice("dataset.label_kind", self.label_kind, LABEL_KINDS)
        check_choice("dataset.edge_label_kind", self.edge_label_kind, LABEL_KINDS)
        check_choice("dataset.unlabelled", self.unlabelled, UNLABELED_POLICIES)
        check_choice("dataset.edge_split_by", self.edge_split_by, base.EDGE_UNITS)
        if self.delimiter != "tab" and (
            len(self.delimiter.encode()) != 1 or self.delimiter in '"\r\n'
        ):
            raise ConfigError(
                f"dataset.delimiter={brief(repr(self.delimiter))}: expected tab, or one ASCII "
                "character other than a quote or a line end"
            )
        if self.label is None and self.edge_label is None and self.split == "random":
            raise ConfigError("dataset.split=random: dataset.label=null leaves nothing to split")
        used = (self.id, self.label, self.split_column)
        _check_columns("features", self.features, used)
        if self.edge_label is not None and self.edge_label == self.weight:
            # Messages would carry labels of test edges.
            raise ConfigError(
                f"dataset.edge_label={brief(self.edge_label)}: expected another column than "
                f"dataset.weight, which messages carry, got {brief(self.weight)}; "
                "dataset.weight=null leaves edges without weights"
            )
        ends = (self.source, self.target, self.weight, self.edge_label)
        _check_columns("edge_features", self.edge_features, ends)
        if self.edge_features == []:
            raise ConfigError(
                "dataset.edge_features=[]: expected a column, or null for no features of edges"
            )
        for column in self.categories or ():
            if column in used or (self.features is not None and column not in self.features):
                raise ConfigError(
                    f"dataset.categories: expected columns of features, got {brief(column)}"
                )
        for column in self.edge_categories or ():
            if column not in (self.edge_features or ()):
                raise ConfigError(
                    "dataset.edge_categories: expected columns of edge_features, got "
                    f"{brief(column)}"
                )

    def to_predict(
        self,
        columns: Sequence[Column] | None,
        edge_columns: Sequence[Column] | None,
        *,
        splits: bool,
    ) -> base.Dataset:
        """Return these options for predictions by a run trained on the given columns.

        Unset ``features`` and ``edge_features`` become the run's columns, unless ``store`` is
        prepared; such a column is then no label (unless ``splits``) and no weight.
        """
        changes: dict[str, Any] = {}
        if not self._is_prepared():
            if columns and self.features is None:
                names, changes["features"] = _column_names(columns)
                changes["categories"] = self.categories or names
            if edge_columns and self.edge_features is None:
                names, changes["edge_features"] = _column_names(edge_columns)
                changes["edge_categories"] = self.edge_categories or names
            if self.label in changes.get("features", ()) and not splits:
                changes["label"] = None
            if self.weight == WEIGHT and WEIGHT in changes.get("edge_features", ()):
                changes["weight"] = None
        tables = replace(self, **changes) if changes else self
        return super(Tables, tables).to_predict(columns, edge_columns, splits=splits)

    def prepare(self, force: bool = False) -> Path:
        """Convert the tables to a graph store, unless it is up to date, and return its directory.

        With ``force`` the store is written again. If the user set no ``features``, warn of columns
        that an earlier release stored as features and the default now leaves out.
        """
        path = super().prepare(force)
        if self.features is None:
            columns = read_meta(path).entries.get("columns")
            roles.warn_of_store(columns, self.categories or (), path)
        return path

    def raw_files(self) -> list[Path]:
        """Return the files of the vertices, then the files of the edges."""
        return [*self._files("vertices", self.vertices), *self._files("edges", self.edges)]

    def raw_path(self) -> Path:
        """Return the local folder with the tables; if ``raw`` is remote, copy them first."""
        if self.raw is None or not remote.is_remote(self.raw):
            return super().raw_path()
        names = (("vertices", self.vertices), ("edges", self.edges))
        paths = [[name] if name else usual_names(table) for table, name in names]
        return remote.copy_remote(self.raw, [*paths[0], *paths[1]])

    def _files(self, table: str, name: str | None) -> list[Path]:
        folder = self.raw_path()
        if not folder.is_dir():
            raise GraphError(f"dataset.raw={folder}: expected a folder with vertices and edges")
        return table_files(folder, table, name)

    def _table(self, table: str, name: str | None) -> Table:
        delimiter = "\t" if self.delimiter == "tab" else self.delimiter
        return Table(self._files(table, name), delimiter, self.memory_bytes)

    def vertex_table(self) -> tuple[Table, str]:
        """Return the raw table of the vertices, and its column of ids."""
        return self._table("vertices", self.vertices), self.id

    def read(self, writer: StoreWriter) -> None:
        """Push vertices with labels and split, edges with their data, then vertex features."""
        vertices = self._table("vertices", self.vertices)
        table = self._table("edges", self.edges)
        edges = _edge_table(self, table, writer)
        columns = _feature_columns(self, vertices)
        if columns is not None:
            writer.notes["columns"] = columns.described()
        ids = _read_vertices(self, vertices, writer)
        writer.edges.lists_edges = self.edge_label is not None
        writer.edges.counts_repeated = True
        for edge_batch in edges.mapped(ids):
            writer.add_edges(
                *(edge_batch.src, edge_batch.dst),
                weights=edge_batch.weights,
                features=edge_batch.features,
                source=table.path,
            )
        del ids
        if edges.labels is not None:
            labels, names, parts = edges.labels.finish(unlabeled=self.unlabelled)
            writer.set_edge_labels(labels, source=table.path)
            if names is not None:
                writer.notes["edge_classes"] = names
            if parts is not None:
                writer.set_edge_split(*parts, source=table.path)
        if columns is None:
            writer.set_featureless(source=vertices.path)
            return
        width, dtype = columns.num_features, columns.dtype
        writer.write_features(columns.rows(), num_features=width, dtype=dtype, source=vertices.path)

    @property
    def _splits_by_pair(self) -> bool:
        return self.edge_split_by == "pair"


def _column_names(columns: Sequence[Column]) -> tuple[list[str] | None, list[str]]:
    """Return the names of category columns (None if there are none), and of all columns."""
    categories = [column.name for column in columns if column.categories is not None]
    return categories or None, [column.name for column in columns]


def _check_columns(option: str, columns: list[str] | None, used: Sequence[str | None]) -> None:
    """Raise ConfigError if a feature column repeats, or is in ``used``, columns of other roles."""
    for column in columns or ():
        if column in used or (columns or []).count(column) > 1:
            raise ConfigError(
                f"dataset.{option}: expected each column once, got {brief(column)} twice"
            )


def _feature_columns(options: Tables, table: Table) -> FeatureColumns | None:
    """Return the columns of the vertex features, the user's or by default, and log their names.

    None: there are no such columns.
    """
    names, chosen = options.features, options.categories or ()
    if names is None:
        used = (table.require("id", options.id), options.label, options.split_column)
        names = roles.default_features(table, used, chosen)
    for name in names:
        table.require("features", name)
    for name in chosen:
        table.require("categories", name)
    if not names:
        return None
    categories = _category_columns(table, names, chosen)
    roles.log_features(table, names)
    if options.features is None:
        roles.warn_of_names(table, names, categories)
    return FeatureColumns(table, names, named=options.features is not None, categories=categories)


def _read_vertices(options: Tables, table: Table, writer: StoreWriter) -> vertex_ids.IdMap:
    """Read ids, labels and split from the vertex table, and set them in ``writer``.

    Return the map of the user's ids to vertex numbers.
    """
    expected = table.num_rows()
    if expected is not None:  # unknown for compressed files
        _check_memory(options, table, expected, writer.path)
    max_bytes = vertex_ids.max_id_bytes(files.total_bytes(table.paths))
    ids = vertex_ids.IdColumn(table.require("id", options.id), options.id_type, max_bytes)
    types = {options.id: vertex_ids.csv_id_type(options.id_type, table.types[options.id])}
    labels = split = None
    if options.label is not None and options._has_labels:
        table.require_or("label", options.label, "dataset.label=null")
        labels = label_columns.LabelColumn(options.label, options.label_kind)
        types[options.label] = label_columns.csv_label_type(table.types[options.label])
    if labels is not None and options.split == "published":
        split = roles.find_split(table, "split_column", options.split_column, SPLIT)
        types |= split.csv_types
    for batch in table.batches(list(types), types, 64):
        for column in (ids, labels, split):
            if column is not None:
                column.add(batch)
    writer.set_num_vertices(ids.num_vertices, source=table.path)
    if labels is None:
        writer.set_unlabeled()
    else:
        _set_labels(writer, labels, ids, table.path)
    if split is not None:
        parts = split.finish(writer.labels, ids, unlabeled=options.unlabelled, source=table.path)
        writer.set_split(*parts, source=table.path)
    id_map = ids.map()
    if id_map.array is not None:
        writer.notes["ids"] = vertex_ids.write_ids(writer.path, id_map.array)
        id_map.array = None
    if expected is None:
        _check_memory(options, table, writer.num_vertices, writer.path)
    return id_map


def _check_memory(options: Tables, table: Table, num_vertices: int, folder: Path) -> None:
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


def _edge_table(options: Tables, table: Table, writer: StoreWriter) -> EdgeTable:
    """Return the edge table with its columns to read, and log the columns that are not read.

    Feature columns go into the notes of ``writer``.
    """
    ends = (table.require("source", options.source), table.require("target", options.target))
    weight = None
    if options.weight is not None and (options.weight != WEIGHT or WEIGHT in table.names):
        weight = table.require("weight", options.weight)
    labels = _edge_labels(options, table) if options._has_labels else None
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
    kind = options.id_type
    return EdgeTable(
        table=table, ends=ends, weight=weight, features=features, labels=labels, id_type=kind
    )


def _edge_labels(options: Tables, table: Table) -> EdgeLabelColumns | None:
    if options.edge_label is None:
        return None
    name = table.require("edge_label", options.edge_label)
    label = label_columns.LabelColumn(name, options.edge_label_kind, "edge_label_kind")
    if options.split != "published":
        return EdgeLabelColumns(table, label, None)
    split = roles.find_split(table, "edge_split_column", options.edge_split_column, SPLIT)
    return EdgeLabelColumns(table, label, split)


def _check_edge_space(
    table: Table, features: FeatureColumns | None, has_labels: bool, folder: Path
) -> None:
    """Raise NoSpaceError if features and labels of the edges exceed the free memory or disk."""
    num_edges = table.num_rows()
    if num_edges is None or not (features or has_labels):
        return
    what = f"{table.path}: features and labels of about {num_edges} edges"
    row = _EDGE_ROW_BYTES + 4 * (features.num_features if features else 0)
    memory = _EDGE_LABEL_BYTES * num_edges * has_labels
    files.check_space(what, folder, memory=memory, disk=row * num_edges)


def _category_columns(table: Table, names: Sequence[str], chosen: Sequence[str]) -> dict[str, bool]:
    """Return which of ``names`` are category columns: True if in ``chosen``, False for texts."""
    return {
        name: name in chosen for name in names if name in chosen or holds_texts(table.types[name])
    }


def _set_labels(
    writer: StoreWriter, column: label_columns.LabelColumn, ids: vertex_ids.IdColumn, source: Path
) -> None:
    """Set the labels of ``column`` in ``writer``; ``ids`` locates rows in errors.

    Names of classes go into the writer's notes.
    """
    labels, names = column.finish(ids)
    num_classes, count = None if names is None else len(names), writer.num_vertices
    result = read_labels(labels, count=count, source=source, num_classes=num_classes, advice="")
    num_classes, metric = result.num_classes, result.metric
    writer.set_labels(result.values, num_classes=num_classes, metric=metric, source=source)
    if names is not None:
        writer.notes["classes"] = names
