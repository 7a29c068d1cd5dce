import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnscale.core.errors import GraphError
from gnnscale.dataset.storage import edge_spool
from gnnscale.dataset.storage.edge_spool import EdgeBlock, EdgeFile, added_up, packed, unpacked

INT32 = np.dtype(np.int32)


def edges(*pairs: tuple[int, int]) -> tuple[Any, Any]:
    src, dst = np.array(pairs, np.int64).reshape(-1, 2).T
    return src, dst


def taken(file: EdgeFile, num_edges: int) -> list[list[tuple[int, int]]]:
    slices = file.take_last(num_edges)
    return [list(zip(src.tolist(), dst.tolist(), strict=True)) for src, dst in slices]


def test_the_last_edges_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edge_spool, "_SLICE_EDGES", 2)
    file = EdgeFile(tmp_path / "some", INT32)
    for pairs in ([(0, 9), (1, 8)], [], [(2, 7), (3, 6), (4, 5)]):
        file.append(*edges(*pairs))
    assert taken(file, 3) == [[(3, 6), (4, 5)], [(2, 7)]]
    assert [each.stat().st_size for each in tmp_path.iterdir()] == [8, 8]
    assert taken(file, 2) == [[(0, 9), (1, 8)]]
    assert taken(file, 0) == []
    file.close()
    assert list(tmp_path.iterdir()) == []


def test_edges_at_their_places(tmp_path: Path) -> None:
    file = EdgeFile(tmp_path / "some", INT32)
    file.write(2, *edges((2, 2)))
    file.write(0, *edges((0, 0), (1, 1)))
    file.num_edges = 3
    assert taken(file, 1) == [[(2, 2)]]
    assert taken(file, 2) == [[(0, 0), (1, 1)]]
    file.close()


def block_of(path: Path) -> EdgeBlock:
    """Edges 0 -> 5, 1 -> 7 and 2 -> 5 to the vertices from 4 to 7."""
    block = EdgeBlock(path / "some", INT32, 4, 8)
    block.hold(np.array([0, 1], np.int32), np.array([5, 7], np.int32))
    block.hold(np.array([2], np.int32), np.array([5], np.int32))
    return block


def taken_edge_block(block: EdgeBlock) -> list[tuple[int, int]]:
    return sorted(pair for src, dst in block.take() for pair in zip(src, dst, strict=True))


def test_edges_that_are_held_take_no_disk(tmp_path: Path) -> None:
    block = block_of(tmp_path)
    assert block.num_edges == 3
    assert block.in_degrees().tolist() == [0, 2, 0, 1]
    assert taken_edge_block(block) == [(0, 5), (1, 7), (2, 5)]
    assert taken_edge_block(block) == []
    block.close()
    assert list(tmp_path.iterdir()) == []


def test_spilled_edges_are_counted_and_taken_like_those_that_are_held(tmp_path: Path) -> None:
    block = block_of(tmp_path)
    block.spill()
    block.hold(np.array([3], np.int32), np.array([4], np.int32))
    assert block.num_edges == 4
    assert block.in_degrees().tolist() == [1, 2, 0, 1]
    block.spill()
    assert block.in_degrees().tolist() == [1, 2, 0, 1]
    assert taken_edge_block(block) == [(0, 5), (1, 7), (2, 5), (3, 4)]
    block.close()
    assert list(tmp_path.iterdir()) == []


def test_words_are_ordered_by_source_then_by_weight() -> None:
    pairs = [(0, 0.0), (0, 1e-45), (0, 0.5), (0, 3e38), (1, 0.0), (7, 2.0), (2**31 - 1, 3e38)]
    src, weights = np.array([src for src, _ in pairs]), np.array([w for _, w in pairs], np.float32)
    words = packed(src, weights)
    assert (np.diff(words) > 0).all()
    found = unpacked(words)
    assert found[0].tolist() == src.tolist()
    assert found[1].tolist() == weights.tolist()
    # Minus zero is zero.
    assert packed(np.array([3, 3]), np.array([-0.0, 0.0], np.float32)).tolist() == [3 << 32] * 2


def test_by_hand() -> None:
    offsets, lists = np.array([0, 2, 2, 5, 5]), np.array([1, 1, 1, 4, 4], np.int32)
    weights = np.array([1, 2, 4, 8, 16], np.float32)
    new_offsets, kept, sums = added_up(offsets, lists, weights, 0)
    assert new_offsets.tolist() == [0, 1, 1, 3, 3]
    assert kept.tolist() == [1, 1, 4]
    assert sums.tolist() == [3, 4, 24]
    assert added_up(np.array([0, 0]), lists[:0], weights[:0], 0)[0].tolist() == [0, 0]


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
    assert peak < edge_spool.EDGE_BYTES * 200_000
