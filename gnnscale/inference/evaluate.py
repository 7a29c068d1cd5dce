"""How good the model of a run is, while it trains and afterwards.

A run is measured by labels of vertices or edges, or by ranks of edges among candidates.
"""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch

from gnnscale.backend import InferenceCapable
from gnnscale.core import track
from gnnscale.core import types as arrays
from gnnscale.core.metrics import ClassCounts, count_classes
from gnnscale.distributed.heartbeat import activity
from gnnscale.features import FeatureStore
from gnnscale.inference.load_run import load_run, load_trained, open_run_task
from gnnscale.inference.pair_scoring import EdgePredictor
from gnnscale.inference.predictor import Predictor
from gnnscale.nn import TrainableModel
from gnnscale.nn.link_decoder import EdgeGNN, LinkGNN
from gnnscale.run.commands import EvaluateConfig
from gnnscale.run.config import RunConfig
from gnnscale.run.tasks import base, edges, links
from gnnscale.run.tasks.base import ceiling
from gnnscale.sampling.candidates import draw_candidates
from gnnscale.sampling.seed_order import labelled_vertices

#: Rows that are compared at once take about so many bytes.
_SLICE_BYTES = 64 << 20
#: Candidates of a part of the split are drawn at a separate step, which training never reaches.
_STEPS = {"train": 1 << 41, "valid": (1 << 41) + 1, "test": (1 << 41) + 2}


class VertexExaminer:
    """Measures predicted labels of vertices."""

    def __init__(self, task: base.VertexTask, predictor: Predictor) -> None:
        """Measure what ``predictor`` predicts on the graph of ``task``."""
        self._predictor = predictor
        self._graph = task.graph
        self._task = task

    def prepare(self, splits: Sequence[str]) -> None:
        """Log what measuring ``splits`` at once takes.

        Raises:
            ConfigError: exact inference needs more of the disk than is free.
        """
        vertices = [labelled_vertices(self._graph, split) for split in splits]
        self._predictor.prepare(np.concatenate(vertices))

    def measure(self, splits: Sequence[str]) -> list[dict[str, float | None]]:
        """Return the run's metrics on each of ``splits``; None for one that is not defined."""
        return [scores(self._task, *each) for each in self._decisions(splits)]

    def measure_by_class(self, split: str) -> tuple[dict[str, float | None], ClassCounts | None]:
        """Return the metrics on ``split``, and the counts of each class; None of regression."""
        ((rows, labels),) = self._decisions([split])
        counted = len(rows) > 0 and not self._graph.regression
        counts = count_classes(rows, labels) if counted else None
        return scores(self._task, rows, labels), counts

    def _decisions(
        self, splits: Sequence[str]
    ) -> Iterator[tuple[arrays.Float32Array, arrays.Array]]:
        """Yield the outputs and the labels of each of ``splits``."""
        vertices = [labelled_vertices(self._graph, split) for split in splits]
        rows = self._predictor.logits_of_each(vertices)
        labels = (np.asarray(self._graph.labels[each]) for each in vertices)
        yield from zip(rows, labels, strict=True)


