"""Model with the best weights of a run, and graphs that it predicts."""

import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from gnnscale.core import ConfigError, brief
from gnnscale.graph import Graph, TypedFeatures
from gnnscale.inference.load_run import open_run_task
from gnnscale.nn import CustomModel, LearnedEmbedding, LinkModel, ModelConfig, TrainableModel
from gnnscale.nn.optim.update_rules import ROW_OPTIMIZERS
from gnnscale.run import graph_read, with_features
from gnnscale.run.checkpoint import BEST, INPUT_SCHEMA
from gnnscale.run.checkpoint.file import (
    check_same_graph,
    check_weights,
    load_checkpoint,
    max_bytes,
    read_checkpoint,
)
from gnnscale.run.checkpoint.fit_types import check_types
from gnnscale.run.checkpoint.input_schema import InputSchema, read_input_schema
from gnnscale.run.checkpoint.resume import graph_identity
from gnnscale.run.config import RunConfig
from gnnscale.run.tasks import LinkPrediction
from gnnscale.run.tasks.base import Task, check_threshold
from gnnscale.run.typed_inputs import learned_rows, read_by_type, row_options

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainedModel:
    """Model with the weights of its run's best epoch, and the checkpoint's data about the graph."""

    model: TrainableModel
    signature: InputSchema  #: inputs and outputs of the model
    epoch: int  #: the best epoch, from 1
    file: Path  #: the checkpoint
    trained_on: Mapping[str, Any]  #: identity of the training graph, see ``graph_identity``

    def of_target(self, vertex_type: str | None) -> "TrainedModel":
        """Return the model as one of ``vertex_type`` alone, see ``InputSchema.of_target``."""
        return replace(self, signature=self.signature.of_target(vertex_type))

    def thresholds(
        self, rule: str | None, override: float | None, outputs: Sequence[str] = ("classes",)
    ) -> tuple[float, ...] | None:
        """Return the thresholds at which classes are predicted, as in ``binary_metrics.shifted``.

        None: 0.5, or no classes are among ``outputs``.

        Args:
            rule: the run's option ``threshold``, by which training has chosen thresholds.
            override: threshold of all classes in their place; None: there is none.
            outputs: outputs that are computed, such as ``classes``.

        Raises:
            ConfigError: ``override`` is no threshold of the labels or of ``outputs``.
        """
        schema = self.signature
        if override is not None:
            check_threshold(override, schema.labels, schema.num_classes, of=schema.graph)
            if not 0 < override < 1:
                raise ConfigError(f"threshold={override}: expected a probability between 0 and 1")
            if "classes" not in outputs:
                raise ConfigError(
                    f"threshold={override}: expected null for {', '.join(outputs)}; what=classes "
                    "gives classes"
                )
            return (override,) * (schema.num_classes if schema.multilabel else 1)
        if rule is None or "classes" not in outputs:
            return None
        if schema.thresholds is None or schema.thresholds.rule != rule:
            _LOG.warning(
                f"threshold={rule}: the run was stopped before it chose a threshold, which is 0.5 "
                "then; resume the run, or set threshold=0.5"
            )
            return None
        return schema.thresholds.values

    def is_weighted(self, run: RunConfig, directory: Path) -> bool:
        """Whether edges of the training graph have weights.

        The graph of ``run`` in ``directory`` is opened if the schema is of an earlier release;
        ConfigError: it is missing; GraphError: it is damaged.
        """
        if self.signature.edge_weights is None:
            return open_run_task(run, directory).graph.edge_weights is not None
        return self.signature.edge_weights

    def give_rows(self, graph: Graph) -> None:
        """Copy learned rows, if any, into ``graph.features``, which the model then uses."""
        rows, features = self.model.vertex_rows, graph.features
        if rows is not None:
            table: Any = features.learned_rows if isinstance(features, TypedFeatures) else features
            # Sharing the memory frees the copy from the checkpoint.
            table[...] = rows.weight.numpy()
            rows.weight = torch.nn.Parameter(torch.from_numpy(table), requires_grad=False)

    def check_trained_on(self, graph: Graph) -> None:
        """Raise ConfigError, naming the difference, unless ``graph`` is the training graph."""
        check_same_graph(
            self.file,
            self.trained_on,
            graph=graph_identity(graph),
            option="run",
            divided=isinstance(self.model, LinkModel),
        )


