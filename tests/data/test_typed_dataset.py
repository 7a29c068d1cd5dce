"""Datasets of graphs with types: their stores, and random splits."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from gnnscale import Graph
from gnnscale.core import ConfigError, GraphError
from gnnscale.data.splits import RandomSplit
from gnnscale.data.storage.store_verification import verify_store
from gnnscale.data.typed_arrays import from_typed_arrays
from gnnscale.data.typed_dataset import TypedDataset, with_random_parts


@dataclass(frozen=True, kw_only=True)
class Purchases(TypedDataset):
    """File of lines ``user item``; the label of an item is 1 if its number is odd."""

    name: str = "purchases"
    _raw_form: ClassVar[str] = "a file"

    def raw_files(self) -> list[Path]:
        return [self.raw_file("bought.txt")]

    def read_graph(self) -> Graph:
        users, items = np.loadtxt(self.raw_files()[0], dtype=np.int64, ndmin=2).T
        labels = np.arange(items.max() + 1) % 2
        return from_typed_arrays(
            {"user": np.ones((users.max() + 1, 2), np.float32), "item": None},
            {("user", "buys", "item"): (users, items)},
            ("item", labels),
            num_vertices={"item": len(labels)},
            split={"train": [0, 1], "valid": [2, 3]},
        )


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    file = tmp_path / "bought.txt"
    file.write_text("".join(f"{item % 3} {item}\n" for item in range(20)))
    return file


def test_store_is_reused_until_the_raw_file_changes(raw: Path, home: Path) -> None:
    dataset = Purchases(raw=str(raw.parent))
    graph = dataset.open()
    assert (graph.name, graph.num_vertices, graph.num_edges) == ("purchases", 23, 20)
    assert graph.train_idx.tolist() == [3, 4]
    assert graph.path is not None
    assert all(check.problem is None for check in verify_store(graph.path))
    entries = json.loads((graph.path / "meta.json").read_text())
    assert entries["source"] == str(raw.parent)
    assert entries["options"]["layout"] == "Purchases"
    assert [record["name"] for record in entries["raw"]] == ["bought.txt"]
    stamp = (graph.path / "meta.json").stat().st_mtime_ns
    assert dataset.prepare().joinpath("meta.json").stat().st_mtime_ns == stamp
    raw.write_text(raw.read_text() + "0 20\n")
    assert dataset.open().num_edges == 21


def test_random_split_is_of_the_labeled_type(raw: Path, home: Path) -> None:
    graph = Purchases(raw=str(raw), split="random").open()
    parts = [graph.train_idx, graph.valid_idx, graph.test_idx]
    assert list(map(len, parts)) == [12, 4, 4]
    assert np.sort(np.concatenate(parts)).tolist() == list(range(3, 23))
    assert [int(graph.labels[part].sum()) for part in parts] == [6, 2, 2]
    with pytest.raises(ConfigError, match="at least one of 20 labeled vertices"):
        Purchases(raw=str(raw), split="random", train_fraction=0.01).open()


def test_random_split_needs_labels_of_one_type() -> None:
    split = RandomSplit(fractions=(0.5, 0.25), seed=0, by_pair=True, stratified=True)
    graph = from_typed_arrays(
        {"user": None, "item": None},
        {("user", "buys", "item"): ([0], [0])},
        num_vertices={"user": 4, "item": 4},
    )
    with pytest.raises(GraphError, match="no vertex has a label"):
        with_random_parts(graph, split)
    graph.labels[[0, 4]] = 1
    with pytest.raises(GraphError, match="of one vertex type, got of user and item"):
        with_random_parts(graph, split)


def test_a_raw_file_that_changes_while_it_is_read_is_refused(
    raw: Path, home: Path, monkeypatch: pytest.MonkeyPatch, leftovers
) -> None:
    def changed(self: Purchases) -> Graph:
        graph = original(self)
        raw.write_text(raw.read_text() + "0 20\n")
        return graph

    original = Purchases.read_graph
    monkeypatch.setattr(Purchases, "read_graph", changed)
    dataset = Purchases(raw=str(raw))
    with pytest.raises(GraphError, match="was changed while it was read"):
        dataset.prepare()
    assert leftovers(dataset.store_path()) == []
