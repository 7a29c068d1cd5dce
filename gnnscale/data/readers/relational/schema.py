"""Schema of relational tables, ``schema.yaml``: keys, times and tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path, PurePath
from typing import Any, TypeVar

from gnnscale.core import ConfigError, brief, printable, suggestion
from gnnscale.core.config.yaml_file import load_yaml, texts_in
from gnnscale.core.types import decode
from gnnscale.data.readers.typed.columns import listed, reverse_type
from gnnscale.data.tables.label_columns import LABEL_KINDS
from gnnscale.data.tables.time_columns import TIME_UNIT_CHOICES
from gnnscale.graph import ROW_METRICS, EdgeType

#: Name of the file in the folder of the tables.
SCHEMA_FILE = "schema.yaml"
_Record = TypeVar("_Record")


@dataclass(frozen=True, kw_only=True)
class TableSchema:
    """Table of the vertices of one type, in ``tables`` of the schema."""

    file: str  #: file or folder beside the schema
    key: str | None = None  #: column of the primary key. None: keys are row numbers from 0
    foreign_keys: dict[str, str] = field(default_factory=dict)  #: by column, the table of its keys
    time: str | None = None  #: column of the times of rows. None: rows are known at all times
    #: columns of features. None: all columns without another role, except ``drop``
    columns: list[str] | None = None
    drop: list[str] = field(default_factory=list)  #: columns that are not read
    categories: list[str] = field(default_factory=list)  #: feature columns that are categories
    null: str | None = None  #: word of an empty cell in CSV, such as ``\\N``

    @property
    def other_roles(self) -> set[str]:
        """Columns that are no features: keys, times, and columns that are not read."""
        roles = {*self.foreign_keys, *self.drop, self.key, self.time}
        return {column for column in roles if column is not None}


@dataclass(frozen=True, kw_only=True)
class TaskSchema:
    """Table of labels of vertices as of cut-offs, in ``tasks`` of the schema."""

    file: str  #: file or folder beside the schema
    table: str  #: table of the vertices
    vertex: str  #: column of the keys of the vertices
    cutoff: str  #: column of the cut-offs
    label: str  #: column of the labels
    kind: str = "auto"  #: one of ``LABEL_KINDS``
    metric: str | None = None  #: one of ``ROW_METRICS``. None: by the labels
    null: str | None = None  #: word of an empty cell in CSV


@dataclass(frozen=True, kw_only=True)
class RelationalSchema:
    """Schema of relational tables: their keys and times, and the tasks over them."""

    tables: dict[str, TableSchema]
    tasks: dict[str, TaskSchema] = field(default_factory=dict)
    #: one of ``TIME_UNIT_CHOICES``, the unit of all times; ``auto`` is seconds, of dates alone
    time_unit: str = "auto"

    def edge_types(self) -> Iterator[EdgeType]:
        """Yield the edge type of each foreign key: ``TABLE-COLUMN-OTHER``."""
        for name, table in self.tables.items():
            for column, other in table.foreign_keys.items():
                yield EdgeType(name, column, other)


def read_schema(file: Path) -> RelationalSchema:
    """Return the schema in a YAML file; ConfigError, which names the key, if it is invalid."""
    try:
        values = load_yaml(file, is_text=lambda key: True)
    except FileNotFoundError:
        raise ConfigError(
            f"{file}: missing; dataset=relational reads keys, times and tasks from it"
        ) from None
    _check_texts(file, values)
    values = dict(_checked_keys(RelationalSchema, values, f"{file}"))
    for key, record in (("tables", TableSchema), ("tasks", TaskSchema)):
        where = f"{file}: {key}"
        entries = _mapping(values.get(key) or {}, where)
        values[key] = {name: _record(record, of, f"{where}.{name}") for name, of in entries.items()}
    schema = RelationalSchema(**values)
    check_schema(schema, f"{file}: ")
    return schema


def check_schema(schema: RelationalSchema, where: str) -> None:
    """Raise ConfigError, which ``where`` begins, for names in ``schema`` that do not fit."""
    if not any(table.foreign_keys for table in schema.tables.values()):
        raise ConfigError(
            f"{where}tables: expected a table with foreign_keys, as no graph is without edges"
        )
    if schema.time_unit not in TIME_UNIT_CHOICES:
        raise ConfigError(
            f"{where}time_unit={brief(schema.time_unit)}: expected one of "
            f"{', '.join(TIME_UNIT_CHOICES)}"
        )
    for name, table in schema.tables.items():
        _check_table(name, table, schema.tables, f"{where}tables.{brief(name)}")
    types = [*schema.edge_types()]
    for edge_type in types:
        if reverse_type(edge_type) in types:
            raise ConfigError(
                f"{where}tables.{edge_type.source}.foreign_keys.{edge_type.relation}: expected "
                f"another column, as the reverse of its edges is {reverse_type(edge_type)} too"
            )
    for name, task in schema.tasks.items():
        _check_task(task, schema.tables, f"{where}tasks.{brief(name)}")


def _check_table(
    name: str, table: TableSchema, tables: Mapping[str, TableSchema], where: str
) -> None:
    _check_file(table.file, where)
    for column, other in table.foreign_keys.items():
        option = f"{where}.foreign_keys.{brief(column)}"
        if other not in tables:
            raise ConfigError(_not_one_of(option, other, "a table", tables))
        if tables[other].key is None:
            raise ConfigError(f"{option}={brief(other)}: expected a table with a key")
        if column in (table.key, table.time):
            role = "the key" if column == table.key else "the time"
            raise ConfigError(f"{option}: expected a column besides {role} of {brief(name)}")
    if table.key is not None and table.key == table.time:
        raise ConfigError(f"{where}.time={brief(table.time)}: expected a column besides the key")
    _check_features(table, where)


def _check_features(table: TableSchema, where: str) -> None:
    """Raise ConfigError for feature columns that repeat, or that are keys."""
    if table.columns is not None and table.drop:
        raise ConfigError(
            f"{where}.drop: expected no drop beside columns, which names all features"
        )
    keys = {table.key, *table.foreign_keys}
    for option in ("columns", "categories", "drop"):
        columns = getattr(table, option) or []
        for column in columns:
            if column in keys and option != "drop":
                role = "the key" if column == table.key else "a foreign key"
                raise ConfigError(
                    f"{where}.{option}: {brief(column)}: expected a feature, got {role}"
                )
            if columns.count(column) > 1:
                raise ConfigError(f"{where}.{option}: {brief(column)}: appears twice")


def _check_task(task: TaskSchema, tables: Mapping[str, TableSchema], where: str) -> None:
    _check_file(task.file, where)
    if task.table not in tables:
        raise ConfigError(_not_one_of(f"{where}.table", task.table, "a table", tables))
    if task.kind not in LABEL_KINDS:
        raise ConfigError(_not_one_of(f"{where}.kind", task.kind, "a kind", LABEL_KINDS))
    if task.metric is not None and task.metric not in ROW_METRICS:
        raise ConfigError(_not_one_of(f"{where}.metric", task.metric, "a metric", ROW_METRICS))
    columns = {"vertex": task.vertex, "cutoff": task.cutoff, "label": task.label}
    for key, column in columns.items():
        if [*columns.values()].count(column) > 1:
            raise ConfigError(f"{where}.{key}={brief(column)}: expected a column of its role alone")


def _check_file(name: str, where: str) -> None:
    path = PurePath(name)
    if not name or path.is_absolute() or ".." in path.parts:
        raise ConfigError(
            f"{where}.file={brief(name)}: expected a file or folder beside {SCHEMA_FILE}"
        )


def _not_one_of(option: str, value: str, what: str, allowed: Iterable[str]) -> str:
    allowed = [*allowed]
    return (
        f"{option}={brief(value)}: expected {what}, one of {listed(allowed)}"
        f"{suggestion(value, allowed)}"
    )


def _check_texts(file: Path, values: Any) -> None:
    for text in texts_in(values):
        if not printable(text):
            raise ConfigError(
                f"{file}: {brief(repr(text))}: expected no control characters; YAML reads escapes "
                "in double quotes, and '\\N' in single quotes"
            )


def _mapping(values: Any, where: str) -> dict[str, Any]:
    """Return a mapping by names, in which the key null is text; ConfigError: it is none."""
    if not isinstance(values, dict):
        kind = "a list" if isinstance(values, list) else f"{brief(values)}"
        raise ConfigError(f"{where}: expected a mapping by names, got {kind}")
    named = {"null" if key is None else key: value for key, value in values.items()}
    for key in named:
        if not isinstance(key, str) or not key or not printable(key):
            raise ConfigError(f"{where}: {brief(key)}: expected a text as name; quote it")
    return named


def _checked_keys(record: type[Any], values: Any, where: str) -> dict[str, Any]:
    """Return a mapping by fields of ``record``; ConfigError: it is none, or has another key."""
    mapping = _mapping(values, where)
    allowed = [option.name for option in fields(record)]
    for key in mapping:
        if key not in allowed:
            hint = suggestion(key, allowed) or f"; allowed are {', '.join(allowed)}"
            raise ConfigError(f"{where}: {brief(key)}: unknown key{hint}")
    return {key: value for key, value in mapping.items() if value is not None}


def _record(record: type[_Record], values: Any, where: str) -> _Record:
    """Return a table or a task of the schema; ConfigError, which names the key: it is invalid."""
    values = _checked_keys(record, values, where)
    for option in fields(record):  # type: ignore[arg-type]
        is_required = option.default is option.default_factory is MISSING
        if is_required and option.name not in values:
            raise ConfigError(f"{where}.{option.name}: required")
    if isinstance(values.get("foreign_keys"), dict):
        values["foreign_keys"] = _mapping(values["foreign_keys"], f"{where}.foreign_keys")
    try:
        return decode(record, values, source=where)
    except ValueError as error:
        raise ConfigError(str(error)) from None
