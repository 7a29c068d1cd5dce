"""Reading of relational tables: times of rows and of their edges, and rows of a task."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gnnscale.core import GraphError, Int64Array, IntArray, brief
from gnnscale.data.readers.relational_rows import TaskTable, read_rows
from gnnscale.data.readers.relational_schema import RelationalSchema
from gnnscale.data.readers.typed_edge_reading import EdgeTable, TypeIds
from gnnscale.data.readers.typed_reading import TypedReading, TypedTableOptions, VertexTable
from gnnscale.data.tables.time_columns import TimeColumn
from gnnscale.graph import Graph, GraphSchema

if TYPE_CHECKING:
    from gnnscale.data.time_inputs import TypedTimes

_LOG = logging.getLogger(__name__)


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
