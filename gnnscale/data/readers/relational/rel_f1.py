"""rel-f1: results of Formula 1, relational tables with tasks of RelBench."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

from gnnscale.core import ConfigError, brief, check_choice
from gnnscale.core.config.untrusted import names
from gnnscale.data.readers.relational.rel_f1_tables import SCHEMA, SOURCES, write_tables
from gnnscale.data.readers.relational.rel_f1_tasks import TASKS
from gnnscale.data.readers.relational.relational_tables import RelationalTables
from gnnscale.data.readers.relational.schema import RelationalSchema, TableSchema
from gnnscale.data.readers.relational.task_table import TaskTable
from gnnscale.data.tables.table import Table

_MEMORY_BYTES = 1 << 26


@dataclass(frozen=True, kw_only=True)
class RelF1(RelationalTables):
    """Folder with the nine files of rel-f1, as RelBench (Robinson et al., 2024) reads them.

    Rows of races, results, standings and qualifying have the time of their race, that of
    qualifying a day earlier. Drivers, constructors and circuits are known at all times. Features
    are the columns that RelBench keeps, without texts that nearly each row has another of.

    Attributes:
        task: ``driver-dnf`` (30 days, label 1: a driver did not finish a race), ``driver-top3``
            (30 days, label 1: qualified among the first three) or ``driver-position`` (60 days,
            mean position). Rows before 2005 train, those before 2010 validate. None: no rows.
        before_test: whether the graph ends with 2010-01-01, as RelBench's graphs do: rows of test,
            with cut-offs up to six years later, are predicted from what was known then.
    """

    name: str = "rel_f1"
    task: str | None = field(default="driver-dnf", metadata=names("text"))
    standardize: bool = True
    before_test: bool = True

    _layout: ClassVar[str] = "rel_f1"
    _raw_form: ClassVar[str] = f"the folder with {', '.join(SOURCES.values())}"
    _splits: ClassVar[tuple[str, ...]] = ("published",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.task is not None:
            check_choice("dataset.task", self.task, tuple(TASKS))

    def raw_files(self) -> list[Path]:
        """Return the published files."""
        return [self.raw_file(name) for name in SOURCES.values()]

    def _schema(self) -> RelationalSchema:
        return SCHEMA

    @contextmanager
    def _tables(self, schema: RelationalSchema) -> Iterator[Path]:
        """Yield a temporary folder with the tables of ``SCHEMA``."""
        raw = self.raw_path()
        if not raw.is_dir():
            raise ConfigError(f"dataset.raw={brief(raw)}: expected {self._raw_form}")
        with TemporaryDirectory() as folder:
            write_tables(raw, Path(folder), self.task, before_test=self.before_test)
            yield Path(folder)

    def _table(self, raw: Path, name: str, schema: TableSchema) -> Table:
        table = super()._table(raw, name, schema)
        table.path = self.raw_path() / SOURCES[name]
        return table

    def _task_table(self, schema: RelationalSchema, folder: Path) -> TaskTable | None:
        if self.task is None:
            return None
        task = schema.tasks[self.task]
        return TaskTable(
            name=self.task,
            table=Table([folder / task.file], ",", _MEMORY_BYTES),
            schema=task,
            split="split",
            drops_unknown=False,
            unlabeled="refuse",
            reads_labels=self._has_labels,
        )
