import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gnnscale.data.storage import gaps

COLUMNS = (
    {"name": "a", "width": 2, "has_gaps": True},
    {"name": "b", "width": 2, "categories": ["x", "y"]},
    {"name": "c", "width": 3, "has_gaps": True},
)
#: a, whether it is empty; x, y; two numbers of c, whether they are empty
ROWS = np.array(
    [[1, 0, 1, 0, 5, 6, 0], [3, 0, 0, 1, 0, 0, 1], [0, 1, 0, 0, 7, 8, 0], [9, 0, 0, 0, 0, 0, 1]],
    np.float32,
)


def columns():
    return [dict(column) for column in COLUMNS]


def test_means_by_hand() -> None:
    known = columns()
    gaps.set_means(known, ROWS, np.array([0, 1, 2]))
    assert [column.get("mean") for column in known] == [[2], None, [6, 7]]
    (filled,) = gaps.filled(known, ROWS)
    assert filled[:, 0].tolist() == [1, 3, 2, 9]
    assert filled[:, 4:].tolist() == [[5, 6, 0], [6, 7, 1], [7, 8, 0], [6, 7, 1]]
    assert gaps.has_gaps(known)
    assert not gaps.has_gaps(known[1:2])


def test_a_column_that_is_empty_in_training_has_the_mean_of_all() -> None:
    known = columns()
    gaps.set_means(known, ROWS, np.array([1]))
    assert known[2]["mean"] == [6, 7]
    none = [{"name": "a", "width": 2, "has_gaps": True}]
    gaps.set_means(none, np.array([[0, 1], [0, 1]], np.float32), None)
    assert "mean" not in none[0]
    assert np.concatenate([*gaps.filled(none, ROWS[2:3, :2])]).tolist() == [[0, 1]]


@given(st.lists(st.none() | st.integers(-100, 100), min_size=1, max_size=50), st.data())
def test_means_are_of_what_is_known(values, data) -> None:
    rows = np.array([[v or 0, v is None] for v in values], np.float32)
    train = np.flatnonzero(data.draw(st.lists(st.booleans(), min_size=len(values))))
    train = train[train < len(values)]
    column = {"name": "a", "width": 2, "has_gaps": True}
    gaps.set_means([column], rows, train)
    known = [values[i] for i in train if values[i] is not None]
    known = known or [v for v in values if v is not None]
    assert column.get("mean") == (None if not known else [sum(known) / len(known)])
