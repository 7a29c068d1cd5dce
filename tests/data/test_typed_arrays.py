"""Graphs with types from arrays, and their stores."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from typed_batches import schemas

from gnnscale import Graph
from gnnscale.core import GraphError
from gnnscale.data.storage.store_verification import verify_store
from gnnscale.data.typed_arrays import from_typed_arrays
from gnnscale.graph import NO_TIME, GraphSchema, TypedFeatures
from gnnscale.run.tasks.base import edge_type_of_labels

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


def test_features_of_edges(tmp_path: Path) -> None:
    """Lists have user 0's item 4, then 3, 4, 1, 0, 2: edges 1, 2, 0 of ``of``, 2, 1, 0 of it."""
    halves = np.float16([[7], [8], [9]])
    made = shop(edge_features={BUYS: [[0, 1], [2, 3], [4, 5]], OF: halves})
    made.save(tmp_path / "store")
    for graph in (made, Graph.open(tmp_path / "store")):
        assert graph.edge_rows.tolist() == [1, 2, 0, 2, 1, 0]
        buys, of = graph.edges.by_type.matrices
        assert (buys.rows.tolist(), buys.dtype) == ([[0, 1], [2, 3], [4, 5]], "float32")
        assert (of.rows.tolist(), of.dtype) == ([[7], [8], [9]], "float16")
        assert graph.num_edge_features == 2
        assert graph.input_types.edge_widths == (2, 1)
        assert graph.without_edge_features().input_types.edge_widths == ()
    assert [check for check in verify_store(tmp_path / "store") if check.problem] == []
    rows = np.array([1, 2, 0, 2, 1, 3], np.uint32)
    wrong = replace(made, edges=replace(made.edges, rows=rows))
    with pytest.raises(GraphError, match=r"edge_rows.npy: row 3 of edge 5, of user-buys-item"):
        wrong.save(tmp_path / "other")
    none = shop(edge_features={BUYS: None})
    assert none.edges.by_type is none.edge_rows is None


def test_edge_types_that_share_features_share_a_file(tmp_path: Path) -> None:
    graph = shop(edge_features={BUYS: [1, 2, 3]})
    matrix = graph.edges.by_type.matrices[0]
    edges = replace(graph.edges, by_type=TypedFeatures([matrix, matrix]))
    replace(graph, edges=edges).save(tmp_path / "store")
    assert not (tmp_path / "store/edge_features-1.npy").exists()
    first, second = Graph.open(tmp_path / "store").edges.by_type.matrices
    assert first is second


def test_labeled_edges_have_the_features_of_their_type(tmp_path: Path) -> None:
    given: Any = {"edge_labels": (OF, [1, 0, 1]), "edge_split": ([0, 2], [1], []), "labels": None}
    made = shop(**given, edge_features={BUYS: [[1, 1]] * 3, OF: [7, 8, 9]})
    made.save(tmp_path / "store")
    for graph in (made, Graph.open(tmp_path / "store")):
        assert graph.labeled_edge_features.tolist() == [[7], [8], [9]]
        assert graph.num_labeled_edge_features == 1
        assert edge_type_of_labels(graph) == 1
    assert shop(**given, edge_features={BUYS: [[1, 1]] * 3}).labeled_edge_features is None


@settings(max_examples=30, deadline=None)
@given(schemas(), st.integers(0, 99))
def test_rows_are_those_of_their_edges(schema: GraphSchema, seed: int) -> None:
    """Features are the ends of each edge: any list has those of its sources and its vertex."""
    generator, edges, features = np.random.default_rng(seed), {}, {}
    for number, edge_type in enumerate(schema.edge_types):
        triple = edge_type.source, edge_type.relation, edge_type.destination
        sides = [schema.vertices(int(of[number])) for of in (schema.sources, schema.destinations)]
        count = 20 * all(side.stop > side.start for side in sides)
        ends = [generator.integers(0, max(side.stop - side.start, 1), count) for side in sides]
        edges[triple] = ends
        first = [side.start for side in sides]
        features[triple] = (np.stack(ends, 1) + first) * (1 if number % 3 else 0.5)
    graph = from_typed_arrays(
        dict.fromkeys([entry.name for entry in schema.vertex_types]),
        edges,
        num_vertices={entry.name: entry.num_vertices for entry in schema.vertex_types},
        edge_features=features,
    )
    for row in range(schema.num_rows):
        part = slice(*graph.indptr[row : row + 2])
        number = int(schema.edge_type_of(np.array([row]))[0])
        types = schema.edge_types_at(graph.indptr, part.start, part.stop - part.start)
        assert (types == number).all()
        rows = graph.edges.by_type.matrices[number].rows[graph.edge_rows[part]]
        expected = [
            [source, schema.vertex_of(np.array([row]))[0]] for source in graph.indices[part]
        ]
        expected = np.reshape(expected, (-1, 2)) * (1 if number % 3 else 0.5)
        np.testing.assert_array_equal(rows, expected)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"edge_features": {BUYS: [1, 2]}}, "shop: user-buys-item: 2 rows of features for 3 edges"),
        ({"edge_features": {BUYS: [[1, 2], [3], [4]]}}, "user-buys-item: edge features: expected"),
        ({"edge_features": {BUYS: [1, 2, np.nan]}}, "user-buys-item: feature 0 of edge 2"),
        ({"edge_features": {("a", "b", "c"): [1]}}, "no such edge type, allowed are user-buys-it"),
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


PART = {"index": 0, "num_parts": 1, "of": "0" * 32}


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
        (lambda e: e.update(part=PART), "'degrees'"),
        (lambda e: e.update(part=PART | {"rows_of": "0" * 32}), "not divided"),
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


def test_times_by_type() -> None:
    graph = shop(vertex_times={"user": [9, 1, 5]}, edge_times={OF: np.array([3, 2, 1])})
    # Item 4 knows users 0 (from 9 on) and 2 (from 5 on).
    assert graph.indices.tolist() == [4, 3, 4, 1, 2, 0]
    assert graph.times is not None
    assert (graph.times.unit, graph.times.edges.tolist()) == ("s", [2, 1, 3, 1, 5, 9])
    assert graph.times.vertices.tolist() == [9, 1, 5, NO_TIME, NO_TIME]
    with pytest.raises(
        GraphError, match="shop: expected times of one unit, got vertices of user in"
    ):
        shop(vertex_times={"user": np.zeros(3, "M8[D]")}, edge_times={OF: [1, 2, 3]})
