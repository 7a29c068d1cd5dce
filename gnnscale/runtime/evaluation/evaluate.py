"""How good a model is: predictions for given vertices, and the graph's metric of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from omegaconf import OmegaConf

from gnnscale.backend.chunks import Vertices
from gnnscale.backend.loading import FeatureLoader
from gnnscale.config import ConfigError, typed
from gnnscale.errors import shown
from gnnscale.feature import FeatureStore
from gnnscale.graph import Graph
from gnnscale.metrics import score
from gnnscale.model import GNN
from gnnscale.progress import track
from gnnscale.run_directory import CONFIG_FILE, check_store_of_run, read_run
from gnnscale.runtime.checkpoint.file import (
    BEST,
    check_same_graph,
    has_checkpoint,
    load_checkpoint,
    max_bytes,
    read_checkpoint,
)
from gnnscale.runtime.checkpoint.run_checkpoint import graph_identity
from gnnscale.runtime.checkpoint.saved_run import check_weights
from gnnscale.runtime.evaluation.inference import LayerwiseInference
from gnnscale.runtime.settings import EvaluateConfig, TrainConfig
from gnnscale.sampler.seed_order import labelled_vertices

__all__ = ["Evaluation", "Predictor", "ceiling", "evaluate", "load_best", "load_run"]

#: Sampled evaluation draws at one step that training never reaches, so that what is sampled for a
#: vertex does not depend on which others are evaluated with it.
EVALUATION_STEP = 1 << 40


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The metric of a trained model on each split; None where the metric is not defined."""

    dataset: str
    model: str
    metric: str
    inference: str
    epoch: int
    train_metric: float | None
    valid_metric: float | None
    test_metric: float | None
    ceiling: float | None


class Predictor:
    """Predicts vertices of one graph with one model, whose weights may change between calls.

    ``runtime.inference`` says whether over all neighbours or over sampled ones; the same weights
    give the same answer every time.
    """

    def __init__(
        self,
        model: GNN,
        graph: Graph,
        config: TrainConfig,
        *,
        store: FeatureStore | None = None,
        num_layers: int | None = None,
    ) -> None:
        """Predict with ``model``.

        Args:
            model: predicts.
            graph: the whole graph.
            config: options of the run.
            store: where features are read; None for the graph's own.
            num_layers: rows are what comes of the first so many layers, over all neighbours; None
                for logits.
        """
        self._model = model
        self._graph = graph
        self._config = config
        self._store = store
        self._exact = (
            LayerwiseInference(
                model, graph, num_threads=config.num_threads, store=store, num_layers=num_layers
            )
            if config.runtime.inference == "exact"
            else None
        )

    def prepare(self, vertices: NDArray[np.integer[Any]] | None) -> None:
        """Say what predicting ``vertices``, all where None, takes; refuse it without room.

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
        """Yield rows of ``vertices``, all where None, some after the other in their order."""
        if self._exact is not None:
            yield from (rows.numpy() for rows in self._exact.rows(vertices))
        else:
            yield from self._sampled(
                range(self._graph.num_vertices) if vertices is None else vertices
            )

    def measure(self, splits: Sequence[NDArray[np.integer[Any]]]) -> list[float | None]:
        """Return the graph's metric on each of ``splits``; None where it is not defined."""
        if self._exact is not None:
            # One pass: the layers below the last are mostly the same vertices for every split.
            together = self.logits(np.concatenate(splits))
            logits = np.split(together, np.cumsum([len(vertices) for vertices in splits])[:-1])
        else:
            logits = [self.logits(vertices) for vertices in splits]
        values = [
            score(self._graph.metric, rows, self._graph.labels[vertices])
            for rows, vertices in zip(logits, splits, strict=True)
        ]
        return [value if math.isfinite(value) else None for value in values]

    @torch.no_grad()
    def _sampled(self, vertices: Vertices) -> Iterator[NDArray[np.float32]]:
        config = self._config
        self._model.eval()
        sampler = config.sampler.sampler(
            self._graph, seed=config.seed, num_threads=config.num_threads
        )
        loader = FeatureLoader(
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


def ceiling(graph: Graph) -> float | None:
    """Return the best test metric that the graph's generator allows, None where not known."""
    return graph.attainable_accuracy


def load_run(run: Path) -> TrainConfig:
    """Read the options that the run in directory ``run`` was started with.

    Raises:
        ConfigError: the directory is none of a training run, or its ``config.yaml`` is not valid.
    """
    file = run / CONFIG_FILE
    known = {field.name for field in fields(TrainConfig)}
    options = OmegaConf.create(read_run(run, known, option="run"))
    try:
        config = typed(options, TrainConfig)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None
    check_store_of_run(file, config.dataset.store)
    return config


def load_best(directory: Path, run: TrainConfig) -> tuple[Graph, GNN, int]:
    """Return a run's graph, its model with the best weights, and the epoch that these are of.

    Args:
        directory: of the run.
        run: its options.

    Raises:
        ConfigError: there is no best checkpoint, or it does not fit the options or the graph.
        GraphError: the run's graph store is not usable.
    """
    file = directory / BEST
    if not has_checkpoint(file):
        raise ConfigError(f"{file}: no such checkpoint")
    graph = run.dataset.open()
    model = run.model.build(num_features=graph.num_features, num_classes=graph.num_classes)
    best = load_checkpoint(file, read_checkpoint(file, limit=max_bytes(model)))
    epoch = best.get("epoch")
    if type(epoch) is not int:
        raise ConfigError(f"{file}: not weights of a run (its epoch is {shown(epoch)})")
    trained_on = best.get("graph")
    if not isinstance(trained_on, dict):
        raise ConfigError(f"{file}: not weights of a run (its graph is {shown(trained_on)})")
    check_same_graph(file, trained_on, graph=graph_identity(graph), option="run")
    model.load_state_dict(check_weights(file, best.get("model"), model))
    return graph, model, epoch


def evaluate(config: EvaluateConfig) -> Evaluation:
    """Measure the best checkpoint of a run on its training, validation and test vertices.

    Raises:
        ConfigError: the directory holds no run; or what ``load_best`` raises.
        GraphError: the run's graph store is not usable.
    """
    run = load_run(config.run)
    inference = config.inference or run.runtime.inference
    run = replace(
        run,
        num_threads=config.num_threads,
        runtime=replace(run.runtime, inference=inference),
    )
    torch.set_num_threads(config.num_threads)
    graph, model, epoch = load_best(config.run, run)
    splits = [labelled_vertices(graph, split) for split in ("train", "valid", "test")]
    predictor = Predictor(model, graph, run)
    predictor.prepare(np.concatenate(splits))
    train, valid, test = predictor.measure(splits)
    return Evaluation(
        dataset=graph.name,
        model=run.model.name,
        metric=graph.metric,
        inference=run.runtime.inference,
        epoch=epoch,
        train_metric=train,
        valid_metric=valid,
        test_metric=test,
        ceiling=ceiling(graph),
    )
