from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from one_line import one_line

from gnnscale.data import PlantedPartition
from gnnscale.graph import Graph
from gnnscale.run.tasks.base import VertexTask, ceiling, chosen_metrics


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Graph:
    monkeypatch.setenv("GNNSCALE_HOME", str(tmp_path))
    sizes = {"num_vertices": 600, "num_edges": 3000, "num_classes": 4, "num_features": 8}
    return PlantedPartition(name="small", **sizes).open()


def test_the_graph_has_a_metric_of_its_own(graph: Graph) -> None:
    assert chosen_metrics([], graph) == (graph.metric,)
    assert chosen_metrics(["macro_f1", "accuracy"], graph) == ("macro_f1", "accuracy")
    value = ceiling(graph, "accuracy")
    assert value is not None
    assert 0.25 < value <= 1
    assert ceiling(graph, "macro_f1") is None


def test_metrics_of_other_labels_are_refused(graph: Graph) -> None:
    assert graph.num_classes == 4
    several = np.eye(4, dtype=np.uint8)[graph.labels]
    two = replace(graph, labels=graph.labels % 2, num_classes=2)
    numbers = replace(graph, labels=graph.labels.astype(np.float32), num_classes=1)
    for metric, good, bad in (
        ("roc_auc", two, graph),
        ("average_precision", replace(graph, labels=several), graph),
        ("accuracy", graph, numbers),
        ("precision_at_10", two, graph),
        ("recall_at_precision_0.5", replace(graph, labels=several), numbers),
        ("rmse", numbers, graph),
        ("mae", numbers, two),
    ):
        assert chosen_metrics([metric], good) == (metric,)
        with one_line(f"metrics={metric}: expected "):
            chosen_metrics([metric], bad)
    with one_line("expected accuracy, macro_f1, micro_f1 for the labels of small, 4 classes"):
        chosen_metrics(["mae"], graph)


def test_metrics_of_ones_own_are_called_by_their_functions(graph: Graph) -> None:
    task = VertexTask(graph=graph, metrics=["own_parts:worst_recall", "accuracy"])
    assert task.measures == ("worst_recall", "accuracy")
    labels = np.array([0, 0, 1, 1, 1])
    outputs = np.array([[2.0, 1], [1, 2], [0, 3], [0, 3], [0, 3]], np.float32)
    assert task.score("worst_recall", outputs, labels) == 0.5
    assert task.score("accuracy", outputs, labels) == pytest.approx(0.8)
    task.try_metrics()


def test_the_positive_class_is_named_with_its_share(graph: Graph, caplog) -> None:
    caplog.set_level("INFO")
    labels = np.zeros(graph.num_vertices, np.int64)
    labels[graph.train_idx[:3]] = 1
    labels[graph.test_idx[:5]] = -1
    two = replace(graph, labels=labels, num_classes=2)
    task = VertexTask(graph=two, metrics=["precision_at_10"])
    assert task.base_rates == {"train": 3 / len(graph.train_idx)}
    task.log_split()
    swapped = replace(two, labels=np.where(labels < 0, -1, 1 - labels))
    VertexTask(graph=swapped, metrics=["average_precision"]).log_split()
    share = 3 / len(graph.train_idx)
    assert caplog.messages == [
        f"metrics are of class 1, {share:.2%} of the training set",
        f"metrics are of class 1, {1 - share:.2%} of the training set; the rarer class is measured "
        "if its name sorts last, or is 1",
    ]
    assert VertexTask(graph=two, metrics=["accuracy"]).base_rates == {}


def test_classes_that_training_lacks_are_named(graph: Graph, caplog) -> None:
    labels = np.full(graph.num_vertices, 1)
    labels[graph.test_idx] = 0
    VertexTask(graph=replace(graph, labels=labels, num_classes=9)).log_split()
    (line,) = caplog.messages
    assert line.endswith(
        "of 9 classes, 8 have no training vertices, and are not learned: 0, 2, 3, 4, 5 and 3 more"
    )


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("builtins:len", "metrics=builtins:len fails with TypeError: len() takes exactly one arg"),
        ("numpy:add", "metrics=numpy:add fails with ValueError: operands could not be broadcast"),
        ("operator:is_", "metrics=operator:is_: expected a number, of which higher is bett"),
        ("own_parts:nothing", "metrics=own_parts:nothing: "),
    ],
)
def test_metrics_that_cannot_be_used_are_refused_before_training(graph, name, line) -> None:
    with one_line(line):
        VertexTask(graph=graph, metrics=[name]).try_metrics()


def test_targets_that_a_part_of_the_split_lacks_are_warned_of(graph, caplog) -> None:
    targets = np.ones((graph.num_vertices, 3), np.float32)
    targets[graph.train_idx, 1] = np.nan
    targets[graph.train_idx[0], 0] = np.nan
    targets[graph.test_idx[:, None], [0, 2]] = np.nan
    numbers = replace(graph, labels=targets, num_classes=3, metric="rmse")
    VertexTask(graph=numbers).log_split()
    counts = len(graph.train_idx), len(graph.test_idx)
    assert caplog.messages == [
        f"small: all {counts[0]:,} train vertices have NaN as target 1 (from 0), so that nothing "
        "learns it",
        f"small: all {counts[1]:,} test vertices have NaN as target 0, 2 (from 0), so that nothing "
        "measures it",
    ]
    caplog.clear()
    VertexTask(graph=graph).log_split()
    assert not caplog.messages
