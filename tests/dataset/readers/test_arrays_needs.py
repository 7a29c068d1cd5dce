from __future__ import annotations

import logging
import shutil
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gnnscale.dataset.readers.arrays_needs import Needs
from gnnscale.dataset.storage.space import NoSpaceError
from gnnscale.dataset.storage.store import StoreOptions, StoreWriter

NEEDS = Needs(
    num_vertices=1000,
    num_edges=100_000,
    num_features=4,
    feature_dtype="float32",
    label_bytes=8,
    weighted=False,
    memory_bytes=1 << 30,
)


def test_by_hand() -> None:
    assert NEEDS.disk == 4 * 100_000 + (8 + 8 + 4 + 16) * 1000
    assert replace(NEEDS, weighted=True).disk == 8 * 100_000 + (8 + 8 + 4 + 16) * 1000
    less = replace(NEEDS, memory_bytes=1000)
    assert NEEDS.memory - less.memory == 12 * 100_000 + 24 * 1000 - 1000
    assert less.disk - NEEDS.disk == 8 * 100_000
    assert replace(less, weighted=True).disk - less.disk == 12 * 100_000


@pytest.mark.parametrize("memory_bytes", [5_000_000, 200_000_000], ids=["on disk", "in memory"])
@pytest.mark.parametrize("weighted", [False, True])
def test_preparing_takes_no_more(tmp_path: Path, weighted: bool, memory_bytes: int) -> None:
    needs = replace(NEEDS, num_edges=3_000_000, weighted=weighted, memory_bytes=memory_bytes)
    src, dst = np.random.default_rng(0).integers(1000, size=(2, 3_000_000))
    weights = np.ones(len(src), np.float32) if weighted else None
    tracemalloc.start()
    try:
        with StoreWriter(tmp_path, StoreOptions(memory_bytes=needs.memory_bytes)) as writer:
            writer.set_num_vertices(1000, source="raw")
            writer.add_edges(src, dst, weights=weights, source="raw")
            spooled = sum(file.stat().st_size for file in tmp_path.iterdir())
            assert (spooled > 0) == (memory_bytes == 5_000_000)
            writer.build_topology()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert spooled <= needs.disk
    assert peak < needs.memory


def test_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1 << 20)
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    with pytest.raises(NoSpaceError, match=r"^raw: preparing: needs 1.2 MiB of disk, and 1.0 MiB"):
        replace(NEEDS, memory_bytes=1000).check("raw", tmp_path)


def test_one_line_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    NEEDS.check("raw", tmp_path)
    (line,) = caplog.messages
    assert line.startswith("raw: 1000 vertices, up to 100000 edges; preparing takes up to ")
