"""Reading of the table of a task: vertices, cut-offs, labels and a split."""

from dataclasses import dataclass, replace

import numpy as np

from gnnscale.core import Array, BoolArray, GraphError, Int64Array, brief, suggestion
from gnnscale.data.readers.relational.schema import TaskSchema
from gnnscale.data.readers.table_options import SPLIT
from gnnscale.data.readers.typed.columns import listed
from gnnscale.data.readers.typed.edge_reading import TypeIds
from gnnscale.data.tables import roles
from gnnscale.data.tables.batch import Batch
from gnnscale.data.tables.label_columns import LabelColumns
from gnnscale.data.tables.table import Table
from gnnscale.data.tables.time_columns import TimeColumn, TimesOfRows
from gnnscale.data.tables.vertex_ids import IdMap, csv_id_type
from gnnscale.data.time_split import TimeSplit, check_part_times
from gnnscale.graph import Split, TaskRows, TimeUnit, has_label

#: Bytes of a row in a batch, about.
_ROW_BYTES = 64


@dataclass(frozen=True, kw_only=True)
class TaskTable:
    """Table of a task, and how to read it."""

    name: str  #: name of the task
    table: Table
    schema: TaskSchema
    split: TimeSplit | str  #: bounds of a split by time, or the column of published parts
    drops_unknown: bool  #: whether rows with an unknown vertex are left out, and not refused
    unlabeled: str  #: one of ``UNLABELED_POLICIES``
    reads_labels: bool  #: whether labels and split are read


def read_rows(task: TaskTable, ids: TypeIds, unit: TimeUnit, changes: list[str]) -> TaskRows:
    """Return the rows of a task, whose vertices count from 0 in their type.

    Args:
        task: table of the task.
        ids: ids of the vertices.
        unit: unit of the cut-offs.
        changes: gets how many rows are left out.

    Raises:
        GraphError: a column is missing, a cell cannot be read, or a vertex is unknown.
    """
    schema, table = task.schema, task.table
    vertex, cutoff = (_column(task, key) for key in ("vertex", "cutoff"))
    labels = _label_columns(task)
    cutoffs = TimesOfRows(TimeColumn(table, cutoff, unit, "cutoff"))
    columns: list[TimesOfRows | LabelColumns] = [cutoffs] if labels is None else [cutoffs, labels]
    types = {vertex: csv_id_type(ids.id_type, ids.id_map.type), **cutoffs.column.csv_types}
    types |= {} if labels is None else labels.csv_types
    parts, num_rows, unknown = [], 0, _Unknown(vertex)
    for batch in table.batches([*types], types, _ROW_BYTES):
        vertices = ids.id_map.find(batch, vertex)
        is_known = vertices >= 0
        num_rows += len(batch)
        unknown.add(batch, ~is_known)
        parts.append(vertices[is_known])
        known_rows = batch.filtered(is_known)
        for column in columns:
            column.add(known_rows)
    table.problems.raise_any()
    unknown.settle(task, ids.id_map, num_rows, changes)
    times = cutoffs.finish()
    values, classes = _unlabeled(len(times)) if labels is None else labels.labels()
    table.problems.raise_any()
    return TaskRows(
        name=task.name,
        vertices=np.concatenate(parts),
        cutoffs=times,
        labels=values,
        num_classes=_num_classes(values, classes),
        split=Split() if labels is None else _split(task, labels, values, times, unit),
        metric=schema.metric or ("accuracy" if values.dtype.kind == "i" else "rmse"),
        classes=classes,
        columns=(vertex, cutoff),
    )


def _label_columns(task: TaskTable) -> LabelColumns | None:
    """Return the columns of labels and of a published split. None: no labels are read."""
    if not task.reads_labels:
        return None
    split = None
    if isinstance(task.split, str):
        split = roles.find_split(task.table, "split_column", task.split, SPLIT)
    label, option = _column(task, "label"), f"tasks.{task.name}.kind"
    return LabelColumns(task.table, label, task.schema.kind, split, option=option)


def _unlabeled(count: int) -> tuple[Array, None]:
    return np.full(count, -1), None


def _column(task: TaskTable, key: str) -> str:
    """Return the column of a key of the schema; GraphError: the table has no such column."""
    column: str = getattr(task.schema, key)
    names = task.table.names
    if column not in names:
        raise GraphError(
            f"{task.table.path}: has no column {brief(repr(column))} (tasks.{brief(task.name)}."
            f"{key}), it has {listed(names)}{suggestion(column, names)}"
        )
    return column


class _Unknown:
    """Counter of rows whose vertex is unknown, with the first of them."""

    def __init__(self, column: str) -> None:
        self._column = column
        self._count, self._first = 0, ""

    def add(self, batch: Batch, is_unknown: BoolArray) -> None:
        """Count the rows that ``is_unknown`` marks, ``[n]``."""
        if is_unknown.any() and not self._count:
            index = int(is_unknown.argmax())
            value = brief(repr(batch.columns[self._column][index].as_py()))
            self._first = f"{value} in row {batch.number(index)} of {batch.file}"
        self._count += int(np.count_nonzero(is_unknown))

    def settle(self, task: TaskTable, ids: IdMap, num_rows: int, changes: list[str]) -> None:
        """Note the rows in ``changes``; GraphError: they are refused, or no row is left."""
        if not self._count:
            return
        counted = (
            f"column {brief(self._column)} of {self._count:,} of {num_rows:,} rows has no id of "
            f"{brief(task.schema.table)}, such as {self._first}"
        )
        if not task.drops_unknown:
            raise GraphError(
                f"task {brief(task.name)}: {counted}; dataset.unknown_ids=drop leaves them out"
            )
        if self._count == num_rows:
            raise GraphError(f"task {brief(task.name)}: {counted}; no row is left")
        changes.append(
            f"task {brief(task.name)}: {counted}, are left out (dataset.unknown_ids=drop)"
        )


def _num_classes(values: Array, classes: list[str] | None) -> int:
    if values.dtype.kind != "i":
        return 1
    return max(int(values.max(initial=-1)) + 1, len(classes or ()))


def _split(
    task: TaskTable, labels: LabelColumns, values: Array, cutoffs: Int64Array, unit: TimeUnit
) -> Split:
    """Return the split of rows, by time or published.

    GraphError: no row trains, published parts overlap in time, or a row to train or validate has no
    label, unless ``unlabeled`` drops it.
    """
    if isinstance(task.split, TimeSplit):
        return _labeled(task, task.split.parts(cutoffs, unit, task.table.path), has_label(values))
    parts = labels.parts(values, unlabeled=task.unlabeled, what="rows")
    assert parts is not None
    split = Split(train_idx=parts[0], valid_idx=parts[1], test_idx=parts[2])
    advice = "; dataset.split=time splits by two dates"
    check_part_times(split, cutoffs, unit, task.table.path, advice)
    return split


def _labeled(task: TaskTable, split: Split, is_labeled: BoolArray) -> Split:
    """Return a split by time without the rows to train and validate that have no label.

    GraphError: there are such rows, and ``unlabeled`` refuses them.
    """
    parts = split.train_idx, split.valid_idx
    count = sum(int(np.count_nonzero(~is_labeled[part])) for part in parts)
    if count and task.unlabeled == "refuse":
        raise GraphError(
            f"{task.table.path}: {count:,} of {sum(map(len, parts)):,} rows that are to train or "
            "validate have no label; dataset.unlabelled=drop takes them out of the split"
        )
    train, valid = (part[is_labeled[part]] for part in parts)
    return replace(split, train_idx=train, valid_idx=valid)
