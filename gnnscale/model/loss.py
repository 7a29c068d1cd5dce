"""What training minimises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnscale.graph import Graph
from gnnscale.loss import AutoLoss, LossConfig
from gnnscale.sampler import MiniBatch

__all__ = ["Objective", "seed_loss", "vertex_objective"]

#: From a model's output rows for a mini-batch, ``[num_seeds, width]`` float32, to the mean loss.
#: That of a mini-batch without seeds is 0, with a gradient of zeros.
Objective: TypeAlias = Callable[[Tensor, MiniBatch], Tensor]


def vertex_objective(graph: Graph, loss: LossConfig | None = None) -> Objective:
    """Return the loss of predicting the labels of a mini-batch's seeds.

    Args:
        graph: holds the labels.
        loss: what is minimised; None for what the labels ask for.

    Raises:
        ConfigError: the loss does not go with the labels.
    """
    measured = (loss or AutoLoss()).build(graph)

    def objective(outputs: Tensor, batch: MiniBatch) -> Tensor:
        if not batch.num_seeds:
            return outputs.sum()
        return measured(outputs, _targets(graph, batch.seeds))

    return objective


def seed_loss(graph: Graph, outputs: Tensor, seeds: NDArray[np.integer[Any]]) -> Tensor:
    """Return the mean loss of some vertices, as their labels ask for it; that of none is 0.

    Args:
        graph: holds the labels.
        outputs: ``[num_seeds, width]`` float32.
        seeds: ``[num_seeds]`` global vertex ids, none without a label.
    """
    if not len(seeds):
        return outputs.sum()
    return AutoLoss().build(graph)(outputs, _targets(graph, seeds))


def _targets(graph: Graph, seeds: NDArray[np.integer[Any]]) -> Tensor:
    """Return the labels of ``seeds`` as a loss takes them."""
    labels = torch.from_numpy(graph.labels[seeds])
    if graph.labels.dtype.kind == "f":
        return labels.to(torch.float32).reshape(len(seeds), -1)
    return labels.to(torch.float32 if graph.labels.ndim == 2 else torch.int64)
