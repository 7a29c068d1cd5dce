"""Checks of a checkpoint's tensors against a model and its optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gnnscale.core import ConfigError, brief
from gnnscale.nn.learned_embeddings import LearnedEmbedding


def check_weights(file: Path, weights: Any, model: nn.Module) -> dict[str, Tensor]:
    """Return ``weights`` as a dict; ConfigError if they do not fit ``model``."""
    expected = model.state_dict()
    if not isinstance(weights, Mapping) or weights.keys() != expected.keys():
        raise ConfigError(f"{file}: not weights of this model (parameter names differ)")
    for name, tensor in expected.items():
        stored = weights[name]
        if not isinstance(stored, Tensor):
            value = brief(stored)
        elif (stored.shape, stored.dtype) != (tensor.shape, tensor.dtype):
            value = _describe(stored, other=tensor)
        else:
            continue
        raise ConfigError(
            f"{file}: not weights of this model ({name}: expected "
            f"{_describe(tensor, other=stored)}, got {value})"
        )
    return dict(weights)


def _describe(tensor: Tensor, *, other: Any) -> str:
    """Return the shape of ``tensor``, and its dtype if that of ``other`` differs."""
    shape = str(list(tensor.shape))
    if isinstance(other, Tensor) and other.dtype != tensor.dtype:
        return f"{shape} {str(tensor.dtype).removeprefix('torch.')}"
    return shape


def check_optimizer_state(
    state: Mapping[int, Mapping[str, Tensor]],
    optimizer: torch.optim.Optimizer,
    names: frozenset[str],
    embedding: LearnedEmbedding | None,
) -> None:
    """Raise ValueError for an optimizer state of other names, shapes or dtypes.

    ``state`` is by parameter index, ``names`` are those of a parameter's state. Learned rows
    (``embedding``) have a state of their own.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for number, tensors in state.items():
        if not 0 <= number < len(parameters):
            raise ValueError("the optimizer's state is another's")
        parameter = parameters[number]
        if embedding is not None and parameter is embedding.weight:
            shapes = embedding.state_shapes
        else:
            shapes = {name: () if name == "step" else tuple(parameter.shape) for name in names}
        if tensors and tensors.keys() != shapes.keys():
            raise ValueError("the optimizer's state is another's")
        for name, tensor in tensors.items():
            dtype = torch.float32 if name == "step" else parameter.dtype
            if (tuple(tensor.shape), tensor.dtype) != (shapes[name], dtype):
                raise ValueError(f"the optimizer's {name} is {list(tensor.shape)}")
