from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gnnscale.config import ConfigError
from gnnscale.dataset import ExistingStore, PlantedPartition, from_arrays
from gnnscale.graph import Graph, GraphError
from gnnscale.partition import Hash, write_part


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    none = np.empty(0, np.int64)
    graph = from_arrays(
        (none, none),
        np.ones((6, 2), np.float32),
        np.arange(6) % 2,
        train_idx=[0, 1],
        valid_idx=[2],
        test_idx=[3],
    )
    graph.save(tmp_path / "saved")
    return tmp_path / "saved"


def test_a_saved_graph(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sorted((file.name, file.stat().st_mtime_ns) for file in saved.iterdir())
    assert ExistingStore(store=str(saved)).open().path == saved
    monkeypatch.setenv("HOME", str(saved.parent))
    assert ExistingStore(store="~/saved").open().path == saved
    assert before == sorted((file.name, file.stat().st_mtime_ns) for file in saved.iterdir())


def test_a_prepared_graph(tmp_path: Path) -> None:
    store = str(tmp_path / "prepared")
    made = PlantedPartition(name="small", num_vertices=100, num_edges=200, store=store).open()
    assert ExistingStore(store=store).open().content == made.content


def test_no_store(tmp_path: Path, saved: Path) -> None:
    with pytest.raises(GraphError, match=r"^dataset.store=/nowhere: no such folder$"):
        ExistingStore(store="/nowhere").open()
    with pytest.raises(GraphError, match=r"not a graph store, it has no meta.json"):
        ExistingStore(store=str(tmp_path)).open()
    (saved / "indices.npy").unlink()
    with pytest.raises(GraphError, match=r"indices.npy: missing"):
        ExistingStore(store=str(saved)).open()
    with pytest.raises(ConfigError, match=r"^force=true: dataset=store uses a store as it is"):
        ExistingStore(store=str(saved)).prepare(force=True)
    with pytest.raises(ConfigError, match=r"^dataset.store: name the directory of the graph"):
        ExistingStore().open()


def test_a_part_is_refused(tmp_path: Path, saved: Path) -> None:
    graph = Graph.open(saved)
    parts = Hash().assign(graph, num_parts=1, num_hops=1, num_threads=1)
    hops = np.zeros((1, 6), np.uint8)
    write_part(graph, replace(parts, hops=hops), 0, tmp_path / "part")
    with pytest.raises(GraphError, match="part: is part 0 of 1 of a graph, name the store of the"):
        ExistingStore(store=str(tmp_path / "part")).open()
