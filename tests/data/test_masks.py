import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from gnnscale.core.errors import GraphError
from gnnscale.data.masks import part_ids


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
