"""Task rows to predict: those of a graph, or vertices and cut-offs that the user names."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnscale.core import ConfigError, Int64Array, IntArray, brief
from gnnscale.data.tables.row_selection import select_rows
from gnnscale.data.tables.vertex_ids import read_ids
from gnnscale.graph import Graph
from gnnscale.inference.export.outputs import CutoffIds

#: Parts of rows, or of labeled edges.
PARTS = ("all", "train", "valid", "test")


@dataclass(frozen=True, kw_only=True)
class SelectedRows:
    """Vertices as of cut-offs, and their ids in an output."""

    vertices: IntArray  #: ``[n]`` vertices of the graph
    cutoffs: Int64Array  #: ``[n]`` cut-offs in the unit of the graph's times
    ids: CutoffIds  #: ids of the rows; without the user's ids, they count from 0 in each type

    @classmethod
    def of(cls, graph: Graph, vertices: IntArray, cutoffs: Int64Array) -> "SelectedRows":
        """Return the rows of ``vertices`` of ``graph`` as of ``cutoffs``."""
        user_ids, numbers, times = read_ids(graph), vertices.astype(np.int64), graph.times
        assert times is not None
        if user_ids is None:
            schema = graph.schema
            numbers = numbers - schema.first_vertices[schema.type_of(numbers)]
        ids = CutoffIds(vertices=numbers, user_ids=user_ids, cutoffs=cutoffs, unit=times.unit)
        return cls(vertices=vertices, cutoffs=cutoffs, ids=ids)


def find_rows(rows: Any, part: Any, graph: Graph, target: str | None) -> SelectedRows:
    """Return the vertices and cut-offs to predict.

    Args:
        rows: selection as ``select_rows`` takes it. None: rows of ``graph``.
        part: part of the rows of ``graph``, ``all``, ``train``, ``valid`` or ``test``.
        target: type of the vertices of ``rows``. None: there are no types.

    Raises:
        ConfigError: there are no such rows.
        GraphError: a file cannot be read.
    """
    if rows is not None:
        if part not in (None, "all"):
            raise ConfigError("vertices: expected all with rows, which name their vertices")
        return SelectedRows.of(graph, *select_rows(rows, graph, read_ids(graph), target))
    if not (part is None or (isinstance(part, str) and part in PARTS)):
        raise ConfigError(
            f"vertices={brief(part)}: expected {', '.join(PARTS)} for a run of task rows; "
            "rows=FILE names vertices with cut-offs"
        )
    if graph.rows is None:
        raise ConfigError(
            f"rows: expected a table with columns id and cutoff, as {graph.name} has no task rows"
        )
    of_graph = graph.rows
    numbers = np.arange(len(of_graph.vertices))
    if part not in (None, "all"):
        numbers = getattr(of_graph.split, f"{part}_idx")
    if not len(numbers):
        raise ConfigError(f"vertices={part}: expected a row in this part of {graph.name}, got none")
    return SelectedRows.of(
        graph, np.asarray(of_graph.vertices[numbers]), np.asarray(of_graph.cutoffs[numbers])
    )