class LinkExaminer:
    """Ranks held-out edges; the same weights give the same answer every time.

    Each edge's destination is ranked among ``task.num_candidates`` of its candidates, drawn
    uniformly as a function of ``task.split_seed`` and the edge.
    """

    def __init__(self, task: links.LinkTask, model: LinkGNN, predictor: Predictor) -> None:
        """Examine ``model``, whose output rows ``predictor`` computes."""
        self._task = task
        self._model = model
        self._predictor = predictor

    def prepare(self, splits: Sequence[str]) -> None:
        """Log what measuring each of ``splits`` takes; refuse it if there is no room."""
        for split in splits:
            self._predictor.prepare(self._vertices(split))

    def measure(self, splits: Sequence[str]) -> list[dict[str, float | None]]:
        """Return MRR and Hits@k of each of ``splits``."""
        (mrr, hits), k = self._task.measures, self._task.hits
        found = (self._ranks(split) for split in splits)
        return [
            {mrr: links.mean_reciprocal_rank(each), hits: links.hits_at(each, k)} for each in found
        ]

    def measure_by_class(self, split: str) -> tuple[dict[str, float | None], ClassCounts | None]:
        """Return the metrics on ``split``; edges have no classes."""
        return self.measure([split])[0], None

    @torch.no_grad()
    def _ranks(self, split: str) -> arrays.Float64Array:
        """Return the rank of every edge of ``split``."""
        vertices = self._vertices(split)
        rows = torch.from_numpy(self._predictor.logits(vertices))
        self._model.decoder.eval()
        found = []
        with track("ranking edges", len(self._edges(split)), "edges") as advance:
            for pairs, candidates in self._slices(split):
                source = rows[_places(vertices, pairs[:, 0])]
                others = np.concatenate([pairs[:, 1:], candidates], axis=1)
                destination = rows[_places(vertices, others)]
                compared = self._model.decoder(source[:, None], destination)
                found.append(links.ranks(compared.numpy()))
                advance(len(pairs))
        return np.concatenate(found)

    def _vertices(self, split: str) -> arrays.IntArray:
        """Return the vertices whose rows are needed, ascending."""
        graph = self._task.graph
        needed = np.zeros(graph.num_vertices, np.bool_)
        for pairs, candidates in self._slices(split):
            needed[pairs] = True
            needed[candidates] = True
        return np.flatnonzero(needed).astype(graph.indices.dtype)

    def _slices(self, split: str) -> Iterator[tuple[arrays.IntArray, arrays.Int64Array]]:
        """Yield edges ``[n, 2]`` and their candidates ``[n, k]``, few enough to be compared."""
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


class EdgeExaminer:
    """Measures predicted labels of edges."""

    def __init__(self, task: edges.EdgeTask, model: EdgeGNN, predictor: Predictor) -> None:
        """Examine ``model``, whose output rows ``predictor`` computes."""
        self._task = task
        self._predictor = EdgePredictor(model, predictor)
        assert task.graph.edges.ends is not None
        self._ends = task.graph.edges.ends

    def prepare(self, splits: Sequence[str]) -> None:
        """Log what measuring each of ``splits`` takes; refuse it if there is no room."""
        for split in splits:
            self._predictor.prepare(np.asarray(self._ends[self._task.rows(split)]))

    def measure(self, splits: Sequence[str]) -> list[dict[str, float | None]]:
        """Return the run's metrics on each of ``splits``; None for one that is not defined."""
        return [scores(self._task, *self._outputs(split)) for split in splits]

    def measure_by_class(self, split: str) -> tuple[dict[str, float | None], ClassCounts | None]:
        """Return the metrics on ``split``, and the counts of each class; None of regression."""
        outputs, labels = self._outputs(split)
        counts = None if labels.dtype.kind == "f" else count_classes(outputs, labels)
        return scores(self._task, outputs, labels), counts

    def _outputs(self, split: str) -> tuple[arrays.Float32Array, arrays.Array]:
        """Return outputs and labels of the edges of ``split``."""
        rows = self._task.rows(split)
        ends, features = np.asarray(self._ends[rows]), self._task.graph.edge_features
        outputs = np.concatenate([*self._predictor.outputs(ends, rows, features)])
        return outputs, np.asarray(self._task.labels.labels[rows])


def scores(
    task: base.LabelTask, outputs: arrays.Float32Array, labels: arrays.Array
) -> dict[str, float | None]:
    """Return the metrics of ``outputs`` ``[n, width]``; None for one not defined."""
    values = {name: task.score(name, outputs, labels) for name in task.measures}
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def open_examiner(
    task: base.Task, model: TrainableModel, predictor: Predictor
) -> VertexExaminer | LinkExaminer | EdgeExaminer:
    """Return what measures ``model`` at ``task``."""
    if isinstance(task, edges.EdgeTask):
        assert isinstance(model, EdgeGNN)
        return EdgeExaminer(task, model, predictor)
    if isinstance(task, links.LinkTask):
        assert isinstance(model, LinkGNN)
        return LinkExaminer(task, model, predictor)
    assert isinstance(task, base.VertexTask)
    return VertexExaminer(task, predictor)


