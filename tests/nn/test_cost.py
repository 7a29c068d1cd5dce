from dataclasses import asdict, fields, replace

import own_layers
import pytest

from gnnscale.nn import APPNP, GAT, GCN, GIN, SGC, GATv2, GraphSAGE
from gnnscale.nn.cost import LayerCost, LayerWork
from gnnscale.nn.scatter_gather import Custom


@pytest.mark.parametrize(
    ("model", "products"),
    [
        (GraphSAGE, (((40, 8),), ((16, 3),))),
        (GCN, (((20, 8),), ((8, 3),))),
        (GIN, (((20, 8), (8, 8)), ((8, 8), (8, 3)))),
        (GAT, (((20, 8),), ((8, 24),))),
    ],
)
def test_every_architecture_states_its_products(model, products) -> None:
    built = model(hidden=8).build(num_features=20, num_classes=3)
    costs = [built.layer(0).cost(20, 8), built.layer(1).cost(8, 3)]
    assert tuple(cost.products for cost in costs) == products
    assert [(cost.width_in, cost.width_out) for cost in costs] == [(20, 8), (8, 3)]
    assert [cost.attention for cost in costs] == ([8, 8] if model is GAT else [0, 0])
    assert all(cost.aggregates_on_load == (model is not GAT) for cost in costs)


def test_the_second_attention_states_a_row_of_an_edge() -> None:
    built = GATv2(hidden=8, num_heads=2).build(num_features=20, num_classes=3)
    first, last = built.layer_costs
    assert (first.products, first.own_products) == (((20, 8),), ((20, 8),))
    assert (first.attention, first.pair_width, last.pair_width) == (2, 8, 6)
    shared = GATv2(hidden=8, share_weights=True).build(num_features=20, num_classes=3)
    assert shared.layer_costs[0].own_products == ()
    forward = first.forward(**AMOUNTS, aggregated=False)
    assert forward.macs == 100 * 20 * 8 + 10 * 20 * 8
    plain = replace(first, own_products=(), pair_width=0).forward(**AMOUNTS, aggregated=False)
    assert (forward.edge_row_bytes, plain.edge_row_bytes) == (5 * 130 * 8 * 4, 0)
    assert forward.stream_bytes == plain.stream_bytes
    assert forward.read_bytes == 2 * plain.read_bytes
    # The host makes rows of edges if these have features.
    widths = {"num_features": 20, "num_classes": 3, "num_edge_features": 4}
    reading = GATv2(hidden=8, num_heads=2).build(**widths)
    rows = reading.layer_costs[0].forward(**AMOUNTS, aggregated=False)
    assert rows.edge_row_bytes == 0
    assert rows.stream_bytes == forward.stream_bytes + forward.edge_row_bytes


def test_hops_have_no_products_and_a_perceptron_makes_messages() -> None:
    first, last = SGC().build(num_features=20, num_classes=3).layer_costs
    assert (first.products, last.products) == (((20, 3),), ())
    assert last.forward(**AMOUNTS, aggregated=False).macs == 0
    first, last = APPNP(hidden=8).build(num_features=20, num_classes=3).layer_costs
    assert not first.aggregates_on_load
    assert (first.message_width, first.message_products) == (3, ((20, 8), (8, 3)))
    assert first.forward(**AMOUNTS, aggregated=False).macs == 100 * (20 * 8 + 8 * 3)
    _, last = GCN(hidden=8, jumping="cat").build(num_features=20, num_classes=3).layer_costs
    assert last.products == ((8, 8), (16, 3))


def test_every_amount_is_added() -> None:
    names = [field.name for field in fields(LayerWork)]
    first = LayerWork(**dict(zip(names, range(1, 9), strict=False)))
    second = LayerWork(**dict.fromkeys(names, 10))
    assert asdict(first + second) == {name: number + 11 for number, name in enumerate(names)}


AMOUNTS = {"edges": 120, "targets": 10, "sources": 100}


def test_work_of_a_layer_by_hand() -> None:
    cost = LayerCost(width_in=20, width_out=8, products=((20, 8),))
    forward = cost.forward(**AMOUNTS, aggregated=False)
    assert forward == LayerWork(
        read_bytes=130 * 20 * 4,
        macs=10 * 20 * 8,
        operand_bytes=10 * 20 * 4,
        stream_bytes=10 * 8 * 4,
        operations=0.5,
    )
    loaded = cost.forward(**AMOUNTS, aggregated=True)
    assert loaded.read_bytes == 0
    assert loaded.macs == forward.macs
    # The gradient of the weights, and of the input where somebody needs it.
    first = cost.backward(**AMOUNTS, first=True)
    assert (first.macs, first.read_bytes) == (forward.macs, 0)
    assert (first.operand_bytes, first.stream_bytes) == (10 * 20 * 4, 10 * 8 * 4)
    hidden = cost.backward(**AMOUNTS, first=False)
    assert (hidden.macs, hidden.read_bytes) == (2 * forward.macs, forward.read_bytes)
    assert (hidden.operand_bytes, hidden.stream_bytes) == (10 * 28 * 4, 10 * 28 * 4)
    perceptron = LayerCost(width_in=20, width_out=3, products=((20, 8), (8, 3)))
    first = perceptron.backward(edges=0, targets=1, sources=1, first=True)
    assert first.macs == 20 * 8 + 2 * 8 * 3


@pytest.mark.parametrize(
    ("functions", "products", "message_products", "width"),
    [
        (own_layers.MaxPooling, ((40, 8),), ((20, 20),), 20),
        (own_layers.PairSum, ((27, 8),), ((40, 7),), 7),
        (own_layers.PlainMean, ((20, 8),), (), 20),
        (own_layers.Attention, (), ((20, 16),), 16),
    ],
)
def test_a_layer_of_ones_own_states_what_its_functions_do(
    functions, products, message_products, width
) -> None:
    built = Custom(functions=functions, hidden=8).build(num_features=20, num_classes=3)
    messages = {"message_width": width, "message_products": message_products}
    messages["messages_per_edge"] = functions is own_layers.PairSum
    expected = LayerCost(width_in=20, width_out=8, products=products, **messages)
    assert built.layer(0).cost(20, 8) == expected
    assert built.training
