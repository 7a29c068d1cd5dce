"""The task of predicting labels of vertices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from gnnscale.graph import Graph
from gnnscale.model import ModelConfig, TrainableModel
from gnnscale.model.losses import AutoLoss, LossConfig
from gnnscale.model.trainable import Objective, vertex_objective
from gnnscale.sampler import SamplerConfig, SeedOrder
from gnnscale.sampler.seed_order import labelled_vertices
from gnnscale.task.base import chosen_metrics

__all__ = ["VertexTask"]


@dataclass(frozen=True, kw_only=True)
class VertexTask:
    """Labels of vertices are predicted.

    Attributes:
        graph: with labels and split.
        loss: what is minimised.
        metrics: what is measured; none for the graph's own metric.
    """

    graph: Graph
    loss: LossConfig = field(default_factory=AutoLoss)
    metrics: Sequence[str] = ()

    @property
    def seeds(self) -> NDArray[Any]:
        """The training vertices that have a label."""
        return labelled_vertices(self.graph, "train")

    @property
    def objective(self) -> Objective:
        """The loss of the seeds' labels."""
        return vertex_objective(self.graph, self.loss)

    @property
    def measures(self) -> tuple[str, ...]:
        """The metrics that were asked for, or the graph's own."""
        return chosen_metrics(self.metrics, self.graph)

    def sampling(self, vertices: SamplerConfig, order: SeedOrder) -> SamplerConfig:
        """Return the run's sampler."""
        return vertices

    def build(self, model: ModelConfig) -> TrainableModel:
        """Build a model with an output for each class."""
        return model.build(num_features=self.graph.num_features, num_classes=self.graph.num_classes)
