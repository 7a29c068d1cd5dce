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
from gnnscale.training.build import topology
from gnnscale.training.build.topology import lists_memory, open_topology, reads_from_disk

REPEATS = "runtime.deterministic=true"


@pytest.fixture
def stored(tiny_graph: Graph, tmp_path: Path) -> Graph:
    np.save(tmp_path / "indices.npy", tiny_graph.indices)
    return replace(tiny_graph, indices=map_npy(tmp_path / "indices.npy"))


def has(monkeypatch: pytest.MonkeyPatch, available: int) -> None:
    found = Memory(total=100, available=available, installed=100)
    monkeypatch.setattr(topology, "read_memory", lambda: found)


def test_memory_decides_unless_the_run_is_to_repeat(
    settings: Any, stored: Graph, tiny_graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Offsets take 48 bytes, neighbours 24, and the reserve is 15.
    has(monkeypatch, 87)
    assert not reads_from_disk(settings(), stored)
    has(monkeypatch, 86)
    assert reads_from_disk(settings(), stored)
    assert not reads_from_disk(settings(REPEATS), stored)
    assert not reads_from_disk(settings(), tiny_graph)
    assert not reads_from_disk(settings("sampler=labor"), stored)
    assert not reads_from_disk(settings("device_plan=cuda"), stored)


def test_lists_get_half_of_what_is_left(stored: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    has(monkeypatch, 86)
    assert lists_memory(stored) == (86 - 48 - 15) // 2
    has(monkeypatch, 20)
    assert lists_memory(stored) == 0


def test_a_graph_is_read_as_it_was_asked(
    settings: Any,
    stored: Graph,
    tiny_graph: Graph,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert open_topology(settings(), stored, SINGLE_PROCESS) is stored
    with caplog.at_level("INFO"):
        asked = open_topology(
            settings("sampler.memory_bytes=1000", REPEATS), stored, SINGLE_PROCESS
        )
    assert caplog.messages[-1].startswith(
        "sampler: memory holds 100% of 0.0 MiB of adjacency lists"
    )
    assert asked.lists.num_bytes == 16 + 6 * 4 + 5 * 8
    assert asked.mapped_bytes == 48
    assert stored.mapped_bytes == 72
    nothing = open_topology(settings("sampler.memory_bytes=0"), stored, SINGLE_PROCESS)
    assert nothing.lists.num_bytes == 16 + 8
    has(monkeypatch, 60)
    assert open_topology(settings(), stored, SINGLE_PROCESS).lists is not None
    with pytest.raises(ConfigError, match=r"^sampler.memory_bytes: expected adjacency lists"):
        open_topology(settings("sampler.memory_bytes=0"), tiny_graph, SINGLE_PROCESS)
