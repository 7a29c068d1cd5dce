from __future__ import annotations

import pytest

from gnnscale.model import GAT, GCN, GIN, GraphSAGE, ModelConfig
from gnnscale.model.cost import LayerCost, LayerWork


@pytest.mark.parametrize(
    ("model", "products"),
    [
        (GraphSAGE, (((40, 8),), ((16, 3),))),
        (GCN, (((20, 8),), ((8, 3),))),
        (GIN, (((20, 8), (8, 8)), ((8, 8), (8, 3)))),
        (GAT, (((20, 8),), ((8, 24),))),
    ],
)
def test_every_architecture_states_its_products(
    model: type[ModelConfig], products: tuple[tuple[tuple[int, int], ...], ...]
) -> None:
    built = model(hidden=8).build(num_features=20, num_classes=3)
    costs = [built.layer(0).cost(20, 8), built.layer(1).cost(8, 3)]
    assert tuple(cost.products for cost in costs) == products
    assert [(cost.width_in, cost.width_out) for cost in costs] == [(20, 8), (8, 3)]
    assert [cost.attention for cost in costs] == ([8, 8] if model is GAT else [0, 0])
    assert all(cost.aggregates_on_load == (model is not GAT) for cost in costs)


def test_work_of_a_layer_by_hand() -> None:
    cost = LayerCost(width_in=20, width_out=8, products=((20, 8),))
    forward = cost.forward(edges=120, targets=10, sources=100, aggregated=False)
    assert forward == LayerWork(
        read_bytes=130 * 20 * 4, macs=10 * 20 * 8, stream_bytes=10 * 28 * 4, operations=0.5
    )
    loaded = cost.forward(edges=120, targets=10, sources=100, aggregated=True)
    assert loaded.read_bytes == 0
    assert loaded.macs == forward.macs
    # The gradient of the weights, and of the input where somebody needs it.
    first = cost.backward(edges=120, targets=10, sources=100, first=True)
    assert (first.macs, first.read_bytes) == (forward.macs, 0)
    hidden = cost.backward(edges=120, targets=10, sources=100, first=False)
    assert (hidden.macs, hidden.read_bytes) == (2 * forward.macs, forward.read_bytes)


def test_a_perceptron_has_two_products() -> None:
    cost = LayerCost(width_in=20, width_out=3, products=((20, 8), (8, 3)))
    first = cost.backward(edges=0, targets=1, sources=1, first=True)
    assert first.macs == 20 * 8 + 2 * 8 * 3


def test_attention_projects_sources_by_hand() -> None:
    cost = LayerCost(width_in=20, width_out=8, products=((20, 8),), attention=2)
    forward = cost.forward(edges=120, targets=10, sources=100, aggregated=False)
    assert forward.macs == 100 * 20 * 8
    assert forward.read_bytes == 130 * 8 * 4
    both = forward + cost.backward(edges=120, targets=10, sources=100, first=True)
    assert both.attention == 230 * 2
    assert both.read_bytes == 3 * forward.read_bytes
