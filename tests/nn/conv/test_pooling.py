from typing import Any

import numpy as np
import torch

from gnnscale.nn import GraphSAGE
from gnnscale.nn.conv.pooling import PoolingLayer
from gnnscale.nn.cost import LayerCost
from gnnscale.sampling import Block


def dense(layer: Any, h: Any, edges: Any, degrees: Any, block: Any) -> torch.Tensor:
    messages = layer.pool(h).relu()
    # Those of edges alone; 0 is the least that a message can be.
    pooled = ((edges > 0)[..., None] * messages).amax(1)
    return layer.linear(torch.cat([h[: block.num_dst], pooled], 1))  # type: ignore[no-any-return]


def test_against_a_dense_reference(check_against: Any) -> None:
    check_against(GraphSAGE(hidden=16, dropout=0.0, aggregator="pool"), dense, fused=True)


def test_maxima_by_hand() -> None:
    layer = PoolingLayer(2, 1)
    with torch.no_grad():
        layer.pool.weight.copy_(torch.eye(2))
        layer.linear.weight.copy_(torch.tensor([[1.0, 10.0, 100.0, 1000.0]]))
    x = torch.tensor([[1.0, 2.0], [3.0, -4.0], [5.0, 0.5]])
    block = Block(indptr=np.array([0, 2, 2, 3]), indices=np.int32([1, 2, 1]), num_src=3)
    # Of 3, -4 and 5, 0.5 the largest; nothing; of 3, -4 what ReLU leaves.
    expected = [[21 + 500 + 500.0], [3 - 40.0], [5 + 5 + 300.0]]
    assert layer.update(x, block).tolist() == expected
    with torch.no_grad():
        assert layer.update(x, block).tolist() == expected


def test_cost() -> None:
    products: Any = {"products": ((40, 8),), "message_products": ((20, 20),)}
    expected = LayerCost(
        width_in=20, width_out=8, message_width=20, host_makes_edge_rows=False, **products
    )
    assert PoolingLayer(20, 8).cost(20, 8) == expected
