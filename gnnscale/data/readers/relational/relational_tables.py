"""Relational tables: primary keys, foreign keys, a time for each row, and tables of tasks."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from gnnscale.core import ConfigError, GraphError, brief, check_choice, suggestion
from gnnscale.core.config.untrusted import names
from gnnscale.data.base import StoredDataset
from gnnscale.data.readers.relational.reading import RelationalReading
from gnnscale.data.readers.relational.schema import (
    SCHEMA_FILE,
    RelationalSchema,
    TableSchema,
    read_schema,
)
from gnnscale.data.readers.relational.task_table import TaskTable
from gnnscale.data.readers.table_files import check_marks, table_files
from gnnscale.data.readers.table_options import SPLIT, ColumnOptions
from gnnscale.data.readers.typed.columns import columns_of_run, listed
from gnnscale.data.readers.typed.edge_reading import EdgeTable
from gnnscale.data.readers.typed.reading import TypedTableOptions, VertexTable
from gnnscale.data.readers.typed.table_folder import TableFolder
from gnnscale.data.storage import remote
from gnnscale.data.tables.categories import Column, TrainedColumns
from gnnscale.data.tables.label_columns import UNLABELED_POLICIES
from gnnscale.data.tables.table import Table
from gnnscale.data.time_split import TimeSplit
from gnnscale.graph import Graph

#: Bytes of memory from which the size of batches follows.
_MEMORY_BYTES = 1 << 30
#: Treatment of rows of a task with an unknown vertex.
_UNKNOWN_POLICIES = ("refuse", "drop")


class RelationalTable(Table):
    """Table that ``key`` of the schema names, such as ``tables.orders``."""

    def __init__(self, key: str, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._key = key

    def option(self, name: str) -> str:
        """Return the full name of a key of the schema, for messages."""
        return name if name == "time_unit" else f"{self._key}.{name}"

    def setting(self, option: str, value: str) -> str:
        """Return how to set a key of the schema on columns, for messages."""
        key = {"features": "columns", "id": "key"}.get(option, option)
        return f"{self.option(key)}: {value} in {SCHEMA_FILE}"


@dataclass(frozen=True, kw_only=True)
class RelationalTables(TableFolder):
    """Base of the readers of tables with keys: rows are vertices, foreign keys are edges.

    Attributes:
        task: name of a task of the schema: its rows, vertices with cut-offs and labels, are what a
            run learns. None: no rows.
        missing: one of ``MISSING_POLICIES`` for empty cells of numbers and dates among the
            features, as of ``TypedTables``.
        standardize: whether feature columns of numbers and dates have mean 0 and standard deviation
            1, over the rows up to the last cut-off that trains, and over all rows of tables without
            times.
    """

    task: str | None = field(default=None, metadata=names("text"))

    #: Feature columns of a run that predicts, by vertex type; empty: there is none.
    _trained: ClassVar[Mapping[str, Sequence[Column]]] = {}

    @abstractmethod
    def _schema(self) -> RelationalSchema:
        """Return the schema; each reader implements it."""

    @abstractmethod
    def _tables(self, schema: RelationalSchema) -> Any:
        """Return a context manager with the folder of the tables; each reader implements it."""

    @abstractmethod
    def _task_table(self, schema: RelationalSchema, folder: Path) -> TaskTable | None:
        """Return the table of the task in ``folder``, None: no task; each reader implements it."""

    def _read(self, folder: Path) -> tuple[Graph, dict[str, Any]]:
        schema = self._schema()
        options = TypedTableOptions(
            targets=(),
            id_type="auto",
            unknown="drop",
            missing=self.missing,
            reverse=True,
            standardize=self.standardize,
            advises=self._advises,
        )
        with self._tables(schema) as raw:
            tables = {name: self._table(raw, name, of) for name, of in schema.tables.items()}
            vertices = {
                name: self._vertex_table(name, schema, table) for name, table in tables.items()
            }
            edges = [
                EdgeTable(
                    edge_type=edge_type,
                    table=tables[edge_type.source],
                    source=None,
                    target=_column(
                        tables[edge_type.source],
                        f"{edge_type.source}.foreign_keys",
                        edge_type.relation,
                    ),
                )
                for edge_type in schema.edge_types()
            ]
            task = self._task_table(schema, raw)
            reading = RelationalReading(vertices, edges, options, folder, task=task)
            graph = reading.with_task(reading.read_topology(self.name))
            return reading.with_features(graph), reading.notes

    def _table(self, raw: Path, name: str, schema: TableSchema) -> Table:
        """Open the table ``name`` in the folder ``raw``."""
        key = f"tables.{name}"
        table = RelationalTable(
            *(key, _files(raw, key, schema.file), self._delimiter, _MEMORY_BYTES, self._decimal),
            null=schema.null,
        )
        table.row_type = name
        return table

    def _vertex_table(self, name: str, of_all: RelationalSchema, table: Table) -> VertexTable:
        schema = of_all.tables[name]
        for key in ("key", "time"):
            column = getattr(schema, key)
            if column is not None:
                _column(table, f"{name}.{key}", column)
        for key in ("columns", "drop", "categories"):
            for column in getattr(schema, key) or ():
                _column(table, f"{name}.{key}", column)
        features, categories = schema.columns, schema.categories
        if features is None and self._trained:
            of_run = columns_of_run(None, None, self._trained, [name])
            features, categories = of_run[0][name], (of_run[1] or {}).get(name, [])
        return VertexTable(
            name=name,
            table=table,
            ids=schema.key,
            foreign_keys=schema.other_roles - {schema.key},
            columns=ColumnOptions(
                reads_labels=False,
                features=features,
                categories=categories,
                missing=self.missing,
                time=schema.time,
                time_unit=of_all.time_unit,
                advises=self._advises,
            ),
        )

    @property
    def _delimiter(self) -> str:
        """Character between the values of CSV."""
        return ","

    @property
    def _decimal(self) -> str:
        """Mark of decimals in CSV."""
        return "."

    def to_predict(self, trained: TrainedColumns, *, splits: bool) -> StoredDataset:
        """Return these options for predictions by a run trained on the columns ``trained``.

        Features that the schema does not name become the run's, unless ``store`` is prepared. The
        rows of the task are read without labels, unless ``splits``.
        """
        dataset = super().to_predict(trained, splits=splits)
        if not self._is_prepared():
            object.__setattr__(dataset, "_trained", trained.types)
        return dataset


@dataclass(frozen=True, kw_only=True)
class Relational(RelationalTables):
    """Folder with relational tables and ``schema.yaml``, which has their keys, times and tasks.

    A table is a Parquet or CSV file, or a folder of such files. Each row is a vertex, and each
    foreign key an edge type ``TABLE-COLUMN-OTHER`` with its reverse ``OTHER-rev_COLUMN-TABLE``. Its
    edges have the time of the row; a cell that is empty, or no key, has none. Example::

        tables:
          orders: {file: orders.csv, key: id, foreign_keys: {user: users}, time: day}
          users: {file: users.csv, key: id}
        tasks:
          churn: {file: churn.csv, table: users, vertex: user, cutoff: day, label: left}

    Attributes:
        split: ``published`` by ``split_column`` of the task's table, or ``time``: a row trains if
            its cut-off is before ``valid_from``, validates if it is before ``test_from``, and is
            for test otherwise.
        valid_from: first cut-off of validation, a date such as ``2024-01-31``, or an integer in
            ``time_unit`` of the schema.
        test_from: first cut-off of test, as ``valid_from``.
        split_column: column of words that name the part of each row, or masks as of ``Tables``.
        unlabelled: one of ``UNLABELED_POLICIES`` for rows to train or validate without a label:
            ``refuse`` raises an error, ``drop`` removes them from the split.
        unknown_ids: ``refuse``, or ``drop`` rows of the task whose vertex is in no table.
        delimiter: one character between the values of CSV, or ``tab``.
        decimal: mark of decimals in CSV, a point or a comma.
    """

    valid_from: str | None = field(default=None, metadata=names("text"))
    test_from: str | None = field(default=None, metadata=names("text"))
    split_column: str = field(default=SPLIT, metadata=names("text"))
    unlabelled: str = "refuse"
    unknown_ids: str = "refuse"
    delimiter: str = ","
    decimal: str = "."

    _is_users: ClassVar[bool] = True
    _raw_form: ClassVar[str] = f"the folder with the tables and {SCHEMA_FILE}"
    _splits: ClassVar[tuple[str, ...]] = ("published", "time")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("dataset.unlabelled", self.unlabelled, UNLABELED_POLICIES)
        check_choice("dataset.unknown_ids", self.unknown_ids, _UNKNOWN_POLICIES)
        check_marks(self.delimiter, self.decimal)
        for option in ("valid_from", "test_from"):
            value = getattr(self, option)
            if value is not None and self.split != "time":
                raise ConfigError(
                    f"dataset.{option}={brief(value)}: expected dataset.split=time, got "
                    f"{self.split}"
                )

    @property
    def _delimiter(self) -> str:
        return "\t" if self.delimiter == "tab" else self.delimiter

    @property
    def _decimal(self) -> str:
        return self.decimal

    def raw_files(self) -> list[Path]:
        """Return the schema, the files of the tables, and those of the task."""
        folder, schema = self.raw_path(), self._schema()
        files = {f"tables.{name}": table.file for name, table in schema.tables.items()}
        if self.task is not None:
            files[f"tasks.{self.task}"] = _task_of(schema, self.task, self._schema_file()).file
        tables = [path for key, name in files.items() for path in _files(folder, key, name)]
        return [self._schema_file(), *tables]

    def raw_path(self) -> Path:
        """Return the local folder with the tables; if ``raw`` is remote, copy them first."""
        if self.raw is None or not remote.is_remote(self.raw):
            return super().raw_path()
        schema = read_schema(remote.copy_remote(self.raw, [SCHEMA_FILE]) / SCHEMA_FILE)
        tables = [table.file for table in schema.tables.values()]
        tables += [task.file for task in schema.tasks.values()]
        return remote.copy_remote(self.raw, [SCHEMA_FILE, *tables])

    def _schema_file(self) -> Path:
        folder = self.raw_path()
        if not folder.is_dir():
            raise GraphError(
                f"dataset.raw={folder}: expected a folder with the tables and {SCHEMA_FILE}"
            )
        return folder / SCHEMA_FILE

    def _schema(self) -> RelationalSchema:
        return read_schema(self._schema_file())

    @contextmanager
    def _tables(self, schema: RelationalSchema) -> Iterator[Path]:
        yield self.raw_path()

    def _task_table(self, schema: RelationalSchema, folder: Path) -> TaskTable | None:
        if self.task is None:
            return None
        task = _task_of(schema, self.task, self._schema_file())
        bounds, unit = TimeSplit(self.valid_from, self.test_from), schema.time_unit
        if self.split == "time":  # before the tables are read
            bounds.bounds("s" if unit == "auto" else unit)
        key = f"tasks.{self.task}"
        return TaskTable(
            name=self.task,
            table=RelationalTable(
                *(key, _files(folder, key, task.file), self._delimiter),
                *(_MEMORY_BYTES, self._decimal),
                null=task.null,
            ),
            schema=task,
            split=bounds if self.split == "time" else self.split_column,
            drops_unknown=self.unknown_ids == "drop",
            unlabeled=self.unlabelled,
            reads_labels=self._has_labels,
        )


def _task_of(schema: RelationalSchema, name: str, where: object) -> Any:
    """Return the task ``name`` of ``schema``; ConfigError: ``where`` has none of this name."""
    if name not in schema.tasks:
        raise ConfigError(
            f"dataset.task={brief(name)}: expected a task of {where}, which are "
            f"{listed(schema.tasks) or 'none'}{suggestion(name, schema.tasks)}"
        )
    return schema.tasks[name]


def _files(folder: Path, key: str, name: str) -> list[Path]:
    """Return the files of a table; GraphError, which names its key in the schema: there is none."""
    if not (folder / name).exists():
        raise GraphError(f"{folder / SCHEMA_FILE}: {brief(key)}.file={brief(name)}: missing")
    return table_files(folder, f"{key}.file", name)


def _column(table: Table, key: str, column: str) -> str:
    """Return a column of a table; GraphError, which names its key in the schema: no such one."""
    if column not in table.names:
        raise GraphError(
            f"{table.path}: has no column {brief(repr(column))} (tables.{brief(key)}), it has "
            f"{listed(table.names)}{suggestion(column, table.names)}"
        )
    return column
