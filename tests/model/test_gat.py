from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from gnnscale.core.errors import ConfigError
from gnnscale.model import GAT, GATv2
from gnnscale.model.gat import with_self_edges
from gnnscale.sampler import Block


def dense(layer: Any, h: Any, edges: Any, degrees: Any, block: Block) -> torch.Tensor:
    z = layer.linear(h).view(-1, layer.num_heads, layer.width)
    src = (z * layer.attention_src).sum(-1)
    dst = (z * layer.attention_dst).sum(-1)[: block.num_dst]
    edges = edges + torch.eye(block.num_dst, block.num_src, dtype=torch.float64)
    scores = functional.leaky_relu(dst[:, None] + src, 0.2)
    # An edge that is there twice, or stands for several, counts so often in the softmax.
    alpha = (scores + edges.log()[..., None]).softmax(1)
    out = torch.einsum("ijk,jkf->ikf", alpha, z)
    return (out.mean(1) if layer.average else out.flatten(1)) + layer.bias


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("num_heads", [1, 4])
def test_against_a_dense_reference(check_against, num_heads, fused) -> None:
    check_against(GAT(hidden=16, dropout=0.0, num_heads=num_heads), dense, fused=fused)


def dense_v2(layer: Any, h: Any, edges: Any, degrees: Any, block: Block) -> torch.Tensor:
    z = layer.linear(h).view(-1, layer.num_heads, layer.width)
    own = z if layer.linear_dst is None else layer.linear_dst(h).view_as(z)
    edges = edges + torch.eye(block.num_dst, block.num_src, dtype=torch.float64)
    pairs = functional.leaky_relu(own[: block.num_dst, None] + z, 0.2)
    alpha = ((pairs * layer.attention).sum(-1) + edges.log()[..., None]).softmax(1)
    out = torch.einsum("ijk,jkf->ikf", alpha, z)
    return (out.mean(1) if layer.average else out.flatten(1)) + layer.bias


@pytest.mark.parametrize("share_weights", [False, True])
@pytest.mark.parametrize("num_heads", [1, 4])
def test_the_second_version_against_a_dense_reference(
    check_against, num_heads, share_weights
) -> None:
    options = {"num_heads": num_heads, "share_weights": share_weights}
    check_against(GATv2(hidden=16, dropout=0.0, **options), dense_v2, fused=True)


def test_self_edges_come_first() -> None:
    block = Block(indptr=np.array([0, 2, 2, 3]), indices=np.int32([1, 3, 0]), num_src=4)
    block = replace(block, importance=np.float32([2, 3, 4]))
    own = with_self_edges(block)
    assert own.indptr.tolist() == [0, 3, 4, 6]
    assert own.indices.tolist() == [0, 1, 3, 1, 2, 0]
    assert own.indices.dtype == np.int32
    assert own.importance.tolist() == [1, 2, 3, 1, 1, 4]
    assert own.num_src == 4


@pytest.mark.parametrize("num_heads", [0, 3, -2])
def test_heads_that_do_not_fit(num_heads: int) -> None:
    with pytest.raises(ConfigError, match=rf"model\.num_heads={num_heads}: must divide"):
        GAT(hidden=16, num_heads=num_heads)
