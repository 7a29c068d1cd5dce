"""Rows of a task from a user's arrays: vertices, cut-offs, labels and a split by time."""

from collections.abc import Mapping
from typing import Any

from gnnscale.core import Array, GraphError, standard_arithmetic
from gnnscale.data import array_inputs
from gnnscale.data.split_input import SplitInput
from gnnscale.data.task_rows import row_labels, times_of, with_checked_rows
from gnnscale.data.time_inputs import read_times
from gnnscale.data.time_split import TimeSplit, check_part_times
from gnnscale.graph import DATE_CODES, Graph, TaskRows, TimeUnit


@standard_arithmetic()
def with_rows(
    graph: Graph,
    vertices: Any,
    cutoffs: Any,
    labels: Any,
    *,
    vertex_type: str | None = None,
    valid_from: Any = None,
    test_from: Any = None,
    split: Mapping[str, Any] | None = None,
    metric: str | None = None,
) -> Graph:
    """Return ``graph`` with the rows of a task: vertices to predict as of cut-offs, with labels.

    A vertex may stand in many rows. Row ``i`` is predicted from what is known at ``cutoffs[i]``.

    Args:
        graph: graph with times of vertices or edges.
        vertices: ``[n]`` ids, counted from 0 in ``vertex_type``.
        cutoffs: ``[n]`` datetime64, rounded down to the unit of the graph's times, or integers in
            that unit.
        labels: ``[n]`` classes, -1 if unknown; or regression targets, NaN if unknown.
        vertex_type: type of ``vertices``. None: the graph has no types.
        valid_from, test_from: first cut-offs of validation and test, as dates or integers; rows
            train before the first.
        split: row numbers or masks by ``train``, ``valid`` and ``test``, instead of the two times.
        metric: ``accuracy``, ``roc_auc``, ``rmse`` or ``mae``. None: ``accuracy`` of classes,
            ``rmse`` of targets.

    Raises:
        ConfigError: one of the two times is missing or no time.
        GraphError: an argument is invalid, or the parts of the split overlap in time.
    """
    source = f"{graph.name}: rows"
    unit = times_of(graph, source).unit
    if graph.types is not None and vertex_type is None:
        raise GraphError(f"{source}: vertex_type: required, one of {', '.join(graph.vertex_types)}")
    count = len(array_inputs.as_array(vertices, f"{source}: vertices"))
    dates = _in_unit(cutoffs, unit, source)
    times = read_times(dates, count, f"{source}: cut-offs").values
    checked = row_labels(labels, count, metric, source)
    if split is None:
        valid, test = (None if time is None else str(time) for time in (valid_from, test_from))
        parts = TimeSplit(valid, test, prefix="").parts(times, unit, source)
    elif valid_from is not None or test_from is not None:
        raise GraphError(f"{source}: split: expected no valid_from or test_from as well")
    else:
        parts = SplitInput().chosen(split, None, source).read(checked, count, source)
        check_part_times(parts, times, unit, source)
    rows = TaskRows(
        name=graph.name,
        vertices=vertices,
        cutoffs=dates,
        labels=checked.values,
        num_classes=checked.num_classes,
        split=parts,
        metric=metric or checked.metric,
    )
    return with_checked_rows(graph, rows, vertex_type)


def _in_unit(cutoffs: Any, unit: TimeUnit, source: str) -> Array:
    """Return cut-offs as an array; dates are in ``unit``, if that is one of dates."""
    array = array_inputs.as_array(cutoffs, f"{source}: cut-offs")
    is_date = array.dtype.kind == "M" and unit in DATE_CODES
    return array.astype(f"datetime64[{DATE_CODES[unit]}]") if is_date else array
