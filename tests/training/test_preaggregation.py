import json
import logging
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from one_line import one_line

from gnnscale.backend.feature_loading import FeatureLoader
from gnnscale.core.artifact.files import NoSpaceError
from gnnscale.core.errors import GraphError
from gnnscale.graph import Graph, Origin
from gnnscale.nn import GCN, GIN, GraphSAGE, ModelConfig
from gnnscale.sampling import NeighborSampler
from gnnscale.training.preaggregation import PREAGGREGATED, open_rows, preaggregate

SMALL = {"chunk_edges": 200, "chunk_vertices": 16}


@pytest.fixture
def home(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ``GNNSCALE_HOME`` with nothing in it; that of ``settings`` is all tests'."""
    monkeypatch.setenv("GNNSCALE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def graph(home: Path, settings: Any, tmp_path: Path) -> Graph:
    """A graph of 600 vertices with 8 features, in a store."""
    return settings(f"dataset.store={tmp_path / 'graph'}").dataset.open()


@pytest.fixture
def tiny(tiny_graph: Graph) -> Graph:
    """The tiny graph, as if it were in a store."""
    return replace(tiny_graph, origin=Origin(content="0" * 32))


def rows_of(model: ModelConfig, graph: Graph, **chunks: int) -> Any:
    return open_rows(preaggregate(model, graph, num_threads=1, **chunks), graph).rows


def test_rows_by_hand(home, tiny) -> None:
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
def test_rows_are_what_a_batch_loads_bit_for_bit(home, graph, config) -> None:
    rows = rows_of(config(hidden=8), graph, **SMALL)
    model = config(hidden=8).build(num_features=8, num_classes=4)
    seeds = np.random.default_rng(0).permutation(600)[:50]
    batch = NeighborSampler(graph, fanouts=[3, -1]).sample(seeds, 1)
    inputs = FeatureLoader(graph, model, num_threads=2).load(batch)
    assert inputs.aggregated
    own = batch.input_vertices[: batch.blocks[0].num_dst]
    assert torch.equal(inputs.x, torch.from_numpy(rows[own]))


def test_rows_are_made_once(home, graph, caplog) -> None:
    caplog.set_level(logging.INFO)
    state = torch.get_rng_state()
    path = preaggregate(GIN(hidden=8), graph, num_threads=1)
    assert path.parent == home / "preaggregated"
    assert sorted(each.name for each in path.iterdir()) == ["preaggregated.json", "rows.npy"]
    aggregating = f"aggregating the features of planted-partition for GINLayer in {path}"
    assert caplog.messages == [f"{aggregating}: needs 0.0 MiB of disk"]
    before = (path / "rows.npy").stat().st_mtime_ns
    # Neither the widths behind the first layer nor threads play a part.
    assert preaggregate(GIN(hidden=32, num_layers=3), graph, num_threads=2) == path
    assert (path / "rows.npy").stat().st_mtime_ns == before
    assert len(caplog.records) == 1
    assert torch.equal(torch.get_rng_state(), state)


def test_a_disk_without_room_is_told_beforehand(home, graph, monkeypatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=600 * 16 * 4 - 1))
    begins = "aggregating the features of planted-partition for SAGELayer: needs 0.0 MiB of disk, "
    with one_line(f"and 0.0 MiB are free in {home}", error=NoSpaceError, begins=begins):
        preaggregate(GraphSAGE(hidden=8), graph, num_threads=1)
    assert list((home / "preaggregated").iterdir()) == []


def test_a_graph_in_memory_is_refused(home, tiny_graph) -> None:
    with one_line("expected a graph store to ", "got a graph in memory", error=GraphError):
        preaggregate(GIN(hidden=4), tiny_graph, num_threads=1)
    assert not (home / "preaggregated").exists()


@pytest.fixture
def path(home: Path, graph: Graph) -> Path:
    """Rows that are there and whole."""
    return preaggregate(GIN(hidden=8), graph, num_threads=1)


def changed(path: Path, change: Any) -> None:
    entries = json.loads((path / PREAGGREGATED.header).read_text())
    change(entries)
    (path / PREAGGREGATED.header).write_text(json.dumps(entries))


def test_rows_are_mapped(path, graph) -> None:
    opened = open_rows(path, graph)
    assert isinstance(opened.rows, np.memmap)
    assert not opened.rows.flags.writeable
    assert (opened.rows.shape, opened.rows.dtype) == ((600, 8), np.float32)
    assert open_rows(path, graph).content == opened.content
    # Other rows have another content.
    changed(path, lambda entries: entries["arrays"]["rows"].update(crc32=1))
    assert open_rows(path, graph).content != opened.content


def test_rows_of_another_graph(path, graph) -> None:
    other = replace(graph, origin=Origin(content="0" * 32))
    line = (
        f"{path}: is a table of aggregated rows of planted-partition (600 vertices, content "
        f"{graph.content}), not of planted-partition (600 vertices, content {'0' * 32}); remove "
        f"{path}, and it is made again"
    )
    with one_line(error=GraphError, begins=line):
        open_rows(path, other)


def test_rows_that_are_not_finite(path, graph) -> None:
    for value, limit in ((np.nan, ""), (-np.inf, ", and at most 3.4e+38")):
        rows = np.load(path / "rows.npy", mmap_mode="r+")
        rows[599, 7] = value
        rows.flush()
        begins = f"{path}/rows.npy: feature 7 of vertex 599 is {value}, features must be finite"
        with one_line(error=GraphError, begins=f"{begins}{limit}; remove {path}, and it is made"):
            preaggregate(GIN(hidden=8), graph, num_threads=1)


def test_rows_of_another_layer_or_width(path, graph) -> None:
    layer = "gnnscale.model.layer.SAGELayer"
    of_gin = json.loads((path / PREAGGREGATED.header).read_text())["identity"]["layer"]
    changed(path, lambda entries: entries["identity"].update(layer=layer))
    with one_line(f"made with layer={layer}", error=GraphError):
        preaggregate(GIN(hidden=8), graph, num_threads=1)
    np.save(path / "rows.npy", np.zeros((600, 9), np.float32))
    size = (path / "rows.npy").stat().st_size
    changed(path, lambda entries: entries["identity"].update(layer=of_gin, width=9))
    changed(path, lambda entries: entries["arrays"]["rows"].update(bytes=size, shape=[600, 9]))
    with one_line("made with width=9, now width=8; remove", error=GraphError):
        preaggregate(GIN(hidden=8), graph, num_threads=1)
