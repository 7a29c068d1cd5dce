import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from held_rows import HoldEvenVertices
from omegaconf import OmegaConf
from one_line import one_line
from row_exchange import NoRows

from gnnscale.distributed.heartbeat import CURRENT_ACTIVITIES
from gnnscale.features import HostFeatures
from gnnscale.graph import Graph
from gnnscale.inference.chunks import Workers
from gnnscale.inference.evaluate import Validator, evaluate, open_examiner
from gnnscale.inference.load_run import load_run
from gnnscale.inference.predictor import Predictor
from gnnscale.nn import GNN
from gnnscale.run.checkpoint import BEST
from gnnscale.run.checkpoint.file import load_checkpoint, save_checkpoint
from gnnscale.run.commands import EvaluateConfig
from gnnscale.run.tasks.base import VertexTask


def evaluated(run: Path, **options: Any) -> Any:
    return evaluate(EvaluateConfig(run=run, num_threads=1, **options))


@pytest.mark.long
@pytest.mark.parametrize(
    ("inference", "names"),
    [("exact", ["macro_f1", "accuracy"]), ("sampled", ["accuracy", "macro_f1"])],
)
def test_evaluation_has_the_metrics_of_the_run(finished, tmp_path, inference, names) -> None:
    options = (f"metrics=[{','.join(names)}]", "sampler.fanouts=[1,1]")
    result = finished(f"runtime.inference={inference}", *options)
    assert result.metric == names[0]
    assert result.valid_metric == result.valid_metrics[names[0]]
    best = max(each.valid_metrics[names[0]] for each in result.history)
    assert result.valid_metric == best
    evaluation = evaluated(tmp_path)
    assert (evaluation.inference, evaluation.epoch) == (inference, result.best_epoch)
    assert evaluation.ceiling == result.ceiling
    assert evaluation.metrics["test"] == result.test_metrics
    assert evaluation.metrics["valid"] == result.valid_metrics
    assert list(evaluation.metrics["train"]) == names
    assert evaluation.test_metric == result.test_metric == result.test_metrics[names[0]]
    chosen = {"exact": "sampled", "sampled": "exact"}[inference]
    other = evaluated(tmp_path, inference=chosen)
    assert other.inference == chosen
    assert other.train_metric != evaluation.train_metric


def test_sampled_predictions_do_not_depend_on_their_company(settings: Any) -> None:
    config = settings("runtime.inference=sampled", "sampler.fanouts=[2,2]")
    graph = config.dataset.open()
    torch.manual_seed(0)
    model = config.model.build(num_features=graph.num_features, num_classes=graph.num_classes)
    predictor = Predictor(model, graph, config.evaluation_options)
    together = predictor.logits(graph.test_idx)
    alone = predictor.logits(graph.test_idx[70:71])
    assert together[70:71] == pytest.approx(alone, abs=1e-5)
    left, right = (
        settings("sampler.fanouts=[-1,-1]", f"runtime.inference={inference}").evaluation_options
        for inference in ("sampled", "exact")
    )
    exact = Predictor(model, graph, right).logits(graph.test_idx)
    assert Predictor(model, graph, left).logits(graph.test_idx) == pytest.approx(exact, abs=1e-4)


@pytest.mark.long
def test_folders_that_are_no_run_are_refused(finished: Any, tmp_path: Path) -> None:
    with one_line("run=", "none: expected a run directory, it has no config.yaml"):
        evaluated(tmp_path / "none")
    file = tmp_path / "config.yaml"
    for text, message in (
        ("seed: [1", "not valid YAML in line 2"),
        ("- 1", "expected a mapping of options"),
        ("seed: 1", ": required"),
        ("dataset: {_target_: os.system}", "expected a class of gnnscale"),
    ):
        file.write_text(text)
        with one_line(message, str(file)):
            load_run(tmp_path)
    finished("epochs=1")
    os.truncate(tmp_path / BEST, 100)
    with one_line("best.safetensors: not a readable checkpoint"):
        evaluated(tmp_path)
    (tmp_path / BEST).unlink()
    with one_line("best.safetensors: no such checkpoint"):
        evaluated(tmp_path)


@pytest.mark.long
def test_weights_of_another_model_or_graph(finished: Any, tmp_path: Path) -> None:
    finished("epochs=1")
    own = OmegaConf.load(tmp_path / "config.yaml")
    for option, value, message in (
        ("model.hidden", 16, "best.safetensors: not weights of this model"),
        ("dataset.seed", 7, "run: the graph's "),
    ):
        changed = own.copy()
        OmegaConf.update(changed, option, value)
        OmegaConf.save(changed, tmp_path / "config.yaml")
        with one_line(message, "best.safetensors"):
            evaluated(tmp_path)
    save_checkpoint(tmp_path / BEST, {**load_checkpoint(tmp_path / BEST), "graph": None})
    with one_line("best.safetensors: not weights of a run (its graph"):
        evaluated(tmp_path)


