"""Tasks over an opened graph: labels of vertices or edges, loss, metrics and sampling of a run."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol, TypeVar

import numpy as np
import torch

from gnnscale.core import QUALITY, ConfigError, binary_metrics, brief, check_metric, find_metric
from gnnscale.core.config.user_code import is_name, load_named, short_name
from gnnscale.core.metrics import score
from gnnscale.core.types import Array, Float32Array, IntArray, StructArray
from gnnscale.data.tables.vertex_ids import read_classes
from gnnscale.graph import EdgeLabels, Graph, SplitLabels, are_labeled
from gnnscale.nn import base as trainable
from gnnscale.nn import losses
from gnnscale.run.tasks.cutoffs import before_edges, listed_cutoff_edges
from gnnscale.sampling import EdgeSampling, SamplerConfig, SeedOrder, seed_order
from gnnscale.sampling.timed_edges import TimedEdgeSampling

_LOG = logging.getLogger(__name__)
#: Parts of a split.
SPLITS = ("train", "valid", "test")
#: Names of parts that a split may lack, and what follows.
_MISSING = {
    "valid": ("validation", "the run keeps the weights of the last epoch, which may not be best"),
    "test": ("test", "the run has no test metric"),
}


class Task(Protocol):
    """Prediction task of a run over a graph."""

    @property
    def graph(self) -> Graph:
        """Graph whose edges carry messages in training."""

    def over(self, graph: Graph) -> "Task":
        """Return this task over ``graph``, its own graph with other storage or feature rows."""

    @property
    def seeds(self) -> Array:
        """``[n]`` seeds of an epoch: vertices, indices of edges, or numbers of task rows."""

    @property
    def seed_vertices(self) -> Array:
        """``[n]`` vertex of each of ``seeds``, by which parts of a partition get their seeds."""

    def log_split(self) -> None:
        """Warn of problems of labels and split, once at the start of a run."""

    def has_part(self, split: str) -> bool:
        """Whether part ``split`` (train, valid, test) has a labeled vertex, or an edge."""

    @property
    def measures(self) -> tuple[str, ...]:
        """Names of the metrics; the first one selects the best epoch."""

    @property
    def objective(self) -> trainable.Objective:
        """Function from outputs and their mini-batch to the mean loss."""

    def sampling(self, vertices: SamplerConfig, order: SeedOrder) -> SamplerConfig:
        """Return options of a sampler of seeds in ``order``; ``vertices`` samples neighbors."""


def chosen_metrics(names: Sequence[str], graph: SplitLabels) -> tuple[str, ...]:
    """Check metrics; return their names in reports, custom functions without module or file.

    ``names`` are those of ``gnnscale.core.metrics.find_metric``, or name custom functions; empty
    selects the graph's own metric. ConfigError if a metric is not defined for the labels, or cannot
    be imported.
    """
    kind = losses.label_kind(graph.labels)
    for name in names:
        if is_name(name):
            load_named(name, option="metrics")
        elif not is_defined(name, graph):
            metrics = (*QUALITY, *binary_metrics.EXAMPLES)
            allowed = (metric for metric in metrics if _fits(metric, kind, graph.num_classes))
            classes = f", {graph.num_classes} classes" if kind == "classes" else ""
            raise ConfigError(
                f"metrics={name}: expected {', '.join(allowed)} for the labels of {graph.name}"
                f"{classes}"
            )
    return tuple(map(short_name, names)) or (graph.metric,)


def is_defined(name: str, graph: SplitLabels) -> bool:
    """Whether the metric ``name`` is defined for the labels of ``graph``; custom ones always are.

    ConfigError: there is no such metric.
    """
    return is_name(name) or _fits(name, losses.label_kind(graph.labels), graph.num_classes)


def _fits(name: str, kind: str, num_classes: int) -> bool:
    """Whether metric ``name`` is defined for labels of ``kind`` (see ``losses.label_kind``)."""
    metric = check_metric("metrics", name)
    if kind == "classes" and metric.two_classes and num_classes != 2:
        return False
    return kind in metric.labels


def check_threshold(value: object, kind: str, num_classes: int, *, of: str) -> None:
    """Raise ConfigError for ``threshold=VALUE`` unless labels of the graph ``of`` have such."""
    if kind == "multilabel" or (kind == "classes" and num_classes == 2):
        return
    labels = (
        "values" if kind == "regression" else f"{num_classes} classes, of which one is predicted"
    )
    raise ConfigError(
        f"threshold={value}: expected null for labels of {of}, which are {labels}; thresholds are "
        "for two classes or multilabel"
    )


def ceiling(graph: Graph, metric: str) -> float | None:
    """Return the best accuracy that a generated graph allows; None: unknown, or another metric."""
    return graph.attainable_accuracy if metric == "accuracy" else None


T = TypeVar("T", bound="LabelTask")


@dataclass(frozen=True, kw_only=True)
class LabelTask:
    """Base of tasks that predict labels of vertices or edges."""

    graph: Graph
    loss: losses.LossConfig = field(default_factory=losses.AutoLoss)
    metrics: Sequence[str] = ()  #: names of metrics; empty selects the metric of the labels
    vertex_type: str | None = None  #: type of the vertices if the run predicts others too

    labelled: ClassVar[str] = "vertices"  #: labeled elements: ``vertices``, ``edges``, ``rows``

    def over(self: T, graph: Graph) -> T:
        """Return this task over ``graph``, its own graph with other storage or feature rows."""
        return replace(self, graph=graph)

    @property
    def labels(self) -> SplitLabels:
        """Labels and their split."""
        return self.graph

    def log_split(self) -> None:
        """Name the positive class; warn of missing parts, and of targets that are NaN in a part."""
        self._log_positives()
        parts = [split for split in SPLITS if self.has_part(split)]
        for split, (name, effect) in _MISSING.items():
            if split in parts:
                continue
            size, what = len(self._ids(split)), f"{name} {self.labelled}"
            cause = f"none of {size:,} {what} has a label" if size else f"no {what}"
            _LOG.warning(f"{self.labels.name}: {cause}: {effect}")
        targets = self.labels.labels
        if targets.ndim == 1 and targets.dtype.kind != "f":
            self._warn_of_absent_classes()
        if targets.ndim == 1 or targets.dtype.kind != "f":
            return
        for split in parts:
            rows = self.rows(split)
            unknown = np.flatnonzero(np.isnan(targets[rows]).all(axis=0)).tolist()
            if unknown:
                does = "learns" if split == "train" else "measures"
                _LOG.warning(
                    f"{self.labels.name}: all {len(rows):,} {split} {self.labelled} have NaN as "
                    f"target {', '.join(map(str, unknown))} (from 0), so that nothing {does} it"
                )

    @property
    def _class_names(self) -> list[str] | None:
        """Names of the classes; None: they have none."""
        return read_classes(self.graph, edges=isinstance(self.labels, EdgeLabels))

    def _warn_of_absent_classes(self) -> None:
        """Warn of classes without a training label, which the model cannot learn."""
        num_classes = self.labels.num_classes
        present = np.bincount(self.labels.labels[self.seeds], minlength=num_classes) > 0
        absent = np.flatnonzero(~present)
        if len(absent):
            names = self._class_names
            listed = [str(names[number] if names else number) for number in absent[:5].tolist()]
            more = f" and {len(absent) - 5:,} more" if len(absent) > 5 else ""
            _LOG.warning(
                f"{self.labels.name}: of {num_classes:,} classes, {len(absent):,} have no training "
                f"{self.labelled}, and are not learned: {', '.join(listed)}{more}"
            )

    def _ids(self, split: str) -> Array:
        ids: Array = getattr(self.labels.split, f"{split}_idx")
        return ids

    def has_part(self, split: str) -> bool:
        """Whether a vertex or edge of part ``split`` (train, valid, test) has a label."""
        ids = self._ids(split)
        return len(ids) > 0 and bool(are_labeled(self.labels.labels, ids).any())

    def _log_positives(self) -> None:
        """Log the class that the metrics of positives are about, and warn if the other is rarer."""
        rate, labels = self.base_rates.get("train"), self.labels
        if rate is None or labels.labels.ndim == 2:
            return
        names = self._class_names
        of = "" if self.vertex_type is None else f" of {self.vertex_type}"
        line = (
            f"metrics{of} are of class {names[1] if names else 1}, {rate:.2%} of the training set"
        )
        if rate <= 0.5:
            _LOG.info(line)
        else:
            _LOG.warning(f"{line}; the rarer class is measured if its name sorts last, or is 1")

    def rows(self, split: str) -> Array:
        """Return indices ``[n]`` of labeled vertices or edges of ``split`` (train, valid, test)."""
        return seed_order.labeled_vertices(self.labels, split, what=self.labelled)

    @property
    def seeds(self) -> Array:
        """Indices ``[n]`` of the labeled vertices or edges of the training set."""
        return self.rows("train")

    @property
    def seed_vertices(self) -> Array:
        """``seeds``; a task whose seeds are no vertices overrides it, or is never partitioned."""
        return self.seeds

    @property
    def measures(self) -> tuple[str, ...]:
        """Names of the metrics: the selected ones, or the metric of the labels."""
        return chosen_metrics(self.metrics, self.labels)

    @property
    def base_rates(self) -> dict[str, float]:
        """Base rate of each part with positives; empty if no metric is to be compared with it."""
        metrics = [find_metric(name) for name in self.measures]
        if not any(metric is not None and metric.finds_positives for metric in metrics):
            return {}
        rates = {}
        for part in SPLITS:
            labels = self.labels.labels[self._ids(part)]
            rows = labels if labels.ndim == 2 else labels[labels >= 0]  # -1: unknown
            rates[part] = binary_metrics.base_rate(rows)
        return {part: rate for part, rate in rates.items() if not np.isnan(rate)}

    def try_metrics(self) -> None:
        """Call the user's metrics with random outputs; ConfigError if one cannot be used."""
        functions = [short_name(name) for name in self.metrics if is_name(name)]
        if not functions:
            return
        part = next(split for split in ("valid", "train") if self.has_part(split))
        labels = np.asarray(self.labels.labels[self.rows(part)])
        width = self.labels.num_classes or labels.reshape(len(labels), -1).shape[1]
        outputs = np.random.default_rng(0).normal(size=(len(labels), width)).astype(np.float32)
        for measure in functions:
            self.score(measure, outputs, labels)

    def score(
        self,
        measure: str,
        outputs: Float32Array,
        labels: Array,
        thresholds: Sequence[float] | None = None,
    ) -> float:
        """Return a user's metric or ``metrics.score`` of outputs ``[n, width]``; NaN: undefined."""
        for name in self.metrics:
            if is_name(name) and short_name(name) == measure:
                return _user_score(name, outputs, labels)
        return score(measure, outputs, labels, thresholds)