def _places(vertices: arrays.IntArray, wanted: arrays.IntArray) -> torch.Tensor:
    """Return where ``wanted`` are among ``vertices``, which ascend."""
    return torch.from_numpy(np.searchsorted(vertices, wanted))


class Validator:
    """Measures a model on what is held out for validation and test."""

    def __init__(
        self,
        config: RunConfig,
        task: base.Task,
        model: TrainableModel,
        store: FeatureStore,
        device: InferenceCapable | None = None,
    ) -> None:
        """Measure ``model`` at ``task``.

        Args:
            store: its features are read, unless devices trade rows or hold some of the columns: it
                then has a part of them only, and the graph's own are read.
            device: computes over all neighbours; None for the host.
        """
        self._config = config
        own = store if config.exchange is None and store.columns is None else None
        predictor = Predictor(model, task.graph, config, store=own, device=device)
        self._examiner = open_examiner(task, model, predictor)

    def is_due(self, epoch: int) -> bool:
        """Return whether ``epoch``, from 1, is validated."""
        return epoch % self._config.runtime.eval_every == 0 or epoch == self._config.epochs

    def prepare(self) -> None:
        """Log in advance what validation and test take; refuse them if there is no room."""
        for split in ("test", "valid"):
            self._examiner.prepare([split])

    @activity("validate")
    def validate(self) -> tuple[dict[str, float | None], float]:
        """Return the validation metrics, None for one not defined, and the seconds they took."""
        start = time.perf_counter()
        with self._all_threads():
            (metrics,) = self._examiner.measure(["valid"])
        return metrics, time.perf_counter() - start

    def test(self) -> dict[str, float | None]:
        """Return the test metrics, None for one that is not defined."""
        return self.test_by_class()[0]

    def test_by_class(self) -> tuple[dict[str, float | None], ClassCounts | None]:
        """Return what ``test`` does, and the counts of each class; None without classes."""
        with self._all_threads():
            return self._examiner.measure_by_class("test")

    @contextmanager
    def _all_threads(self) -> Iterator[None]:
        """Let one process use all threads."""
        before = torch.get_num_threads()
        torch.set_num_threads(self._config.host_threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Metrics of a trained model on each split; None if a metric is not defined.

    ``metric`` is the first of the run's metrics, of which ``train_metric``, ``valid_metric`` and
    ``test_metric`` are the values; ``metrics`` has all of them, by split and name.
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


def evaluate(config: EvaluateConfig, run: RunConfig | None = None) -> Evaluation:
    """Measure the best checkpoint of a run on what it trains, validates and tests.

    Raises:
        ConfigError: the directory holds no run; or what ``load_trained`` raises.
        GraphError: the run's graph store is not usable.
    """
    run = load_run(config.run, config.given, measures=True) if run is None else run
    inference = config.inference or run.runtime.inference
    run = replace(
        run, num_threads=config.num_threads, runtime=replace(run.runtime, inference=inference)
    )
    torch.set_num_threads(config.num_threads)
    task = open_run_task(run, config.run, ranks=True)
    trained = load_trained(config.run, run, task.graph)
    splits = ("train", "valid", "test")
    predictor = Predictor(trained.model, task.graph, run)
    examiner = open_examiner(task, trained.model, predictor)
    examiner.prepare(splits)
    metrics = dict(zip(splits, examiner.measure(splits), strict=True))
    metric = task.measures[0]
    return Evaluation(
        dataset=task.graph.name,
        model=run.model.name,
        metric=metric,
        inference=predictor.inference,
        epoch=trained.epoch,
        train_metric=metrics["train"][metric],
        valid_metric=metrics["valid"][metric],
        test_metric=metrics["test"][metric],
        ceiling=ceiling(task.graph, metric),
        metrics=metrics,
    )
