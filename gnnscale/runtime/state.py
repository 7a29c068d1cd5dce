"""The state of a training run: what is opened at its start, and where it stands."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gnnscale.backend import Backend, HostParts, open_backend
from gnnscale.backend.loading import FeatureLoader
from gnnscale.feature import FeatureStore
from gnnscale.graph import Graph
from gnnscale.hardware import usable_cores
from gnnscale.model import GNN
from gnnscale.ops import keep_freed_memory
from gnnscale.plan import DevicePlan
from gnnscale.plan.device import shared_collective
from gnnscale.plan.perf.equations import Prediction
from gnnscale.runtime.artefacts import Artefact, open_graph
from gnnscale.runtime.checkpoint.run_checkpoint import RunCheckpoint
from gnnscale.runtime.checkpoint.saved_run import SavedRun
from gnnscale.runtime.drm.rebalancer import Rebalancer
from gnnscale.runtime.pipeline.pipeline import Pipeline
from gnnscale.runtime.pipeline.schedule import BatchSlice, Schedule
from gnnscale.runtime.pipeline.stages import Stages, build_pipeline
from gnnscale.runtime.planning.agreement import agree_on_plan
from gnnscale.runtime.planning.profile import PlanProfile, profile_plan
from gnnscale.runtime.planning.search import PlanSearch
from gnnscale.runtime.settings import TrainConfig
from gnnscale.runtime.step import TrainStep
from gnnscale.runtime.sync.group import Group
from gnnscale.runtime.sync.synchronizer import StepTotals, Synchronizer
from gnnscale.runtime.telemetry.records import EpochRecord, TrainResult, waited
from gnnscale.sampler import SeedOrder
from gnnscale.sampler.seed_order import check_seed_order, labelled_vertices

__all__ = ["TrainState"]

log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class TrainState:
    """One worker's view of a training run.

    Attributes:
        config: its options.
        group: the workers of the run.
        graph: the graph that is trained on.
        store: where features are read.
        order: the seeds of every step.
        model: the host's weights.
        backend: the device.
        stages: what becomes of a slice before it is propagated.
        synchronizer: sums gradients over all workers.
        optimizer: updates the host's weights.
        step: what a training step does, behind the stages.
        checkpoint: where the run is saved.
        history: records of the epochs done.
        best_weights: the model's state after the best epoch, on rank 0.
        steps_done: over all epochs; with the seed it fixes samples and dropout.
        predicted: what the performance model says of the plan that the run begins with.
        planning_s: seconds that finding this plan took.
    """

    config: TrainConfig
    group: Group
    graph: Graph
    store: FeatureStore
    order: SeedOrder
    model: GNN
    backend: Backend
    stages: Stages
    synchronizer: Synchronizer
    optimizer: torch.optim.Optimizer
    step: TrainStep
    checkpoint: RunCheckpoint
    history: list[EpochRecord] = field(default_factory=list)
    best_weights: dict[str, Tensor] = field(default_factory=dict)
    steps_done: int = 0
    predicted: Prediction | None = None
    planning_s: float = 0.0
    first_plan: DevicePlan = field(init=False)
    schedule: Schedule = field(init=False)
    pipeline: Pipeline[BatchSlice] = field(init=False)
    rebalancer: Rebalancer | None = field(init=False, default=None)

    @property
    def epoch(self) -> int:
        """Epochs done."""
        return len(self.history)

    @property
    def finished(self) -> bool:
        """Whether all epochs are done, or patience has run out."""
        return self.epoch >= self.config.epochs or self.out_of_patience

    @property
    def out_of_patience(self) -> bool:
        """Whether ``runtime.patience`` validations in a row brought nothing better."""
        patience = self.config.runtime.patience
        return patience is not None and waited(self.history) >= patience

    @property
    def learning_rate(self) -> float:
        """Learning rate of the epoch to come."""
        metrics = [each.valid_metric for each in self.history if each.valid_metric is not None]
        return self.config.optimizer.learning_rate(
            self.epoch, epochs=self.config.epochs, metrics=metrics
        )

    def begin_epoch(self) -> Iterator[BatchSlice]:
        """Set the epoch's learning rate, and return its slices: sampled, loaded, transferred."""
        self.model.train()
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate
        return (next(self.pipeline) for _ in range(self.schedule.steps_per_epoch))

    def rebalance(self, batch: BatchSlice, totals: StepTotals) -> str | None:
        """Let dynamic resource management look at a step, and return what it decides."""
        self.steps_done = batch.step + 1
        if self.rebalancer is None:
            return None
        full = batch.num_seeds == self.order.batch_size
        decision = self.rebalancer.observe(batch.step, totals.stages, full=full)
        ahead = self.schedule.plan_of(batch.step + 1).shares[self.group.rank].threads
        if ahead != batch.plan.shares[self.group.rank].threads:
            self.backend.set_threads(ahead)
        return decision

    def result(self, test_metric: float | None = None) -> TrainResult:
        """Describe the run so far."""
        return TrainResult(
            dataset=self.graph.name,
            model=type(self.config.model).__name__,
            seed=self.config.seed,
            metric=self.graph.metric,
            ceiling=self.graph.attainable_accuracy,
            history=tuple(self.history),
            plan=self.first_plan,
            predicted=self.predicted,
            planning_s=self.planning_s,
            test_metric=test_metric,
            stopped_early=self.out_of_patience and self.epoch < self.config.epochs,
        )

    @classmethod
    @contextmanager
    def open(
        cls,
        config: TrainConfig,
        directory: Path,
        options: dict[str, Any],
        group: Group,
        artefacts: Sequence[Artefact] = (),
    ) -> Iterator[TrainState]:
        """Open graph, model and device; take over a checkpoint; agree on a plan; start stages."""
        state = _open(cls, config, directory, options, group, artefacts)
        with ExitStack() as closing:
            # Whoever waits for the device is woken by its end.
            closing.callback(state.backend.close)
            saved = state._resume() if config.resume is not None else None
            state.backend.load_state()
            state._agree_on_plan(saved)
            state._start()
            closing.callback(state.pipeline.stop)
            closing.callback(state.schedule.close)
            try:
                yield state
                state._drain()
            finally:
                closing.close()
                state.pipeline.close()

    def _resume(self) -> SavedRun | None:
        """Go on where the checkpoint stands."""
        saved = self.checkpoint.resume(
            self.group,
            self.model,
            self.optimizer,
            steps_per_epoch=self.order.steps_per_epoch,
        )
        if saved is not None:
            self.history, self.best_weights = saved.history, saved.best_model
            self.steps_done = saved.step
        return saved

    def _agree_on_plan(self, saved: SavedRun | None) -> None:
        """Let rank 0 search, or go on with the checkpoint's plan; all workers profile it."""
        begin = time.perf_counter()
        search = None
        if self.group.is_rank0:
            known = saved and saved.plan_under(self.checkpoint.options)
            search = PlanSearch(
                self.config, self.graph, self.model, self.group, self.order, known or None
            )
        devices = self.config.device_plan.parsed()
        self.first_plan = agree_on_plan(search, devices, self.group, self._profile)
        self.predicted = None if search is None else search.predicted
        self.planning_s = time.perf_counter() - begin

    def _profile(self, plan: DevicePlan) -> PlanProfile:
        """Train a few steps under ``plan``, with an optimizer that is thrown away."""
        return profile_plan(
            self.order,
            plan,
            rank=self.group.rank,
            model=self.model,
            backend=self.backend,
            stages=self.stages,
            step=TrainStep(
                self.model,
                self.backend,
                self.synchronizer,
                self.config.optimizer.build(self.model),
            ),
        )

    def _start(self) -> None:
        """Let the stages run ahead, from the first step that is not done."""
        plan = self.first_plan
        share, limit = plan.shares[self.group.rank], self.config.runtime.prefetch_depth
        ahead = any(each.prefetch != "none" for each in plan.shares)
        lead_steps = limit + 1 if ahead else 1
        manages = self.config.runtime.drm and (len(plan.shares) > 1 or ahead)
        self.schedule = Schedule(
            self.order,
            plan,
            rank=self.group.rank,
            epochs=self.config.epochs,
            first_step=self.steps_done,
            lead_steps=lead_steps if manages else None,
        )
        if manages:
            self.rebalancer = Rebalancer(
                self.schedule, first_step=self.steps_done, lead_steps=lead_steps
            )
        self.backend.set_threads(share.threads)
        self.pipeline = build_pipeline(
            self.stages,
            self.schedule.slices(),
            prefetch=share.prefetch,
            has_link=not share.device.on_host,
            limit=limit,
        )
        self.group.barrier()

    def _drain(self) -> None:
        """Let every device come as far as the furthest: it may wait for the others' rows."""
        if self.config.exchange is None:
            return
        held = self.group.gather(json.dumps(self.schedule.hold()).encode())
        self.schedule.end_at(self.group.broadcast_json(max(map(json.loads, held), default=0)))
        for _ in self.pipeline:
            pass


