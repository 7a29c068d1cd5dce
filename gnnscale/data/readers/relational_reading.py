"""Reading of relational tables: times of rows and of their edges, and rows of a task."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gnnscale.core import Array, BoolArray, GraphError, Int64Array, IntArray, brief
from gnnscale.data.readers.relational_schema import RelationalSchema, TaskSchema
from gnnscale.data.readers.typed_edge_reading import EdgeTable, TypeIds
from gnnscale.data.readers.typed_reading import TypedReading, TypedTableOptions, VertexTable
from gnnscale.data.tables import roles
from gnnscale.data.tables.batch import Batch
from gnnscale.data.tables.label_columns import LabelColumns
from gnnscale.data.tables.table import Table
from gnnscale.data.tables.time_columns import TimeColumn
from gnnscale.data.tables.vertex_ids import IdMap, csv_id_type
from gnnscale.data.time_split import TimeSplit, format_time
from gnnscale.graph import Graph, GraphSchema, Split, TaskRows, TimeUnit, has_label

if TYPE_CHECKING:
    from gnnscale.data.time_inputs import TypedTimes

_LOG = logging.getLogger(__name__)
#: Bytes of a row of a task in a batch, about.
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


class RelationalReading(TypedReading):
    """Reader of relational tables: each table is a vertex type, each foreign key an edge type.

    An edge has the time of the row with the foreign key, and so has its reverse. Means and scaling
    of features are those of rows known at the last cut-off that trains. Call ``read_topology``,
    ``with_task`` and ``with_features``.

    Args:
        tables: by vertex type its table.
        edges: foreign keys.
        options: options on the reading, with reverse edges.
        folder: empty folder for the features.
        schema: columns of times, and their unit.
        task: table of the task. None: there is none.
    """

    def __init__(
        self,
        tables: Mapping[str, VertexTable | None],
        edges: Sequence[EdgeTable],
        options: TypedTableOptions,
        folder: Path,
        *,
        schema: RelationalSchema,
        task: TaskTable | None,
    ) -> None:
        super().__init__(tables, edges, options, folder)
        self._schema, self._task = schema, task
        self._unit: Any = schema.time_unit
        self._task_ids: TypeIds | None = None

    def with_task(self, graph: Graph) -> Graph:
        """Return ``graph`` with the rows of the task, if there is one.

        GraphError: a row is invalid, or no table has times.
        """
        from gnnscale.data.task_rows import with_rows  # imports torch

        task, ids = self._task, self._task_ids
        if task is None or ids is None:
            return graph
        self._task_ids = None  # its memory ends here
        if graph.times is None:
            raise GraphError(
                f"{task.table.path}: task {brief(task.name)} has cut-offs, expected a table with "
                "a column of times"
            )
        rows, classes = read_rows(task, ids, self._unit, self.changes)
        if classes is not None:
            numbered = ", ".join(f"{number} {brief(name)}" for number, name in enumerate(classes))
            _LOG.info("task %s: classes: %s", task.name, brief(numbered))
        return with_rows(graph, rows, task.schema.table)

    def _type_ids(self, name: str, id_type: str) -> TypeIds:
        type_ids = super()._type_ids(name, id_type)
        if self._task is not None and name == self._task.schema.table:
            self._task_ids = type_ids
        return type_ids

    def _times(
        self, schema: GraphSchema, ends: Sequence[tuple[IntArray, IntArray]]
    ) -> "TypedTimes | None":
        from gnnscale.data.time_inputs import TypedTimes  # imports torch

        vertices = [self._times_of(of_type.name) for of_type in schema.vertex_types]
        if all(times is None for times in vertices):
            return None
        num_keys = len(self._edges)
        own: list[Int64Array | None] = [None] * num_keys  # the sources are the rows
        for number, (_, rows) in enumerate(ends[num_keys:]):
            times = vertices[int(schema.sources[number])]
            own.append(None if times is None else times[rows])
        return TypedTimes(unit=self._unit, vertices=vertices, edges=own)

    def _training_rows(self, number: int, name: str, graph: Graph) -> IntArray | None:
        """Return the rows known at the last cut-off that trains. None: all."""
        if graph.rows is None or graph.times is None or graph.times.vertices is None:
            return None
        train = graph.rows.split.train_idx
        if not len(train):
            return None
        last = graph.rows.cutoffs[train].max()
        known = graph.times.vertices[graph.schema.vertices(number)] <= last  # NO_TIME is
        rows: IntArray = np.flatnonzero(known)
        return rows

    def _times_of(self, name: str) -> Int64Array | None:
        """Return the times of the rows of a table, in a pass of its own. None: it has none."""
        column, vertices = self._schema.tables[name].time, self._tables[name]
        if column is None or vertices is None:
            return None
        table = vertices.table
        times = TimeColumn(table, table.require("raw", column), self._unit)
        for batch in table.batches([column], times.csv_types, 16):
            times.add(batch)
        table.problems.raise_any()
        return times.finish()


def read_rows(
    task: TaskTable, ids: TypeIds, unit: TimeUnit, changes: list[str]
) -> tuple[TaskRows, list[str] | None]:
    """Return the rows of a task, whose vertices count from 0 in their type, and names of classes.

    Args:
        task: table of the task.
        ids: ids of the vertices.
        unit: unit of the cut-offs.
        changes: gets how many rows are left out.

    Raises:
        GraphError: a column is missing, a cell cannot be read, or a vertex is unknown.
    """
    schema, table = task.schema, task.table
    vertex, cutoff, label = (
        _column(task, key, column)
        for key, column in (
            *(("vertex", schema.vertex), ("cutoff", schema.cutoff), ("label", schema.label)),
        )
    )
    split = None
    if isinstance(task.split, str):
        split = roles.find_split(table, "split_column", task.split, "split")
    labels = LabelColumns(table, label, schema.kind, split, option=f"tasks.{task.name}.kind")
    cutoffs = TimeColumn(table, cutoff, unit)
    types = {vertex: csv_id_type(ids.id_type, ids.id_map.type)}
    types |= cutoffs.csv_types | labels.csv_types
    parts, num_rows, unknown = [], 0, _Unknown(vertex)
    for batch in table.batches([*types], types, _ROW_BYTES):
        vertices = ids.id_map.find(batch, vertex)
        is_known = vertices >= 0
        num_rows += len(batch)
        unknown.add(batch, ~is_known)
        known_rows = batch.filtered(is_known)
        parts.append(vertices[is_known])
        for column in (labels, cutoffs):
            column.add(known_rows)
    table.problems.raise_any()
    unknown.settle(task, ids.id_map, num_rows, changes)
    values, classes = labels.labels()
    table.problems.raise_any()
    times = cutoffs.finish()
    rows = TaskRows(
        name=task.name,
        vertices=np.concatenate(parts),
        cutoffs=times,
        labels=values,
        num_classes=_num_classes(values, classes),
        split=_split(task, labels, values, times, unit),
        metric=schema.metric or ("accuracy" if values.dtype.kind == "i" else "rmse"),
    )
    return rows, classes


def _column(task: TaskTable, key: str, column: str) -> str:
    """Return a column of the table; GraphError, which names its key in the schema: no such one."""
    if column not in task.table.names:
        raise GraphError(
            f"{task.table.path}: has no column {brief(repr(column))} (tasks.{brief(task.name)}."
            f"{key}), it has {', '.join(map(brief, task.table.names))}"
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
            f"{self._count:,} of {num_rows:,} rows have a {brief(self._column)} that is no "
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
    names = ("train", "valid", "test")
    for earlier, later in ((0, 1), (1, 2), (0, 2)):
        if not (len(parts[earlier]) and len(parts[later])):
            continue
        last, first = cutoffs[parts[earlier]].max(), cutoffs[parts[later]].min()
        if last >= first:
            raise GraphError(
                f"{task.table.path}: expected {names[earlier]} rows before {names[later]} rows, "
                f"got cut-offs up to {format_time(int(last), unit)} and from "
                f"{format_time(int(first), unit)} on; dataset.split=time splits by two dates"
            )
    return Split(train_idx=parts[0], valid_idx=parts[1], test_idx=parts[2])


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