@dataclass(frozen=True, kw_only=True)
class VertexTask(LabelTask):
    """Prediction of vertex labels."""

    @property
    def objective(self) -> trainable.Objective:
        """Function from outputs and their mini-batch to the mean loss of the seeds' labels."""
        return trainable.vertex_objective(self.graph, self.loss)

    def sampling(self, vertices: SamplerConfig, order: SeedOrder) -> SamplerConfig:
        """Return ``vertices``, the run's sampler; ``order`` is not used."""
        return vertices


def _user_score(name: str, outputs: Float32Array, labels: Array) -> float:
    """Return the user's metric ``name`` of ``outputs``; ConfigError: no number is returned."""
    option = f"metrics={name}"
    function = load_named(name, option="metrics")
    # Copies: a function may change its arguments.
    tensors = torch.tensor(outputs), losses.as_targets(torch.tensor(labels))
    with torch.no_grad():
        value = losses.call_user_function(option, function, *tensors)
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise ConfigError(
            f"{option}: expected a number, of which higher is better, got {brief(value)}"
        )
    return float(value)


def edge_type_of_labels(graph: Graph) -> int:
    """Return the edge type of labeled edges, by its number in the schema of ``graph``.

    If the graph does not tell, it is the first between the vertex types that they join.
    ConfigError: there are several edge types, and no list of labeled edges.
    """
    schema, ends = graph.schema, graph.edges.ends
    if len(schema.edge_types) == 1:
        return 0
    if graph.edges.labeled_type is not None:
        return graph.edges.labeled_type
    if ends is None or not len(ends):
        raise ConfigError(
            "dataset: expected a graph with labeled edges, which tell the types of their ends, got "
            f"{graph.name}"
        )
    source, destination = schema.type_of(np.asarray(ends[0]))
    is_between = (schema.sources == source) & (schema.destinations == destination)
    return int(is_between.argmax())


