from pathlib import Path

import numpy as np
import pytest

from gnnscale.data.storage import edge_spool
from gnnscale.data.storage.csc_builder import sorted_lists
from gnnscale.data.storage.edge_spool import EdgeSpool

NUM_VERTICES = 300_000


def spool(path: Path, memory_bytes: int) -> EdgeSpool:
    options = {"undirected": False, "self_loops": "keep", "memory_bytes": memory_bytes}
    return EdgeSpool(path, num_vertices=NUM_VERTICES, **options)  # type: ignore[arg-type]


@pytest.mark.long
@pytest.mark.parametrize(
    ("memory_bytes", "on_disk"),
    [(1 << 30, False), (6_000_000, False), (2_000_000, True), (100_000, True)],
    ids=["all held", "cut", "spilled", "spilled at once"],
)
def test_edges_in_five_blocks(tmp_path, monkeypatch, memory_bytes, on_disk) -> None:
    monkeypatch.setattr(edge_spool, "_SLICE_EDGES", 10_000)
    monkeypatch.setattr(edge_spool, "_SLAB_EDGES", 30_000)
    src, dst = np.random.Generator(np.random.Philox(0)).integers(NUM_VERTICES, size=(2, 400_000))
    edges = spool(tmp_path, memory_bytes)
    for first in range(0, len(src), 70_000):
        edges.add(src[first : first + 70_000], dst[first : first + 70_000])
    assert any(tmp_path.iterdir()) == on_disk
    found = list(sorted_lists(edges, False))
    edges.close()
    assert [part.first for part in found] == sorted(part.first for part in found)
    assert sum(len(part.offsets) - 1 for part in found) == NUM_VERTICES
    degrees = np.concatenate([np.diff(part.offsets) for part in found])
    np.testing.assert_array_equal(degrees, np.bincount(dst, minlength=NUM_VERTICES))
    lists = np.concatenate([part.lists for part in found])
    np.testing.assert_array_equal(lists, src[np.lexsort([src, dst])])
    assert not any(tmp_path.iterdir())
