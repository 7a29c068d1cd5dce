"""Columns that show the future, told in one line each."""

from typing import Any

import numpy as np
import pytest

from gnnscale.data import leaks
from gnnscale.data.storage.standardize import ColumnScaling
from gnnscale.data.typed_arrays import from_typed_arrays
from gnnscale.graph import Graph, Split, TaskRows

RANDOM = np.random.default_rng(0)
NUM_USERS = 40
#: The first day of users' features, and cut-offs of their rows, days since 1970-01-01.
ORIGIN, CUTOFF = 100, 150


def graph(features: Any, labels: Any = None, **kwargs: Any) -> Graph:
    """Return users with ``features`` and rows of ``labels``, and orders of days 10, 20 and 30."""
    count = NUM_USERS if labels is None else len(labels)
    labels = np.arange(count) % 2 if labels is None else labels
    rows = TaskRows(
        name="t",
        vertices=np.arange(count) % NUM_USERS,
        cutoffs=CUTOFF + np.arange(count) // NUM_USERS,
        labels=labels,
        num_classes=int(labels.max()) + 1 if labels.dtype.kind == "i" else 1,
        split=Split(train_idx=np.arange(count)),
        metric="accuracy" if labels.dtype.kind == "i" else "rmse",
    )
    return from_typed_arrays(
        {"user": np.float32(features), "order": np.float32([[5], [21], [30]])},
        {("order", "of", "user"): ([0, 1, 2], [0, 1, 1])},
        vertex_times={"order": np.array([10, 20, 30])},
        time_unit="day",
        rows=("user", rows),
        advises=False,
        **kwargs,
    )


def signs(of: Graph, columns: Any, scalings: Any = None) -> list[str]:
    return leaks.signs_of_leaks(of, columns, scalings or {})


def noise(width: int = 1) -> Any:
    return RANDOM.normal(size=(NUM_USERS, width))


def test_dates_newer_than_the_row() -> None:
    of = graph(noise())
    line = "order: feature 'paid' is newer than the time of the row in 1 of 3 rows (33.3%)"
    (sign,) = signs(of, {"order": [{"name": "paid", "width": 1, "origin": 0}]})
    assert sign.startswith(line)
    shifted = [{"name": "paid", "width": 1, "origin": 1}]
    (sign,) = signs(of, {"order": shifted})
    assert "in 2 of 3 rows" in sign  # days 6, 22 and 31
    scaling = ColumnScaling(mean=[5.0], deviation=[0.5])  # days 7.5, 15.5 and 20
    assert (
        signs(of, {"order": [{"name": "paid", "width": 1, "origin": 0}]}, {"order": scaling}) == []
    )
    assert signs(of, {"order": [{"name": "price", "width": 1}]}) == []


def test_dates_newer_than_cutoffs_and_empty_cells() -> None:
    days = np.zeros((NUM_USERS, 2))
    days[:, 0] = CUTOFF - ORIGIN  # the day of the cut-off is not after it
    days[:4, 0] += 1
    days[3, 1] = 1  # an empty cell, with the mean of others
    columns = {"user": [{"name": "last", "width": 2, "origin": ORIGIN, "has_gaps": True}]}
    (sign,) = signs(graph(days), columns)
    assert "user: feature 'last' is newer than the cut-off of the task's row in 3 of 40" in sign


@pytest.mark.parametrize("shift", [(1, 0), (-3, 5)])
def test_a_column_is_the_label_up_to_shift_and_scale(shift: tuple[int, int]) -> None:
    columns = {"user": [{"name": "noise", "width": 1}, {"name": "copy", "width": 1}]}
    for labels in (np.arange(NUM_USERS) % 2, RANDOM.normal(size=NUM_USERS).astype(np.float32)):
        features = np.column_stack([noise(), shift[0] * labels + shift[1]])
        found = signs(graph(features, labels), columns)
        assert [sign.split(" have")[0] for sign in found] == [
            "user: feature 'copy' and the label",
            "user: feature 'copy' and the last label of the vertex",
        ]
        features[:, 1] += noise()[:, 0]
        assert signs(graph(features, labels), columns) == []


def test_a_column_is_the_last_label_of_its_vertex() -> None:
    labels = RANDOM.normal(size=3 * NUM_USERS).astype(np.float32)
    (sign,) = signs(
        graph(labels[-NUM_USERS:, None], labels), {"user": [{"name": "score", "width": 1}]}
    )
    assert "'score' and the last label of the vertex have a correlation of 0.999" in sign


def test_a_category_and_an_empty_cell_are_a_class() -> None:
    labels = np.arange(NUM_USERS) % 3
    features = np.column_stack([labels == 2, labels == 0, noise(), labels == 1])
    columns = [
        {"name": "town", "width": 2, "categories": ["Bonn", "Oslo"]},
        {"name": "age", "width": 2, "has_gaps": True},
    ]
    found = {
        sign.split(" and the")[0] for sign in signs(graph(features, labels), {"user": columns})
    }
    assert found == {
        "user: feature 'town' = 'Bonn'",
        "user: feature 'town' = 'Oslo'",
        "user: feature 'age' is empty",
    }


def test_few_rows_or_few_of_a_class_are_no_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = {"user": [{"name": "copy", "width": 1}]}
    rare = np.zeros(NUM_USERS, np.int64)
    rare[:4] = 1
    assert signs(graph(rare[:, None], rare), columns) == []
    rare[4] = 1
    assert len(signs(graph(rare[:, None], rare), columns)) == 2
    monkeypatch.setattr(leaks, "_MAX_ROWS", 20)  # every other row
    assert len(signs(graph(rare[:, None], np.repeat([1, 0], 20)), columns)) == 0


def test_a_graph_without_times_has_no_sign() -> None:
    of = from_typed_arrays({"a": noise()}, {("a", "to", "a"): ([0], [1])}, advises=False)
    assert signs(of, {"a": [{"name": "x", "width": 1, "origin": 0}]}) == []
