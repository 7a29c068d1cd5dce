"""How good a model is: predictions for given vertices, and metrics of them."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from omegaconf import OmegaConf

from gnnscale.backend import chunks, loading
from gnnscale.core.errors import ConfigError, shown
from gnnscale.core.progress import track
from gnnscale.feature import FeatureStore
from gnnscale.graph import Graph
from gnnscale.model import TrainableModel
from gnnscale.options import found, run_directory
from gnnscale.options.config import typed
from gnnscale.runtime.checkpoint import run_checkpoint, saved_run
from gnnscale.runtime.checkpoint.file import (
    BEST,
    check_same_graph,
    has_checkpoint,
    load_checkpoint,
    max_bytes,
    read_checkpoint,
)
from gnnscale.runtime.evaluation.examine import open_examiner
from gnnscale.runtime.evaluation.inference import LayerwiseInference
from gnnscale.runtime.settings import EvaluateConfig, TrainConfig
from gnnscale.task.base import Task
from gnnscale.task.measures import ceiling

_LOG = logging.getLogger(__name__)

#: Groups of a run's options that are used after it. Losses and observers stay what they are, names.
_USED = ("dataset.", "model.", "task.")

#: Sampled evaluation draws at one step that training never reaches, so that what is sampled for a
#: vertex does not depend on which others are evaluated with it.
EVALUATION_STEP = 1 << 40


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


class Predictor:
    """Predicts vertices of one graph with one model, whose weights may change between calls.

    ``runtime.inference`` selects all neighbours or sampled ones; the same weights
    give the same answer every time.
    """

    def __init__(
        self,
        model: TrainableModel,
        graph: Graph,
        config: TrainConfig,
        *,
        store: FeatureStore | None = None,
        num_layers: int | None = None,
    ) -> None:
        """Predict with ``model``.

        Args:
            store: where features are read; None for the graph's own.
            num_layers: rows are what comes of the first so many layers, over all neighbours; None
                for logits.
        """
        self._model = model
        self._graph = graph
        self._config = config
        self._store = store
        exact = config.runtime.inference == "exact"
        self._exact = (
            LayerwiseInference(
                model, graph, num_threads=config.num_threads, store=store, num_layers=num_layers
            )
            if exact and model.infers_by_layer
            else None
        )
        if exact and self._exact is None:
            _LOG.info(
                f"runtime.inference=exact: {config.model.name} has no inference_per_layer, and is "
                "evaluated over sampled neighbours (docs/your-model.md)"
            )

    @property
    def inference(self) -> str:
        """One of ``INFERENCE``, what is done."""
        return "sampled" if self._exact is None else "exact"

    def prepare(self, vertices: NDArray[np.integer[Any]] | None) -> None:
        """Say what predicting ``vertices``, all if None, takes; refuse it without room.

        Raises:
            ConfigError: exact inference needs more of the disk than is free.
        """
        if self._exact is not None:
            self._exact.prepare(vertices)

    def logits(self, vertices: NDArray[np.integer[Any]]) -> NDArray[np.float32]:
        """Return the logits ``[len(vertices), num_classes]`` of ``vertices``, in their order."""
        if self._exact is not None:
            return self._exact.logits(vertices).numpy()
        return np.concatenate(list(self._sampled(vertices)))

    def rows(self, vertices: NDArray[np.integer[Any]] | None) -> Iterator[NDArray[np.float32]]:
        """Yield rows of ``vertices``, all if None, some after the other in their order."""
        if self._exact is not None:
            yield from (rows.numpy() for rows in self._exact.rows(vertices))
        else:
            yield from self._sampled(
                range(self._graph.num_vertices) if vertices is None else vertices
            )

    def logits_of_each(
        self, splits: Sequence[NDArray[np.integer[Any]]]
    ) -> list[NDArray[np.float32]]:
        """Return the logits of the vertices of each of ``splits``."""
        if self._exact is None:
            return [self.logits(vertices) for vertices in splits]
        # One pass: the layers below the last are mostly the same vertices for every split.
        together = self.logits(np.concatenate(splits))
        return np.split(together, np.cumsum([len(vertices) for vertices in splits])[:-1])

    @torch.no_grad()
    def _sampled(self, vertices: chunks.Vertices) -> Iterator[NDArray[np.float32]]:
        config = self._config
        self._model.eval()
        sampler = config.sampler.sampler(
            self._graph, seed=config.seed, num_threads=config.num_threads
        )
        loader = loading.FeatureLoader(
            self._graph,
            self._model,
            num_threads=config.num_threads,
            store=self._store,
            compute_dtype=getattr(torch, config.runtime.compute_dtype),
        )
        dtype = self._graph.indices.dtype
        with track("evaluating", total=len(vertices), unit="vertices") as advance:
            for start in range(0, len(vertices), config.batch_size):
                seeds = np.asarray(vertices[start : start + config.batch_size], dtype)
                batch = sampler.sample(seeds, EVALUATION_STEP)
                yield self._model(batch, loader.load(batch)).numpy()
                advance(batch.num_seeds)


def load_run(
    run: Path, given: Mapping[str, Any] | None = None, *, command: str = "evaluate"
) -> TrainConfig:
    """Read the options that the run in directory ``run`` was started with.

    Args:
        command: of ``gnnscale``, by which the user gave ``run``, for errors.

    Raises:
        ConfigError: the directory is none of a training run, or its ``config.yaml`` is not valid,
            or names code or a place that it may not, and that ``given`` does not name again.
    """
    file = run / run_directory.CONFIG_FILE
    known = {field.name for field in fields(TrainConfig)}
    given = given or {}
    values = run_directory.read_run(run, known, option="run")
    found.check_found(
        values,
        TrainConfig,
        directory=run,
        given=given,
        command=f"gnnscale {command} {shlex.quote(f'run={run}')}",
        used=_USED,
    )
    options = OmegaConf.create(values)
    for option, value in given.items():
        OmegaConf.update(options, option, value)
    try:
        config = typed(options, TrainConfig)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None
    run_directory.check_store_of_run(file, config.dataset.store)
    return config


def open_run_task(run: TrainConfig) -> Task:
    """Open what a run predicts; what it needs of its graph is made if it is gone.

    Raises:
        GraphError: the run's graph store is not usable.
    """
    graph = run.dataset.open()
    return run.task.open(graph, run.task.make(graph), loss=run.loss, metrics=run.metrics)


def load_best(
    directory: Path, run: TrainConfig, task: Task | None = None
) -> tuple[Graph, TrainableModel, int]:
    """Return the graph that a run samples, its model with the best weights, and their epoch.

    Raises:
        ConfigError: there is no best checkpoint, or it does not fit the options or the graph.
        GraphError: the run's graph store is not usable.
    """
    file = directory / BEST
    if not has_checkpoint(file):
        raise ConfigError(f"{file}: no such checkpoint")
    task = open_run_task(run) if task is None else task
    graph, model = task.graph, task.build(run.model)
    best = load_checkpoint(file, read_checkpoint(file, limit=max_bytes(model)))
    epoch = best.get("epoch")
    if type(epoch) is not int:
        raise ConfigError(f"{file}: not weights of a run (its epoch is {shown(epoch)})")
    trained_on = best.get("graph")
    if not isinstance(trained_on, dict):
        raise ConfigError(f"{file}: not weights of a run (its graph is {shown(trained_on)})")
    check_same_graph(file, trained_on, graph=run_checkpoint.graph_identity(graph), option="run")
    model.load_state_dict(saved_run.check_weights(file, best.get("model"), model))
    return graph, model, epoch


def evaluate(config: EvaluateConfig, run: TrainConfig | None = None) -> Evaluation:
    """Measure the best checkpoint of a run on what it trains, validates and tests.

    Raises:
        ConfigError: the directory holds no run; or what ``load_best`` raises.
        GraphError: the run's graph store is not usable.
    """
    run = load_run(config.run, config.given) if run is None else run
    inference = config.inference or run.runtime.inference
    run = replace(
        run,
        num_threads=config.num_threads,
        runtime=replace(run.runtime, inference=inference),
    )
    torch.set_num_threads(config.num_threads)
    task = open_run_task(run)
    graph, model, epoch = load_best(config.run, run, task)
    splits = ("train", "valid", "test")
    predictor = Predictor(model, graph, run)
    examiner = open_examiner(task, model, predictor)
    examiner.prepare(splits)
    metrics = dict(zip(splits, examiner.measure(splits), strict=True))
    metric = task.measures[0]
    return Evaluation(
        dataset=graph.name,
        model=run.model.name,
        metric=metric,
        inference=predictor.inference,
        epoch=epoch,
        train_metric=metrics["train"][metric],
        valid_metric=metrics["valid"][metric],
        test_metric=metrics["test"][metric],
        ceiling=ceiling(graph, metric),
        metrics=metrics,
    )
