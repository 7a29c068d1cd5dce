"""Tables of rel-f1 from the published files: times, and the columns that RelBench reads."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gnnscale.core import Array, GraphError, Int64Array, brief, pyarrow
from gnnscale.data.readers.relational.rel_f1_tasks import TASKS, TEST_FROM, task_rows
from gnnscale.data.readers.relational.schema import RelationalSchema, TableSchema, TaskSchema
from gnnscale.data.tables import cells
from gnnscale.data.tables.table import Table

_MEMORY_BYTES = 64 << 20
_DAY = 86_400
#: Word of an empty cell in the published files.
_NULL = "\\N"


class _PublishedFile(NamedTuple):
    """Published file of a table, and the columns that are read."""

    stem: str
    key: str
    foreign_keys: dict[str, str]
    numbers: str = ""  #: columns of numbers
    texts: str = ""  #: columns of texts and dates
    is_timed: bool = True  #: whether rows have the time of their race

    @property
    def features(self) -> list[str]:
        """Columns of texts and dates that are features."""
        return [column for column in self.texts.split() if column != "date"]


_RACE, _DRIVER = {"raceId": "races"}, {"driverId": "drivers"}
_CONSTRUCTOR = {"constructorId": "constructors"}
#: Tables by RelBench's names, without the columns that it drops, and without texts of which nearly
#: each row has another: circuitRef, location and the names of circuits and constructors.
_FILES = {
    "races": _PublishedFile(
        "races", "raceId", {"circuitId": "circuits"}, "year round", "name time date"
    ),
    "circuits": _PublishedFile(
        "circuits", "circuitId", {}, "lat lng alt", "country", is_timed=False
    ),
    "drivers": _PublishedFile("drivers", "driverId", {}, "", "dob nationality", is_timed=False),
    "results": _PublishedFile(
        *("results", "resultId", _RACE | _DRIVER | _CONSTRUCTOR),
        "number grid position positionOrder points laps milliseconds fastestLap rank",
        "statusId",
    ),
    "standings": _PublishedFile(
        "driver_standings", "driverStandingsId", _RACE | _DRIVER, "points position wins"
    ),
    "constructors": _PublishedFile(
        "constructors", "constructorId", {}, "", "nationality", is_timed=False
    ),
    "constructor_results": _PublishedFile(
        "constructor_results", "constructorResultsId", _RACE | _CONSTRUCTOR, "points"
    ),
    "constructor_standings": _PublishedFile(
        *("constructor_standings", "constructorStandingsId", _RACE | _CONSTRUCTOR),
        "points position wins",
    ),
    "qualifying": _PublishedFile(
        *("qualifying", "qualifyId", _RACE | _DRIVER | _CONSTRUCTOR), "number position"
    ),
}
#: Published file of each table.
SOURCES = {name: f"{file.stem}.csv" for name, file in _FILES.items()}

SCHEMA = RelationalSchema(
    tables={
        name: TableSchema(
            file=f"{name}.parquet",
            key=file.key,
            foreign_keys=file.foreign_keys,
            columns=[*file.numbers.split(), *file.features],
            categories=["statusId"] if name == "results" else [],
            time="date" if file.is_timed else None,
        )
        for name, file in _FILES.items()
    },
    tasks={
        name: TaskSchema(
            file=f"tasks/{name}.parquet",
            table="drivers",
            vertex="driverId",
            cutoff="date",
            label=task.label,
            kind=task.kind,
            metric=task.metric,
        )
        for name, task in TASKS.items()
    },
)


def write_tables(raw: Path, folder: Path, task: str | None, *, before_test: bool) -> None:
    """Write the tables of ``SCHEMA``, from the published files in ``raw``, into ``folder``.

    The table of ``task`` is written too, and those of other tasks are not. ``before_test`` leaves
    out rows after ``TEST_FROM``, but for the labels of the task. GraphError: a file is missing or
    damaged, or a row names no race.
    """
    tables = {name: _read(raw / f"{file.stem}.csv", file) for name, file in _FILES.items()}
    tables["races"] = _race_dates(raw / "races.csv", tables["races"])
    ids, dates = (_integers(tables["races"][column]) for column in ("raceId", "date"))
    for name, file in _FILES.items():
        if file.is_timed and name != "races":
            source = raw / f"{file.stem}.csv"
            times = _dates_of_races(_integers(tables[name]["raceId"]), ids, dates, source)
            # RelBench's rule: drivers qualify the day before the race.
            tables[name]["date"] = _timestamps(times - _DAY * (name == "qualifying"))
    for name, columns in tables.items():
        table = pyarrow.table(columns)
        if before_test and _FILES[name].is_timed:
            table = table.filter(_integers(columns["date"]) <= TEST_FROM)
        pyarrow.parquet.write_table(table, folder / f"{name}.parquet")
    if task is not None:
        (folder / "tasks").mkdir()
        rows = pyarrow.table(_task_columns(task, tables))
        pyarrow.parquet.write_table(rows, folder / f"tasks/{task}.parquet")


def _read(path: Path, file: _PublishedFile) -> dict[str, Any]:
    """Return the columns of a published file as Arrow arrays by name; keys are int64."""
    table = Table([path], ",", _MEMORY_BYTES, null=_NULL)
    keys = [file.key, *file.foreign_keys]
    types = dict.fromkeys(keys, pyarrow.int64())
    types |= dict.fromkeys(file.numbers.split(), pyarrow.float64())
    types |= dict.fromkeys(file.texts.split(), pyarrow.string())
    for column in types:
        if column not in table.names:
            raise GraphError(f"{path}: has no column {column}; dataset=rel_f1 reads rel-f1's files")
    batches = list(table.batches([*types], types, 8 * len(types)))
    for batch in batches:
        for column in keys:
            batch.report_nulls(column)
    table.problems.raise_any()
    return {
        column: pyarrow.concat_arrays([batch.columns[column] for batch in batches])
        for column in types
    }


def _race_dates(path: Path, races: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of races with their dates and times of day as timestamps, ``date``."""
    columns = dict(races)
    times = pyarrow.compute.fill_null(columns["time"], "00:00:00")
    blank = pyarrow.scalar(" ", times.type)
    texts = pyarrow.compute.binary_join_element_wise(columns["date"], times, blank)
    dates, _ = cells.parsed(texts, pyarrow.timestamp("s"))
    if dates.null_count:
        row = int(np.flatnonzero(dates.is_null().to_numpy(zero_copy_only=False))[0])
        day, time = columns["date"][row].as_py(), times[row].as_py()
        raise GraphError(
            f"{path}: row {row + 1}: expected a date and a time of day, got {brief(day)} and "
            f"{brief(time)}"
        )
    return columns | {"time": times, "date": dates}