#: Training edges whose pairs are compared at a time.
_GROUP_EDGES = 1 << 24


def count_shared_pairs(ends: IntArray, train: IntArray, parts: Sequence[IntArray]) -> list[int]:
    """Return how many edges of each of ``parts`` join the ends of a training edge, either way.

    Memory is bounded: pairs are compared in groups of about 16 million training edges. ``ends`` are
    ``[num_edges, 2]`` sources and destinations; ``train`` and each part are indices of edges.
    """
    num_groups = -(-len(train) // _GROUP_EDGES)
    counts = [0] * len(parts)
    for group in range(num_groups):
        train_pairs = _pairs_of_group(ends, train, group, num_groups)
        for number, rows in enumerate(parts):
            shared = np.isin(_pairs_of_group(ends, rows, group, num_groups), train_pairs)
            counts[number] += int(np.count_nonzero(shared))
    return counts


def _pairs_of_group(ends: IntArray, rows: IntArray, group: int, num_groups: int) -> StructArray:
    """Return records ``[k]`` of the ends, smaller first, of those edges ``rows`` in ``group``.

    An edge's group is the sum of its ends modulo ``num_groups``; ``ends`` are ``[num_edges, 2]``.
    """
    pairs = np.sort(np.asarray(ends[rows], np.int64), axis=1)
    pairs = pairs[pairs.sum(axis=1) % num_groups == group]
    records: StructArray = pairs.view("i8,i8")[:, 0]
    return records


@dataclass(frozen=True, kw_only=True)
class EdgeTask(LabelTask):
    """Prediction of edge labels."""

    labelled: ClassVar[str] = "edges"

    own_features: bool = True  #: whether the output is computed from features of the edge too

    @property
    def features(self) -> Array | None:
        """``[num_rows, f]`` features that the decoder reads. None: it reads none."""
        return self.graph.labeled_edge_features if self.own_features else None

    @property
    def labels(self) -> EdgeLabels:
        """Labels of the edges and their split."""
        assert self.graph.edge_labels is not None  # ``EdgePrediction.labels`` refuses others
        return self.graph.edge_labels

    def log_split(self) -> None:
        """Log as for vertices, and warn of held-out edges between the ends of a training edge."""
        super().log_split()
        ends, split = self.graph.edges.ends, self.labels.split
        assert ends is not None
        if self.graph.samples_by_time:
            return  # the past of a pair is known when its next edge is predicted
        parts = {"validation": split.valid_idx, "test": split.test_idx}
        counts = count_shared_pairs(ends, split.train_idx, [*parts.values()])
        shared = [
            f"{count:,} of {len(rows):,} {part} edges"
            for (part, rows), count in zip(parts.items(), counts, strict=True)
            if count
        ]
        if shared:
            _LOG.warning(
                f"task=edges: {' and '.join(shared)} of {self.graph.name} join two vertices that a "
                "training edge joins too, and may have its label; dataset.split=random keeps all "
                "edges of a pair in one part (a store of an earlier release: force=true), and so "
                "does gnnscale.data.random_edge_split"
            )

    @property
    def objective(self) -> trainable.Objective:
        """Function from outputs and their mini-batch to the mean loss of the edges' labels."""
        return trainable.edge_objective(self.labels, self.loss)

    def sampling(self, vertices: SamplerConfig, order: SeedOrder) -> SamplerConfig:
        """Return options of a sampler for labeled edges; ``vertices`` samples around their ends."""
        ends, times = self.graph.edges.ends, self.graph.edges.row_times
        assert ends is not None  # edges with labels have ends
        if not self.graph.samples_by_time:
            return EdgeSampling(vertices=vertices, ends=ends, features=self.features)
        assert times is not None
        timed = before_edges(vertices)
        return TimedEdgeSampling(
            vertices=timed,
            ends=ends,
            times=times,
            features=self.features,
            left_out=listed_cutoff_edges(self.graph, timed),
        )
