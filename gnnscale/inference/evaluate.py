"""Evaluation of a run's model, during training and afterwards.

Tasks of vertices and edges are measured by their labels, link prediction by ranks of edges.
"""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import torch

from gnnscale.backend import InferenceCapable
from gnnscale.core import ClassCounts, binary_metrics, count_classes
from gnnscale.core import types as arrays
from gnnscale.core.notebook import html_table
from gnnscale.core.sorted_sets import distinct
from gnnscale.distributed.heartbeat import activity
from gnnscale.features import FeatureStore
from gnnscale.inference.link_ranking import LinkExaminer
from gnnscale.inference.load_run import load_run, with_inference
from gnnscale.inference.predictor import Predictor
from gnnscale.inference.row_predictor import RowPredictor
from gnnscale.inference.thresholds import choose_thresholds
from gnnscale.inference.timed_edges import edge_outputs
from gnnscale.inference.timed_ranking import TimedLinkExaminer
from gnnscale.inference.trained_model import TrainedModel, open_trained
from gnnscale.nn import EdgeModel, LinkModel, TrainableModel
from gnnscale.ops.products import torch_threads
from gnnscale.run import EvaluateConfig, EvaluationOptions
from gnnscale.run.tasks import base, links
from gnnscale.run.tasks.rows import RowTask
from gnnscale.run.tasks.timed_links import TimedLinkTask
from gnnscale.run.tasks.types import TypesTask
from gnnscale.sampling import labeled_vertices


@dataclass(frozen=True, kw_only=True)
class HeldOutScores:
    """Results of a model on the test set."""

    metrics: dict[str, float | None]  #: by name; None for a metric that is not defined
    #: counts of labels, predictions and hits by class; None for regression and link prediction, or
    #: if no test label is known
    classes: ClassCounts | None = None
    thresholds: binary_metrics.Thresholds | None = None  #: thresholds that were chosen; None: 0.5
    #: metrics of links if training in-degrees rank the candidates; empty for other tasks
    popularity: dict[str, float | None] = field(default_factory=dict)


class _LabelExaminer(ABC):
    """Evaluation of a model's predicted labels, by metrics of the task."""

    _task: base.LabelTask

    def measure(
        self, splits: Sequence[str], thresholds: Sequence[float] | None = None
    ) -> list[dict[str, float | None]]:
        """Return the metrics of each split; None for a metric that is not defined.

        With ``thresholds`` of ``binary_metrics.shifted``, precision, recall and F1 at them are
        added.
        """
        return [
            self._measure(outputs, labels, thresholds)[0]
            for outputs, labels in self._outputs(splits)
        ]

    def test(self, rule: str | None) -> HeldOutScores:
        """Return the results on the test set, at thresholds that ``rule`` chooses; None: at 0.5."""
        *valid, (outputs, labels) = self._outputs(["test"] if rule is None else ["valid", "test"])
        thresholds = None if rule is None else choose_thresholds(rule, *valid[0])
        values = None if thresholds is None else thresholds.values
        metrics, classes = self._measure(outputs, labels, values)
        return HeldOutScores(metrics=metrics, classes=classes, thresholds=thresholds)

    def _measure(
        self,
        outputs: arrays.Float32Array,
        labels: arrays.Array,
        thresholds: Sequence[float] | None,
    ) -> tuple[dict[str, float | None], ClassCounts | None]:
        """Return metrics, and counts by class; None for regression, or without labels."""
        metrics = scores(self._task, outputs, labels, thresholds)
        if not len(outputs) or labels.dtype.kind == "f":
            return metrics, None
        decided = outputs if thresholds is None else binary_metrics.shifted(outputs, thresholds)
        counts = count_classes(decided, labels)
        if thresholds is not None:
            metrics = {**metrics, **counts.positive_scores(), **metrics}
        return metrics, counts

    @abstractmethod
    def _outputs(self, splits: Sequence[str]) -> Iterator[tuple[arrays.Float32Array, arrays.Array]]:
        """Yield, for each split, the model's outputs ``[n, width]`` and the labels.

        Both are of the split's labeled vertices or edges; a subclass computes the outputs.
        """