def _dates_of_races(
    races: Int64Array, ids: Int64Array, dates: Int64Array, path: Path
) -> Int64Array:
    """Return the ``dates`` of ``races``, among ``ids``; GraphError: a race is not among them."""
    order = np.argsort(ids)
    position = np.minimum(np.searchsorted(ids, races, sorter=order), len(ids) - 1)
    found_races = order[position]
    unknown = ids[found_races] != races
    if unknown.any():
        row = int(unknown.argmax())
        raise GraphError(
            f"{path}: {np.count_nonzero(unknown):,} rows have a raceId that races.csv lacks, such "
            f"as {races[row]} in row {row + 1}"
        )
    return dates[found_races]


def _task_columns(task: str, tables: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the columns of the table of a task, with the part of the split of each row."""
    rule, times = TASKS[task], []
    for name, file in _FILES.items():
        if file.is_timed:
            times.append(_integers(tables[name]["date"]))
    events = tables[rule.table]
    column = events[rule.column].cast(pyarrow.float64())
    values: Array = column.to_numpy(zero_copy_only=False)
    rows = task_rows(
        rule,
        _integers(events["driverId"]),
        _integers(events["date"]),
        values,
        first=min(int(of_table.min()) for of_table in times),
        last=max(int(of_table.max()) for of_table in times),
    )
    return {
        "date": _timestamps(rows.cutoffs),
        "driverId": pyarrow.array(rows.drivers),
        rule.label: pyarrow.array(rows.labels),
        "split": pyarrow.array(rows.parts),
    }


def _integers(array: Any) -> Int64Array:
    integers: Int64Array = array.cast(pyarrow.int64()).to_numpy()
    return integers


def _timestamps(seconds: Int64Array) -> Any:
    return pyarrow.array(seconds).cast(pyarrow.timestamp("s"))
