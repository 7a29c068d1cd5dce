"""Tasks of rel-f1: rows of drivers as of cut-offs, by RelBench's rules."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from gnnscale.core import Array, Float64Array, Int64Array

_DAY = 86_400
#: First cut-offs of validation and of test, 2005-01-01 and 2010-01-01, in seconds since 1970-01-01.
VALID_FROM, TEST_FROM = (
    int(np.datetime64(day, "s").astype(np.int64)) for day in ("2005-01-01", "2010-01-01")
)
#: Cut-offs of validation and of test, at most.
_MAX_CUTOFFS = 40
_PARTS = ("train", "valid", "test")


@dataclass(frozen=True, kw_only=True)
class F1Task:
    """Task of rel-f1: a number about each driver's events within ``days`` days of a cut-off."""

    table: Literal["results", "qualifying"]  #: table of the events
    column: str  #: column of the events from which labels are made
    days: int  #: days from one cut-off to the next
    label: str  #: name of the labels in RelBench's tables
    kind: Literal["classes", "values"]
    metric: str

    def labels(self, values: Float64Array, starts: Int64Array) -> Array:
        """Return the label of each row from the ``values`` of its events, ``[num_rows]``.

        The events of row ``i`` are ``values[starts[i]:starts[i + 1]]``, NaN for an empty cell.
        """
        if self.label == "did_not_finish":  # status 1 is "finished"
            failed = (values != 1) & ~np.isnan(values)
            labels: Array = np.maximum.reduceat(failed.astype(np.int64), starts)
            return labels
        if self.label == "qualifying":
            best: Array = np.fmin.reduceat(values, starts)
            return (best <= 3).astype(np.int64)
        filled = ~np.isnan(values)
        counts = np.add.reduceat(filled.astype(np.int64), starts)
        sums = np.add.reduceat(np.where(filled, values, 0), starts)
        means: Array = np.full(len(starts), np.nan)
        return np.divide(sums, counts, out=means, where=counts > 0)


#: Tasks by RelBench's names. Label 1 of ``driver-dnf`` is a driver who did not finish a race.
TASKS = {
    "driver-dnf": F1Task(
        table="results",
        column="statusId",
        days=30,
        label="did_not_finish",
        kind="classes",
        metric="roc_auc",
    ),
    "driver-top3": F1Task(
        table="qualifying",
        column="position",
        days=30,
        label="qualifying",
        kind="classes",
        metric="roc_auc",
    ),
    "driver-position": F1Task(
        table="results",
        column="positionOrder",
        days=60,
        label="position",
        kind="values",
        metric="mae",
    ),
}


@dataclass(frozen=True, kw_only=True)
class F1Rows:
    """Rows of a task, in the order of cut-offs and drivers."""

    drivers: Int64Array  #: ``[num_rows]`` keys of drivers
    cutoffs: Int64Array  #: ``[num_rows]`` seconds since 1970-01-01
    labels: Array  #: ``[num_rows]``
    parts: list[str]  #: ``train``, ``valid`` or ``test``


def task_rows(
    task: F1Task,
    drivers: Int64Array,
    times: Int64Array,
    values: Float64Array,
    *,
    first: int,
    last: int,
) -> F1Rows:
    """Return the rows of ``task`` from its table of events.

    A row is a driver with an event after cut-off ``t`` and up to ``t`` plus the task's days, as
    ``date > t - 1 year`` in RelBench's query has no upper bound, and so leaves out no such driver.
    Cut-offs train from 2005-01-01 backwards to ``first``; validation has those from 2005-01-01 on,
    test those from 2010-01-01 on, up to 40 whose days end by 2010-01-01 and by ``last``.

    Args:
        task: task, of ``TASKS``.
        drivers: ``[num_events]`` key of the driver of each event.
        times: ``[num_events]`` seconds since 1970-01-01.
        values: ``[num_events]`` column from which labels are made, NaN for an empty cell.
        first: first time of all tables.
        last: last time of all tables.
    """
    step = task.days * _DAY
    windows = (
        (VALID_FROM, -((VALID_FROM - first) // step), 0),
        (VALID_FROM, 0, _num_cutoffs(VALID_FROM, TEST_FROM, step)),
        (TEST_FROM, 0, _num_cutoffs(TEST_FROM, last, step)),
    )
    parts = []
    for name, (origin, begin, end) in zip(_PARTS, windows, strict=True):
        window = -((origin - times) // step) - 1  # the event is after its window's cut-off
        chosen = np.flatnonzero((window >= begin) & (window < end))
        order = chosen[np.lexsort((drivers[chosen], window[chosen]))]
        keys = np.stack([window[order], drivers[order]], axis=1)
        is_first = np.append(True, (keys[1:] != keys[:-1]).any(axis=1))[: len(keys)]
        starts = np.flatnonzero(is_first)
        cutoffs = origin + keys[starts, 0] * step
        labels = task.labels(values[order], starts) if len(starts) else np.empty(0)
        parts.append((keys[starts, 1], cutoffs, labels, [name] * len(starts)))
    keys_of, cutoffs_of, labels_of, names = zip(*parts, strict=True)
    return F1Rows(
        drivers=np.concatenate(keys_of),
        cutoffs=np.concatenate(cutoffs_of),
        labels=np.concatenate(labels_of),
        parts=[name for of_part in names for name in of_part],
    )


def _num_cutoffs(origin: int, end: int, step: int) -> int:
    """Return the number of cut-offs, ``step`` apart from ``origin`` on, a ``step`` before ``end``.

    There are ``_MAX_CUTOFFS`` at most.
    """
    return max(min(_MAX_CUTOFFS, (end - origin) // step), 0)
