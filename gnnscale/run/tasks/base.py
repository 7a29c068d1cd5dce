"""A task over a graph that was opened: what a run orders, samples, builds, minimises and measures.

Here is that of predicting labels of vertices.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol, TypeVar

import numpy as np

from gnnscale.core import QUALITY, Array, ConfigError, Float32Array, shown
from gnnscale.core.config.user_code import failed, is_name, load_named, short_name
from gnnscale.core.metrics import score
from gnnscale.graph import Graph, SplitLabels
from gnnscale.nn import ModelConfig, TrainableModel, losses
from gnnscale.nn import base as trainable
from gnnscale.sampling import SamplerConfig, SeedOrder, seed_order

_LOG = logging.getLogger(__name__)


class Task(Protocol):
    """What is predicted."""

    @property
    def graph(self) -> Graph:
        """The graph whose neighbours are sampled in training."""
        ...

    def over(self, graph: Graph) -> Task:
        """Return the same task over ``graph``, which is the same but for how it is read."""
        ...

    @property
    def seeds(self) -> Array:
        """``[n]`` what is trained once an epoch: vertices, or numbers of edges."""
        ...

    def log_split(self) -> None:
        """Log once, as a run starts, what is noteworthy of what is predicted and of its split."""
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


def chosen_metrics(names: Sequence[str], graph: SplitLabels) -> tuple[str, ...]:
    """Return what a run measures: what was asked for, or the graph's own metric.

    Args:
        names: of ``gnnscale.core.metrics.QUALITY``, or of the user's functions; none for the
            graph's own.

    Returns:
        Their names in reports; that of a function is without its file.

    Raises:
        ConfigError: the graph's labels are not what a metric is of, or a function cannot be
            imported.
    """
    kind = losses.label_kind(graph.labels)
    for name in names:
        if is_name(name):
            load_named(name, option="metrics")
        elif not _fits(name, kind, graph.num_classes):
            known = ", ".join(each for each in QUALITY if _fits(each, kind, graph.num_classes))
            raise ConfigError(
                f"metrics: {name} is not defined for the labels of {graph.name}; "
                f"allowed are {known}"
            )
    return tuple(map(short_name, names)) or (graph.metric,)


def _fits(name: str, kind: str, num_classes: int) -> bool:
    metric = QUALITY[name]
    if kind == "classes" and metric.two_classes and num_classes != 2:
        return False
    return kind in metric.labels


def ceiling(graph: Graph, metric: str) -> float | None:
    """Return the best test ``metric`` that the graph's generator allows, None if not known."""
    return graph.attainable_accuracy if metric == "accuracy" else None


T = TypeVar("T", bound="LabelTask")


@dataclass(frozen=True, kw_only=True)
class LabelTask:
    """Base of the tasks whose outputs are compared with labels, of vertices or of edges."""

    graph: Graph  #: with labels and split
    loss: losses.LossConfig = field(default_factory=losses.AutoLoss)  #: what is minimised
    metrics: Sequence[str] = ()  #: what is measured; none for that of the labels

    #: What has labels.
    labelled: ClassVar[str] = "vertices"

    def over(self: T, graph: Graph) -> T:
        """Return the same task over ``graph``, which is the same but for how it is read."""
        return replace(self, graph=graph)

    @property
    def labels(self) -> SplitLabels:
        """The labels and their split."""
        return self.graph

    def log_split(self) -> None:
        """Warn of targets of regression that nobody of a part of the split has."""
        targets = self.labels.labels
        if targets.ndim == 1 or targets.dtype.kind != "f":
            return
        for split in ("train", "valid", "test"):
            rows = self.rows(split)
            unknown = np.flatnonzero(np.isnan(targets[rows]).all(axis=0)).tolist()
            if unknown:
                does = "learns" if split == "train" else "measures"
                _LOG.warning(
                    f"{self.labels.name}: all {len(rows):,} {split} {self.labelled} have NaN as "
                    f"target {', '.join(map(str, unknown))} (from 0), so that nothing {does} it"
                )

    def rows(self, split: str) -> Array:
        """Return the vertices or edges of ``split`` (train, valid, test) that have a label.

        Raises:
            GraphError: there are no such.
        """
        return seed_order.labelled_vertices(self.labels, split, what=self.labelled)

    @property
    def seeds(self) -> Array:
        """Those that are trained and have a label."""
        return self.rows("train")

    @property
    def measures(self) -> tuple[str, ...]:
        """The metrics that were asked for, or that of the labels."""
        return chosen_metrics(self.metrics, self.labels)

    def try_metrics(self) -> None:
        """Compute the user's metrics of random outputs for what is validated.

        Raises:
            ConfigError: as ``score``; or one cannot be imported.
        """
        own = [short_name(each) for each in self.metrics if is_name(each)]
        if not own:
            return
        labels = np.asarray(self.labels.labels[self.rows("valid")])
        width = self.labels.num_classes or labels.reshape(len(labels), -1).shape[1]
        outputs = np.random.default_rng(0).normal(size=(len(labels), width)).astype(np.float32)
        for measure in own:
            self.score(measure, outputs, labels)

    def score(self, measure: str, outputs: Float32Array, labels: Array) -> float:
        """Return one of ``measures`` of outputs ``[n, width]``; NaN if it is not defined.

        Raises:
            ConfigError: the user's function fails, or returns no number.
        """
        for name in self.metrics:
            if is_name(name) and short_name(name) == measure:
                return _own_score(name, outputs, labels)
        return score(measure, outputs, labels)


@dataclass(frozen=True, kw_only=True)
class VertexTask(LabelTask):
    """Labels of vertices are predicted."""

    @property
    def objective(self) -> trainable.Objective:
        """The loss of the seeds' labels."""
        return trainable.vertex_objective(self.graph, self.loss)

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


def _own_score(name: str, outputs: Float32Array, labels: Array) -> float:
    """Call the user's function ``name``."""
    option = f"metrics={name}"
    function = load_named(name, option="metrics")
    try:
        value = function(outputs, labels)
    except Exception as error:
        raise failed(option, error) from error
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise ConfigError(
            f"{option}: returned {shown(value)}, must return a number, of which higher is better"
        )
    return float(value)
