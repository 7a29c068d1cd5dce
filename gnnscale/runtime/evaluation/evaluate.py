"""How good the model of a run is: its options, its best weights, and metrics of them."""

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf

from gnnscale.core import ConfigError, shown
from gnnscale.graph import Graph
from gnnscale.model import TrainableModel
from gnnscale.options import found, run_directory
from gnnscale.options.config import typed
from gnnscale.runtime.checkpoint import run_checkpoint, saved_run
from gnnscale.runtime.checkpoint.file import (
    BEST,
    check_same_graph,
    load_checkpoint,
    max_bytes,
    read_checkpoint,
)
from gnnscale.runtime.command_options import EvaluateConfig
from gnnscale.runtime.evaluation.examine import open_examiner
from gnnscale.runtime.evaluation.predictor import Predictor
from gnnscale.runtime.settings import TrainConfig
from gnnscale.task.base import Task, ceiling

#: Groups of a run's options that are used after it. Losses and observers stay what they are, names.
_USED = ("dataset.", "model.", "task.")


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
    if not os.path.lexists(file):
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