class VertexExaminer(_LabelExaminer):
    """Evaluation of predicted vertex labels."""

    def __init__(self, task: base.VertexTask, predictor: Predictor) -> None:
        """Measure the outputs of ``predictor`` on the graph of ``task``."""
        self._predictor = predictor
        self._graph = task.graph
        self._task = task

    def prepare(self, splits: Sequence[str]) -> None:
        """Log the cost of measuring ``splits`` if it is high; ConfigError: the disk is too full."""
        vertices = [labeled_vertices(self._graph, split) for split in splits]
        self._predictor.prepare(np.concatenate(vertices))

    def _outputs(self, splits: Sequence[str]) -> Iterator[tuple[arrays.Float32Array, arrays.Array]]:
        vertices = [labeled_vertices(self._graph, split) for split in splits]
        rows = self._predictor.logits_of_each(vertices)
        labels = (np.asarray(self._graph.labels[ids]) for ids in vertices)
        yield from zip(rows, labels, strict=True)


class RowExaminer(_LabelExaminer):
    """Evaluation of predicted labels of task rows, each as of its cut-off."""

    def __init__(self, task: RowTask, predictor: RowPredictor) -> None:
        """Measure the outputs of ``predictor`` for the rows of ``task``."""
        self._task: RowTask = task
        self._predictor = predictor

    def prepare(self, splits: Sequence[str]) -> None:
        """Do nothing: mini-batches of ``splits`` are of bounded memory."""

    def _outputs(self, splits: Sequence[str]) -> Iterator[tuple[arrays.Float32Array, arrays.Array]]:
        rows = self._task.labels
        for numbers in map(self._task.rows, splits):
            vertices, cutoffs = rows.vertices[numbers], rows.cutoffs[numbers]
            outputs = self._predictor.outputs(vertices, cutoffs)
            yield outputs, np.asarray(rows.labels[numbers])


class TypesExaminer:
    """Evaluation of predicted labels of several vertex types."""

    def __init__(self, task: TypesTask, predictor: Predictor) -> None:
        """Measure the outputs of ``predictor`` on the graph of ``task``."""
        self._task = task
        self._predictor = predictor

    def prepare(self, splits: Sequence[str]) -> None:
        """Log the cost of measuring ``splits`` if it is high; ConfigError: the disk is too full."""
        self._predictor.prepare(np.concatenate([self._task.rows(split) for split in splits]))

    def measure(
        self, splits: Sequence[str], thresholds: Sequence[float] | None = None
    ) -> list[dict[str, float | None]]:
        """Return the metrics of each split, by the task's ``measures``; None: not defined.

        Several types have no ``thresholds``.
        """
        # Types are in the order of sampled mini-batches, whose seeds are type after type.
        rows = {
            (split, name): vertices
            for name in self._task.parts
            for split in splits
            for of_type, vertices in self._task.rows_by_type(split).items()
            if of_type == name
        }
        outputs = dict(zip(rows, self._predictor.logits_of_each([*rows.values()]), strict=True))
        metrics = []
        for split in splits:
            by_type = {}
            for name, task in self._task.parts.items():
                if (split, name) in rows:
                    labels = np.asarray(task.graph.labels[rows[split, name]])
                    logits = outputs[split, name][:, : task.graph.num_classes]
                    by_type[name] = scores(task, logits, labels)
            metrics.append(self._task.joined(by_type))
        return metrics

    def test(self, rule: str | None) -> HeldOutScores:
        """Return the results on the test set; ``rule`` is None, for types have no thresholds."""
        return HeldOutScores(metrics=self.measure(["test"])[0])


