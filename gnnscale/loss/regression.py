"""Losses of numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gnnscale.loss.base import Loss, LossConfig, check_labels

if TYPE_CHECKING:
    from torch import Tensor

    from gnnscale.graph import Graph

__all__ = ["MeanSquaredError"]


@dataclass(frozen=True, kw_only=True)
class MeanSquaredError(LossConfig):
    """Mean squared error, where labels are numbers; those that are not known do not count.

    Of a vertex with several numbers, it is the mean over those that are known, so that every vertex
    counts alike.
    """

    def build(self, graph: Graph) -> Loss:
        """Return the loss.

        Raises:
            ConfigError: the graph has other labels.
        """
        check_labels("loss=mean_squared_error", graph, "numbers")

        def loss(outputs: Tensor, targets: Tensor) -> Tensor:
            known = ~targets.isnan()
            # Unknown numbers go first: 0 times NaN would be a gradient of NaN.
            squares = (outputs - targets.nan_to_num()).square() * known
            return (squares.sum(1) / known.sum(1).clamp(min=1)).mean()

        return loss
