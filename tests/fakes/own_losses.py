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


def _check(outputs: Tensor, targets: Tensor) -> None:
    """Refuse what is not said of the arguments of a loss and of a metric."""
    assert outputs.dtype == torch.float32
    assert outputs.ndim == 2
    assert outputs.device == targets.device == torch.device("cpu")
    kinds = {(torch.int64, 1), (torch.float32, 2)}
    assert (targets.dtype, targets.ndim) in kinds
    assert targets.shape[1:] in {(), outputs.shape[1:]}


def of_tensors(outputs: Tensor, targets: Tensor) -> Tensor:
    """The usual loss of each kind of labels, if the arguments are what they should be."""
    _check(outputs, targets)
    assert outputs.requires_grad
    if targets.ndim == 1:
        return functional.cross_entropy(outputs, targets)
    if set(targets.unique().tolist()) <= {0.0, 1.0}:
        return functional.binary_cross_entropy_with_logits(outputs, targets)
    return functional.mse_loss(outputs, targets)


def first_output(outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean of the first output, which is then changed; the arguments are as in a loss."""
    _check(outputs, targets)
    assert not torch.is_grad_enabled()
    mean = outputs[:, 0].mean()
    outputs.zero_()
    targets.zero_()
    return mean


def detached(outputs: Tensor, targets: Tensor) -> Tensor:
    """No gradient."""
    return functional.cross_entropy(outputs, targets).detach()


def by_numpy(outputs: Tensor, targets: Tensor) -> Tensor:
    """A function that was written for arrays."""
    return outputs.astype("float64") - targets  # type: ignore[attr-defined, no-any-return]