class EdgeExaminer(_LabelExaminer):
    """Evaluation of predicted edge labels."""

    def __init__(self, task: base.EdgeTask, model: EdgeModel, predictor: Predictor) -> None:
        """Measure the outputs of ``model``, whose vertex rows ``predictor`` computes."""
        self._task: base.EdgeTask = task
        self._model = model
        self._predictor = predictor
        assert task.graph.edges.ends is not None
        self._ends = task.graph.edges.ends

    def prepare(self, splits: Sequence[str]) -> None:
        """Log the cost of measuring ``splits`` if it is high; ConfigError: the disk is too full."""
        if self._task.graph.samples_by_time:
            return  # mini-batches are of bounded memory
        for split in splits:
            self._predictor.prepare(distinct(np.asarray(self._ends[self._task.rows(split)])))

    def _outputs(self, splits: Sequence[str]) -> Iterator[tuple[arrays.Float32Array, arrays.Array]]:
        graph = self._task.graph
        for rows in map(self._task.rows, splits):
            edges = np.asarray(self._ends[rows]), rows
            outputs = np.concatenate([*edge_outputs(self._model, self._predictor, graph, edges)])
            yield outputs, np.asarray(self._task.labels.labels[rows])


_Examiner: TypeAlias = VertexExaminer | TypesExaminer | LinkExaminer | EdgeExaminer | RowExaminer


def scores(
    task: base.LabelTask,
    outputs: arrays.Float32Array,
    labels: arrays.Array,
    thresholds: Sequence[float] | None = None,
) -> dict[str, float | None]:
    """Return the task's metrics of ``outputs`` ``[n, width]`` and ``labels``; None: not defined.

    ``thresholds`` are those of ``LabelTask.score``.
    """
    values = {name: task.score(name, outputs, labels, thresholds) for name in task.measures}
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def _measure_popularity(examiner: _Examiner) -> dict[str, float | None]:
    """Return test metrics by training in-degrees; empty unless links are predicted."""
    return examiner.measure_popularity("test") if isinstance(examiner, LinkExaminer) else {}


def open_examiner(task: base.Task, model: TrainableModel, predictor: Predictor) -> _Examiner:
    """Return the object that evaluates ``model`` at ``task``, by labels or by ranks of edges."""
    if isinstance(task, base.EdgeTask):
        assert isinstance(model, EdgeModel)
        return EdgeExaminer(task, model, predictor)
    if isinstance(task, TimedLinkTask):
        assert isinstance(model, LinkModel)
        return TimedLinkExaminer(task, model, predictor)
    if isinstance(task, links.LinkTask):
        assert isinstance(model, LinkModel)
        return LinkExaminer(task, model, predictor)
    if isinstance(task, RowTask):
        return RowExaminer(task, predictor.of_rows())
    if isinstance(task, TypesTask):
        return TypesExaminer(task, predictor)
    assert isinstance(task, base.VertexTask)
    return VertexExaminer(task, predictor)


