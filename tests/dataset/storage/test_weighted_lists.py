from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from gnnscale.dataset.storage.weighted_lists import EDGE_BYTES, added_up, packed, unpacked
from gnnscale.graph import GraphError


def test_words_are_ordered_by_source_then_by_weight() -> None:
    pairs = [(0, 0.0), (0, 1e-45), (0, 0.5), (0, 3e38), (1, 0.0), (7, 2.0), (2**31 - 1, 3e38)]
    src, weights = np.array([src for src, _ in pairs]), np.array([w for _, w in pairs], np.float32)
    words = packed(src, weights)
    assert (np.diff(words) > 0).all()
    found = unpacked(words)
    assert found[0].tolist() == src.tolist()
    assert found[1].tolist() == weights.tolist()


def test_minus_zero_is_zero() -> None:
    words = packed(np.array([3, 3]), np.array([-0.0, 0.0], np.float32))
    assert words[0] == words[1] == 3 << 32


def test_by_hand() -> None:
    offsets, lists = np.array([0, 2, 2, 5, 5]), np.array([1, 1, 1, 4, 4], np.int32)
    weights = np.array([1, 2, 4, 8, 16], np.float32)
    new_offsets, kept, sums = added_up(offsets, lists, weights, 0)
    assert new_offsets.tolist() == [0, 1, 1, 3, 3]
    assert kept.tolist() == [1, 1, 4]
    assert sums.tolist() == [3, 4, 24]


def test_no_edges() -> None:
    none = np.empty(0, np.int32), np.empty(0, np.float32)
    assert added_up(np.array([0, 0]), *none, 0)[0].tolist() == [0, 0]


def test_a_sum_beyond_float32() -> None:
    lists, weights = np.array([4, 9, 9], np.int32), np.full(3, 3e38, np.float32)
    with pytest.raises(GraphError, match=r"^edge 9 to 101: it repeats"):
        added_up(np.array([0, 1, 3]), lists, weights, 100)


def test_memory() -> None:
    words = packed(np.arange(200_000) // 2, np.ones(200_000, np.float32))
    tracemalloc.start()
    try:
        words = words.copy()
        lists, weights = unpacked(words)
        del words
        added_up(np.array([0, len(lists)]), lists, weights, 0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < EDGE_BYTES * 200_000
