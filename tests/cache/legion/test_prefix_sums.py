from __future__ import annotations

from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnscale.cache.legion.prefix_sums import PrefixSums

#: Sums 0, 5, 8, 8, 10, 14; those of the first 0, 2, 4 and 5 are kept.
BY_HAND = PrefixSums.of([5, 3, 0, 2, 4], every=2)


def test_sums_by_hand() -> None:
    assert BY_HAND.kept.tolist() == [0, 8, 10, 14]
    assert BY_HAND.between(0, 5).tolist() == [0, 5, 8, 8, 10, 14]
    assert BY_HAND.between(3, 4).tolist() == [8, 10]
    assert [BY_HAND.at(num) for num in range(6)] == [0, 5, 8, 8, 10, 14]


@pytest.mark.parametrize(
    ("limit", "num"), [(0, 0), (4, 0), (5, 1), (7, 1), (8, 3), (9, 3), (10, 4), (14, 5), (99, 5)]
)
def test_numbers_within_a_limit(limit: int, num: int) -> None:
    assert BY_HAND.num_within(limit) == num


def test_kept_sums_around_others() -> None:
    nums = np.arange(6)
    assert BY_HAND.at_least(nums).tolist() == [0, 0, 8, 8, 10, 10]
    assert BY_HAND.at_most(nums).tolist() == [0, 8, 8, 10, 10, 14]


def test_no_numbers() -> None:
    none = PrefixSums.of([], every=3)
    assert (none.at(0), none.num_within(7), none.between(0, 0).tolist()) == (0, 0, [0])
    assert none.at_least(np.array([0])) == none.at_most(np.array([0])) == [0]


@given(st.lists(st.integers(0, 9), max_size=20), st.integers(1, 25), st.data())
def test_sums_are_those_of_all(numbers: list[int], every: int, data: st.DataObject) -> None:
    found, sums = PrefixSums.of(numbers, every=every), [*accumulate(numbers, initial=0)]
    first = data.draw(st.integers(0, len(numbers)))
    last = data.draw(st.integers(first, len(numbers)))
    assert found.between(first, last).tolist() == sums[first : last + 1]
    assert found.at(last) == sums[last]
    limit = data.draw(st.integers(0, sums[-1] + 1))
    assert found.num_within(limit) == sum(each <= limit for each in sums) - 1
    assert found.at_least(np.array([last])) <= sums[last] <= found.at_most(np.array([last]))
