"""Evaluation of a run's model, during training and afterwards.

Tasks of vertices and edges are measured by their labels, link prediction by ranks of edges.
"""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from gnnscale.backend import InferenceCapable
from gnnscale.core import ClassCounts, count_classes, ranking, track
from gnnscale.core import types as arrays
from gnnscale.distributed.heartbeat import activity
from gnnscale.features import FeatureStore
from gnnscale.inference.load_run import TrainedModel, load_run, open_trained, with_inference
from gnnscale.inference.predictor import EdgePredictor, Predictor
from gnnscale.inference.thresholds import choose_thresholds
from gnnscale.nn import EdgeGNN, LinkGNN, TrainableModel
from gnnscale.run import EvaluateConfig, EvaluationOptions
from gnnscale.run.tasks import base, links
from gnnscale.sampling import draw_candidates, labeled_vertices

#: Approximate bytes of the rows that are compared together.
_SLICE_BYTES = 64 << 20
#: Random streams of the candidates of each part of the split: steps that training never has.
_STEPS = {"train": 1 << 41, "valid": (1 << 41) + 1, "test": (1 << 41) + 2}


@dataclass(frozen=True, kw_only=True)
class HeldOutScores:
    """Results of a model on the test set."""

    metrics: dict[str, float | None]  #: by name; None for a metric that is not defined
    #: counts of labels, predictions and hits by class; None for regression and link prediction, or
    #: if no test label is known
    classes: ClassCounts | None = None
    thresholds: ranking.Thresholds | None = None  #: thresholds that were chosen; None: 0.5


