"""What a worker trains on, and what it learns: the model, its device's part, the optimizer."""

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
from gnnscale.run import artifacts as artefacts
from gnnscale.run.artifacts import RunArtifact
from gnnscale.run.config import RunConfig
from gnnscale.run.inputs import check_feature_dtype, checked_order, describe_use
from gnnscale.run.tasks.base import Task
from gnnscale.sampling import SeedOrder
from gnnscale.training.build.cache import find_uncached
from gnnscale.training.make_artifacts import make_of_graph
from gnnscale.training.p3.split_run import SplitRun, SplitWeights

log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class TrainInputs:
    """What the workers of a run read."""

    task: Task  #: what is predicted, of the graph that is trained on
    order: SeedOrder  #: the seeds of every step
    partition: Partition | None  #: the devices' parts of the graph; None if it is whole
    cache_plan: StoredPlan | None  #: what the devices keep in their own memory; None for nothing
    made: Sequence[RunArtifact]  #: what was made of the graph

    @classmethod
    def open(cls, config: RunConfig, group: Group, made: Sequence[RunArtifact]) -> TrainInputs:
        """Open what the launching process has made; without, one process a machine makes it.

        Raises:
            ConfigError: the options do not fit the graph.
            GraphError: a store is not usable.
        """
        if made:
            graph = artefacts.open_store(made)
        else:
            graph = _one_first(group, config.dataset.open)
            check_feature_dtype(config, graph.feature_dtype)
            if config.needs_more_than_graph:
                made = _one_first(group, partial(make_of_graph, config, graph))
        line = describe_use(config, graph) if group.is_rank0 else None
        if line is not None:
            log.info(line)
        task = artefacts.open_task(config, made, graph, seed=config.seed)
        if group.is_rank0:
            task.log_split()
        task = task.over(artefacts.with_shared_arrays(task.graph, made))
        graph = task.graph
        partition = artefacts.open_partition(made, graph)
        cache_plan = artefacts.open_cache_plan(made, graph)
        plan = None if cache_plan is None else cache_plan.plan
        uncached = find_uncached(config, plan) if group.is_rank0 else None
        if uncached is not None:
            log.info(uncached.line)
        order = checked_order(config, task.seeds, None if partition is None else partition.parts)
        return cls(task=task, order=order, partition=partition, cache_plan=cache_plan, made=made)

    def over(self, graph: Graph) -> TrainInputs:
        """Return the same over ``graph``, which is the same but for how it is read."""
        return replace(self, task=self.task.over(graph))

    @property
    def graph(self) -> Graph:
        """The graph that is trained on."""
        return self.task.graph

    @property
    def caches(self) -> CachePlan | None:
        """The caches of all devices; None if there are none."""
        return None if self.cache_plan is None else self.cache_plan.plan

    @property
    def columns(self) -> Sequence[tuple[int, int]] | None:
        """Columns of the features that each device has (P3); None if they are not divided."""
        return None if self.partition is None else self.partition.parts.columns


def _one_first(group: Group, opened: Callable[[], T]) -> T:
    """Return ``opened()``; one process of each machine makes what is missing for the others."""
    if group.local_rank == 0:
        found = opened()
    group.barrier()
    return found if group.local_rank == 0 else opened()


@dataclass(frozen=True, kw_only=True)
class ModelState:
    """The weights of a run."""

    model: TrainableModel  #: the whole model, which is evaluated and saved
    trained: TrainableModel  #: the model that this device trains: ``model``, or a part of it (P3)
    optimizer: torch.optim.Optimizer  #: updates the weights of ``trained``
    #: this worker's part of a split first layer; None if devices train the whole model
    split: SplitRun | None = None
    weights: SplitWeights | None = None  #: joins ``model`` from the devices' parts; None likewise

    @classmethod
    def open(cls, config: RunConfig, data: TrainInputs, group: Group) -> ModelState:
        """Build the model, whose first weights are fixed by ``seed``, and its optimizer."""
        if group.is_rank0 and isinstance(config.model, CustomModel):
            sizes = {"num_features": data.graph.num_features, "num_classes": data.graph.num_classes}
            config.model.warn_unless_built_again(**sizes)
        torch.manual_seed(config.seed)
        model = data.task.build(config.model)
        if isinstance(config.features, LearnedFeaturesConfig):
            factor = config.features.rate_factor(config.optimizer.lr)
            table = torch.from_numpy(data.graph.features)
            of_rows = ROW_OPTIMIZERS[config.features.optimizer]
            model.vertex_rows = LearnedEmbedding(table, of_rows, rate_factor=factor)
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
        """Bring the whole model up to date. Every worker calls this at the same time."""
        if self.weights is not None:
            self.weights.join()

    @property
    def optimizer_state(self) -> dict[int, dict[str, Tensor]]:
        """What an optimizer of the whole model keeps of each parameter, as of the last ``join``."""
        return optimizer_state(self.optimizer) if self.weights is None else self.weights.state

    def whole_optimizer(self, config: RunConfig) -> torch.optim.Optimizer:
        """Return an optimizer of the whole model, to be restored: ``optimizer``, or a new one."""
        return self.optimizer if self.weights is None else config.optimizer.build(self.model)

    def take(self, whole: torch.optim.Optimizer) -> None:
        """Go on from what ``whole_optimizer`` was restored to, and from the whole model."""
        if self.weights is not None:
            self.weights.take(whole)

    @property
    def last_rate(self) -> float:
        """Learning rate of the step that was done last."""
        return float(self.optimizer.param_groups[0]["lr"])

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of the next step."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
