from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from gnnscale.feature import HostFeatures
from gnnscale.graph import Graph
from gnnscale.model import GraphSAGE
from gnnscale.model.losses import CrossEntropy
from gnnscale.model.trainable import TrainableModel, seed_loss, vertex_objective
from gnnscale.sampler import NeighborSampler


class OwnModel(TrainableModel):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, 3)


def test_what_a_model_has_by_default(tiny_graph: Graph) -> None:
    model = OwnModel(tiny_graph.num_features)
    batch = NeighborSampler(tiny_graph, fanouts=[2]).sample(np.arange(2), 0)
    inputs = model.load(
        HostFeatures.of(tiny_graph),
        batch,
        None,
        aggregates=True,
        dtype=torch.float32,
        num_threads=1,
    )
    assert not inputs.aggregated
    expected = torch.from_numpy(np.asarray(tiny_graph.features)[batch.input_vertices])
    assert torch.equal(inputs.x, expected.float())
    assert inputs.num_bytes == inputs.x.nbytes
    assert model.shared_parameters == [model.linear.weight, model.linear.bias]
    assert not model.infers_by_layer
    assert model.layer_costs == ()
    assert model.take_waited_s() == 0
    with pytest.raises(NotImplementedError):
        model.layer(0)


def test_a_model_of_layers_says_what_they_cost() -> None:
    model = GraphSAGE(hidden=8).build(num_features=5, num_classes=3)
    assert model.infers_by_layer
    assert model.counted is None
    assert [(each.width_in, each.width_out) for each in model.layer_costs] == [(5, 8), (8, 3)]


@dataclass(frozen=True)
class Seeds:
    """The part of a mini-batch that an objective looks at."""

    seeds: Any

    @property
    def num_seeds(self) -> int:
        return len(self.seeds)


def graph(labels: np.ndarray, num_classes: int) -> Graph:
    none = np.zeros(0, np.int32)
    return Graph(
        name="tiny",
        indptr=np.zeros(len(labels) + 1, np.int64),
        indices=none,
        features=np.zeros((len(labels), 1), np.float32),
        feature_dtype="float32",
        labels=labels,
        num_classes=num_classes,
        train_idx=none,
        valid_idx=none,
        test_idx=none,
    )


def test_cross_entropy_by_hand() -> None:
    logits = torch.tensor([[0.0, math.log(3.0)], [0.0, 0.0]])
    loss = seed_loss(graph(np.array([0, 0, 1]), 2), logits, np.array([2, 0], np.int32))
    assert loss.item() == pytest.approx((-math.log(3 / 4) - math.log(1 / 2)) / 2)


def test_binary_cross_entropy_by_hand() -> None:
    logits = torch.tensor([[math.log(3.0), 0.0]])
    labels = np.array([[0, 0], [1, 0]], np.uint8)
    loss = seed_loss(graph(labels, 2), logits, np.array([1]))
    assert loss.item() == pytest.approx((-math.log(3 / 4) - math.log(1 / 2)) / 2)


def test_a_loss_of_ones_choice_gets_the_labels_of_the_seeds() -> None:
    """Class 1 counts three times as much, and a mini-batch without seeds nothing."""
    labels = graph(np.array([0, 1]), 2)
    labels = replace(labels, train_idx=np.array([0, 1], np.int32))
    objective = vertex_objective(labels, CrossEntropy(class_weights=[1, 3]))
    logits = torch.tensor([[0.0, math.log(3.0)], [0.0, 0.0]])
    found = objective(logits, Seeds(np.array([1, 0], np.int32)))  # type: ignore[arg-type]
    assert found.item() == pytest.approx((1.5 * -math.log(3 / 4) + 0.5 * math.log(2)) / 2)
    none = torch.zeros(0, 2, requires_grad=True)
    assert objective(none, Seeds(np.zeros(0, np.int32))).item() == 0  # type: ignore[arg-type]


def test_numbers_for_labels() -> None:
    """One number a vertex is compared with one output."""
    labels = graph(np.array([0.5, -1.0, np.nan], np.float32), 1)
    outputs = torch.tensor([[1.0], [1.5]])
    found = seed_loss(labels, outputs, np.array([1, 0]))
    assert found.item() == pytest.approx((2.0**2 + 1.0**2) / 2)
