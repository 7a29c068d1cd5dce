from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnscale.dataset.in_neighbors import edge_order, in_neighbors


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=40), st.booleans())
def test_against_a_stable_sort(edges: list[tuple[int, int]], wide: bool) -> None:
    dtype = np.int64 if wide else np.int32
    src, dst = np.array(edges, dtype).reshape(-1, 2).T.copy()
    expected = sorted(range(len(edges)), key=lambda number: (dst[number], src[number]))
    indptr, order = edge_order(src, dst, 6)
    assert order.tolist() == expected
    assert indptr.tolist() == [0, *np.cumsum(np.bincount(dst, minlength=6))]
    lists = in_neighbors(src, dst, 6)
    assert lists[0].tolist() == indptr.tolist()
    assert lists[1].tolist() == src[order].tolist()
    assert lists[1].dtype == dtype


def test_the_arguments_stay_as_they_were() -> None:
    src, dst = np.array([1, 0, 1], np.int32), np.array([0, 1, 0], np.int32)
    edge_order(src, dst, 2)
    assert src.tolist() == [1, 0, 1]
    assert dst.tolist() == [0, 1, 0]


def test_a_source_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match="allowed are 0 to 1"):
        edge_order(np.array([2], np.int32), np.array([0], np.int32), 2)
