import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from gnnscale.features import HostFeatures
from gnnscale.graph import Graph
from gnnscale.nn import GraphSAGE
from gnnscale.nn.base import TrainableModel, seed_loss, vertex_objective
from gnnscale.nn.losses import CrossEntropy
from gnnscale.sampling import NeighborSampler


class OwnModel(TrainableModel):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, 3)


def test_defaults_of_a_model(tiny_graph: Graph) -> None:
    model = OwnModel(tiny_graph.num_features)
    batch = NeighborSampler(tiny_graph, fanouts=[2]).sample(np.arange(2), 0)
    how = {"aggregates": True, "dtype": torch.float32, "num_threads": 1}
    inputs = model.load(HostFeatures.of(tiny_graph), batch, None, **how)
    assert not inputs.aggregated
    expected = torch.from_numpy(np.asarray(tiny_graph.features)[batch.input_vertices])
    assert torch.equal(inputs.x, expected.float())
    assert inputs.num_bytes == inputs.x.nbytes
    assert model.shared_parameters == [model.linear.weight, model.linear.bias]
    assert not model.infers_by_layer
    assert model.layer_costs == ()
    assert model.pop_waited_s() == 0
    with pytest.raises(NotImplementedError):
        model.layer(0)


def test_a_model_of_layers_says_what_they_cost() -> None:
    model = GraphSAGE(hidden=8).build(num_features=5, num_classes=3)
    assert model.infers_by_layer
    assert model.counted is None
    assert [(each.width_in, each.width_out) for each in model.layer_costs] == [(5, 8), (8, 3)]


@pytest.mark.parametrize(
    ("labels", "seeds", "outputs", "expected"),
    [
        (np.array([0, 0, 1]), [2, 0], [[0, math.log(3)], [0, 0]], math.log(4 / 3) + math.log(2)),
        (np.uint8([[0, 0], [1, 0]]), [1], [[math.log(3), 0]], math.log(4 / 3) + math.log(2)),
        # One number a vertex is compared with one output.
        (np.float32([0.5, -1, np.nan]), [1, 0], [[1], [1.5]], 2**2 + 1**2),
    ],
    ids=["classes", "multilabel", "regression"],
)
def test_losses_by_hand(labeled, labels, seeds, outputs, expected) -> None:
    graph = labeled(labels, 1 if labels.dtype == np.float32 else 2)
    loss = seed_loss(graph, torch.tensor(outputs, dtype=torch.float32), np.array(seeds, np.int32))
    assert loss.item() == pytest.approx(expected / 2)


def test_a_loss_of_ones_choice_gets_the_labels_of_the_seeds(labeled) -> None:
    """Class 1 counts three times as much, and a mini-batch without seeds nothing."""
    loss = CrossEntropy(class_weights=[1, 3])
    objective = vertex_objective(labeled(np.array([0, 1]), 2), loss)
    logits = torch.tensor([[0.0, math.log(3.0)], [0.0, 0.0]])
    # What an objective looks at of a mini-batch.
    found = objective(logits, SimpleNamespace(seeds=np.int32([1, 0]), num_seeds=2))
    assert found.item() == pytest.approx((1.5 * -math.log(3 / 4) + 0.5 * math.log(2)) / 2)
    none = torch.zeros(0, 2, requires_grad=True)
    assert objective(none, SimpleNamespace(seeds=np.int32([]), num_seeds=0)).item() == 0
