"""Training inputs of a worker, and its model with the optimizer."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from gnnscale.cache import CachePlan, StoredPlan
from gnnscale.distributed.process_group import Group
from gnnscale.features import FeatureStoreConfig
from gnnscale.graph import Graph
from gnnscale.nn import GNN, CustomModel, LearnedEmbedding, ModelConfig, TrainableModel
from gnnscale.nn.optim import OptimizerConfig
from gnnscale.nn.optim.update_rules import ROW_OPTIMIZERS, optimizer_state
from gnnscale.partition import Partition
from gnnscale.run.artifacts import RunArtifact
from gnnscale.run.records import Uncached
from gnnscale.run.tasks import TaskConfig
from gnnscale.run.tasks.base import Task
from gnnscale.run.typed_inputs import learned_rows, row_options
from gnnscale.sampling import Sampler, SamplerConfig, SeedOrder
from gnnscale.training.p3.split_run import SplitRun, SplitWeights


@dataclass(frozen=True, kw_only=True)
class TrainInputs:
    """Graph, task, partition and cache plan that the workers of a run read."""

    task: Task  #: task on the training graph
    order: SeedOrder  #: the seeds of every step
    partition: Partition | None  #: partition over the devices. None: the graph is not partitioned.
    cache_plan: StoredPlan | None  #: cache plan of all devices; None: no caches
    artifacts: Sequence[RunArtifact]  #: artifacts made from the graph
    sampling: SamplerConfig  #: sampler of training, as the task wraps it
    uncached: Uncached | None  #: how many devices lack a requested cache; None: no device
    seed: int  #: seed of the samples
    num_threads: int  #: threads of the host that sample

    def open_sampler(self) -> Sampler:
        """Return a sampler of training mini-batches."""
        return self.sampling.sampler(self.graph, seed=self.seed, num_threads=self.num_threads)

    def with_graph(self, graph: Graph) -> "TrainInputs":
        """Return the inputs over ``graph``, which has equal content but is read differently."""
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
        """Feature columns ``[first, end)`` of each device under P3; None: every device has all."""
        return None if self.partition is None else self.partition.parts.columns


@dataclass(frozen=True, kw_only=True)
class ModelState:
    """Model of a run, the part that this device trains, and its optimizer."""

    model: TrainableModel  #: full model, which is evaluated and saved
    trained: TrainableModel  #: model that this device trains: ``model``, or a part (P3)
    optimizer: torch.optim.Optimizer  #: updates the weights of ``trained``
    optimizer_options: OptimizerConfig  #: builds further optimizers
    split: SplitRun | None = None  #: this worker's part of a split first layer (P3)
    weights: SplitWeights | None = None  #: gathers ``model`` from the devices' parts (P3)

    @classmethod
    def build(
        cls,
        options: ModelConfig,
        task: TaskConfig,
        optimizer_options: OptimizerConfig,
        features: FeatureStoreConfig,
        data: TrainInputs,
        group: Group,
    ) -> "ModelState":
        """Build the model by the run's seed, this device's part of it (P3), and an optimizer."""
        if group.is_rank0 and isinstance(options, CustomModel):
            num_classes = task.labels(data.graph).num_classes
            sizes = {"num_features": data.graph.num_features, "num_classes": num_classes}
            options.warn_unless_built_again(**sizes, types=data.graph.input_types)
        torch.manual_seed(data.seed)
        model = task.build_for(data.graph, options)
        table = learned_rows(features, data.graph)
        if table is not None:
            rows = row_options(features)
            model.vertex_rows = LearnedEmbedding(
                torch.from_numpy(table),
                ROW_OPTIMIZERS[rows.optimizer],
                rate_factor=rows.rate_factor(optimizer_options.lr),
                decays=data.graph.types is not None,
            )
        trained: TrainableModel = model
        split: SplitRun | None = None
        if data.columns is not None and group.size > 1:
            assert isinstance(model, GNN)
            split = SplitRun(model, data.columns, group)
            trained = split.model
        optimizer = optimizer_options.build(trained)
        return cls(
            model=model,
            trained=trained,
            optimizer=optimizer,
            optimizer_options=optimizer_options,
            split=split,
            weights=None if split is None else split.weights(optimizer),
        )

    def join(self) -> None:
        """Gather this run's full model and optimizer state under P3; every worker calls this."""
        if self.weights is not None:
            self.weights.join()

    @property
    def optimizer_state(self) -> dict[int, dict[str, torch.Tensor]]:
        """Optimizer state of the full model, by parameter position, as of the last ``join``."""
        return optimizer_state(self.optimizer) if self.weights is None else self.weights.state

    def full_optimizer(self) -> torch.optim.Optimizer:
        """Return an optimizer of the full model to restore: ``optimizer``, or a new one (P3)."""
        return self.optimizer if self.weights is None else self.optimizer_options.build(self.model)

    def restore(self, optimizer: torch.optim.Optimizer) -> None:
        """Copy this device's columns of the restored ``model`` to ``trained`` (P3).

        The state of ``optimizer``, from ``full_optimizer``, goes to the optimizer of ``trained``.
        Without P3 nothing is copied, since ``trained`` is ``model``.
        """
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
