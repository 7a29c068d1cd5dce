import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gnnscale.core.sorted_sets import contained, distinct

NUMBERS = st.lists(st.integers(-5, 5) | st.integers(-(2**63), 2**63 - 1))


@given(NUMBERS, NUMBERS)
def test_sets_are_those_of_python(numbers, others):
    found = distinct(np.array(numbers, np.int64))
    assert found.tolist() == sorted(set(numbers))
    mask = contained(np.array(others, np.int64), found)
    assert mask.tolist() == [each in set(numbers) for each in others]


def test_pairs_are_one_set_of_numbers():
    assert distinct(np.array([[3, 1], [1, 2]], np.int32)).tolist() == [1, 2, 3]
