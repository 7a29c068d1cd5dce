from typing import Any

import numpy as np
import pytest
import torch

from gnnscale.nn import GCN, GIN, GraphSAGE
from gnnscale.sampling import NeighborSampler


def gcn(layer: Any, h: Any, edges: Any, degrees: Any, block: Any) -> torch.Tensor:
    num_dst = block.num_dst
    if block.importance is None:
        edges = edges * degrees[:num_dst] / edges.sum(1, keepdim=True).clamp(min=1)
    root = (degrees + 1).rsqrt()
    edges = root[:num_dst] * edges * root.T
    return layer.linear(edges @ h + h[:num_dst] / (degrees[:num_dst] + 1))


def sage(layer: Any, h: Any, edges: Any, degrees: Any, block: Any) -> torch.Tensor:
    sampled = edges.sum(1, keepdim=True)
    count = sampled if block.importance is None else degrees[: block.num_dst]
    return layer.linear(torch.cat([h[: block.num_dst], edges @ h / count.clamp(min=1)], 1))


def gin(layer: Any, h: Any, edges: Any, degrees: Any, block: Any) -> torch.Tensor:
    sums = edges @ h
    if block.importance is None:
        sums = sums * degrees[: block.num_dst] / edges.sum(1, keepdim=True).clamp(min=1)
    return layer.second(layer.first(h[: block.num_dst] + sums).relu())


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(("config", "dense"), [(GCN, gcn), (GraphSAGE, sage), (GIN, gin)])
def test_against_a_dense_reference(check_against, config, dense, fused) -> None:
    check_against(config(hidden=16, dropout=0.0), dense, fused=fused)


def test_a_sampled_sum_is_rescaled(random_graph) -> None:
    graph = random_graph()
    (block,) = NeighborSampler(graph, fanouts=[3]).sample(np.arange(50), 0).blocks
    degrees = np.diff(graph.indptr).astype(np.float32)[:50]
    layer = GIN(num_layers=1).build(num_features=20, num_classes=5).layers[0]
    how = layer.aggregation(block, degrees)
    assert how.self_term == "add"
    assert how.self_scale is None
    np.testing.assert_allclose(how.dst_scale * np.diff(block.indptr), degrees, rtol=1e-6)
