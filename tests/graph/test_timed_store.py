"""Times and rows in graph stores: written, opened, verified, copied, and refused if they lie."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnscale.core import GraphError
from gnnscale.core.artifact import write_array
from gnnscale.data import from_arrays, verify_store
from gnnscale.data.typed_arrays import from_typed_arrays
from gnnscale.graph import NO_TIME, Graph, GraphTimes, Split, TaskRows, read_meta

BUYS, OF = ("user", "buys", "item"), ("item", "of", "user")
ROWS = TaskRows(
    name="shop",
    vertices=[1, 0, 1],
    cutoffs=[5, 6, 7],
    labels=[1, 0, -1],
    num_classes=2,
    split=Split(train_idx=np.array([1, 0]), test_idx=np.array([2])),
)


def shop(**changes: Any) -> Graph:
    """Return a graph in which item 0 knows users 2, 0 and 1 (at 2, 4 and 4); OF has no times."""
    arguments: dict[str, Any] = {
        "features": {"user": np.ones((3, 2), np.float32), "item": None},
        "edges": {BUYS: ([1, 0, 2, 0], [0, 0, 0, 1]), OF: ([1, 0, 1], [2, 2, 0])},
        "num_vertices": {"item": 2},
        "edge_times": {BUYS: [4, 4, 2, 9]},
        "name": "shop",
        "rows": ("item", ROWS),
    }
    return from_typed_arrays(**arguments | changes)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    shop().save(tmp_path / "store")
    return tmp_path / "store"


def change(store: Path, arrays: dict[str, Any] | None = None, **entries: Any) -> None:
    meta = json.loads((store / "meta.json").read_text()) | entries
    meta = {name: value for name, value in meta.items() if value is not None}
    for name, array in (arrays or {}).items():
        meta["arrays"][name] = vars(write_array(store / f"{name}.npy", np.asarray(array)))
    (store / "meta.json").write_text(json.dumps(meta))


def test_times_and_rows_are_written_and_opened(store: Path, tmp_path: Path) -> None:
    graph = Graph.open(store)
    for opened in (graph, _copy(graph, tmp_path / "copy")):
        assert opened.times is not None
        assert opened.rows is not None
        assert opened.times.unit == "s"
        # Users 0 to 2, then the two lists of items.
        assert opened.times.edges.tolist() == [*[NO_TIME] * 3, 2, 4, 4, 9]
        assert opened.indices.tolist() == [4, 3, 4, 2, 0, 1, 0]
        assert opened.times.vertices is None
        rows = opened.rows
        assert (rows.vertices.tolist(), rows.cutoffs.tolist()) == ([4, 3, 4], [5, 6, 7])
        assert (rows.labels.tolist(), rows.num_classes, rows.metric) == ([1, 0, -1], 2, "accuracy")
        assert (rows.split.train_idx.tolist(), rows.split.test_idx.tolist()) == ([0, 1], [2])
        assert (rows.name, len(rows.split.valid_idx)) == ("shop", 0)
    checks = verify_store(store)
    assert [check.problem for check in checks if check.problem] == []
    assert "edge_times.npy: lists sorted by time, then by source" in [each.what for each in checks]


def _copy(graph: Graph, path: Path) -> Graph:
    graph.save(path)
    return Graph.open(path)


def test_a_graph_without_types_and_targets_of_rows(tmp_path: Path) -> None:
    graph = from_arrays(
        ([0, 1, 1], [1, 0, 1]),
        np.ones((2, 1), np.float32),
        vertex_times=np.array(["2001-02-01", "2001-01-31"], "datetime64[D]"),
    )
    targets = replace(ROWS, labels=np.float32([0.5, 2, np.nan]), num_classes=1, metric="mae")
    targets = replace(
        targets, vertices=np.array([1, 0, 1], np.int32), cutoffs=np.arange(3), split=Split()
    )
    opened = _copy(replace(graph, rows=targets), tmp_path / "store")
    assert opened.times is not None
    assert opened.rows is not None
    assert opened.times.unit == "day"
    assert opened.times.vertices.tolist() == [11_354, 11_353]
    assert opened.times.edges.tolist() == [11_353, 11_353, 11_354]
    assert opened.rows.labels.dtype == np.float32
    assert opened.rows.metric == "mae"


def test_the_identity_of_a_store_has_the_unit_and_older_ones_stay(tmp_path: Path) -> None:
    contents = set()
    for number, graph in enumerate((shop(), shop(time_unit="ms"), shop(rows=None, edge_times={}))):
        graph.save(tmp_path / str(number))
        meta = read_meta(tmp_path / str(number))
        contents.add(meta.content)
    assert len(contents) == 3
    assert "times" not in json.loads((tmp_path / "2" / "meta.json").read_text())
    assert not [path for path in (tmp_path / "2").iterdir() if "time" in path.name]


@pytest.mark.parametrize(
    ("arrays", "entries", "words"),
    [
        (
            {"edge_times": [*[NO_TIME] * 3, 4, 2, 4, 9]},
            {},
            "edge_times.npy: the neighbors of vertex 3 by user-buys-item are not sorted by time",
        ),
        (
            {"edge_times": [*[NO_TIME] * 4, 4, 4, 9]},
            {},
            "edge_times.npy: the neighbors of vertex 3 by user-buys-item have times in part",
        ),
        ({"edge_times": [1, 2]}, {}, r"edge_times.npy: expected int64\[7\], got int64\[2\]"),
        ({}, {"times": None}, "row_labels: expected times beside cut-offs"),
        ({}, {"times": None, "row_labels": None}, "arrays: expected"),
        ({}, {"times": {"unit": "h"}}, "times.unit: Invalid enum value 'h'"),
        (
            {},
            {"row_labels": {"num_classes": 2, "metric": "micro_f1"}},
            "row_labels.metric: Invalid",
        ),
        ({}, {"row_labels": {"num_classes": 1, "metric": "rmse"}}, r"expected float32\[3\], got"),
        (
            {"row_vertices": np.int32([4, 5, 4])},
            {},
            "row_vertices.npy: vertex 5 of row 1 is out of",
        ),
        ({"row_cutoffs": [5, NO_TIME, 7]}, {}, "row_cutoffs.npy: row 1 has no cut-off"),
        ({"row_labels": [1, 2, 0]}, {}, "row_labels.npy: label 2 of row 1 is out of range"),
        ({"row_train_idx": np.int32([0, 3])}, {}, "row id 3 is out of range, the graph has 3 rows"),
        ({"row_train_idx": np.int32([1, 2])}, {}, "row 2 has no label"),
        ({"row_valid_idx": np.int32([1])}, {}, "row 1 is in an earlier part of the split too"),
        ({"row_train_idx": np.int32([1, 0])}, {}, "the ids do not rise"),
    ],
)
def test_a_store_that_lies_is_refused(store: Path, arrays: Any, entries: Any, words: str) -> None:
    change(store, arrays, **entries)
    with pytest.raises(GraphError, match=words):
        Graph.open(store)


def test_sources_of_one_time_that_fall_are_found_by_reading_all(store: Path) -> None:
    change(store, {"indices": np.int32([4, 3, 4, 2, 1, 0, 0])})
    Graph.open(store)
    (problem,) = [check.problem for check in verify_store(store) if check.problem]
    assert problem.endswith(
        "edge_times.npy: the neighbors of vertex 3 by user-buys-item of one time are not sorted"
    )


def test_an_unsorted_graph_in_memory_is_not_written(tmp_path: Path) -> None:
    graph = shop()
    assert graph.times is not None
    times = replace(graph.times, edges=graph.times.edges[::-1].copy())
    with pytest.raises(GraphError, match=r"edge_times.npy: the neighbors of vertex"):
        replace(graph, times=times).save(tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_lists_of_all_types_have_no_times() -> None:
    merged = shop().without_types()
    assert (merged.times, merged.rows) == (None, None)
    plain = from_arrays(([0], [0]), np.ones((1, 1)), edge_times=[3])
    assert isinstance(plain.without_types().times, GraphTimes)