class _LabelExaminer(ABC):
    """Evaluation of a model's predicted labels, by metrics of the task."""

    _task: base.LabelTask

    def measure(
        self, splits: Sequence[str], thresholds: Sequence[float] | None = None
    ) -> list[dict[str, float | None]]:
        """Return the metrics of each split; None for a metric that is not defined.

        With ``thresholds`` of ``ranking.shifted``, precision, recall and F1 at them are added.
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
        decided = outputs if thresholds is None else ranking.shifted(outputs, thresholds)
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


class LinkExaminer:
    """Evaluation of link prediction by ranks; equal weights give equal results.

    Each edge's destination is ranked among ``task.num_candidates`` candidates, sampled uniformly,
    from vertices of its kind if ``task.candidates`` has kinds. The sample is a function of
    ``task.seed``, the split and the edge's index.
    """

    def __init__(self, task: links.LinkTask, model: LinkGNN, predictor: Predictor) -> None:
        """Rank with the decoder of ``model``, whose output rows ``predictor`` computes."""
        self._task = task
        self._model = model
        self._predictor = predictor

    def prepare(self, splits: Sequence[str]) -> None:
        """Log the cost of measuring ``splits`` if it is high; ConfigError: the disk is too full."""
        for split in splits:
            self._predictor.prepare(self._vertices(split))

    def measure(
        self, splits: Sequence[str], thresholds: Sequence[float] | None = None
    ) -> list[dict[str, float | None]]:
        """Return MRR and Hits@k of each split, which need no ``thresholds``."""
        (mrr, hits), k = self._task.measures, self._task.hits
        ranks_by_split = (self._ranks(split) for split in splits)
        return [
            {mrr: links.mean_reciprocal_rank(ranks), hits: links.hits_at(ranks, k)}
            for ranks in ranks_by_split
        ]

    def test(self, rule: str | None) -> HeldOutScores:
        """Return the results on the test edges; ``rule`` is None, since edges are ranked."""
        return HeldOutScores(metrics=self.measure(["test"])[0])

    @torch.no_grad()
    def _ranks(self, split: str) -> arrays.Float64Array:
        """Return the rank, by score, of each edge's destination among its candidates, ``[n]``."""
        vertices = self._vertices(split)
        rows = torch.from_numpy(self._predictor.logits(vertices))
        self._model.decoder.eval()
        ranks = []
        with track("ranking edges", len(self._edges(split)), "edges") as advance:
            for pairs, candidates in self._slices(split):
                source = rows[_positions(vertices, pairs[:, 0])]
                targets = np.concatenate([pairs[:, 1:], candidates], axis=1)
                destination = rows[_positions(vertices, targets)]
                edge_scores = self._model.decoder(source[:, None], destination)
                ranks.append(links.ranks(edge_scores.numpy()))
                advance(len(pairs))
        return np.concatenate(ranks)

    def _vertices(self, split: str) -> arrays.IntArray:
        """Return the ascending ids of all vertices of ``split``'s edges and their candidates."""
        graph = self._task.graph
        needed = np.zeros(graph.num_vertices, np.bool_)
        for pairs, candidates in self._slices(split):
            needed[pairs] = True
            needed[candidates] = True
        return np.flatnonzero(needed).astype(graph.indices.dtype)

    def _slices(self, split: str) -> Iterator[tuple[arrays.IntArray, arrays.Int64Array]]:
        """Yield edges ``[n, 2]`` and their candidates ``[n, k]`` in slices of bounded bytes."""
        pairs, task = self._edges(split), self._task
        count = task.num_candidates
        row_bytes = 4 * self._model.widths[-1]
        size = max(1, _SLICE_BYTES // ((1 + count) * row_bytes))
        for first in range(0, len(pairs), size):
            part = np.asarray(pairs[first : first + size])
            candidates = draw_candidates(
                task.candidates,
                np.arange(first, first + len(part)),
                part[:, 1],
                count,
                num_vertices=task.graph.num_vertices,
                seed=task.seed,
                step=_STEPS[split],
            )
            yield part, candidates

    def _edges(self, split: str) -> arrays.IntArray:
        pairs: arrays.IntArray = getattr(self._task.split, split)
        return pairs


class EdgeExaminer(_LabelExaminer):
    """Evaluation of predicted edge labels."""

    def __init__(self, task: base.EdgeTask, model: EdgeGNN, predictor: Predictor) -> None:
        """Measure the outputs of ``model``, whose vertex rows ``predictor`` computes."""
        self._task: base.EdgeTask = task
        self._predictor = EdgePredictor(model, predictor)
        assert task.graph.edges.ends is not None
        self._ends = task.graph.edges.ends

    def prepare(self, splits: Sequence[str]) -> None:
        """Log the cost of measuring ``splits`` if it is high; ConfigError: the disk is too full."""
        for split in splits:
            self._predictor.prepare(np.asarray(self._ends[self._task.rows(split)]))

    def _outputs(self, splits: Sequence[str]) -> Iterator[tuple[arrays.Float32Array, arrays.Array]]:
        for rows in map(self._task.rows, splits):
            ends, features = np.asarray(self._ends[rows]), self._task.graph.edge_features
            outputs = np.concatenate([*self._predictor.outputs(ends, rows, features)])
            yield outputs, np.asarray(self._task.labels.labels[rows])


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


def open_examiner(
    task: base.Task, model: TrainableModel, predictor: Predictor
) -> VertexExaminer | LinkExaminer | EdgeExaminer:
    """Return the object that evaluates ``model`` at ``task``, by labels or by ranks of edges."""
    if isinstance(task, base.EdgeTask):
        assert isinstance(model, EdgeGNN)
        return EdgeExaminer(task, model, predictor)
    if isinstance(task, links.LinkTask):
        assert isinstance(model, LinkGNN)
        return LinkExaminer(task, model, predictor)
    assert isinstance(task, base.VertexTask)
    return VertexExaminer(task, predictor)


def _positions(vertices: arrays.IntArray, ids: arrays.IntArray) -> torch.Tensor:
    """Return the indices of ``ids`` in ascending ``vertices``, which contain them."""
    return torch.from_numpy(np.searchsorted(vertices, ids))


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
            epochs: epochs of the run; the last is always validated.
            eval_every: epochs between validations.
            num_threads: threads of the host, all of which validate.
        """
        self._epochs = epochs
        self._eval_every = eval_every
        self._num_threads = num_threads
        self._rule = options.threshold
        predictor = Predictor(model, task.graph, options, store=store, device=device)
        self._examiner = open_examiner(task, model, predictor)

    def is_due(self, epoch: int) -> bool:
        """Whether ``epoch``, from 1, is validated."""
        return epoch % self._eval_every == 0 or epoch == self._epochs

    def prepare(self) -> None:
        """Log the cost of validation and test if it is high; ConfigError: the disk is too full."""
        for split in ("test", "valid"):
            self._examiner.prepare([split])

    @activity("validate")
    def validate(self) -> tuple[dict[str, float | None], float]:
        """Return the validation metrics (None: not defined) and the seconds of the validation."""
        start = time.perf_counter()
        with self._all_threads():
            (metrics,) = self._examiner.measure(["valid"])
        return metrics, time.perf_counter() - start

    def test(self) -> HeldOutScores:
        """Return the results on the test set, at thresholds of the option ``threshold``."""
        with self._all_threads():
            return self._examiner.test(self._rule)

    @contextmanager
    def _all_threads(self) -> Iterator[None]:
        """Let torch use all threads of the host inside a ``with`` block, then as many as before."""
        num_threads = torch.get_num_threads()
        torch.set_num_threads(self._num_threads)
        try:
            yield
        finally:
            torch.set_num_threads(num_threads)


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Metrics of a trained model on each split; None for a metric that is not defined.

    ``metric`` names the run's first metric, whose values are ``train_metric``, ``valid_metric`` and
    ``test_metric``. ``metrics`` has all metrics by split and name, and with thresholds
    ``precision``, ``recall`` and ``f1`` at them: of class 1 of two, or summed over the classes of
    multilabel. ``base_rates`` are shares of positives by split, if a metric compares with them.
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
    base_rates: dict[str, float]
    thresholds: tuple[float, ...] | None  #: probabilities at which classes are predicted; None: 0.5


def evaluate(config: EvaluateConfig) -> Evaluation:
    """Measure the best weights of a run on training, validation and test set.

    Raises:
        ConfigError: the directory has no run, or ``load_trained`` raises it.
        GraphError: the run's graph store is missing or damaged.
    """
    run = load_run(config.run, config.given, measures=True)
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
    thresholds = trained.thresholds(options.threshold, threshold)
    splits = ("train", "valid", "test")
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
        train_metric=metrics["train"][metric],
        valid_metric=metrics["valid"][metric],
        test_metric=metrics["test"][metric],
        ceiling=base.ceiling(task.graph, metric),
        metrics=metrics,
        base_rates=task.base_rates if isinstance(task, base.LabelTask) else {},
        thresholds=thresholds,
    )
