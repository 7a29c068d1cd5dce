"""What training minimises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from gnnscale.graph import Graph
from gnnscale.sampler import MiniBatch

__all__ = ["Objective", "seed_loss", "vertex_objective"]

#: From a model's output rows for a mini-batch, ``[num_seeds, width]`` float32, to the mean loss.
#: That of a mini-batch without seeds is 0, with a gradient of zeros.
Objective: TypeAlias = Callable[[Tensor, MiniBatch], Tensor]


def vertex_objective(graph: Graph) -> Objective:
    """Return the loss of predicting the labels of a mini-batch's seeds."""

    def objective(logits: Tensor, batch: MiniBatch) -> Tensor:
        return seed_loss(graph, logits, batch.seeds)

    return objective


def seed_loss(graph: Graph, logits: Tensor, seeds: NDArray[np.integer[Any]]) -> Tensor:
    """Return the mean loss of a mini-batch's seeds; that of none is 0.

    Cross-entropy over the classes where a vertex has one label; binary cross-entropy of each class
    where it may have several.

    Args:
        graph: holds the labels.
        logits: ``[num_seeds, num_classes]`` float32.
        seeds: ``[num_seeds]`` global vertex ids, none without a label.
    """
    if not len(seeds):
        return logits.sum()
    labels = torch.from_numpy(graph.labels[seeds])
    if graph.multilabel:
        return functional.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype))
    return functional.cross_entropy(logits, labels.to(torch.int64))
