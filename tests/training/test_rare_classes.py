"""Rare classes: metrics of positives, thresholds from validation to predictions, own functions."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from one_line import one_line

import gnnscale
from gnnscale.core.metrics import count_classes, score
from gnnscale.data import from_arrays
from gnnscale.graph import Graph
from gnnscale.inference.export.predict import PredictConfig, predict

NUM_VERTICES, NUM_EDGES = 240, 900
PARTS = np.split(np.random.default_rng(1).permutation(NUM_VERTICES), [120, 180])
EDGE_PARTS = tuple(np.split(np.random.default_rng(2).permutation(NUM_EDGES), [500, 700]))
SMALL: dict[str, Any] = {"epochs": 4, "hidden": 8, "num_threads": 1, "lr": 0.05}


def graph_of(kind: str) -> Graph:
    """A graph with rare positives, a tenth of the vertices or edges, or with numbers as labels."""
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, NUM_VERTICES, (2, NUM_EDGES))
    rows = rng.standard_normal((NUM_VERTICES, 4)).astype(np.float32)
    rare = (rows[:, 0] > 1.3).astype(np.int64)
    if kind == "no positives":
        rare[PARTS[1]] = 0
    labels = {
        "multilabel": np.stack([rare, rows[:, 1] > 1, rows[:, 2] > 0], axis=1).astype(np.uint8),
        "regression": rows[:, :2] * 2,
    }.get(kind, rare)
    names: Any = dict(zip(("train_idx", "valid_idx", "test_idx"), PARTS, strict=True))
    of_edges: Any = {"edge_labels": rare[src], "edge_split": EDGE_PARTS} if kind == "edges" else {}
    return from_arrays((src, dst), rows, labels, **names, **of_edges)


def trained(kind: str, directory: Path, **options: Any) -> Any:
    task = {"task": "edges"} if kind == "edges" else {}
    graph = graph_of(kind)
    return gnnscale.train(graph, **SMALL, directory=directory, options={**task, **options})


METRICS = ["average_precision", "precision_at_10", "precision_at_0.1", "recall_at_precision_0.5"]


@pytest.mark.integration
@pytest.mark.parametrize("kind", ["vertices", "edges", "multilabel"])
def test_a_threshold_is_chosen_kept_and_used(tmp_path: Path, kind: str) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    run = tmp_path / "run"
    result = trained(kind, run, threshold="f1", metrics=[*METRICS, "macro_f1"])
    summary = json.loads((run / "summary.json").read_text())
    chosen = summary["threshold"]["values"]
    assert len(chosen) == (3 if kind == "multilabel" else 1)
    # Predictions of the run, and of the loaded run, are those of the threshold.
    how = result.predict_edges if kind == "edges" else result.predict
    test = how("test", what="logits").astype(np.float64)
    shares = 1 / (1 + np.exp(-(test if kind == "multilabel" else test[:, 1] - test[:, 0])))
    expected = shares > np.array(chosen)
    assert np.array_equal(how("test") > 0, expected)
    assert np.array_equal(how("test", threshold=0.9) > 0, shares > 0.9)
    which = "edges" if kind == "edges" else "vertices"
    options: Any = {"run": run, "num_threads": 1, which: "test"}
    table = parquet.read_table(predict(PredictConfig(out=tmp_path / "p.parquet", **options)))
    written = table["classes" if kind == "multilabel" else "class"].to_pylist()
    if kind == "multilabel":
        written = [[c in row for c in range(3)] for row in written]
    assert np.array_equal(np.array(written) > 0, expected)
    # Test and evaluation have its figures, next to the base rate.
    graph = graph_of(kind)
    source: Any = graph.edge_labels if kind == "edges" else graph
    labels = source.labels[source.split.test_idx]
    wide = expected if kind == "multilabel" else np.stack([~expected, expected], axis=1)
    figures = count_classes(wide - 0.5, labels)
    at_it = {**figures.positive_scores(), "macro_f1": score("macro_f1", wide - 0.5, labels)}
    assert {name: summary["test_metrics"][name] for name in at_it} == pytest.approx(at_it)
    for name in METRICS:
        assert summary["test_metrics"][name] == pytest.approx(score(name, test, labels))
    evaluation = gnnscale.evaluate(gnnscale.load(run))
    assert evaluation.metrics["test"] == pytest.approx(summary["test_metrics"])
    assert evaluation.metrics["valid"]["f1"] == summary["valid_metrics"]["f1"]
    assert evaluation.thresholds == tuple(chosen)
    assert evaluation.base_rates == summary["base_rates"]
    assert summary["base_rates"]["test"] == pytest.approx(labels.mean(axis=0).mean())
    half = gnnscale.evaluate(result, threshold=0.5).metrics["valid"]
    assert kind == "multilabel" or half["f1"] <= evaluation.metrics["valid"]["f1"]
    assert "chosen on the validation set by f1" in (run / "report.html").read_text()


@pytest.mark.integration
def test_thresholds_that_cannot_be_chosen(tmp_path: Path) -> None:
    result = trained("no positives", tmp_path / "run", threshold="f1", metrics=METRICS)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["threshold"]["values"] == [0.5]
    assert summary["valid_metric"] is None
    assert summary["base_rates"].keys() == {"train", "test"}
    assert "no positives, and the threshold is 0.5" in (tmp_path / "run" / "train.log").read_text()
    with one_line("threshold=1.5: expected a probability between 0 and 1"):
        result.predict(threshold=1.5)
    with one_line("threshold=0.5: expected null for probabilities"):
        result.predict(threshold=0.5, what="probabilities")
    for options, line in (
        ({"threshold": "f1"}, "threshold=f1: expected null for labels of graph, which are values"),
        ({"threshold": "f2"}, "threshold=f2: expected f1, recall_at_precision_P with"),
        ({"metrics": ["precision_at_5"]}, "metrics=precision_at_5: expected rmse, mae"),
        ({"metrics": ["precision_at_0"]}, "metrics=precision_at_0: allowed are"),
        ({"threshold": "f1", "task": "links"}, "threshold=f1: expected null with task=links"),
    ):
        with one_line(line):
            trained("regression", tmp_path / "refused", **options)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("vertices", {}),
        ("edges", {}),
        ("multilabel", {}),
        ("regression", {}),
        ("vertices", {"runtime.compute_dtype": "bfloat16"}),
        ("vertices", {"device_plan": "cpu_x2"}),
        ("multilabel", {"device_plan": "cpu_x2", "runtime.compute_dtype": "bfloat16"}),
    ],
)
def test_own_functions_get_tensors_of_one_kind(tmp_path: Path, kind: str, options: Any) -> None:
    own = {"loss": "custom", "loss.function": "own_losses:of_tensors"}
    standard = "rmse" if kind == "regression" else "accuracy"
    measures = ["own_losses:first_output", standard]
    result = trained(kind, tmp_path / "run", **own, **options, metrics=measures)
    assert result.metric == "first_output"
    assert result.test_metric is not None
    # What a metric does to its arguments is not seen by the next.
    alone = gnnscale.evaluate(result, metrics=[standard]).metrics["test"]
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["test_metrics"][standard] == pytest.approx(alone[standard])
