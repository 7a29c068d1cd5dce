"""A task over a graph that was opened: what a run orders, samples, builds, minimises and measures.

Here is that of predicting labels of vertices.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gnnscale.core import QUALITY, Array, ConfigError
from gnnscale.graph import Graph, Labelled
from gnnscale.model import ModelConfig, TrainableModel, losses, trainable
from gnnscale.sampler import SamplerConfig, SeedOrder, seed_order


class Task(Protocol):
    """What is predicted."""

    @property
    def graph(self) -> Graph:
        """The graph whose neighbours are sampled in training."""
        ...

    @property
    def seeds(self) -> Array:
        """``[n]`` what is trained once an epoch: vertices, or numbers of edges."""
        ...

    @property
    def measures(self) -> tuple[str, ...]:
        """What a run is measured by; the first one decides."""
        ...

    @property
    def objective(self) -> trainable.Objective:
        """The loss of a mini-batch."""
        ...

    def sampling(self, vertices: SamplerConfig, order: SeedOrder) -> SamplerConfig:
        """Return how mini-batches of seeds are sampled, by how it is done for vertices."""
        ...

    def build(self, model: ModelConfig) -> TrainableModel:
        """Build the model that is trained."""
        ...


def chosen_metrics(names: Sequence[str], graph: Labelled) -> tuple[str, ...]:
    """Return what a run measures: what was asked for, or the graph's own metric.

    Args:
        names: of ``gnnscale.core.metrics.QUALITY``; none for the graph's own.

    Raises:
        ConfigError: the graph's labels are not what a metric is of.
    """
    kind = losses.label_kind(graph.labels)
    for name in names:
        if not _fits(name, kind, graph.num_classes):
            known = ", ".join(each for each in QUALITY if _fits(each, kind, graph.num_classes))
            raise ConfigError(
                f"metrics: {name} is not defined for the labels of {graph.name}; "
                f"allowed are {known}"
            )
    return tuple(names) or (graph.metric,)


def _fits(name: str, kind: str, num_classes: int) -> bool:
    metric = QUALITY[name]
    if kind == "classes" and metric.two_classes and num_classes != 2:
        return False
    return kind in metric.labels


def ceiling(graph: Graph, metric: str) -> float | None:
    """Return the best test ``metric`` that the graph's generator allows, None if not known."""
    return graph.attainable_accuracy if metric == "accuracy" else None


@dataclass(frozen=True, kw_only=True)
class VertexTask:
    """Labels of vertices are predicted."""

    graph: Graph  #: with labels and split
    loss: losses.LossConfig = field(default_factory=losses.AutoLoss)  #: what is minimised
    metrics: Sequence[str] = ()  #: what is measured; none for the graph's own metric

    @property
    def seeds(self) -> Array:
        """The training vertices that have a label."""
        return seed_order.labelled_vertices(self.graph, "train")

    @property
    def objective(self) -> trainable.Objective:
        """The loss of the seeds' labels."""
        return trainable.vertex_objective(self.graph, self.loss)

    @property
    def measures(self) -> tuple[str, ...]:
        """The metrics that were asked for, or the graph's own."""
        return chosen_metrics(self.metrics, self.graph)

    def sampling(self, vertices: SamplerConfig, order: SeedOrder) -> SamplerConfig:
        """Return the run's sampler."""
        return vertices

    def build(self, model: ModelConfig) -> TrainableModel:
        """Build a model with an output for each class."""
        graph = self.graph
        return model.build(
            num_features=graph.num_features,
            num_classes=graph.num_classes,
            num_edge_features=graph.num_edge_features,
        )
