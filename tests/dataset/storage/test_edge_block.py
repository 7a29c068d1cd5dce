from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnscale.dataset.storage.edge_block import EdgeBlock


def block_of(path: Path) -> EdgeBlock:
    """Edges 0 -> 5, 1 -> 7 and 2 -> 5 to the vertices from 4 to 7."""
    block = EdgeBlock(path / "some", np.dtype(np.int32), 4, 8)
    block.hold(np.array([0, 1], np.int32), np.array([5, 7], np.int32))
    block.hold(np.array([2], np.int32), np.array([5], np.int32))
    return block


def taken(block: EdgeBlock) -> list[tuple[int, int]]:
    ends: list[tuple[NDArray[np.int32], NDArray[np.int32]]] = list(block.take())
    return sorted(pair for src, dst in ends for pair in zip(src, dst, strict=True))


def test_edges_that_are_held_take_no_disk(tmp_path: Path) -> None:
    block = block_of(tmp_path)
    assert block.num_edges == 3
    assert block.in_degrees().tolist() == [0, 2, 0, 1]
    assert taken(block) == [(0, 5), (1, 7), (2, 5)]
    assert taken(block) == []
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
    assert taken(block) == [(0, 5), (1, 7), (2, 5), (3, 4)]
    block.close()
    assert list(tmp_path.iterdir()) == []
