from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from held_rows import HoldEvenVertices
from row_exchange import NoRows

from gnnscale.distributed.heartbeat import CURRENT_ACTIVITIES
from gnnscale.features import HostFeatures
from gnnscale.graph import Graph
from gnnscale.inference.chunks import Workers
from gnnscale.inference.evaluate import Validator, open_examiner
from gnnscale.inference.predictor import Predictor
from gnnscale.nn import GNN
from gnnscale.run.tasks.base import VertexTask


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


@pytest.mark.parametrize(
    ("every", "due"), [(1, [1, 2, 3, 4, 5]), (2, [2, 4, 5]), (5, [5]), (9, [5])]
)
def test_when_validation_is_due(settings, graph, model, every, due) -> None:
    config = settings("epochs=5", f"runtime.eval_every={every}")
    validator = validator_of(config, VertexTask(graph=graph), model, HostFeatures.of(graph))
    assert [epoch for epoch in range(1, 6) if validator.is_due(epoch)] == due


@pytest.mark.parametrize("inference", ["exact", "sampled"])
def test_each_split_has_its_own_metric(settings, graph, model, inference) -> None:
    config, task = settings(f"runtime.inference={inference}"), VertexTask(graph=graph)
    validator = validator_of(config, task, model, HoldEvenVertices().open(graph))
    predictor = Predictor(model, graph, config.evaluation_options)
    expected = open_examiner(task, model, predictor).measure(["valid", "test"])
    metric, seconds = validator.validate()
    assert [metric, validator.test()] == expected
    assert metric != validator.test()
    metrics, counts = validator.test_by_class()
    assert metrics == expected[1]
    wanted = np.bincount(graph.labels[graph.test_idx], minlength=graph.num_classes)
    assert counts.wanted == tuple(wanted)
    assert sum(counts.right) / sum(counts.wanted) == pytest.approx(metrics["accuracy"])
    assert seconds > 0


def test_rows_are_read_from_the_store(settings: Any, graph: Graph, model: GNN) -> None:
    nothing, task = NoRows().open(graph), VertexTask(graph=graph)
    known = validator_of(settings(), task, model, HostFeatures.of(graph)).validate()[0]
    assert validator_of(settings(), task, model, nothing).validate()[0] != known
    assert validator_of(settings(), task, model, None).validate()[0] == known


def test_it_takes_all_threads_and_gives_them_back(settings, graph, model, monkeypatch) -> None:
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
    assert validator.test() == {"roc_auc": None}
