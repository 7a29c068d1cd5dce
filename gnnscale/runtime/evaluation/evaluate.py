"""How good a model is: predictions for given vertices, and the graph's metric of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from omegaconf import OmegaConf

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
    has_checkpoint,
    load_checkpoint,
    max_bytes,
    read_checkpoint,
)
from gnnscale.runtime.checkpoint.saved_run import check_weights
from gnnscale.runtime.evaluation.inference import layerwise_inference
from gnnscale.runtime.settings import EvaluateConfig, TrainConfig
from gnnscale.sampler.seed_order import labelled_vertices

__all__ = ["Evaluation", "ceiling", "evaluate", "load_run", "measure", "predict"]

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


@torch.no_grad()
def predict(
    model: GNN,
    graph: Graph,
    vertices: NDArray[np.integer[Any]],
    config: TrainConfig,
    *,
    store: FeatureStore | None = None,
) -> NDArray[np.float32]:
    """Return the logits ``[len(vertices), num_classes]`` of ``vertices``, in their order.

    ``runtime.inference`` says whether over all neighbours or over sampled ones; the same weights
    give the same answer every time. Features are read from ``store``, by default the graph's own.
    """
    model.eval()
    if config.runtime.inference == "exact":
        logits = layerwise_inference(
            model, graph, num_threads=config.num_threads, vertices=vertices, store=store
        )
        return logits.numpy()
    sampler = config.sampler.sampler(graph, seed=config.seed, num_threads=config.num_threads)
    loader = FeatureLoader(
        graph,
        model,
        num_threads=config.num_threads,
        store=store,
        compute_dtype=getattr(torch, config.runtime.compute_dtype),
    )
    parts = []
    with track("evaluating", total=len(vertices), unit="vertices") as advance:
        for start in range(0, len(vertices), config.batch_size):
            batch = sampler.sample(vertices[start : start + config.batch_size], EVALUATION_STEP)
            parts.append(model(batch, loader.load(batch)))
            advance(batch.num_seeds)
    return torch.cat(parts).numpy()


def measure(
    model: GNN,
    graph: Graph,
    splits: Sequence[NDArray[np.integer[Any]]],
    config: TrainConfig,
    *,
    store: FeatureStore | None = None,
) -> list[float | None]:
    """Return the graph's metric on each of ``splits``; None where it is not defined."""
    if config.runtime.inference == "exact":
        # One pass: the layers below the last are mostly the same vertices for every split.
        together = predict(model, graph, np.concatenate(splits), config, store=store)
        logits = np.split(together, np.cumsum([len(vertices) for vertices in splits])[:-1])
    else:
        logits = [predict(model, graph, vertices, config, store=store) for vertices in splits]
    values = [
        score(graph.metric, rows, graph.labels[vertices])
        for rows, vertices in zip(logits, splits, strict=True)
    ]
    return [value if math.isfinite(value) else None for value in values]


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


def evaluate(config: EvaluateConfig) -> Evaluation:
    """Measure the best checkpoint of a run on its training, validation and test vertices.

    Raises:
        ConfigError: the directory holds no run or no best checkpoint, or it fits not its options.
        GraphError: the run's graph store is not usable.
    """
    run = load_run(config.run)
    inference = config.inference or run.runtime.inference
    run = replace(
        run,
        num_threads=config.num_threads,
        runtime=replace(run.runtime, inference=inference),
    )
    file = config.run / BEST
    if not has_checkpoint(file):
        raise ConfigError(f"{file}: no such checkpoint")
    torch.set_num_threads(config.num_threads)
    graph = run.dataset.open()
    model = run.model.build(num_features=graph.num_features, num_classes=graph.num_classes)
    best = load_checkpoint(file, read_checkpoint(file, limit=max_bytes(model)))
    epoch = best.get("epoch")
    if type(epoch) is not int:
        raise ConfigError(f"{file}: not weights of a run (its epoch is {shown(epoch)})")
    model.load_state_dict(check_weights(file, best.get("model"), model))
    splits = [labelled_vertices(graph, split) for split in ("train", "valid", "test")]
    train, valid, test = measure(model, graph, splits, run)
    return Evaluation(
        dataset=graph.name,
        model=type(run.model).__name__,
        metric=graph.metric,
        inference=run.runtime.inference,
        epoch=epoch,
        train_metric=train,
        valid_metric=valid,
        test_metric=test,
        ceiling=ceiling(graph),
    )
