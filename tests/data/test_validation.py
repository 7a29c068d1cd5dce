import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from gnnscale.core.errors import GraphError
from gnnscale.data.validation import check_split, part_ids, vertex_keys


def test_a_split_takes_few_bytes_a_vertex() -> None:
    ids = np.arange(2_000_000)[::-1]
    split = {"train": ids[2:], "valid": ids[:1], "test": ids[1:2]}
    labels = np.zeros(len(ids), np.int64)
    tracemalloc.start()
    try:
        check_split(split, labels, len(ids), "raw")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * len(ids)


def test_a_vertex_twice_among_many() -> None:
    ids = np.arange(600_000)
    ids[-1] = 5
    split = {"train": ids, "valid": np.array([599_999]), "test": np.array([600_000])}
    with pytest.raises(GraphError, match=r"^raw: the train split names a vertex twice$"):
        check_split(split, np.zeros(600_001, np.int64), 600_001, "raw")
    labels = -(np.arange(600_001) == 599_998).astype(np.int64)
    message = "raw: vertex 599998 of the train split has no label; 1 of 599999 lack one"
    with pytest.raises(GraphError, match=f"^{message}$"):
        check_split(split | {"train": ids[:-1]}, labels, 600_001, "raw")


def test_keys():
    assert vertex_keys(["3", "0", "12"], source="x").tolist() == [3, 0, 12]
    assert vertex_keys([], source="x").tolist() == []


@pytest.mark.parametrize(
    "key", ["-1", "x", "", "1.0", " 1", "1_0", "٣", "1" * 30, "9" * 19, "\x1b[2J", "\ud800"]
)
def test_keys_that_are_no_ids(key):
    with pytest.raises(GraphError, match="x: expected vertex ids as keys, got") as error:
        vertex_keys(["0", key], source="x")
    assert str(error.value).isprintable()


def test_two_spellings_are_not_two_vertices():
    with pytest.raises(GraphError, match=r"x: vertex 7 is named twice"):
        vertex_keys(["7", "07"], source="x")


def ids(values, column=None, is_mask=None, count=4):
    options = {"column": column, "option": "mask", "is_mask": is_mask}
    return part_ids(np.asarray(values), count, "it", **options).tolist()


def test_ids_and_masks() -> None:
    assert ids([2, 0]) == ids([[2], [0]]) == ids([True, False, True, False]) == [0, 2]
    assert ids([[1], [0], [1], [0]], is_mask=True) == ids([1, 0, 1, 0], is_mask=True) == [0, 2]
    assert ids([[1, 0], [0, 1], [1, 0], [0, 0]], 1, is_mask=True) == [1]
    assert ids([]) == ids([False] * 4) == []


@pytest.mark.parametrize(
    ("values", "column", "is_mask", "message"),
    [
        ([4], None, None, "vertex id 4 is out of range"),
        ([-1], None, None, "vertex id -1 is negative"),
        ([[0, 1]], None, None, "one axis, got .1, 2"),
        ([0.5], None, None, "expected integers as vertex ids, got float64"),
        ([1.0, 0, 0, 0], None, True, r"expected bool.4. or bool.4, k., got float64.4.$"),
        ([1, 0, 2, 0], None, True, "expected true and false, or 1 and 0, got other numbers"),
        ([True], None, None, r"expected bool.4. or bool.4, k., got bool.1.$"),
        (np.ones((4, 1, 1)) > 0, None, None, r"expected .*, got bool.4, 1, 1.$"),
        (np.ones((3, 4)) > 0, 1, None, r"expected bool.4. or bool.4, k., got bool.3, 4.$"),
        (np.ones((4, 3)) > 0, None, None, "has 3 masks; mask=0 to 2 chooses one$"),
        (np.ones((4, 3)) > 0, -1, None, "mask=0 to 2 chooses one, got -1$"),
    ],
)
def test_what_is_refused(values, column, is_mask, message) -> None:
    with pytest.raises(GraphError, match=f"^it: .*{message}"):
        ids(values, column, is_mask)


@given(arrays.arrays(bool, st.tuples(st.integers(0, 9), st.integers(1, 3))), st.data())
def test_a_column_of_masks_is_the_mask(masks, data) -> None:
    column = data.draw(st.integers(0, masks.shape[1] - 1))
    expected = np.flatnonzero(masks[:, column]).tolist()
    assert ids(masks, column, count=len(masks)) == expected
    assert ids(masks[:, column], count=len(masks)) == expected
    assert ids(expected, count=len(masks)) == expected
