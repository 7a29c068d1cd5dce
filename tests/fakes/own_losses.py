"""Losses from outside the package."""

import torch
from torch import Tensor
from torch.nn import functional


def hinge(outputs: Tensor, targets: Tensor) -> Tensor:
    """How far each vertex is from being right with a margin of 1, of the mean."""
    return functional.multi_margin_loss(outputs, targets) * outputs.shape[1]


def each_vertex(outputs: Tensor, targets: Tensor) -> Tensor:
    """No mean."""
    return functional.cross_entropy(outputs, targets, reduction="none")


def number(outputs: Tensor, targets: Tensor) -> float:
    """No tensor."""
    return torch.ones(1).item()
