"""Which runs leave neighbour lists on the disk, and what memory these get."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnscale.core import ConfigError
from gnnscale.core.artifact.npy import map_npy
from gnnscale.core.hardware import Memory
from gnnscale.distributed.process_group import SINGLE_PROCESS
from gnnscale.graph import Graph
from gnnscale.sampling import LaborSampling, NeighborSampling
from gnnscale.training.build import topology
from gnnscale.training.build.topology import exceeds_memory, lists_memory, open_topology


@pytest.fixture
def stored(tiny_graph: Graph, tmp_path: Path) -> Graph:
    np.save(tmp_path / "indices.npy", tiny_graph.indices)
    return replace(tiny_graph, indices=map_npy(tmp_path / "indices.npy"))


def has(monkeypatch: pytest.MonkeyPatch, available: int) -> None:
    found = Memory(total=100, available=available, installed=100)
    monkeypatch.setattr(topology, "read_memory", lambda: found)


def opened(graph: Graph, memory_bytes: int | None = None, **changes: Any) -> Graph:
    """Open the topology of ``graph`` for batches of two seeds."""
    sampler = NeighborSampling(fanouts=[2, 2], memory_bytes=memory_bytes)
    options = {"batch_size": 2, "num_threads": 1, "samples_any": False, "may_choose": True}
    return open_topology(graph, SINGLE_PROCESS, sampler, **options | changes)


def test_a_mapped_topology_is_compared_with_memory(stored, tiny_graph, monkeypatch) -> None:
    # Offsets take 48 bytes, neighbours 24, and the reserve is 15.
    has(monkeypatch, 87)
    assert not exceeds_memory(stored)
    has(monkeypatch, 86)
    assert exceeds_memory(stored)
    assert not exceeds_memory(tiny_graph)
    # Lists get half of what is left.
    assert lists_memory(stored) == (86 - 48 - 15) // 2
    has(monkeypatch, 20)
    assert lists_memory(stored) == 0


def test_a_graph_is_read_as_it_was_asked(stored, tiny_graph, monkeypatch, caplog) -> None:
    assert opened(stored) is stored
    with caplog.at_level("INFO"):
        asked = opened(stored, 1000, may_choose=False)
    assert caplog.messages[-1].startswith(
        "sampler: memory holds 100% of 0.0 MiB of adjacency lists"
    )
    assert asked.lists.num_bytes == 16 + 6 * 4 + 5 * 8
    assert asked.mapped_bytes == 48
    assert stored.mapped_bytes == 72
    nothing = opened(stored, 0)
    assert nothing.lists.num_bytes == 16 + 8
    has(monkeypatch, 60)
    assert opened(stored).lists is not None
    assert opened(stored, may_choose=False) is stored
    labor = {"batch_size": 2, "num_threads": 1, "samples_any": False, "may_choose": True}
    sampler = LaborSampling(fanouts=[2])
    assert open_topology(stored, SINGLE_PROCESS, sampler, **labor) is stored
    with pytest.raises(ConfigError, match=r"^sampler.memory_bytes: expected adjacency lists"):
        opened(tiny_graph, 0)
