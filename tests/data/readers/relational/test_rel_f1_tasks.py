"""Rows of rel-f1's tasks against a loop over cut-offs and events."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gnnscale.data.readers.relational.rel_f1_tasks import TASKS, TEST_FROM, VALID_FROM, task_rows

DAY = 86_400
EVENTS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.sampled_from([VALID_FROM, TEST_FROM]),
        st.integers(-200, 200),
        st.sampled_from([-1, 0, 1]),
        st.sampled_from([1.0, 2, 3, 4, 7, np.nan]),
    ),
    min_size=1,
    max_size=30,
)


def label(task: str, values: list[float]) -> float:
    filled = [value for value in values if not np.isnan(value)]
    if task == "driver-dnf":
        return float(any(value != 1 for value in filled))
    if task == "driver-top3":
        return float(bool(filled) and min(filled) <= 3)
    return float(np.mean(filled)) if filled else np.nan


@given(events=EVENTS, task=st.sampled_from([*TASKS]))
def test_rows_are_drivers_with_events_after_a_cutoff(events: Any, task: str) -> None:
    drivers = np.array([event[0] for event in events])
    times = np.array([origin + 30 * DAY * n // 10 + s for _, origin, n, s, _ in events])
    values = np.array([event[4] for event in events])
    first, last = int(times.min()), int(times.max())
    rows = task_rows(TASKS[task], drivers, times, values, first=first, last=last)
    step = TASKS[task].days * DAY
    expected = []
    for part, cutoffs in (
        ("train", range(VALID_FROM - step, first - 1, -step)),
        ("valid", [t for t in range(VALID_FROM, TEST_FROM, step) if t + step <= TEST_FROM][:40]),
        ("test", [t for t in range(TEST_FROM, last + 1, step) if t + step <= last][:40]),
    ):
        for cutoff in sorted(cutoffs):
            window = (times > cutoff) & (times <= cutoff + step)
            for driver in np.unique(drivers[window]):
                chosen = values[window & (drivers == driver)].tolist()
                expected.append((part, cutoff, int(driver), label(task, chosen)))
    found_rows = [*zip(rows.parts, rows.cutoffs, rows.drivers, rows.labels, strict=True)]
    assert [row[:3] for row in found_rows] == [row[:3] for row in expected]
    np.testing.assert_allclose([row[3] for row in found_rows], [row[3] for row in expected])
