from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnscale.dataset.storage import edge_file
from gnnscale.dataset.storage.edge_file import EdgeFile

INT32 = np.dtype(np.int32)


def edges(*pairs: tuple[int, int]) -> tuple[Any, Any]:
    src, dst = np.array(pairs, np.int64).reshape(-1, 2).T
    return src, dst


def taken(file: EdgeFile, num_edges: int) -> list[list[tuple[int, int]]]:
    slices = file.take_last(num_edges)
    return [list(zip(src.tolist(), dst.tolist(), strict=True)) for src, dst in slices]


def test_the_last_edges_come_first_and_leave_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edge_file, "_SLICE_EDGES", 2)
    file = EdgeFile(tmp_path / "some", INT32)
    file.append(*edges((0, 9), (1, 8)))
    file.append(*edges())
    file.append(*edges((2, 7), (3, 6), (4, 5)))
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