def load_trained(directory: Path, run: RunConfig, graph: Graph | None = None) -> TrainedModel:
    """Return the model of the run in ``directory`` with its best weights.

    Args:
        directory: the run directory.
        run: options of the run.
        graph: the run's training graph, into which learned rows are copied. None opens the graph
            only if the run has learned rows, or an earlier release has written no schema.

    Raises:
        ConfigError: the best checkpoint is missing, or does not fit the options or the graph.
        GraphError: the run's graph store is needed, and missing or damaged.
    """
    file = directory / BEST
    if not os.path.lexists(file):
        raise ConfigError(f"{file}: no such checkpoint")
    # The graph determines the number of learned rows.
    needed = graph is not None or run.features.learns
    signature = None if needed else read_input_schema(directory)
    if signature is not None and signature.types is not None and signature.types.learned:
        signature = None
    if signature is None:
        graph = open_run_task(run, directory).graph if graph is None else graph
        stored = read_input_schema(directory)
        signature = replace(
            InputSchema.of(graph, run.task.labels(graph), by_type=not run.task.compares_rows),
            thresholds=None if stored is None else stored.thresholds,
        )
    elif not (signature.num_classes or isinstance(run.task, LinkPrediction)):
        raise ConfigError(
            f"{directory / INPUT_SCHEMA}: expected signature.num_classes above 0, got 0"
        )
    model = _build(run, signature)
    table = None if graph is None else learned_rows(run.features, graph)
    if table is not None:
        optimizer = ROW_OPTIMIZERS[row_options(run.features).optimizer]
        model.vertex_rows = LearnedEmbedding(torch.from_numpy(table), optimizer)
    best = load_checkpoint(file, read_checkpoint(file, limit=max_bytes(model)))
    epoch = best.get("epoch")
    if type(epoch) is not int:
        raise ConfigError(f"{file}: not weights of a run (its epoch is {brief(epoch)})")
    trained_on = best.get("graph")
    if not isinstance(trained_on, dict):
        raise ConfigError(f"{file}: not weights of a run (its graph is {brief(trained_on)})")
    trained = TrainedModel(
        model=model, signature=signature, epoch=epoch, file=file, trained_on=trained_on
    )
    if graph is not None:
        trained.check_trained_on(graph)
    weights = check_weights(file, best.get("model"), model)
    model.load_state_dict(weights, assign=_is_built_in(run.model))
    if graph is not None:
        trained.give_rows(graph)
    return trained


def open_trained(
    directory: Path, run: RunConfig, *, ranks: bool = False
) -> tuple[Task, TrainedModel]:
    """Return the task of the run in ``directory``, and the model with its best weights.

    Arguments and errors are those of ``open_run_task`` and ``load_trained``.
    """
    task = open_run_task(run, directory, ranks=ranks)
    return task, load_trained(directory, run, task.graph)


def _build(run: RunConfig, signature: InputSchema) -> TrainableModel:
    """Build the run's model from ``signature``, a built-in model on the device ``meta``."""
    # The sizes are from an untrusted file: allocate nothing before the weights are checked.
    device = torch.device("meta") if _is_built_in(run.model) else nullcontext()
    with device:
        model = run.task.build(
            run.model,
            num_features=signature.num_features,
            num_classes=signature.num_classes,
            num_edge_features=signature.num_edge_features,
            types=signature.types,
        )
        run.model.add_time_encoders(model, signature.timed_types)
    return model


def _is_built_in(model: ModelConfig) -> bool:
    """Whether gnnscale's own code, and no code of the user, builds the model."""
    return not (isinstance(model, CustomModel) or model.only_in_programs)


def open_other(
    run: RunConfig, trained: TrainedModel, graph: Graph, *, unseen: str = "refuse"
) -> Graph:
    """Return ``graph``, which the run was not trained on, with features as in training.

    Args:
        run: options of the run.
        trained: the trained model.
        graph: the opened graph.
        unseen: one of ``UNSEEN_POLICIES``, for categories that training lacked.

    Raises:
        ConfigError: the model has learned rows of its training graph; or features, or the
            presence of edge weights that the model uses, differ from training.
        GraphError: the graph has no features, and the run computes none.
    """
    check_predicts_others(run, trained.signature)
    if trained.model.uses_edge_weights:
        trained.signature.check_weights(graph)
    graph = with_features(run.features, graph, num_threads=run.num_threads)
    types = trained.signature.types
    if graph.types is not None or (types is not None and types.schema.is_homogeneous):
        graph = read_by_type(run.model, graph, seed=None)
        check_types(graph, types, trained.signature.graph)
    if learned_rows(run.features, graph) is not None:
        raise _learns_rows(trained.signature)
    graph = graph_read(run.task_inputs, trained.signature.fitted(graph, unseen=unseen))
    unit = trained.signature.edge_time_unit
    return graph if unit is None else _as_of_edges(run, graph, unit)


def _as_of_edges(run: RunConfig, graph: Graph, unit: str) -> Graph:
    """Return ``graph``, whose edges are predicted as of their times; ConfigError: unit differs."""
    if run.task.divides_edges:
        return graph
    times = graph.times
    if times is not None and times.unit != unit:
        raise ConfigError(
            f"dataset: expected times of {graph.name} in the unit of training, {unit}, got "
            f"{times.unit}"
        )
    return run.task.with_cutoffs(graph, run.task_inputs.time or "seed")


def check_predicts_others(run: RunConfig, signature: InputSchema) -> None:
    """Raise ConfigError if the run learns a row per vertex: no other graph can be predicted."""
    if run.features.learns:
        raise _learns_rows(signature)


def _learns_rows(signature: InputSchema) -> ConfigError:
    hint = "features=degrees" if signature.types is None else "model.without_features=degrees"
    return ConfigError(
        f"dataset: the run has learned rows for vertices of {signature.graph}, and knows no vertex "
        f"of another graph; train with {hint} or with features of the vertices to predict other "
        "graphs"
    )
