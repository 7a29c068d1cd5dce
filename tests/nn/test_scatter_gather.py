from typing import Any

import numpy as np
import own_layers
import pytest
import torch

from gnnscale.core.errors import ConfigError
from gnnscale.nn import scatter_gather as custom
from gnnscale.nn.scatter_gather import Custom, ScatterGatherUpdate
from gnnscale.sampling import Block, NeighborSampler


def max_pooling(layer: Any, h: torch.Tensor, edges: torch.Tensor, *_: Any) -> torch.Tensor:
    messages = layer.pool(h).relu()
    there = (edges > 0)[..., None]
    # No edge can be seen by its message, which may be 0; a vertex without any gathers zeros.
    largest = torch.where(there, messages, -torch.inf).amax(1)
    gathered = torch.where(there.any(1), largest, 0)
    return layer.linear(torch.cat([h[: len(edges)], gathered], dim=1))


def pair_sum(layer: Any, h: Any, edges: Any, degrees: Any, block: Block) -> torch.Tensor:
    num_dst, num_src = edges.shape
    ends = torch.cat([h.expand(num_dst, -1, -1), h[:num_dst, None].expand(-1, num_src, -1)], dim=2)
    gathered = (edges[..., None] * torch.sigmoid(layer.edge(ends))).sum(1)
    if block.importance is None:
        gathered = gathered * degrees[:num_dst] / edges.sum(1, keepdim=True).clamp(min=1)
    return torch.tanh(layer.linear(torch.cat([h[:num_dst], gathered], dim=1)))


def plain_mean(layer: Any, h: Any, edges: Any, degrees: Any, block: Block) -> torch.Tensor:
    terms = edges.sum(1, keepdim=True) if block.importance is None else degrees[: block.num_dst]
    return layer.linear(edges @ h / terms.clamp(min=1))


def attention(layer: Any, h: torch.Tensor, edges: torch.Tensor, *_: Any) -> torch.Tensor:
    z = layer.project(h).view(len(h), 2, -1)
    weight = (z * layer.score).sum(2).tanh().exp() * edges[..., None]
    total = weight.sum(1, keepdim=True)
    # Both sums are multiplied alike.
    return torch.einsum("ijk,jkf->ikf", weight / total.clamp(min=1e-6), z).mean(1)


DENSE = dict(zip(own_layers.ALL, (max_pooling, pair_sum, plain_mean, attention), strict=True))


@pytest.mark.parametrize("functions", own_layers.ALL)
def test_against_a_dense_reference(check_against, functions) -> None:
    config = Custom(functions=functions, hidden=16, dropout=0.0)
    check_against(config, lambda layer, *rest: DENSE[functions](layer.functions, *rest), fused=True)


@pytest.mark.long
@pytest.mark.parametrize("functions", own_layers.ALL)
def test_slices_change_nothing_where_no_gradient_is_needed(
    random_graph, sample, load, monkeypatch, functions
) -> None:
    graph = random_graph()
    batch = sample(graph)
    model = Custom(functions=functions, hidden=16).build(num_features=20, num_classes=5).eval()
    inputs = load(graph, model, batch)
    whole = model(batch, inputs)
    largest: list[int] = []
    original = custom.message_sums

    def noted(block: Block, degrees: Any) -> Any:
        largest.append(block.num_edges)
        return original(block, degrees)

    monkeypatch.setattr(custom, "message_sums", noted)
    monkeypatch.setattr(custom, "_SLICE_EDGES", 16)
    with torch.no_grad():
        in_slices = model(batch, inputs)
    assert len(largest) > 4
    degrees = [np.diff(block.indptr).max() for block in batch.blocks]
    assert max(largest) <= 16 + max(degrees)
    # Matrix products of other shapes may round otherwise.
    torch.testing.assert_close(in_slices, whole)
    monkeypatch.undo()
    assert model(batch, inputs).requires_grad


class NoGather(ScatterGatherUpdate):
    def scatter(self, source: torch.Tensor) -> torch.Tensor:
        return source

    def update(self, own: torch.Tensor, gathered: torch.Tensor) -> torch.Tensor:
        return own


class Median(NoGather):
    gather = "median"


class ThreeEnds(NoGather):
    gather = "max"

    def scatter(self, source: Any, destination: Any, edge: Any) -> torch.Tensor:
        return source


class OwnOnly(NoGather):
    gather = "max"

    def update(self, own: torch.Tensor) -> torch.Tensor:
        return own


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        (torch.nn.Linear, "Linear'>: expected a subclass of ScatterGatherUpdate"),
        (torch.nn.Linear(2, 2), "expected a subclass of ScatterGatherUpdate"),
        (NoGather, r"NoGather\.gather: required"),
        (Median, r"Median\.gather=median: expected one of sum, mean, max, or a method"),
        (ThreeEnds, r"ThreeEnds\.scatter: expected arguments source, or source and destination"),
        (OwnOnly, r"OwnOnly\.update: expected arguments own, gathered"),
    ],
)
def test_functions_are_refused(functions: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        Custom(functions=functions)
    assert "\n" not in str(caught.value)


class OwnRows(NoGather):
    """Returns rows as wide as they came."""

    gather = "max"

    def __init__(self, num_in: int, num_out: int) -> None:
        super().__init__()


class OneRow(OwnRows):
    def gather(self, messages: torch.Tensor, segments: Any) -> torch.Tensor:
        return messages[:1]


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        (OwnRows, r"OwnRows\.update: expected \[destinations, num_out\] = \[2, 3\], got \[2, 2\]"),
        (OneRow, r"OneRow\.gather: expected a row for each of 2 destinations, got 1 rows"),
    ],
)
def test_rows_of_a_wrong_shape_are_named(tiny_graph, load, functions, message) -> None:
    batch = NeighborSampler(tiny_graph, fanouts=[-1]).sample(np.array([0, 1]), 0)
    model = Custom(functions=functions, num_layers=1).build(num_features=2, num_classes=3)
    with pytest.raises(ConfigError, match=message):
        model(batch, load(tiny_graph, model, batch))
