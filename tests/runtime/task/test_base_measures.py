from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from one_line import one_line

from gnnscale.dataset import PlantedPartition
from gnnscale.graph import Graph
from gnnscale.runtime.task.base import ceiling, chosen_metrics


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Graph:
    monkeypatch.setenv("GNNSCALE_HOME", str(tmp_path))
    sizes = {"num_vertices": 600, "num_edges": 3000, "num_classes": 4, "num_features": 8}
    return PlantedPartition(name="small", **sizes).open()


def test_the_graph_has_a_metric_of_its_own(graph: Graph) -> None:
    assert chosen_metrics([], graph) == (graph.metric,)
    assert chosen_metrics(["macro_f1", "accuracy"], graph) == ("macro_f1", "accuracy")


def test_metrics_of_other_labels_are_refused(graph: Graph) -> None:
    assert graph.num_classes == 4
    several = np.eye(4, dtype=np.uint8)[graph.labels]
    two = replace(graph, labels=graph.labels % 2, num_classes=2)
    numbers = replace(graph, labels=graph.labels.astype(np.float32), num_classes=1)
    for metric, good, bad in (
        ("roc_auc", two, graph),
        ("average_precision", replace(graph, labels=several), graph),
        ("accuracy", graph, numbers),
        ("rmse", numbers, graph),
        ("mae", numbers, two),
    ):
        assert chosen_metrics([metric], good) == (metric,)
        with one_line(f"metrics: {metric} is not defined for"):
            chosen_metrics([metric], bad)
    with one_line("allowed are accuracy, macro_f1, micro_f1"):
        chosen_metrics(["mae"], graph)


def test_the_ceiling_is_the_generators(graph: Graph) -> None:
    value = ceiling(graph, "accuracy")
    assert value is not None
    assert 0.25 < value <= 1
    assert ceiling(graph, "macro_f1") is None
