"""Tables of several types of vertices and edges, and tables with foreign keys."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from gnnscale.core import ConfigError, GraphError, brief, check_choice
from gnnscale.core.config.typed import MAPPING_HINT
from gnnscale.core.config.untrusted import names
from gnnscale.data.base import DividedDataset, StoredDataset
from gnnscale.data.readers.column_reading import log_unread
from gnnscale.data.readers.table_files import check_file_name, check_marks, table_files
from gnnscale.data.readers.table_options import (
    SPLIT,
    UNKNOWN_ID_POLICIES,
    WEIGHT,
    ColumnOptions,
    check_columns,
)
from gnnscale.data.readers.typed.columns import (
    columns_of_run,
    end_columns,
    id_column,
    parse_edge_type,
)
from gnnscale.data.readers.typed.edge_reading import EdgeTable
from gnnscale.data.readers.typed.reading import TypedReading, TypedTableOptions, VertexTable
from gnnscale.data.readers.typed.table_checks import (
    check_edge_options,
    check_edge_types,
    check_labels,
    check_times,
    check_vertex_options,
    foreign_key_types,
)
from gnnscale.data.readers.typed.table_folder import TableFolder
from gnnscale.data.storage import remote
from gnnscale.data.tables.categories import TrainedColumns
from gnnscale.data.tables.label_columns import LABEL_KINDS, UNLABELED_POLICIES
from gnnscale.data.tables.table import Table
from gnnscale.data.tables.time_columns import TIME_UNIT_CHOICES, TimeColumn
from gnnscale.data.tables.vertex_ids import ID_TYPES
from gnnscale.data.typed_dataset import with_random_parts
from gnnscale.graph import EdgeType, Graph

#: Bytes of memory from which the size of batches follows.
_MEMORY_BYTES = 1 << 30
_MAPPING = names("text") | {
    MAPPING_HINT: "expected a mapping by type; dataset=tables reads one table of each"
}
_BY_TYPE = names("text") | {MAPPING_HINT: "expected a mapping by type, as {user: [age, town]}"}


@dataclass(frozen=True, kw_only=True)
class TypedTables(TableFolder, DividedDataset):
    """Folder with a table for each type of vertices and edges, or with tables and foreign keys.

    A table is a Parquet or CSV file, or a folder of such files. Example::

        TypedTables(
            name="shop",
            raw="shop/",
            vertices={"user": "users.csv", "item": "items.csv"},
            edges={"user-buys-item": "orders.csv"},
            target="user",
            label="churned",
        ).open()

    Attributes:
        vertices: by vertex type its file or folder in ``raw``; null: its vertices are the ids in
            the edges.
        edges: by edge type, ``SOURCE-RELATION-TARGET``, its file or folder in ``raw``.
        foreign_keys: by ``TYPE.COLUMN`` the vertex type whose ids the column holds: an edge type
            ``TYPE-COLUMN-OTHER`` from each row whose cell is not empty.
        reverse: whether each edge type has a reverse edge type: ``TARGET-rev_RELATION-SOURCE``.
        target: vertex type with the labels, if ``label`` is one column. None: no vertex has a
            label, or ``label`` names the types.
        label: column of the labels of ``target``, null if unknown; or by vertex type the column of
            its labels, ``{user: fan, item: kind}``: a run learns them all.
        label_kind: one of ``LABEL_KINDS``, or one by vertex type; ``auto`` reads texts and integers
            as classes, other numbers as regression targets.
        split_column: column of words that name the part of each labeled vertex, or masks as of
            ``Tables``.
        unlabelled: one of ``UNLABELED_POLICIES`` for training and validation vertices without a
            label: ``refuse`` raises an error, ``drop`` removes them from the split.
        id: column of the ids of all tables, or by vertex type, where null reads row numbers from 0.
            None: the column ``id``, else ``TYPE_id``, else row numbers if no edge has ids.
        id_type: one of ``ID_TYPES``; ``string`` reads integers as texts too.
        ends: by edge type the columns of source and target. None: ``source`` and ``target``, else
            columns named as the types or ``TYPE_id``, else the only two columns.
        weight: column of the edge weights, which tables may lack: their edges weigh 1. None: all
            weights are 1.
        features: by vertex type the columns of features; null: all columns without another role.
        categories: by vertex type feature columns of categories that are not texts.
        edge_features: by edge type of ``edges`` columns with numbers, lists of numbers, dates or
            categories, features of its edges and of their reverses. None: edges have no features.
        edge_categories: by edge type columns of ``edge_features`` that are categories and not
            texts.
        unknown_ids: one of ``UNKNOWN_ID_POLICIES`` for ids that stand only in the edges:
            ``vertices`` makes them vertices without a label, whose features are empty cells;
            ``drop`` leaves out their edges; ``refuse`` raises an error.
        missing: one of ``MISSING_POLICIES`` for empty cells of numbers and dates among the
            features: ``mean`` fills in the mean over the training rows, and adds a 0/1 feature
            that marks empty cells; ``drop`` leaves out their rows; ``refuse`` raises an error.
        times: by vertex type or edge type of ``edges`` the column with the times from which its
            vertices or edges, and their reverses, are known: dates, timestamps, or numbers in
            ``time_unit``; no feature by default. Edges of a foreign key, and their reverses, have
            the times of their rows. None: all are known at all times.
        time_unit: one of ``TIME_UNIT_CHOICES``, the unit of all times, which are rounded down;
            ``auto`` counts seconds for dates and timestamps, and refuses numbers.
        standardize: whether feature columns of numbers and dates have mean 0 and standard deviation
            1, over the training vertices of labeled types, over all vertices of other types and all
            edges of a type.
        delimiter: one character between the values of CSV, or ``tab``.
        decimal: mark of decimals in CSV, a point or a comma.
    """

    vertices: dict[str, str | None] | None = field(default=None, metadata=_MAPPING)
    edges: dict[str, str] | None = field(default=None, metadata=_MAPPING)
    foreign_keys: dict[str, str] | None = field(default=None, metadata=_MAPPING)
    reverse: bool = True
    target: str | None = field(default=None, metadata=names("text"))
    label: Any | None = field(default=None, metadata=names("text"))
    label_kind: Any = field(default="auto", metadata=names("text"))
    split_column: str = field(default=SPLIT, metadata=names("text"))
    unlabelled: str = "refuse"
    id: Any | None = field(default=None, metadata=names("text"))
    id_type: str = "auto"
    ends: dict[str, list[str]] | None = field(default=None, metadata=names("text"))
    weight: str | None = field(default=WEIGHT, metadata=names("text"))
    features: dict[str, list[str] | None] | None = field(default=None, metadata=_BY_TYPE)
    categories: dict[str, list[str]] | None = field(default=None, metadata=_BY_TYPE)
    edge_features: dict[str, list[str]] | None = field(default=None, metadata=_BY_TYPE)
    edge_categories: dict[str, list[str]] | None = field(default=None, metadata=_BY_TYPE)
    unknown_ids: str = "vertices"
    times: dict[str, str] | None = field(default=None, metadata=_BY_TYPE)
    time_unit: str = "auto"
    delimiter: str = ","
    decimal: str = "."

    _is_users: ClassVar[bool] = True
    _raw_form: ClassVar[str] = "the folder with the tables"

    def __post_init__(self) -> None:
        super().__post_init__()
        kinds = self.label_kind
        for kind in kinds.values() if isinstance(kinds, Mapping) else (kinds,):
            check_choice("dataset.label_kind", kind, LABEL_KINDS)
        check_choice("dataset.unlabelled", self.unlabelled, UNLABELED_POLICIES)
        check_choice("dataset.id_type", self.id_type, ID_TYPES)
        check_choice("dataset.unknown_ids", self.unknown_ids, UNKNOWN_ID_POLICIES)
        check_choice("dataset.time_unit", self.time_unit, TIME_UNIT_CHOICES)
        check_marks(self.delimiter, self.decimal)
        for option, files in (("vertices", self._vertex_files), ("edges", self._edge_files)):
            for key, name in files.items():
                if name is not None:
                    check_file_name(f"{option}.{key}", name)
        if self.vertices is not None:  # in predictions, a run's tables supply types that are unset
            self._check_types()

    @property
    def _vertex_files(self) -> dict[str, str | None]:
        return self.vertices or {}

    @property
    def _edge_files(self) -> dict[str, str]:
        return self.edges or {}

    @property
    def _keys(self) -> dict[str, str]:
        return self.foreign_keys or {}

    @property
    def _labels(self) -> dict[str, str]:
        """Column of the labels of each labeled vertex type."""
        if isinstance(self.label, Mapping):
            return dict(self.label)
        return {} if self.target is None else {self.target: str(self.label)}

    def _check_types(self) -> None:
        """Raise ConfigError for options that do not fit the types of vertices and edges."""
        vertices = self._vertex_files
        check_labels(self.target, self.label, vertices, is_random=self.split == "random")
        check_vertex_options(
            vertices,
            id=self.id,
            features=self.features,
            categories=self.categories,
            label_kind=self.label_kind,
        )
        edge_options = (self.ends, self.edge_features, self.edge_categories)
        check_edge_options(self._edge_files, *edge_options, weight=self.weight)
        check_times(self.times or {}, vertices, self._edge_files)
        types = [*self._edge_types().values(), *self._foreign_key_types()]
        check_edge_types(types, vertices, reverse=self.reverse)

    def _edge_types(self) -> dict[str, EdgeType]:
        """Return the edge types by their keys in ``edges``; ConfigError: a key is invalid."""
        return {key: parse_edge_type(key, self._vertex_files) for key in self._edge_files}

    def _foreign_key_types(self) -> list[EdgeType]:
        """Return the edge types of ``foreign_keys``; ConfigError: a key or type is invalid."""
        return foreign_key_types(self._keys, self._vertex_files)

    def raw_files(self) -> list[Path]:
        """Return the files of the vertices, then those of the edges."""
        return [file for files in self._files().values() for file in files]

    def raw_path(self) -> Path:
        """Return the local folder with the tables; if ``raw`` is remote, copy them first."""
        if self.raw is None or not remote.is_remote(self.raw):
            return super().raw_path()
        tables = [*self._vertex_files.values(), *self._edge_files.values()]
        return remote.copy_remote(self.raw, [name for name in tables if name is not None])

    def _files(self) -> dict[str, list[Path]]:
        """Return the files of each table by its option, such as ``vertices.user``."""
        if not self._vertex_files or not (self._edge_files or self._keys):
            lacking = "edges or dataset.foreign_keys" if self._vertex_files else "vertices"
            raise ConfigError(f"dataset.{lacking}: required, tables by type")
        folder = self.raw_path()
        if not folder.is_dir():
            raise GraphError(f"dataset.raw={folder}: expected a folder with the tables")
        options = {f"vertices.{name}": file for name, file in self._vertex_files.items()}
        options |= {f"edges.{key}": file for key, file in self._edge_files.items()}
        return {
            option: table_files(folder, option, name)
            for option, name in options.items()
            if name is not None
        }

    def _open_tables(self) -> dict[str, Table]:
        """Open all tables, by their options such as ``vertices.user``."""
        delimiter = "\t" if self.delimiter == "tab" else self.delimiter
        tables = {
            option: Table(files, delimiter, _MEMORY_BYTES, self.decimal)
            for option, files in self._files().items()
        }
        for option, table in tables.items():
            table.row_type = option.partition(".")[2]
        return tables

    def _read(self, folder: Path) -> tuple[Graph, dict[str, Any]]:
        tables = self._open_tables()
        edges = self._edge_tables(tables)
        named = {name for edge in edges for name, _ in edge.ends}
        options = TypedTableOptions(
            targets=[*self._labels],
            id_type=self.id_type,
            unknown=self.unknown_ids,
            missing=self.missing,
            reverse=self.reverse,
            standardize=self.standardize,
            advises=self._advises,
        )
        vertices = {name: self._vertex_table(name, tables, named) for name in self._vertex_files}
        reading = TypedReading(vertices, edges, options, folder)
        graph = reading.read_topology(self.name)
        if self.split == "random" and graph.num_classes:
            graph = with_random_parts(graph, self._random_split())
        return reading.with_features(graph), reading.notes

    def to_predict(self, trained: TrainedColumns, *, splits: bool) -> StoredDataset:
        """Return these options for predictions by a run trained on the columns ``trained``.

        The features of each type with a table, unless the user names them or ``store`` is prepared,
        become the run's; a type whose features the run did not read has none.
        """
        tables, has_columns = self, trained.types or trained.edge_types
        if has_columns and not self._is_prepared():
            named = [name for name, file in self._vertex_files.items() if file is not None]
            features, categories = columns_of_run(
                *(self.features, self.categories, trained.types, named)
            )
            edge_features, edge_categories = columns_of_run(
                *(self.edge_features, self.edge_categories, trained.edge_types, self._edge_files)
            )
            tables = replace(
                self,
                features=features,
                categories=categories,
                edge_features=edge_features,
                edge_categories=edge_categories,
            )
        return super(TypedTables, tables).to_predict(trained, splits=splits)

    def _vertex_table(
        self, name: str, tables: Mapping[str, Table], named: Collection[str]
    ) -> VertexTable | None:
        """Return the table of a vertex type; ``named`` are the types with ids in the edges."""
        table = tables.get(f"vertices.{name}")
        if table is None:
            return None
        keys = [edges.relation for edges in self._foreign_key_types() if edges.source == name]
        kinds = self.label_kind
        return VertexTable(
            name=name,
            table=table,
            ids=id_column(name, table, self.id, needed=name in named),
            foreign_keys=keys,
            columns=ColumnOptions(
                label=self._labels.get(name),
                label_kind=kinds.get(name, "auto") if isinstance(kinds, Mapping) else kinds,
                reads_labels=self._has_labels,
                split=self.split,
                split_column=self.split_column,
                unlabeled=self.unlabelled,
                features=(self.features or {}).get(name),
                categories=(self.categories or {}).get(name),
                missing=self.missing,
                time=(self.times or {}).get(name),
                time_unit=self.time_unit,
                advises=self._advises,
            ),
        )

    def _edge_tables(self, tables: Mapping[str, Table]) -> list[EdgeTable]:
        edges = []
        for key, edge_type in self._edge_types().items():
            table = tables[f"edges.{key}"]
            source, target = end_columns(*(key, edge_type, table, self.ends or {}, self.weight))
            weight = self.weight if self.weight in table.names else None
            features = [
                table.require("edge_features", name)
                for name in (self.edge_features or {}).get(key, [])
            ]
            ends = (source, target)
            check_columns("edge_", features, None, ends)
            time = (self.times or {}).get(key)
            log_unread(
                table,
                {*ends, weight, time, *features},
                "edge_features, dataset.weight and dataset.foreign_keys",
            )
            edges.append(
                EdgeTable(
                    edge_type=edge_type,
                    table=table,
                    source=source,
                    target=target,
                    weight=weight,
                    columns=self._edge_columns(key, features) if features else None,
                    time=None if time is None else TimeColumn(table, time, self.time_unit, "times"),
                )
            )
        if self.weight not in (None, WEIGHT) and not any(edge.weight for edge in edges):
            raise GraphError(
                f"dataset.weight={brief(self.weight)}: expected a column of a table of edges"
            )
        for edge_type in self._foreign_key_types():
            table = tables[f"vertices.{edge_type.source}"]
            column = table.require("foreign_keys", edge_type.relation)
            edges.append(EdgeTable(edge_type=edge_type, table=table, source=None, target=column))
        return edges

    def _edge_columns(self, key: str, features: list[str]) -> ColumnOptions:
        return ColumnOptions(
            prefix="edge_",
            features=features,
            categories=(self.edge_categories or {}).get(key),
            missing=self.missing,
            advises=self._advises,
        )
