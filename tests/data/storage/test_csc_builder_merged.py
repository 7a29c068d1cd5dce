import tracemalloc

import numpy as np
import pytest

from gnnscale.core.errors import GraphError
from gnnscale.data.storage.csc_builder import merged
from gnnscale.data.storage.edge_words import EDGE_BYTES, EdgePayload, packed, unpacked, weight_bits


def test_words_are_ordered_by_source_then_by_weight() -> None:
    pairs = [(0, 0.0), (0, 1e-45), (0, 0.5), (0, 3e38), (1, 0.0), (7, 2.0), (2**31 - 1, 3e38)]
    src, weights = np.array([src for src, _ in pairs]), np.array([w for _, w in pairs], np.float32)
    words = packed(src, weight_bits(weights))
    assert (np.diff(words) > 0).all()
    found = unpacked(words)
    assert found[0].tolist() == src.tolist()
    assert found[1].view(np.float32).tolist() == weights.tolist()
    # Minus zero is zero.
    zeros = weight_bits(np.array([-0.0, 0.0], np.float32))
    assert packed(np.array([3, 3]), zeros).tolist() == [3 << 32] * 2


def test_words_are_ordered_by_source_then_by_row() -> None:
    pairs = [(0, 0), (0, 2**31 - 1), (0, 2**31), (0, 2**32 - 1), (1, 0), (2**31 - 1, 2**32 - 1)]
    src, rows = np.array([src for src, _ in pairs]), np.array([row for _, row in pairs], np.uint32)
    words = packed(src, rows)
    assert (np.diff(words) > 0).all()
    assert [each.tolist() for each in unpacked(words)] == [src.tolist(), rows.tolist()]


def test_by_hand() -> None:
    offsets, lists = np.array([0, 2, 2, 5, 5]), np.array([1, 1, 1, 4, 4], np.int32)
    weights = np.array([1, 2, 4, 8, 16], np.float32)
    rows = np.array([3, 7, 2, 0, 5], np.uint32)
    new_offsets, kept, carried = merged(offsets, lists, EdgePayload(weights, rows), 0)
    assert new_offsets.tolist() == [0, 1, 1, 3, 3]
    assert kept.tolist() == [1, 1, 4]
    assert (carried.weights.tolist(), carried.rows.tolist()) == ([3, 4, 24], [3, 2, 0])
    assert merged(np.array([0, 0]), lists[:0], EdgePayload(weights[:0]), 0)[0].tolist() == [0, 0]
    # Edges that differ stay as they are.
    offsets, lists = np.array([0, 2, 3]), np.array([1, 2, 2], np.int32)
    carried = EdgePayload(rows=np.array([2, 0, 1], np.uint32))
    assert merged(offsets, lists, carried, 0) == (offsets, lists, carried)


def test_a_sum_beyond_float32() -> None:
    lists, weights = np.array([4, 9, 9], np.int32), np.full(3, 3e38, np.float32)
    message = r"^edge 9 to 101: expected weights of repeated edges with a sum in the"
    with pytest.raises(GraphError, match=message):
        merged(np.array([0, 1, 3]), lists, EdgePayload(weights), 100)


@pytest.mark.parametrize("weighted", [False, True])
def test_memory(weighted: bool) -> None:
    words = packed(np.arange(200_000) // 2, np.arange(200_000, dtype=np.uint32))
    by_row = np.ones(200_000, np.float32)
    tracemalloc.start()
    try:
        words = words.copy()
        lists, rows = unpacked(words)
        weights = by_row[rows] if weighted else None
        del words
        merged(np.array([0, len(lists)]), lists, EdgePayload(weights, rows), 0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < EDGE_BYTES * 200_000
