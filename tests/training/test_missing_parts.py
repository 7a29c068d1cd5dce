"""Splits without a validation part, without a test part, or with training alone."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from in_memory import InMemory
from learnt import all_same, same, weights

import gnnscale
from gnnscale.cli.commands.train import _result_line
from gnnscale.core.errors import ConfigError
from gnnscale.data import from_arrays
from gnnscale.graph import Graph
from gnnscale.report.page.page import _sizes, _tiles
from gnnscale.report.summary import summarize
from gnnscale.run.checkpoint import BEST
from gnnscale.run.tasks.base import EdgeTask, VertexTask

pytestmark = pytest.mark.long


@pytest.fixture
def graph(settings: Any) -> Graph:
    found: Graph = settings().dataset.open()
    return found


def without(graph: Graph, *parts: str) -> Graph:
    return graph.with_split(**{f"{part}_idx": graph.train_idx[:0] for part in parts})


@pytest.mark.parametrize("parts", [("valid",), ("test",), ("valid", "test")])
def test_what_is_missing_is_neither_validated_nor_tested(run, graph, tmp_path, caplog, parts):
    result = run(tmp_path, "epochs=3", dataset=InMemory(graph=without(graph, *parts)))
    whole = run(tmp_path / "whole", "epochs=3", dataset=InMemory(graph=graph))
    assert [e.train_loss for e in result.history] == [e.train_loss for e in whole.history]
    said = [record.message for record in caplog.records if "no " in record.message]
    if "valid" in parts:
        assert (result.best_epoch, result.valid_metrics) == (3, {})
        assert all(e.eval_time_s is None and e.valid_metric is None for e in result.history)
        assert same(weights(tmp_path), weights(tmp_path, BEST))
        line = "no validation vertices: the run keeps the weights of the last epoch"
        assert sum(line in each for each in said) == 1
    else:
        assert result.valid_metrics == whole.valid_metrics
    if "test" in parts:
        assert (result.test_metric, result.test_metrics) == (None, {})
        assert sum("no test vertices: the run has no test metric" in each for each in said) == 1
    else:
        assert 0 < result.test_metric < 1


def test_a_run_without_validation_resumes_as_one_never_stopped(run, graph, tmp_path) -> None:
    how = ("runtime.deterministic=true", "runtime.checkpoint_every_s=0")
    dataset = InMemory(graph=without(graph, "valid"))
    run(tmp_path / "whole", *how, "epochs=4", dataset=dataset)
    parts = tmp_path / "parts"
    run(parts, *how, "epochs=2", dataset=dataset)
    result = run(parts, *how, "epochs=4", f"resume={parts}", dataset=dataset)
    assert result.best_epoch == 4
    assert all_same(tmp_path / "whole", parts)


@pytest.mark.parametrize("option", ["runtime.patience=2", "optimizer.schedule=plateau"])
def test_options_that_follow_validation_are_refused_without(run, graph, tmp_path, option) -> None:
    with pytest.raises(ConfigError, match=f"^{option}: expected a validation part, which the spl"):
        run(tmp_path, option, dataset=InMemory(graph=without(graph, "valid")))
    run(tmp_path, option, "epochs=1", dataset=InMemory(graph=without(graph, "test")))


def test_a_test_part_of_which_no_label_is_known_is_not_measured(run, graph, tmp_path, caplog):
    labels = graph.labels.copy()
    labels[graph.test_idx] = -1
    result = run(tmp_path, "epochs=1", dataset=InMemory(graph=replace(graph, labels=labels)))
    assert result.test_metrics == {}
    message = f"none of {len(graph.test_idx):,} test vertices has a label: the run has no test"
    assert message in caplog.text


def test_metrics_of_ones_own_are_tried_with_a_part_that_exists(graph: Graph) -> None:
    task = VertexTask(graph=without(graph, "valid"), metrics=["own_parts:worst_recall"])
    assert [task.has_part(split) for split in ("train", "valid", "test")] == [True, False, True]
    task.try_metrics()


def test_reports_say_which_part_the_split_lacks(run, graph, tmp_path) -> None:
    lines = {}
    for parts in (("valid",), ("valid", "test")):
        dataset = InMemory(graph=without(graph, *parts))
        result = run(tmp_path / parts[-1], "epochs=2", dataset=dataset)
        summary = json.loads(json.dumps(summarize(result, status="completed")))
        lines[parts[-1]] = _result_line(result)
        assert summary["best_epoch"] == 2
        assert f"validation {result.metric}: the split lacks the part" in _tiles(summary)
        assert (f"test {result.metric}: the split lacks" in _tiles(summary)) == ("test" in parts)
        assert "none validate" in _sizes(summary["graph"])
    ending = "the weights of epoch 2 of 2, the last, without validation vertices"
    assert lines["valid"].startswith("test accuracy ")
    assert lines["valid"].endswith(f"with {ending}")
    assert lines["test"] == (
        f"no test metric, since {graph.name} has no labeled test vertices; kept are {ending}"
    )


def labeled_edges(split: Any) -> Graph:
    rng = np.random.default_rng(0)
    src, dst = rng.integers(40, size=(2, 300))
    return from_arrays(
        (src, dst),
        rng.normal(size=(40, 3)).astype(np.float32),
        edge_labels=src % 2,
        edge_split=split,
    )


def test_edges_without_validation(run, tmp_path, caplog) -> None:
    graph = labeled_edges((np.arange(200), None, np.arange(200, 300)))
    graph.save(tmp_path / "store")
    stored = Graph.open(tmp_path / "store")
    assert not EdgeTask(graph=stored).has_part("valid")
    result = run(tmp_path / "run", "task=edges", "epochs=2", dataset=InMemory(graph=stored))
    assert (result.best_epoch, result.valid_metrics) == (2, {})
    assert result.test_metric is not None
    assert "no validation edges: the run keeps the weights of the last epoch" in caplog.text


@pytest.mark.integration
def test_from_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_figures: Any) -> None:
    data = pytest.importorskip("torch_geometric.data")
    monkeypatch.setenv("GNNSCALE_HOME", str(write_figures(tmp_path / "home")))
    monkeypatch.chdir(tmp_path)
    mask = torch.arange(60) < 40
    edges = torch.randint(0, 60, (2, 200))
    given = data.Data(
        x=torch.randn(60, 4), edge_index=edges, y=torch.arange(60) % 2, train_mask=mask
    )
    result = gnnscale.train(given, epochs=2, hidden=8, fanouts=[3, 3], num_threads=1)
    for each in (result, gnnscale.load(result.directory)):
        assert (each.best_epoch, each.test_metric, each.valid_metric) == (2, None, None)
        assert repr(each).startswith("<gnnscale.Result: GraphSAGE, 2 epochs, no test, directory=")
        first, _, *rows, _ = str(each).splitlines()
        assert first == "GraphSAGE: no test, no validation, epoch 2"
        assert [row.split()[-1] == "kept" for row in rows] == [False, True]
    assert list(gnnscale.evaluate(result).metrics) == ["train"]