def _open(
    cls: type[TrainState],
    config: TrainConfig,
    directory: Path,
    options: dict[str, Any],
    group: Group,
    artefacts: Sequence[Artefact],
) -> TrainState:
    """Open everything that does not depend on a plan."""
    if group.is_rank0:
        _warn_of_threads(config)
    torch.set_num_threads(min(config.num_threads, usable_cores()))
    keep_freed_memory()
    devices = config.device_plan.parsed()
    graph = open_graph(artefacts) if artefacts else _prepare_and_open(config, group)
    train_idx = labelled_vertices(graph, "train")
    order = config.seed_order.order(
        train_idx, batch_size=config.batch_size, num_devices=len(devices), seed=config.seed
    )
    check_seed_order(order, train_idx, epoch=0, num_devices=len(devices))
    torch.manual_seed(config.seed)
    model = config.model.build(num_features=graph.num_features, num_classes=graph.num_classes)
    store = config.features.open(graph)
    device = devices[group.rank]
    loader = FeatureLoader(
        graph,
        model,
        num_threads=config.num_threads,
        store=store,
        aggregates=device.host_aggregates,
        compute_dtype=getattr(torch, config.runtime.compute_dtype),
    )
    sampler = config.sampler.sampler(graph, seed=config.seed, num_threads=config.num_threads)
    backend = open_backend(
        device, HostParts(graph=graph, model=model, sampler=sampler, loader=loader)
    )
    exchange = None
    if config.exchange is not None:
        exchange = config.exchange.open(group.with_own_connections(), graph)
    collective = shared_collective(devices)
    synchronizer = Synchronizer(model, backend, group, own_collective=collective is not None)
    optimizer = config.optimizer.build(model)
    return cls(
        config=config,
        group=group,
        graph=graph,
        store=store,
        order=order,
        model=model,
        backend=backend,
        stages=Stages(backend, exchange),
        synchronizer=synchronizer,
        optimizer=optimizer,
        step=TrainStep(model, backend, synchronizer, optimizer, clip_norm=config.runtime.clip_norm),
        checkpoint=RunCheckpoint(directory=directory, config=config, options=options, graph=graph),
    )


def _prepare_and_open(config: TrainConfig, group: Group) -> Graph:
    """Open the store; one process of each machine prepares it where it is missing."""
    if group.local_rank == 0:
        graph = config.dataset.open()
    group.barrier()
    return graph if group.local_rank == 0 else config.dataset.open()


def _warn_of_threads(config: TrainConfig) -> None:
    cores = usable_cores()
    workers = len(config.device_plan.devices)
    if config.num_threads > cores:
        log.warning(
            f"num_threads={config.num_threads}: this process may use {cores} cores; "
            "more threads than cores are slower"
        )
    elif workers > config.num_threads:
        log.warning(
            f"device_plan has {workers} workers, which need a thread each, and there are "
            f"{config.num_threads} threads (num_threads) on {cores} cores; they take turns"
        )
