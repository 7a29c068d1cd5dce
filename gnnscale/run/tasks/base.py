"""Tasks over an opened graph: labels, loss, metrics, sampling and model of a run."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol, TypeVar

import numpy as np

from gnnscale.core import QUALITY, Array, ConfigError, Float32Array, brief
from gnnscale.core.config.user_code import is_name, load_named, short_name, user_code_error
from gnnscale.core.metrics import score
from gnnscale.graph import Graph, SplitLabels
from gnnscale.nn import ModelConfig, TrainableModel, losses
from gnnscale.nn import base as trainable
from gnnscale.sampling import SamplerConfig, SeedOrder, seed_order

_LOG = logging.getLogger(__name__)


class Task(Protocol):
    """Prediction task of a run over a graph."""

    @property
    def graph(self) -> Graph:
        """Graph whose edges carry messages in training."""

    def over(self, graph: Graph) -> Task:
        """Return the task over ``graph``, which has equal content and may be stored elsewhere."""

    @property
    def seeds(self) -> Array:
        """``[n]`` seeds of an epoch: vertices, or indices of edges."""

    def log_split(self) -> None:
        """Warn of problems of labels and split, once at the start of a run."""

    @property
    def measures(self) -> tuple[str, ...]:
        """Names of the metrics; the first one selects the best epoch."""

    @property
    def objective(self) -> trainable.Objective:
        """Function from outputs and their mini-batch to the mean loss."""

    def sampling(self, vertices: SamplerConfig, order: SeedOrder) -> SamplerConfig:
        """Return the sampler of mini-batches of seeds, around which ``vertices`` samples."""

    def build(self, model: ModelConfig) -> TrainableModel:
        """Build the model to train."""


def chosen_metrics(names: Sequence[str], graph: SplitLabels) -> tuple[str, ...]:
    """Return the names of a run's metrics in reports, custom functions without module or file.

    ``names`` are in ``gnnscale.core.metrics.QUALITY``, or name custom functions; empty selects the
    graph's own metric. ConfigError if a metric is not defined for the labels, or cannot be
    imported.
    """
    kind = losses.label_kind(graph.labels)
    for name in names:
        if is_name(name):
            load_named(name, option="metrics")
        elif not _fits(name, kind, graph.num_classes):
            allowed = (metric for metric in QUALITY if _fits(metric, kind, graph.num_classes))
            raise ConfigError(
                f"metrics={name}: expected {', '.join(allowed)} for the labels of {graph.name}"
            )
    return tuple(map(short_name, names)) or (graph.metric,)


def _fits(name: str, kind: str, num_classes: int) -> bool:
    """Whether metric ``name`` is defined for labels of ``kind`` (see ``losses.label_kind``)."""
    metric = QUALITY[name]
    if kind == "classes" and metric.two_classes and num_classes != 2:
        return False
    return kind in metric.labels


def ceiling(graph: Graph, metric: str) -> float | None:
    """Return the best test ``metric`` that the graph's generator allows; None if unknown."""
    return graph.attainable_accuracy if metric == "accuracy" else None


T = TypeVar("T", bound="LabelTask")


@dataclass(frozen=True, kw_only=True)
class LabelTask:
    """Base of tasks that predict labels of vertices or edges."""

    graph: Graph
    loss: losses.LossConfig = field(default_factory=losses.AutoLoss)
    metrics: Sequence[str] = ()  #: names of metrics; empty selects the metric of the labels

    labelled: ClassVar[str] = "vertices"  #: labeled elements: ``vertices`` or ``edges``

    def over(self: T, graph: Graph) -> T:
        """Return the task over ``graph``, which has equal content and may be stored elsewhere."""
        return replace(self, graph=graph)

    @property
    def labels(self) -> SplitLabels:
        """Labels and their split."""
        return self.graph

    def log_split(self) -> None:
        """Warn of regression targets that are NaN throughout a part of the split."""
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
        """Return the labeled vertices or edges of ``split`` (train, valid, test), ``[n]``."""
        return seed_order.labeled_vertices(self.labels, split, what=self.labelled)

    @property
    def seeds(self) -> Array:
        """``[n]`` labeled vertices or edges of the training set."""
        return self.rows("train")

    @property
    def measures(self) -> tuple[str, ...]:
        """Names of the metrics: the selected ones, or the metric of the labels."""
        return chosen_metrics(self.metrics, self.labels)

    def try_metrics(self) -> None:
        """Call the user's metrics with random outputs; ConfigError if one cannot be used."""
        functions = [short_name(name) for name in self.metrics if is_name(name)]
        if not functions:
            return
        labels = np.asarray(self.labels.labels[self.rows("valid")])
        width = self.labels.num_classes or labels.reshape(len(labels), -1).shape[1]
        outputs = np.random.default_rng(0).normal(size=(len(labels), width)).astype(np.float32)
        for measure in functions:
            self.score(measure, outputs, labels)

    def score(self, measure: str, outputs: Float32Array, labels: Array) -> float:
        """Return the metric ``measure`` of outputs ``[n, width]``; NaN if it is not defined."""
        for name in self.metrics:
            if is_name(name) and short_name(name) == measure:
                return _user_score(name, outputs, labels)
        return score(measure, outputs, labels)


@dataclass(frozen=True, kw_only=True)
class VertexTask(LabelTask):
    """Prediction of vertex labels."""

    @property
    def objective(self) -> trainable.Objective:
        """Function from outputs and their mini-batch to the mean loss of the seeds' labels."""
        return trainable.vertex_objective(self.graph, self.loss)

    def sampling(self, vertices: SamplerConfig, order: SeedOrder) -> SamplerConfig:
        """Return ``vertices``, the run's sampler."""
        return vertices

    def build(self, model: ModelConfig) -> TrainableModel:
        """Build a model with an output for each class."""
        graph = self.graph
        return model.build(
            num_features=graph.num_features,
            num_classes=graph.num_classes,
            num_edge_features=graph.num_edge_features,
        )


def _user_score(name: str, outputs: Float32Array, labels: Array) -> float:
    """Return the user's metric ``name`` of ``outputs``; ConfigError: the function gives none."""
    option = f"metrics={name}"
    function = load_named(name, option="metrics")
    try:
        value = function(outputs, labels)
    except Exception as error:
        raise user_code_error(option, error) from error
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise ConfigError(
            f"{option}: expected a number, of which higher is better, got {brief(value)}"
        )
    return float(value)
