"""The loss that the graph's labels ask for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gnnscale.loss.base import Loss, LossConfig, label_kind
from gnnscale.loss.classification import BinaryCrossEntropy, CrossEntropy
from gnnscale.loss.regression import MeanSquaredError

if TYPE_CHECKING:
    from gnnscale.graph import Graph

__all__ = ["AutoLoss"]

_OF_KIND: dict[str, type[LossConfig]] = {
    "classes": CrossEntropy,
    "several": BinaryCrossEntropy,
    "numbers": MeanSquaredError,
}


@dataclass(frozen=True, kw_only=True)
class AutoLoss(LossConfig):
    """By the labels: cross-entropy, binary cross-entropy of each of several, or squared error."""

    def build(self, graph: Graph) -> Loss:
        """Return the loss of the graph's kind of labels."""
        return _OF_KIND[label_kind(graph.labels)]().build(graph)
