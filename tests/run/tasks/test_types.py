"""The task over several vertex types: its loss, metrics and their mean, by hand and by parts."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from one_line import one_line
from typed_graphs import shop

from gnnscale import Graph
from gnnscale.core import GraphError
from gnnscale.core.binary_metrics import average_precision, precision_at
from gnnscale.data.typed_arrays import from_typed_arrays
from gnnscale.nn.losses import CrossEntropy
from gnnscale.run.tasks.options import VertexPrediction
from gnnscale.run.tasks.types import MEAN, TypesTask
from gnnscale.sampling import TypedMiniBatch
from gnnscale.sampling.typed import TypedSampler


def graph_of(**labels: Any) -> Graph:
    """Return the shop, whose users, items or tags have ``labels`` and random splits."""
    graph = shop(40, 30)
    schema = graph.schema
    edges = {(t.source, t.relation, t.destination): ([0], [0]) for t in schema.edge_types}
    return from_typed_arrays(
        dict.fromkeys(graph.vertex_types),
        edges,
        labels,
        num_vertices={of.name: of.num_vertices for of in schema.vertex_types},
        split={
            name: {"train": np.arange(4 if name == "user" else 2), "valid": [5, 6]}
            for name in labels
        },
        name="shop",
    )


USERS, ITEMS = np.arange(40) % 3, np.arange(30, dtype=np.float32) / 2


def batch_of(graph: Graph, seeds: list[int]) -> TypedMiniBatch:
    return TypedSampler(graph, fanouts=[1]).sample(np.array(seeds, graph.indices.dtype), 0)


def test_the_loss_is_the_sum_of_those_of_the_types() -> None:
    graph = graph_of(user=USERS, item=ITEMS)
    task = TypesTask(graph=graph)
    assert task.seeds.tolist() == [9, 10, 11, 12, 49, 50]
    outputs = torch.randn(6, 3, requires_grad=True)
    batch = batch_of(graph, [49, 9, 10, 50, 11, 12])
    assert batch.seeds.tolist() == [9, 10, 11, 12, 49, 50]
    loss = task.objective(outputs, batch)
    users = torch.nn.functional.cross_entropy(outputs[:4], torch.tensor([0, 1, 2, 0]))
    items = torch.nn.functional.mse_loss(outputs[4:, 0], torch.tensor([0.0, 0.5]))
    torch.testing.assert_close(loss, users + items)
    loss.backward()
    assert outputs.grad is not None
    assert outputs.grad[4:, 1:].abs().sum() == 0
    # Slices of a mini-batch, weighted by their seeds, have its loss.
    slices = [
        (batch_of(graph, [9, 49, 50]), outputs[[0, 4, 5]]),
        (batch_of(graph, [10, 11, 12]), outputs[1:4]),
    ]
    parts = [task.objective(rows, part) / 2 for part, rows in slices]
    torch.testing.assert_close(sum(parts), loss)
    empty = batch_of(graph, [])
    assert task.objective(outputs[:0], empty).item() == 0


def test_weights_of_the_classes_of_each_type() -> None:
    graph = graph_of(user=USERS // 2 % 2, item=np.arange(30) % 2)
    loss = CrossEntropy(class_weights=[1, 3])
    outputs = torch.randn(6, 2)
    batch = batch_of(graph, [9, 10, 11, 12, 49, 50])
    expected = 0.0
    for name, rows in (("user", slice(4)), ("item", slice(4, 6))):
        one = graph.of_target(name)
        targets = torch.from_numpy(one.labels[one.train_idx])
        expected += loss.build(one)(outputs[rows], targets).item()
    value = TypesTask(graph=graph, loss=loss).objective(outputs, batch).item()
    assert value == pytest.approx(expected)
    balanced = CrossEntropy(class_weights="balanced")
    assert TypesTask(graph=graph, loss=balanced).objective(outputs, batch).item() > 0
    mixed = TypesTask(graph=graph_of(user=USERS, item=ITEMS), loss=loss)
    with one_line("loss.class_weights: expected 3 numbers, the classes of shop: user, got 2"):
        _ = mixed.objective
    mixed = TypesTask(graph=mixed.graph, loss=CrossEntropy())
    with one_line("loss=cross_entropy: expected one label per vertex, got shop: item with numbers"):
        _ = mixed.objective


def test_metrics_and_their_mean() -> None:
    task = TypesTask(graph=graph_of(user=USERS, item=ITEMS))
    assert task.measures == (MEAN, "user.accuracy", "item.rmse")
    # The training labels 0 and 0.5 deviate by 0.25 from their mean.
    joined = task.joined({"user": {"accuracy": 0.5}, "item": {"rmse": 0.125}})
    assert joined == {MEAN: 0.5, "user.accuracy": 0.5, "item.rmse": 0.125}
    assert task.joined({"user": {"accuracy": None}, "item": {"rmse": 0.125}})[MEAN] is None
    only = task.joined({"user": {"accuracy": 0.75}})
    assert only == {MEAN: 0.75, "user.accuracy": 0.75, "item.rmse": None}


def test_metrics_of_the_types_that_have_them(caplog: pytest.LogCaptureFixture) -> None:
    graph = graph_of(user=USERS, item=np.arange(30) == 1)
    task = TypesTask(graph=graph, metrics=["average_precision", "precision_at_1", "macro_f1"])
    of_items = ("item.average_precision", "item.precision_at_1", "item.macro_f1")
    assert task.measures == (MEAN, "user.macro_f1", *of_items)
    scores, labels = np.float32([[0, 1], [0, 2]]), np.array([1, 0])
    items = task.parts["item"]
    assert items.score("average_precision", scores, labels) == average_precision(scores, labels)
    assert items.score("precision_at_1", scores, labels) == precision_at(1, scores, labels) == 0
    with caplog.at_level("INFO"):
        task.log_split()
    assert "metrics of item are of class 1, 50.00% of the training set" in caplog.text
    assert math.isclose(items.base_rates["train"], 0.5)
    with one_line("metrics=rmse: expected accuracy", "for the labels of shop: user, 3 classes"):
        _ = TypesTask(graph=graph, metrics=["rmse"]).measures


def test_parts_of_the_split() -> None:
    graph = graph_of(user=USERS, item=ITEMS)
    graph = graph.with_split(valid_idx=graph.valid_idx[:2], test_idx=graph.valid_idx[:0])
    task = TypesTask(graph=graph)
    assert (task.has_part("valid"), task.has_part("test")) == (True, False)
    assert {name: rows.tolist() for name, rows in task.rows_by_type("valid").items()} == {
        "user": [14, 15]
    }
    with pytest.raises(GraphError, match="shop: item: has no train vertices"):
        _ = TypesTask(graph=graph.with_split(train_idx=graph.train_idx[:4])).seeds


def test_targets_of_a_task() -> None:
    graph = graph_of(user=USERS, item=ITEMS, tag=np.arange(9))
    assert VertexPrediction().labeled(graph) is graph
    one = VertexPrediction(target="item").labeled(graph)
    assert (one.targets, one.num_classes, one.train_idx.tolist()) == ((), 1, [49, 50])
    two = VertexPrediction(target=["item", "user"]).labeled(graph)
    assert (two.targets, two.num_classes) == (("user", "item"), 3)
    single = shop(40, 30)
    assert VertexPrediction(target="user").labeled(single) is single
    for target, words in (("tag", "labels, user"), (["item"], "labels, user")):
        with one_line("task.target=", f"expected a vertex type of shop with {words}"):
            VertexPrediction(target=target).labeled(single)
    with one_line("task.target=3: expected a vertex type, or a list of them"):
        VertexPrediction(target=3)
