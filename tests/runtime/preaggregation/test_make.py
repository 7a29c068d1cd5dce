from __future__ import annotations

import logging
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from gnnscale.backend.loading import FeatureLoader
from gnnscale.core.errors import GraphError
from gnnscale.dataset.storage.space import NoSpaceError
from gnnscale.graph import Graph
from gnnscale.model import GCN, GIN, GraphSAGE, ModelConfig
from gnnscale.runtime.preaggregation import make as making
from gnnscale.runtime.preaggregation.make import preaggregate
from gnnscale.runtime.preaggregation.store import open_rows
from gnnscale.sampler import NeighborSampler

SMALL = {"chunk_edges": 200, "chunk_vertices": 16}


@pytest.fixture
def tiny(tiny_graph: Graph) -> Graph:
    """The tiny graph, as if it were in a store."""
    return replace(tiny_graph, content="0" * 32)


def rows_of(model: ModelConfig, graph: Graph, **chunks: int) -> Any:
    return open_rows(preaggregate(model, graph, num_threads=1, **chunks), graph).rows


def test_rows_by_hand(home: Path, tiny: Graph) -> None:
    # 0 <- 1, 2; 1 <- 3; 2 <- 0, 3; 3 <- nobody; 4 <- 4; features are (v, 10 v).
    for chunks in ({"chunk_edges": 1, "chunk_vertices": 1}, {}):
        shutil.rmtree(home, ignore_errors=True)
        assert rows_of(GIN(hidden=4), tiny, **chunks).tolist() == [
            *([3, 30], [4, 40], [5, 50], [3, 30], [8, 80])
        ]
    assert rows_of(GraphSAGE(hidden=4), tiny).tolist() == [
        *([0, 0, 1.5, 15], [1, 10, 3, 30], [2, 20, 1.5, 15], [3, 30, 0, 0], [4, 40, 4, 40])
    ]
    # D counts a vertex's in-neighbours and itself: 3, 2, 3, 1, 2.
    root = 1 / np.sqrt(np.array([3, 2, 3, 1, 2]))
    neighbours = [[1, 2], [3], [0, 3], [], [4]]
    expected = [root[v] * (sum(root[u] * u for u in neighbours[v]) + root[v] * v) for v in range(5)]
    assert rows_of(GCN(hidden=4), tiny)[:, 0].tolist() == pytest.approx(expected)
    assert sorted(each.name.rsplit("-", 1)[0] for each in (home / "preaggregated").iterdir()) == [
        *("tiny-GCNLayer", "tiny-GINLayer", "tiny-SAGELayer")
    ]


@pytest.mark.parametrize("config", [GCN, GraphSAGE, GIN])
def test_rows_are_what_a_batch_loads_bit_for_bit(
    home: Path, graph: Graph, config: type[ModelConfig]
) -> None:
    rows = rows_of(config(hidden=8), graph, **SMALL)
    model = config(hidden=8).build(num_features=8, num_classes=4)
    seeds = np.random.default_rng(0).permutation(600)[:50]
    batch = NeighborSampler(graph, fanouts=[3, -1]).sample(seeds, 1)
    inputs = FeatureLoader(graph, model, num_threads=2).load(batch)
    assert inputs.aggregated
    own = batch.input_vertices[: batch.blocks[0].num_dst]
    assert torch.equal(inputs.x, torch.from_numpy(rows[own]))


def test_rows_are_made_once(home: Path, graph: Graph, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    path = preaggregate(GIN(hidden=8), graph, num_threads=1)
    assert path.parent == home / "preaggregated"
    assert sorted(each.name for each in path.iterdir()) == ["preaggregated.json", "rows.npy"]
    assert [each.getMessage() for each in caplog.records] == [
        "aggregating the features of planted-partition for GINLayer in "
        f"{path}: needs 0.0 MiB of disk"
    ]
    before = (path / "rows.npy").stat().st_mtime_ns
    # Neither the widths behind the first layer nor threads play a part.
    assert preaggregate(GIN(hidden=32, num_layers=3), graph, num_threads=2) == path
    assert (path / "rows.npy").stat().st_mtime_ns == before
    assert len(caplog.records) == 1


def test_making_them_draws_no_random_numbers(home: Path, graph: Graph) -> None:
    state = torch.get_rng_state()
    preaggregate(GraphSAGE(hidden=8), graph, num_threads=1)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_nothing_is_left_of_what_was_interrupted(
    home: Path, graph: Graph, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    appended: list[int] = []
    append = making.NpyWriter.append

    def fail_later(self: Any, rows: Any) -> None:
        append(self, rows)
        appended.append(len(rows))
        if len(appended) == 3:
            raise error

    monkeypatch.setattr(making.NpyWriter, "append", fail_later)
    with pytest.raises(error):
        preaggregate(GIN(hidden=8), graph, num_threads=1, **SMALL)
    assert 0 < sum(appended) < 600
    assert list((home / "preaggregated").iterdir()) == []


def test_a_disk_without_room_is_told_beforehand(
    home: Path, graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=600 * 16 * 4 - 1))
    with pytest.raises(NoSpaceError) as error:
        preaggregate(GraphSAGE(hidden=8), graph, num_threads=1)
    assert str(error.value) == (
        "aggregating the features of planted-partition for SAGELayer: needs 0.0 MiB of disk, "
        "and 0.0 MiB are free"
    )
    assert list((home / "preaggregated").iterdir()) == []


def test_a_graph_in_memory_is_refused(home: Path, tiny_graph: Graph) -> None:
    with pytest.raises(GraphError, match=r"^tiny: in memory"):
        preaggregate(GIN(hidden=4), tiny_graph, num_threads=1)
    assert not (home / "preaggregated").exists()
