from typing import Any

import numpy as np
import pytest

from gnnscale.core import ConfigError, GraphError
from gnnscale.data import from_arrays, with_rows
from gnnscale.data.typed_arrays import from_typed_arrays
from gnnscale.graph import Graph

BUYS = ("user", "buys", "item")
#: Items 1, 0, 1 and 0 on four days.
DAYS = np.array(["2024-01-02", "2024-01-05", "2024-01-08", "2024-01-09"], "M8[s]")


def shop() -> Graph:
    return from_typed_arrays(
        {"user": None, "item": None},
        {BUYS: ([0, 1, 2], [0, 0, 1])},
        num_vertices={"user": 3, "item": 2},
        name="shop",
        edge_times={BUYS: np.array(["2024-01-01", "2024-01-03", "2024-01-06"], "M8[s]")},
    )


def items(graph: Graph | None = None, **changes: Any) -> Graph:
    """Return a shop with four rows of items, of which the first two train."""
    arguments: dict[str, Any] = {
        "vertices": [1, 0, 1, 0],
        "cutoffs": DAYS,
        "labels": [1, 0, 1, -1],
        "vertex_type": "item",
        "valid_from": "2024-01-06",
        "test_from": "2024-01-09",
    }
    return with_rows(graph or shop(), **arguments | changes)


def parts(graph: Graph) -> list[list[int]]:
    assert graph.rows is not None
    split = graph.rows.split
    return [part.tolist() for part in (split.train_idx, split.valid_idx, split.test_idx)]


def test_rows_are_split_by_two_times() -> None:
    graph = items()
    assert graph.rows is not None
    assert graph.rows.vertices.tolist() == [4, 3, 4, 3]  # users are 0 to 2
    assert graph.rows.cutoffs.tolist() == DAYS.astype(int).tolist()
    assert (graph.rows.labels.tolist(), graph.rows.num_classes) == ([1, 0, 1, -1], 2)
    assert graph.rows.metric == "accuracy"
    assert parts(graph) == [[0, 1], [2], [3]]
    assert repr(graph).endswith("4 task rows>")


@pytest.mark.parametrize("bounds", [(DAYS[2], DAYS[3]), (1704672000, 1704758400)])
def test_bounds_are_dates_or_integers(bounds: tuple[Any, Any]) -> None:
    assert parts(items(valid_from=bounds[0], test_from=bounds[1])) == [[0, 1], [2], [3]]


@pytest.mark.parametrize("unit", ["D", "ms", "ns"])
def test_cutoffs_are_rounded_down_to_the_unit_of_the_graph(unit: str) -> None:
    late = 0 if unit == "D" else 1
    rows = items(cutoffs=DAYS.astype(f"M8[{unit}]") + late).rows
    assert rows is not None
    assert rows.cutoffs.tolist() == DAYS.astype(int).tolist()


def test_dates_for_a_graph_of_steps_are_refused() -> None:
    graph = from_arrays(
        ([0], [1]), np.ones((2, 1), np.float32), edge_times=np.array([4]), time_unit="step"
    )
    with pytest.raises(GraphError, match="got the graph in step, cut-offs in s"):
        with_rows(graph, [1], DAYS[:1], [1], split={"train": [0]})


def test_a_split_by_masks_and_numbers() -> None:
    split = {"train": np.array([True, True, False, False]), "valid": [2], "test": [3]}
    assert parts(items(valid_from=None, test_from=None, split=split)) == [[0, 1], [2], [3]]


def test_rows_of_regression() -> None:
    rows = items(labels=[0.5, 1.5, 2.0, np.nan], metric="mae").rows
    assert rows is not None
    assert (rows.num_classes, rows.metric, rows.labels.dtype) == (1, "mae", np.float32)


def test_a_metric_of_classes_reads_fractions_as_classes() -> None:
    rows = items(labels=[0.0, 1.0, 1.0, np.nan], metric="roc_auc").rows
    assert rows is not None
    assert (rows.labels.tolist(), rows.num_classes) == ([0, 1, 1, -1], 2)


def test_rows_of_a_graph_without_types() -> None:
    graph = from_arrays(([0], [1]), np.ones((2, 1), np.float32), edge_times=np.array([4]))
    rows = with_rows(graph, [1, 0], [5, 6], [1, 0], split={"train": [0], "test": [1]}).rows
    assert rows is not None
    assert (rows.vertices.tolist(), rows.cutoffs.tolist()) == ([1, 0], [5, 6])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vertex_type": None}, "shop: rows: vertex_type: required, one of user, item"),
        ({"vertex_type": "shop"}, "shop: rows: shop: no such vertex type"),
        ({"vertices": [1, 0, 2, 0]}, "shop: rows: vertices: vertex id 2 is out of range"),
        ({"vertices": [1, 0, 1]}, r"shop: rows: cut-offs: expected 3, got \[4\]"),
        ({"cutoffs": [np.datetime64("NaT"), *DAYS[1:]]}, "shop: rows: cut-offs: .* got NaT for 1"),
        ({"labels": [1, -1, 1, -1]}, "shop: rows: .*train split"),
        ({"labels": [1, 0]}, "shop: rows: labels"),
        ({"metric": "f1"}, "shop: rows: metric=f1: expected one of accuracy, roc_auc, rmse, mae"),
        (
            {"valid_from": "2023-01-01"},
            "shop: rows: valid_from=2023-01-01: expected a row with an earlier cut-off",
        ),
        (
            {"split": {"train": [0]}},
            "shop: rows: split: expected no valid_from or test_from as well",
        ),
        (
            {"valid_from": None, "test_from": None, "split": {"train": [0, 2], "valid": [1]}},
            "shop: rows: expected train rows before valid rows, got cut-offs up to "
            "2024-01-08 .* and from 2024-01-05",
        ),
    ],
)
def test_invalid_arguments_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        items(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"test_from": None}, "^test_from: required for a split by time, as 2024"),
        ({"valid_from": "soon"}, "^valid_from=soon: expected a date"),
        ({"test_from": "2024-01-01"}, "^test_from=2024-01-01: expected a time after valid_from="),
    ],
)
def test_invalid_bounds_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        items(**changes)


def test_a_graph_without_times_is_refused() -> None:
    graph = from_arrays(([0], [1]), np.ones((2, 1), np.float32))
    with pytest.raises(GraphError, match="graph: rows: expected a graph with times"):
        with_rows(graph, [1], [5], [1])
