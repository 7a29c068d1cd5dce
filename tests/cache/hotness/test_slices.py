"""Work a slice at a time gives what work on whole arrays gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnscale.cache.hotness import slices as module
from gnnscale.cache.hotness.slices import slices, sum_at


@pytest.fixture(autouse=True, scope="module")
def _small_slices() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_SLICE_ENTRIES", 3)
        yield


def test_slices_cover_all_entries_once() -> None:
    assert [(part.start, part.stop) for part in slices(7)] == [(0, 3), (3, 6), (6, 7)]
    assert list(slices(0)) == []


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=20), st.data())
def test_sums_are_those_of_whole_arrays(numbers: list[int], data: st.DataObject) -> None:
    values = np.array(numbers, np.int32)
    places = st.lists(st.integers(0, len(numbers) - 1), max_size=20)
    at = np.array(data.draw(places), np.int32)

    assert sum_at(values, at) == sum(numbers[place] for place in at)


def test_sums_of_others_than_integers_have_64_bits() -> None:
    values = np.array([2**24, 1, 1, 1, 0.5], np.float32)
    assert sum_at(values, np.arange(5)) == 2**24 + 3.5
    assert sum_at(np.empty(0, np.float32), np.empty(0, np.int64)) == 0
