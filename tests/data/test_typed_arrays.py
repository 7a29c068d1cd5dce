"""Graphs with types from arrays, and their stores."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gnnscale import Graph
from gnnscale.core import GraphError
from gnnscale.data.storage.store_check import verify_store
from gnnscale.data.typed_arrays import from_typed_arrays
from gnnscale.graph import GraphSchema

BUYS, OF = ("user", "buys", "item"), ("item", "of", "user")


def shop(**changes: Any) -> Graph:
    """Return three users with two features, two items without; two of the users have a label."""
    arguments: dict[str, Any] = {
        "features": {"user": np.arange(6, dtype=np.float32).reshape(3, 2), "item": None},
        "edges": {BUYS: ([2, 0, 1], [1, 1, 0]), OF: ([1, 1, 0], [2, 0, 1])},
        "labels": ("user", [1, 0, -1]),
        "num_vertices": {"item": 2},
        "split": {"train": [0], "valid": [1]},
        "name": "shop",
    }
    return from_typed_arrays(**arguments | changes)


def test_lists_by_edge_type() -> None:
    graph = shop()
    assert graph.schema == GraphSchema.of({"user": 3, "item": 2}, [BUYS, OF])
    # A row each: what users 0, 1, 2 have bought, then who bought items 3 and 4.
    assert graph.indptr.tolist() == [0, 1, 2, 3, 4, 6]
    assert graph.indices.tolist() == [4, 3, 4, 1, 0, 2]
    assert graph.labels.tolist() == [1, 0, -1, -1, -1]
    assert (graph.train_idx.tolist(), graph.valid_idx.tolist()) == ([0], [1])
    assert graph.features.widths == (2, 0)


def test_labels_of_a_later_type() -> None:
    graph = shop(labels=("item", ["red", "blue"]), split={"train": [False, True]})
    assert graph.labels.tolist() == [-1, -1, -1, 1, 0]
    assert graph.train_idx.tolist() == [4]
    assert graph.origin.classes == ["blue", "red"]
    targets = shop(labels=("item", np.float32([0.5, 2])), split={"train": [0]})
    np.testing.assert_array_equal(targets.labels, np.float32([np.nan, np.nan, np.nan, 0.5, 2]))
    several = shop(labels=("item", [[1, 1], [0, 1]]), split={"train": [0]})
    assert several.labels.tolist() == [[0, 0], [0, 0], [0, 0], [1, 1], [0, 1]]


def test_labels_of_the_edges_of_a_type(tmp_path: Path) -> None:
    labeled = shop(edge_labels=(OF, [1, 0, 1]), edge_split=([0, 2], [1], []), labels=None)
    labeled.save(tmp_path / "store")
    for graph in (labeled, Graph.open(tmp_path / "store")):
        assert graph.edge_labels is not None
        assert graph.edges.ends is not None
        assert graph.edges.ends.tolist() == [[4, 2], [4, 0], [3, 1]]
        assert graph.edge_labels.labels.tolist() == [1, 0, 1]
        assert graph.edge_labels.split.train_idx.tolist() == [0, 2]


def test_weights_and_numbers_follow_their_edges() -> None:
    weights = {BUYS: [3.0, 2.0, 1.0], OF: torch.tensor([6.0, 5.0, 4.0])}
    graph = shop(edge_weights=weights, number_edges=True)
    assert graph.edge_weights.tolist() == [5, 4, 6, 1, 2, 3]
    assert graph.edge_ids.tolist() == [1, 2, 0, 2, 1, 0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"edges": {("user", "buys", "thing"): ([], [])}}, "'thing' is no vertex type"),
        ({"edges": {BUYS: ([3], [0])}}, "user-buys-item: sources"),
        ({"edges": {BUYS: ([0], [2])}}, "user-buys-item: destinations"),
        ({"edges": {BUYS: ([0, 1], [1])}}, "2 edge sources, 1 destinations"),
        ({"edges": {BUYS: ([0],)}}, r"expected \(src, dst\)"),
        ({"num_vertices": {}}, "num_vertices says how many"),
        ({"num_vertices": {"user": 4, "item": 2}}, "3 rows of features for 4 vertices"),
        ({"num_vertices": {"item": -1}}, "num_vertices=-1"),
        ({"labels": ("thing", [])}, "no such vertex type, allowed are user, item"),
        ({"labels": ("item", [0])}, "1 labels|expected 2"),
        ({"edge_weights": {BUYS: [1, 1, 1]}}, "weights of item-of-user"),
        ({"edge_weights": {BUYS: [1, 1, 1], OF: [1, 1, -1]}}, "weights of item-of-user"),
        ({"edge_labels": (("a", "b", "c"), [])}, "labels of edges of .*no such edge type"),
        ({"edge_labels": (OF, [0])}, "3"),
        ({"edge_split": ([0], [], [])}, "edge_split without edge_labels"),
        ({"metric": "best"}, "metric='best'"),
        ({"split": {"train": [0], "valid": [0]}}, "overlapping splits"),
    ],
)
def test_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        shop(**changes)


def test_store_keeps_types(tmp_path: Path) -> None:
    graph = shop(edge_weights={BUYS: [3.0, 2.0, 1.0], OF: [6.0, 5.0, 4.0]})
    graph.save(tmp_path / "store")
    stored = Graph.open(tmp_path / "store")
    assert stored.schema == graph.schema
    for name in ("indptr", "indices", "labels", "edge_weights", "train_idx", "valid_idx"):
        np.testing.assert_array_equal(getattr(stored, name), getattr(graph, name))
    users, items = stored.features.matrices
    np.testing.assert_array_equal(users.rows, graph.features.matrices[0].rows)
    assert items is None
    assert all(check.problem is None for check in verify_store(tmp_path / "store"))
    stored.save(tmp_path / "copy")
    assert Graph.open(tmp_path / "copy").content == stored.content


@pytest.mark.parametrize("dtype", ["float16", "uint8", "bfloat16"])
def test_store_keeps_element_types_of_each_type(dtype: str, tmp_path: Path) -> None:
    rows = torch.ones(2, 5).to(getattr(torch, dtype))
    shop(features={"user": np.ones((3, 2), np.float32), "item": rows}).save(tmp_path / "store")
    users, items = Graph.open(tmp_path / "store").features.matrices
    assert (users.dtype, users.width, items.dtype, items.width) == ("float32", 2, dtype, 5)


def _change_type(entries: dict[str, Any], **values: Any) -> None:
    entries["types"]["vertices"][1] |= values


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda e: _change_type(e, num_vertices=3), "types have 6 vertices"),
        (lambda e: _change_type(e, name="user"), "appears twice"),
        (lambda e: _change_type(e, num_features=2), "features-1"),
        (lambda e: _change_type(e, name=""), "name"),
        (lambda e: e["types"]["edges"].pop(), "indptr"),
        (lambda e: e["types"]["edges"][0].__setitem__(0, "thing"), "'thing' is no vertex type"),
        (lambda e: e.pop("types"), "arrays"),
        (lambda e: e.update(part={"index": 0, "num_parts": 1, "of": "0" * 32}), "not divided"),
    ],
)
def test_a_changed_header_is_refused(change: Any, message: str, tmp_path: Path) -> None:
    shop().save(tmp_path / "store")
    header = tmp_path / "store" / "meta.json"
    entries = json.loads(header.read_text())
    change(entries)
    header.write_text(json.dumps(entries))
    with pytest.raises(GraphError, match=message):
        Graph.open(tmp_path / "store")


def test_doctor_names_a_neighbor_of_a_wrong_type(tmp_path: Path) -> None:
    shop().save(tmp_path / "store")
    indices = np.load(tmp_path / "store" / "indices.npy", mmap_mode="r+")
    indices[3] = 4  # of item 3, whose lists have users 0 to 2
    indices.flush()
    problems = [check.problem for check in verify_store(tmp_path / "store") if check.problem]
    assert any("neighbor 4 of vertex 3 is of another type" in problem for problem in problems)
