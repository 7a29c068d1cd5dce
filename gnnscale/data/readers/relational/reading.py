"""Reading of relational tables: times of rows and of their edges, and rows of a task."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from gnnscale.core import GraphError, IntArray, brief
from gnnscale.data.readers.relational.task_table import TaskTable, read_rows
from gnnscale.data.readers.typed.edge_reading import EdgeTable, TypeIds
from gnnscale.data.readers.typed.reading import TypedReading, TypedTableOptions, VertexTable
from gnnscale.graph import Graph

_LOG = logging.getLogger(__name__)


class RelationalReading(TypedReading):
    """Reader of relational tables: each table is a vertex type, each foreign key an edge type.

    Means and scaling of features are those of rows known at the last cut-off that trains. Call
    ``read_topology``, ``with_task`` and ``with_features``.

    Args:
        tables: by vertex type its table.
        edges: foreign keys.
        options: options on the reading, with reverse edges.
        folder: empty folder for the features.
        task: table of the task. None: there is none.
    """

    def __init__(
        self,
        tables: Mapping[str, VertexTable | None],
        edges: Sequence[EdgeTable],
        options: TypedTableOptions,
        folder: Path,
        *,
        task: TaskTable | None,
    ) -> None:
        super().__init__(tables, edges, options, folder)
        self._task = task
        self._task_ids: TypeIds | None = None

    def with_task(self, graph: Graph) -> Graph:
        """Return ``graph`` with the rows of the task, if there is one.

        GraphError: a row is invalid, or no table has times.
        """
        from gnnscale.data.task_rows import with_checked_rows  # imports torch

        task, ids = self._task, self._task_ids
        if task is None or ids is None:
            return graph
        self._task_ids = None  # its memory ends here
        if graph.times is None:
            raise GraphError(
                f"{task.table.path}: task {brief(task.name)} has cut-offs, expected a table with "
                "a column of times"
            )
        rows = read_rows(task, ids, graph.times.unit, self.changes)
        if rows.classes is not None:
            names = enumerate(rows.classes)
            numbered = ", ".join(f"{number} {brief(name)}" for number, name in names)
            _LOG.info("task %s: classes: %s", task.name, brief(numbered))
        # Errors name the file.
        of_file = replace(graph, name=str(task.table.path))
        checked = with_checked_rows(of_file, rows, task.schema.table).rows
        assert checked is not None
        return replace(graph, rows=replace(checked, name=graph.name))

    def _type_ids(self, name: str, id_type: str) -> TypeIds:
        type_ids = super()._type_ids(name, id_type)
        if self._task is not None and name == self._task.schema.table:
            self._task_ids = type_ids
        return type_ids

    def _training_rows(self, number: int, name: str, graph: Graph) -> IntArray | None:
        """Return the rows known at the last cut-off that trains. None: all."""
        if graph.rows is None or graph.times is None or graph.times.vertices is None:
            return None
        train = graph.rows.split.train_idx
        if not len(train):
            return None
        last = graph.rows.cutoffs[train].max()
        is_known = graph.times.vertices[graph.schema.vertices(number)] <= last  # NO_TIME is
        rows: IntArray = np.flatnonzero(is_known)
        return rows