class Validator:
    """Validation and test of a model during training."""

    def __init__(
        self,
        options: EvaluationOptions,
        task: base.Task,
        model: TrainableModel,
        *,
        store: FeatureStore | None,
        device: InferenceCapable | None,
        epochs: int,
        eval_every: int,
        num_threads: int,
    ) -> None:
        """Measure ``model`` at ``task``.

        Args:
            store: store of all features; None: the graph's features in host memory.
            device: device of exact inference; None: the host.
            epochs: epochs of the run; the last is always validated. No epoch is if ``task`` has no
                validation part.
            eval_every: epochs between validations.
            num_threads: threads of the host, all of which validate.
        """
        self._epochs = epochs
        self._eval_every = eval_every
        self._num_threads = num_threads
        self._rule = options.threshold
        predictor = Predictor(model, task.graph, options, store=store, device=device)
        self._examiner = open_examiner(task, model, predictor)
        self._parts = [split for split in ("test", "valid") if task.has_part(split)]

    def is_due(self, epoch: int) -> bool:
        """Whether ``epoch``, from 1, is validated."""
        due = epoch % self._eval_every == 0 or epoch == self._epochs
        return due and "valid" in self._parts

    def prepare(self) -> None:
        """Log the cost of validation and test if it is high; ConfigError: the disk is too full."""
        for split in self._parts:
            self._examiner.prepare([split])

    @activity("validate")
    def validate(self) -> tuple[dict[str, float | None], float]:
        """Return the validation metrics (None: not defined) and the seconds of the validation."""
        start = time.perf_counter()
        with torch_threads(self._num_threads):
            (metrics,) = self._examiner.measure(["valid"])
        return metrics, time.perf_counter() - start

    def test(self) -> HeldOutScores:
        """Return the results on the test set, at thresholds of the option ``threshold``.

        Without a test part, or labels in it, there are no metrics.
        """
        if "test" not in self._parts:
            return HeldOutScores(metrics={})
        with torch_threads(self._num_threads):
            if isinstance(self._examiner, LinkExaminer):
                (metrics,) = self._examiner.measure(["test"])
                return HeldOutScores(
                    metrics=metrics, popularity=_measure_popularity(self._examiner)
                )
            return self._examiner.test(self._rule)


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Metrics of a trained model on each split; None for a metric that is not defined.

    ``metric`` names the run's first metric, whose values are ``train_metric``, ``valid_metric`` and
    ``test_metric``, None for a part that the split lacks. ``metrics`` has all metrics by split and
    name, without the missing parts, and with thresholds ``precision``, ``recall`` and ``f1``: of
    class 1 of two, or summed over the classes of multilabel. ``base_rates`` are shares of
    positives by split, if a metric compares with them. ``popularity`` has the metrics of the test
    set if training in-degrees rank the candidates of links (empty for other tasks).
    """

    dataset: str
    model: str
    metric: str
    inference: str
    epoch: int
    train_metric: float | None
    valid_metric: float | None
    test_metric: float | None
    ceiling: float | None
    metrics: dict[str, dict[str, float | None]]
    popularity: dict[str, float | None]
    base_rates: dict[str, float]
    thresholds: tuple[float, ...] | None  #: probabilities at which classes are predicted; None: 0.5

    def _repr_html_(self) -> str:
        """Return tables of the run and of its metrics by part of the split: Jupyter."""
        run = [
            ("model", f"{self.model}, epoch {self.epoch}"),
            ("dataset", self.dataset),
            ("inference", self.inference),
        ]
        names = dict.fromkeys(name for values in self.metrics.values() for name in values)
        rows = [
            (name, *(_text(values.get(name)) for values in self.metrics.values())) for name in names
        ]
        return html_table(run) + html_table(rows, headings=("metric", *self.metrics))


def _text(value: float | None) -> str:
    return "not defined" if value is None else f"{value:.4f}"


def evaluate(config: EvaluateConfig) -> Evaluation:
    """Measure the best weights of a run on training, validation and test set.

    Raises:
        ConfigError: the directory has no run, or ``load_trained`` raises it.
        GraphError: the run's graph store is missing or damaged.
    """
    run = load_run(config.run, config.overrides, measures=True)
    run = with_inference(run, config.inference, config.num_threads)
    torch.set_num_threads(config.num_threads)
    task, trained = open_trained(config.run, run, ranks=True)
    return measure(task, trained, run.evaluation_options, config.threshold)


def measure(
    task: base.Task,
    trained: TrainedModel,
    options: EvaluationOptions,
    threshold: float | None = None,
) -> Evaluation:
    """Measure a trained model at ``task`` on training, validation and test set.

    ``threshold`` replaces the run's thresholds; None: it does not. ConfigError: the labels have no
    threshold.
    """
    if isinstance(task, TypesTask):
        task.refuse_threshold(threshold)
    thresholds = trained.thresholds(options.threshold, threshold)
    splits = [split for split in base.SPLITS if task.has_part(split)]
    predictor = Predictor(trained.model, task.graph, options)
    examiner = open_examiner(task, trained.model, predictor)
    examiner.prepare(splits)
    metrics = dict(zip(splits, examiner.measure(splits, thresholds), strict=True))
    metric = task.measures[0]
    return Evaluation(
        dataset=task.graph.name,
        model=options.model_name,
        metric=metric,
        inference=predictor.inference,
        epoch=trained.epoch,
        train_metric=metrics.get("train", {}).get(metric),
        valid_metric=metrics.get("valid", {}).get(metric),
        test_metric=metrics.get("test", {}).get(metric),
        ceiling=base.ceiling(task.graph, metric),
        metrics=metrics,
        popularity=_measure_popularity(examiner),
        base_rates=task.base_rates if isinstance(task, base.LabelTask) else {},
        thresholds=thresholds,
    )
