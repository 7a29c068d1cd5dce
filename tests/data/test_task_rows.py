from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gnnscale.core import GraphError
from gnnscale.data import from_arrays
from gnnscale.data.task_rows import with_checked_rows
from gnnscale.data.typed_arrays import from_typed_arrays
from gnnscale.graph import Graph, Split, TaskRows

BUYS = ("user", "buys", "item")


def rows(**changes: Any) -> TaskRows:
    """Return three rows of items, item 1 twice; the last has no label."""
    arguments: dict[str, Any] = {
        "name": "rows",
        "vertices": [1, 0, 1],
        "cutoffs": [5, 6, 7],
        "labels": [1, 0, -1],
        "num_classes": 2,
        "split": Split(train_idx=np.array([1, 0]), test_idx=np.array([2])),
    }
    return TaskRows(**arguments | changes)


def shop(**changes: Any) -> Graph:
    return from_typed_arrays(
        {"user": None, "item": None},
        {BUYS: ([0, 1, 2], [0, 0, 1])},
        num_vertices={"user": 3, "item": 2},
        name="shop",
        **{"edge_times": {BUYS: [5, 2, 3]}} | changes,
    )


def test_rows_of_a_type() -> None:
    graph = shop(rows=("item", rows()))
    assert graph.rows is not None
    assert (graph.rows.vertices.tolist(), graph.rows.vertices.dtype) == ([4, 3, 4], np.int32)
    assert (graph.rows.cutoffs.tolist(), graph.rows.labels.tolist()) == ([5, 6, 7], [1, 0, -1])
    assert (graph.rows.split.train_idx.tolist(), graph.rows.name) == ([0, 1], "shop")
    assert graph.rows.split.test_idx.tolist() == [2]


def test_rows_of_a_graph_without_types() -> None:
    graph = from_arrays(([0], [1]), np.ones((2, 1), np.float32), edge_times=np.array([4]))
    values = rows(
        vertices=[1],
        cutoffs=np.array([5], "M8[s]"),
        labels=np.float64([0.5]),
        num_classes=1,
        metric="mae",
        split=Split(),
    )
    checked = with_checked_rows(graph, values).rows
    assert checked is not None
    assert (checked.labels.tolist(), checked.labels.dtype) == ([0.5], np.float32)
    assert (checked.metric, checked.cutoffs.dtype) == ("mae", np.int64)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"vertices": [0, 2, 1]},
            "shop: rows: vertices: vertex id 2 is out of range, the graph has 2",
        ),
        (
            {"cutoffs": [1, 0, 1]},
            "shop: rows: cut-offs: expected from .*:02 on, .* got at most .*:01",
        ),
        ({"cutoffs": [1, 2]}, r"shop: rows: cut-offs: expected 3, got \[2\]"),
        (
            {"cutoffs": np.array([5, 6, 7], "M8[D]")},
            "shop: rows: expected times of one unit, got the graph in s, cut-offs in day",
        ),
        (
            {"cutoffs": np.array([5, 6, "NaT"], "M8[s]")},
            "cut-offs: expected a time each, got NaT for 1",
        ),
        ({"labels": [1, 2, 0]}, "shop: rows: labels: label of row 1: expected -1 to 1, got 2"),
        ({"labels": [1, 0]}, "shop: rows: labels: 2 labels for 3 rows"),
        ({"labels": [[1, 1], [1, 0], [0, 0]]}, "expected one class or one target for each row"),
        ({"metric": "micro_f1"}, "shop: rows: metric=micro_f1: expected one of accuracy, roc_auc"),
        ({"split": Split(test_idx=np.array([0]))}, "shop: rows: the train split is empty"),
        (
            {"split": Split(train_idx=np.array([0, 1]), test_idx=np.array([1]))},
            "shop: rows: overlapping splits, row 1 of the test split is in the train split too",
        ),
        ({"split": Split(train_idx=np.array([2]))}, "row 2 of the train split has no label"),
    ],
)
def test_bad_rows(changes: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        with_checked_rows(shop(), rows(**changes), "item")


def test_rows_need_times_and_a_known_type() -> None:
    with pytest.raises(GraphError, match="shop: rows: shop: no such vertex type, allowed are user"):
        with_checked_rows(shop(), rows(), "shop")
    untimed = replace(shop(), times=None)
    with pytest.raises(
        GraphError, match="shop: rows: expected a graph with times, got one without"
    ):
        with_checked_rows(untimed, rows(), "item")
