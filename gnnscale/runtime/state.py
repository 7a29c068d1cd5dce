"""The state of a training run: what is opened at its start, and where it stands."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from gnnscale.backend import Backend
from gnnscale.cache import StoredPlan
from gnnscale.core.prefetch import Pipeline
from gnnscale.feature import FeatureStore
from gnnscale.graph import Graph
from gnnscale.model import TrainableModel
from gnnscale.optimizer.plain import optimizer_state
from gnnscale.partition import PartitionFigures
from gnnscale.plan import Device, DevicePlan
from gnnscale.plan.perf.equations import PlanPredictions
from gnnscale.plan.perf.step_bytes import StepBytes
from gnnscale.runtime.cache.open import OpenedCache
from gnnscale.runtime.cache.replan import CacheReplanner
from gnnscale.runtime.checkpoint.run_checkpoint import RunCheckpoint
from gnnscale.runtime.drm.rebalancer import Rebalancer
from gnnscale.runtime.pipeline.schedule import BatchSlice, Schedule
from gnnscale.runtime.pipeline.stages import Stages
from gnnscale.runtime.pipeline.step import TrainStep
from gnnscale.runtime.settings import TrainConfig
from gnnscale.runtime.sync.group import Group
from gnnscale.runtime.sync.p3.split_run import SplitWeights
from gnnscale.runtime.sync.synchronizer import StepTotals, Synchronizer
from gnnscale.runtime.telemetry.epoch_sums import EpochSums
from gnnscale.runtime.telemetry.records import EpochRecord, TrainResult, waited
from gnnscale.sampler import SeedOrder
from gnnscale.task.base import Task
from gnnscale.task.measures import ceiling

__all__ = ["TrainState"]

log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class TrainState:
    """One worker's view of a training run.

    Attributes:
        config: its options.
        group: the workers of the run.
        graph: the graph that is trained on.
        task: what is predicted of it.
        store: the features at the host, behind any cache.
        order: the seeds of every step.
        devices: the devices, in the order of ranks.
        cache_plan: what they keep in their own memory; None for nothing.
        cache: what this worker's device keeps; None for nothing.
        replanner: keeps the caches at what the run reads; None where nothing is cached.
        model: the whole model, which is evaluated and saved.
        trained: the model that this device trains: ``model``, or a part of it (P3).
        backend: the device.
        stages: what becomes of a slice before it is propagated.
        synchronizer: sums gradients over all workers.
        optimizer: updates the weights of ``trained``.
        step: what a training step does, behind the stages.
        checkpoint: where the run is saved.
        history: records of the epochs done, on rank 0.
        unvalidated: the record of an epoch that is trained and not done, on rank 0; else None.
        measures: what validation and test measure; the first decides.
        metrics: its value of every epoch done, None for one without.
        best_weights: the model's state after the best epoch, on rank 0.
        split: joins ``model`` where devices train parts of it; None where they do not.
        steps_done: over all epochs; with the seed it fixes samples and dropout.
        resumed: what the epoch had added up that the run goes on in; None at the start of an epoch.
        predicted: what the performance model says of the plan that the run begins with.
        planning_s: seconds that finding this plan took.
        partition: what is known of the devices' parts; None where the graph is whole.
        step_bytes: what a step is expected to move, on rank 0; None where no layer can be split.
    """

    config: TrainConfig
    group: Group
    graph: Graph
    task: Task
    measures: tuple[str, ...]
    store: FeatureStore
    order: SeedOrder
    devices: tuple[Device, ...]
    cache_plan: StoredPlan | None
    cache: OpenedCache | None
    replanner: CacheReplanner | None
    model: TrainableModel
    trained: TrainableModel
    backend: Backend
    stages: Stages
    synchronizer: Synchronizer
    optimizer: torch.optim.Optimizer
    step: TrainStep
    checkpoint: RunCheckpoint
    history: list[EpochRecord] = field(default_factory=list)
    unvalidated: EpochRecord | None = None
    metrics: list[float | None] = field(default_factory=list)
    best_weights: dict[str, Tensor] = field(default_factory=dict)
    split: SplitWeights | None = None
    steps_done: int = 0
    resumed: EpochSums | None = None
    predicted: PlanPredictions | None = None
    planning_s: float = 0.0
    partition: PartitionFigures | None = None
    step_bytes: StepBytes | None = None
    first_plan: DevicePlan = field(init=False)
    schedule: Schedule = field(init=False)
    pipeline: Pipeline[BatchSlice] = field(init=False)
    rebalancer: Rebalancer | None = field(init=False, default=None)

    @property
    def epoch(self) -> int:
        """Epochs done: trained, and validated where that was due."""
        return len(self.metrics)

    @property
    def awaits_validation(self) -> bool:
        """Whether an epoch is trained that is not done: the run goes on from its checkpoint."""
        return self.steps_left <= 0

    @property
    def steps_left(self) -> int:
        """Steps of the epoch that is not done; none where only its validation is missing."""
        return (self.epoch + 1) * self.order.steps_per_epoch - self.steps_done

    @property
    def wants_checkpoint(self) -> bool:
        """Whether a checkpoint is due behind the step to be synchronised; rank 0 says so for all.

        It must be a step behind which weights are updated, since no gradients are kept, and not the
        last one of an epoch, which ends with a decision of its own.

        Raises:
            OSError: the last checkpoint could not be written.
        """
        if not self.group.is_rank0:
            return False
        self.checkpoint.check()
        updates = self.steps_left > 1 and self.step.updates_behind(self.steps_done)
        return updates and self.checkpoint.is_due_inside

    @property
    def finished(self) -> bool:
        """Whether all epochs are done, or patience has run out."""
        return self.epoch >= self.config.epochs or self.out_of_patience

    @property
    def out_of_patience(self) -> bool:
        """Whether ``runtime.patience`` validations in a row brought nothing better."""
        patience = self.config.runtime.patience
        return patience is not None and waited(self.metrics, self.measures[0]) >= patience

    @property
    def follows_metrics(self) -> bool:
        """Whether validation decides how the run goes on, on every rank alike."""
        config = self.config
        return config.runtime.patience is not None or config.optimizer.follows_metrics

    @property
    def learning_rate(self) -> float:
        """Learning rate of the epoch to come, behind its warm-up."""
        metrics = [each for each in self.metrics if each is not None]
        return self.config.optimizer.learning_rate(
            self.epoch, epochs=self.config.epochs, metrics=metrics, metric=self.measures[0]
        )

    @property
    def last_rate(self) -> float:
        """Learning rate of the step that was done last."""
        return float(self.optimizer.param_groups[0]["lr"])

    def begin_epoch(self) -> Iterator[BatchSlice]:
        """Yield the epoch's slices: sampled, loaded, transferred; and set each step's rate."""
        self.trained.train()
        rate, num_steps = self.learning_rate, self.schedule.steps_per_epoch
        for _ in range(self.steps_left):
            batch = next(self.pipeline)
            part = self.config.optimizer.warm_up(batch.step, steps_per_epoch=num_steps)
            for group in self.optimizer.param_groups:
                group["lr"] = rate * part
            yield batch

    def paused(self) -> AbstractContextManager[None]:
        """Begin no stage of later steps within the ``with`` block, which no epoch's time counts.

        Devices that trade rows go on: one that waits for another's would count that as its own.
        """
        return nullcontext() if self.stages.exchanges else self.pipeline.paused()

    def join(self) -> None:
        """Bring the whole model up to date. Every worker calls this at the same time."""
        if self.split is not None:
            self.split.join()

    @property
    def optimizer_state(self) -> dict[int, dict[str, Tensor]]:
        """What an optimizer of the whole model keeps of each parameter, as of the last ``join``."""
        return optimizer_state(self.optimizer) if self.split is None else self.split.state

    def rebalance(self, batch: BatchSlice, totals: StepTotals) -> str | None:
        """Let dynamic resource management look at a step, and return what it decides."""
        self.steps_done = batch.step + 1
        if self.rebalancer is None:
            return None
        full = batch.num_seeds == self.order.batch_size
        decision = self.rebalancer.observe(batch.step, totals.managed, full=full)
        ahead = self.schedule.plan_of(batch.step + 1).shares[self.group.rank].threads
        if ahead != batch.plan.shares[self.group.rank].threads:
            self.backend.set_threads(ahead)
        return decision

    @property
    def management(self) -> dict[str, Any] | None:
        """Where resource management stands, as plain values; None where there is none."""
        return (
            None if self.rebalancer is None else self.rebalancer.state(self.steps_done).to_values()
        )

    def result(self, test_metrics: dict[str, float | None] | None = None) -> TrainResult:
        """Describe the run so far."""
        metric = self.measures[0]
        return TrainResult(
            dataset=self.graph.name,
            model=self.config.model.name,
            seed=self.config.seed,
            metric=metric,
            ceiling=ceiling(self.graph, metric),
            history=tuple(self.history),
            plan=self.first_plan,
            predicted=self.predicted,
            planning_s=self.planning_s,
            test_metric=(test_metrics or {}).get(metric),
            measures=self.measures,
            test_metrics=test_metrics or {},
            stopped_early=self.out_of_patience and self.epoch < self.config.epochs,
            steps_per_epoch=self.order.steps_per_epoch,
            steps_done=self.steps_done,
            partition=self.partition,
            step_bytes=self.step_bytes,
            cache=None if self.cache_plan is None else self.cache_plan.plan.figures,
        )
