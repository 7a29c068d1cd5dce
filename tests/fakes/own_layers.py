"""Layers of a user's own: each way to scatter, and each to gather."""

import torch
from torch import nn

from gnnscale.nn.scatter_gather import ScatterGatherUpdate
from gnnscale.nn.segment_ops import Segments


class MaxPooling(ScatterGatherUpdate):
    """GraphSAGE's pooling aggregator (Hamilton et al., 2017, eq. 3)."""

    gather = "max"

    def __init__(self, num_in: int, num_out: int) -> None:
        super().__init__()
        self.pool = nn.Linear(num_in, num_in)
        self.linear = nn.Linear(2 * num_in, num_out)

    def scatter(self, source: torch.Tensor) -> torch.Tensor:
        return self.pool(source).relu()

    def update(self, own: torch.Tensor, gathered: torch.Tensor) -> torch.Tensor:
        return self.linear(torch.cat([own, gathered], dim=1))


class PairSum(ScatterGatherUpdate):
    """Messages depend on both ends, and add up. What is returned is needed for its own gradient."""

    gather = "sum"

    def __init__(self, num_in: int, num_out: int) -> None:
        super().__init__()
        self.edge = nn.Linear(2 * num_in, 7)
        self.linear = nn.Linear(num_in + 7, num_out)

    def scatter(self, source: torch.Tensor, destination: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(self.edge(torch.cat([source, destination], dim=1)))

    def update(self, own: torch.Tensor, gathered: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.linear(torch.cat([own, gathered], dim=1)))


class PlainMean(ScatterGatherUpdate):
    """Rows are their own messages, and a vertex has no part in its own new row."""

    gather = "mean"

    def __init__(self, num_in: int, num_out: int) -> None:
        super().__init__()
        self.linear = nn.Linear(num_in, num_out)

    def scatter(self, source: torch.Tensor) -> torch.Tensor:
        return source

    def update(self, own: torch.Tensor, gathered: torch.Tensor) -> torch.Tensor:
        return self.linear(gathered)


class Attention(ScatterGatherUpdate):
    """Gathers by a function: messages of two heads, weighted by a softmax of their scores."""

    def __init__(self, num_in: int, num_out: int) -> None:
        super().__init__()
        self.project = nn.Linear(num_in, 2 * num_out)
        self.score = nn.Parameter(torch.linspace(-1, 1, 2 * num_out).view(2, num_out))

    def scatter(self, source: torch.Tensor) -> torch.Tensor:
        return self.project(source).view(-1, *self.score.shape)

    def gather(self, messages: torch.Tensor, segments: Segments) -> torch.Tensor:
        weight = (messages * self.score).sum(2, keepdim=True).tanh().exp()
        return segments.sum(weight * messages) / segments.sum(weight).clamp(min=1e-6)

    def update(self, own: torch.Tensor, gathered: torch.Tensor) -> torch.Tensor:
        return gathered.mean(dim=1)


ALL = (MaxPooling, PairSum, PlainMean, Attention)