@pytest.fixture
def graph(settings: Any) -> Graph:
    return settings().dataset.open()


@pytest.fixture
def model(settings: Any, graph: Graph) -> GNN:
    """A model that has not learnt anything, in the middle of training."""
    found = settings().model.build(num_features=graph.num_features, num_classes=graph.num_classes)
    return found.train()


def validator_of(config: Any, task: Any, model: GNN, store: Any) -> Validator:
    rest = {"epochs": config.epochs, "eval_every": config.runtime.eval_every, "device": None}
    arguments = config.evaluation_options, task, model
    return Validator(*arguments, store=store, num_threads=config.host_threads, **rest)


@pytest.mark.long
def test_when_validation_is_due_and_what_it_reads(settings, graph, model) -> None:
    for every, due in ((1, [1, 2, 3, 4, 5]), (2, [2, 4, 5]), (9, [5])):
        config = settings("epochs=5", f"runtime.eval_every={every}")
        validator = validator_of(config, VertexTask(graph=graph), model, HostFeatures.of(graph))
        assert [epoch for epoch in range(1, 6) if validator.is_due(epoch)] == due
    nothing, task = NoRows().open(graph), VertexTask(graph=graph)
    known = validator_of(settings(), task, model, HostFeatures.of(graph)).validate()[0]
    assert validator_of(settings(), task, model, nothing).validate()[0] != known
    assert validator_of(settings(), task, model, None).validate()[0] == known


@pytest.mark.parametrize("inference", ["exact", "sampled"])
def test_each_split_has_its_own_metric(settings, graph, model, inference) -> None:
    config, task = settings(f"runtime.inference={inference}"), VertexTask(graph=graph)
    validator = validator_of(config, task, model, HoldEvenVertices().open(graph))
    predictor = Predictor(model, graph, config.evaluation_options)
    expected = open_examiner(task, model, predictor).measure(["valid", "test"])
    metric, seconds = validator.validate()
    outcome = validator.test()
    metrics, counts = outcome.metrics, outcome.classes
    assert [metric, metrics] == expected
    assert metric != metrics
    assert outcome.thresholds is None
    assert counts is not None
    wanted = np.bincount(graph.labels[graph.test_idx], minlength=graph.num_classes)
    assert counts.actual == tuple(wanted)
    assert sum(counts.right) / sum(counts.actual) == pytest.approx(metrics["accuracy"])
    assert seconds > 0


def test_validation_takes_all_threads_and_gives_them_back(
    settings, graph, model, monkeypatch
) -> None:
    seen: list[Any] = []
    threads: list[int] = []

    class Watched(HostFeatures):
        def aggregate(self, *arguments: Any, **options: Any) -> Any:
            seen.append((threads[-1], torch.get_num_threads(), set(CURRENT_ACTIVITIES.values())))
            return super().aggregate(*arguments, **options)

    class WatchedWorkers(Workers):
        def __init__(self, num_threads: int) -> None:
            threads.append(num_threads)
            super().__init__(num_threads)

    store = Watched(graph.features, graph.feature_dtype)
    monkeypatch.setattr("gnnscale.run.config.usable_cores", lambda: 3)
    monkeypatch.setattr("gnnscale.inference.layerwise.Workers", WatchedWorkers)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        validator_of(settings("num_threads=2"), VertexTask(graph=graph), model, store).validate()
        validator_of(settings("num_threads=8"), VertexTask(graph=graph), model, store).test()
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
    # A hook may ask what a worker is in: see CURRENT_ACTIVITIES.
    assert seen[0] == (2, 1, {"validate"})
    assert seen[-1] == (3, 1, set())
    assert not CURRENT_ACTIVITIES


def test_a_metric_that_is_not_defined_is_none(settings: Any, graph: Graph) -> None:
    labels = np.zeros(graph.num_vertices, np.int64)
    one_class = replace(graph, labels=labels, num_classes=2, metric="roc_auc")
    model = settings().model.build(num_features=graph.num_features, num_classes=2)
    store = HostFeatures.of(graph)
    validator = validator_of(settings(), VertexTask(graph=one_class), model, store)
    assert validator.validate()[0] == {"roc_auc": None}
    assert validator.test().metrics == {"roc_auc": None}
