"""A module of a program that sets torch's and NumPy's state when it is imported."""

from typing import Any

import numpy as np
import torch
from torch import nn

torch.set_default_dtype(torch.float64)
torch.set_default_device("meta")
torch.set_grad_enabled(False)
np.seterr(all="raise")


def right(outputs: Any, labels: Any) -> float:
    """A metric of the program."""
    return float((outputs.argmax(1) == labels).to(torch.float32).mean())


class OfDefaultType(nn.Module):
    """A module with batch normalization, which makes tensors of torch's default type."""

    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int) -> None:
        super().__init__()
        self.first = nn.Linear(in_channels, hidden_channels)
        self.norm = nn.BatchNorm1d(hidden_channels)
        self.second = nn.Linear(hidden_channels, out_channels)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        h = self.norm(self.first(x)).relu()
        sums = torch.zeros(len(h), h.shape[1]).index_add(0, edge_index[1], h[edge_index[0]])
        return self.second(h + sums)
