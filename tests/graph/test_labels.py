"""Labels of several vertex types: in graphs, stores, splits and the graphs of one type."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnscale import Graph, to_pyg
from gnnscale.core import GraphError
from gnnscale.data.split_input import with_random_split
from gnnscale.data.storage.store_verification import verify_store
from gnnscale.data.typed_arrays import from_typed_arrays
from gnnscale.graph import are_labeled, check_labeled


def labeled(**changes: Any) -> Graph:
    """Return users 0, 1, 2 of named classes, tag 3 without labels, and items 4 and 5 of values."""
    arguments: dict[str, Any] = {
        "features": {"user": np.ones((3, 2), np.float32), "tag": None, "item": None},
        "edges": {("user", "buys", "item"): ([2, 0], [1, 1])},
        "labels": {"item": np.float32([0.5, np.nan]), "user": ["no", "yes", "no"]},
        "num_vertices": {"item": 2, "tag": 1},
        "split": {"user": {"train": [2, 0], "valid": [1]}, "item": {"train": [0], "test": [1]}},
        "name": "shop",
    }
    return from_typed_arrays(**arguments | changes)


def check(graph: Graph) -> None:
    assert graph.targets == ("user", "item")
    assert (graph.num_classes, graph.metric, graph.regression) == (2, "accuracy", False)
    assert sorted(graph.train_idx.tolist()) == [0, 2, 4]
    users, items = graph.of_target("user"), graph.of_target("item")
    assert users.labels.tolist() == [0, 1, 0, -1, -1, -1]
    np.testing.assert_array_equal(items.labels, np.float32([np.nan] * 4 + [0.5, np.nan]))
    assert (users.num_classes, users.metric, users.origin.classes) == (2, "accuracy", ["no", "yes"])
    assert (items.num_classes, items.metric, items.origin.classes) == (1, "rmse", None)
    assert (users.valid_idx.tolist(), users.test_idx.tolist()) == ([1], [])
    assert (items.train_idx.tolist(), items.test_idx.tolist()) == ([4], [5])
    assert are_labeled(graph.labels, np.arange(6)).tolist() == [True] * 3 + [False, True, False]
    with pytest.raises(GraphError, match="s: vertex 3 has no label; 2 of 3 lack one"):
        check_labeled(graph.labels, np.array([4, 3, 5]), source="s", of="vertex")


def test_of_arrays_stores_and_peers(tmp_path: Path) -> None:
    graph = labeled()
    check(graph)
    assert "outputs for labels of user, item" in repr(graph)
    graph.save(tmp_path / "store")
    stored = Graph.open(tmp_path / "store")
    check(stored)
    stored.check_files()
    assert all(check.problem is None for check in verify_store(tmp_path / "store"))
    assert (stored.origin.classes, stored.of_target("user").origin.classes) == (None, ["no", "yes"])
    stored.save(tmp_path / "copy")
    check(Graph.open(tmp_path / "copy"))
    assert Graph.open(tmp_path / "copy").content == stored.content
    # Stored artifacts of one target are of no use for another.
    contents = {stored.of_target(name).content for name in stored.targets}
    assert len(contents | {stored.content}) == 3
    data = to_pyg(stored)
    assert data["user"].y.tolist() == [0, 1, 0]
    assert data["item"].y[:1].tolist() == [0.5]
    assert data["item"].train_mask.tolist() == [True, False]


def test_one_array_is_refused(tmp_path: Path) -> None:
    labels: Any = labeled().labels
    for read in (lambda: labels[0], lambda: labels.dtype, lambda: np.asarray(labels)):
        with pytest.raises(GraphError, match=r"of user and item; graph.of_target\('user'\) has"):
            read()
    with pytest.raises(GraphError, match="labels of tag: expected vertex types that have labels"):
        labeled().of_target("tag")
    labeled(labels=("user", [0, 1, 0]), split=None).save(tmp_path / "one")
    assert Graph.open(tmp_path / "one").targets == ()


def test_a_random_split_of_each_type() -> None:
    sizes = {"user": 50, "item": 10}
    graph = labeled(
        features={"user": None, "item": None},
        num_vertices=sizes,
        labels={"user": np.arange(50) % 2, "item": [[1, 0, 1]] * 10},
        split="random",
    )
    for drawn in (graph, with_random_split(graph)):
        for name, size in sizes.items():
            split = drawn.of_target(name).split
            ids = np.concatenate([split.train_idx, split.valid_idx, split.test_idx])
            assert len(np.unique(ids)) == size
            assert len(split.train_idx) == round(0.6 * size)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"split": {"user": {"train": [0]}}},
            "split: expected of each labeled type, missing of it",
        ),
        ({"split": {"train": [0]}}, r"split: expected dictionaries by vertex type \(item, user\)"),
        ({"num_classes": 2}, "num_classes, metric: expected None with labels of several types"),
        ({"labels": {"user": [0, 1, 0], "item": [-1, -1]}}, "labels of item: none is known"),
    ],
)
def test_arrays_that_do_not_fit(changes: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        labeled(**changes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda entries: entries.pop(), "type_labels"),
        (lambda entries: entries.reverse(), "type_labels: expected vertex types of the graph"),
        (lambda entries: entries[0].update(vertex_type="thing"), "type_labels: expected vertex"),
        (lambda entries: entries[0].update(classes=["no"]), "1 names of 2 classes"),
        (lambda entries: entries[0].update(num_classes=1, classes=None), "label 1 of vertex 1"),
        (lambda entries: entries[1].update(metric="accuracy"), "labels-2.npy: expected int64"),
    ],
)
def test_a_changed_header_is_refused(change: Any, message: str, tmp_path: Path) -> None:
    labeled().save(tmp_path / "store")
    file = tmp_path / "store" / "meta.json"
    entries = json.loads(file.read_text())
    change(entries["type_labels"])
    file.write_text(json.dumps(entries))
    with pytest.raises(GraphError, match=message):
        Graph.open(tmp_path / "store")
