from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from gnnscale.feature import HostFeatures
from gnnscale.graph import Graph
from gnnscale.model import GraphSAGE
from gnnscale.model.trainable import TrainableModel
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
