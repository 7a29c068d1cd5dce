"""Training inputs of a worker, and its model with the optimizer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from gnnscale.cache import CachePlan, StoredPlan
from gnnscale.distributed.process_group import Group
from gnnscale.features import LearnedFeaturesConfig
from gnnscale.graph import Graph
from gnnscale.nn import GNN, TrainableModel
from gnnscale.nn.learned_embeddings import LearnedEmbedding
from gnnscale.nn.optim.dense import optimizer_state
from gnnscale.nn.optim.sparse import ROW_OPTIMIZERS
from gnnscale.nn.options import CustomModel
from gnnscale.partition import Partition
from gnnscale.run import artifacts as run_artifacts
from gnnscale.run.artifacts import RunArtifact
from gnnscale.run.config import RunConfig
from gnnscale.run.inputs import check_feature_dtype, checked_order, describe_use
from gnnscale.run.tasks.base import Task
from gnnscale.sampling import SeedOrder
from gnnscale.training.build.cache import find_uncached
from gnnscale.training.make_artifacts import make_graph_artifacts
from gnnscale.training.p3.split_run import SplitRun, SplitWeights

log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class TrainInputs:
    """Graph, task, partition and cache plan that the workers of a run read."""

    task: Task  #: task on the training graph
    order: SeedOrder  #: the seeds of every step
    partition: Partition | None  #: partition over the devices. None: the graph is not partitioned.
    cache_plan: StoredPlan | None  #: cache plan of all devices; None: no caches
    artifacts: Sequence[RunArtifact]  #: artifacts made from the graph

    @classmethod
    def open(cls, config: RunConfig, group: Group, artifacts: Sequence[RunArtifact]) -> TrainInputs:
        """Open the artifacts; if there are none, one process per machine makes them first.

        Args:
            artifacts: artifacts made by the launching process; empty if workers make them.

        Raises:
            ConfigError: the options do not fit the graph.
            GraphError: a store is not usable.
        """
        if artifacts:
            graph = run_artifacts.open_store(artifacts)
        else:
            graph = _local_rank0_first(group, config.dataset.open)
            check_feature_dtype(config, graph.feature_dtype)
            if config.needs_more_than_graph:
                artifacts = _local_rank0_first(group, partial(make_graph_artifacts, config, graph))
        line = describe_use(config, graph) if group.is_rank0 else None
        if line is not None:
            log.info(line)
        task = run_artifacts.open_task(config, artifacts, graph, seed=config.seed)
        if group.is_rank0:
            task.log_split()
        task = task.over(run_artifacts.with_shared_arrays(task.graph, artifacts))
        graph = task.graph
        partition = run_artifacts.open_partition(artifacts, graph)
        cache_plan = run_artifacts.open_cache_plan(artifacts, graph)
        plan = None if cache_plan is None else cache_plan.plan
        uncached = find_uncached(config, plan) if group.is_rank0 else None
        if uncached is not None:
            log.info(uncached.line)
        order = checked_order(config, task.seeds, None if partition is None else partition.parts)
        return cls(
            task=task, order=order, partition=partition, cache_plan=cache_plan, artifacts=artifacts
        )

    def with_graph(self, graph: Graph) -> TrainInputs:
        """Return the inputs with ``graph``, which has equal content but is read differently."""
        return replace(self, task=self.task.over(graph))

    @property
    def graph(self) -> Graph:
        """The training graph."""
        return self.task.graph

    @property
    def caches(self) -> CachePlan | None:
        """Cache plan of all devices; None: there are no caches."""
        return None if self.cache_plan is None else self.cache_plan.plan

    @property
    def columns(self) -> Sequence[tuple[int, int]] | None:
        """Feature columns ``[first, end)`` of each device under P3.

        None: every device has all columns.
        """
        return None if self.partition is None else self.partition.parts.columns


def _local_rank0_first(group: Group, open_input: Callable[[], T]) -> T:
    """Return ``open_input()``, called first by the process of each machine that makes artifacts."""
    if group.local_rank == 0:
        result = open_input()
    group.barrier()
    return result if group.local_rank == 0 else open_input()


@dataclass(frozen=True, kw_only=True)
class ModelState:
    """Model of a run, the part that this device trains, and its optimizer."""

    model: TrainableModel  #: full model, which is evaluated and saved
    trained: TrainableModel  #: model that this device trains: ``model``, or a part (P3)
    optimizer: torch.optim.Optimizer  #: updates the weights of ``trained``
    #: this worker's part of a split first layer (P3). None: devices train the full model.
    split: SplitRun | None = None
    #: gathers ``model`` from the devices' parts (P3); None otherwise
    weights: SplitWeights | None = None

    @classmethod
    def open(cls, config: RunConfig, data: TrainInputs, group: Group) -> ModelState:
        """Build the model, whose initial weights ``seed`` determines, and its optimizer."""
        if group.is_rank0 and isinstance(config.model, CustomModel):
            sizes = {"num_features": data.graph.num_features, "num_classes": data.graph.num_classes}
            config.model.warn_unless_built_again(**sizes)
        torch.manual_seed(config.seed)
        model = data.task.build(config.model)
        if isinstance(config.features, LearnedFeaturesConfig):
            factor = config.features.rate_factor(config.optimizer.lr)
            table = torch.from_numpy(data.graph.features)
            row_optimizer = ROW_OPTIMIZERS[config.features.optimizer]
            model.vertex_rows = LearnedEmbedding(table, row_optimizer, rate_factor=factor)
        if data.columns is None or group.size == 1:
            return cls(model=model, trained=model, optimizer=config.optimizer.build(model))
        assert isinstance(model, GNN)
        split = SplitRun(model, data.columns, group)
        optimizer = config.optimizer.build(split.model)
        weights = split.weights(optimizer)
        return cls(
            model=model, trained=split.model, optimizer=optimizer, split=split, weights=weights
        )

    def join(self) -> None:
        """Gather the full model from the devices (P3); every worker calls this."""
        if self.weights is not None:
            self.weights.join()

    @property
    def optimizer_state(self) -> dict[int, dict[str, Tensor]]:
        """Optimizer state of the full model, by parameter position, as of the last ``join``."""
        return optimizer_state(self.optimizer) if self.weights is None else self.weights.state

    def full_optimizer(self, config: RunConfig) -> torch.optim.Optimizer:
        """Return an optimizer of the full model to restore: ``optimizer``, or a new one (P3)."""
        return self.optimizer if self.weights is None else config.optimizer.build(self.model)

    def restore(self, optimizer: torch.optim.Optimizer) -> None:
        """Continue with the state of ``optimizer``, and with the full model (P3)."""
        if self.weights is not None:
            self.weights.restore(optimizer)

    @property
    def last_rate(self) -> float:
        """Learning rate of the last step."""
        return float(self.optimizer.param_groups[0]["lr"])

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of the next step."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
