"""The state of a training run: what is opened at its start, kept by checkpoints, and updated."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnscale.backend import Backend, open_backend
from gnnscale.backend.loading import FeatureLoader
from gnnscale.config import ConfigError
from gnnscale.graph import Graph
from gnnscale.hardware import usable_cores
from gnnscale.model import GNN
from gnnscale.ops import keep_freed_memory
from gnnscale.plan import DevicePlan
from gnnscale.plan.perf.equations import Prediction
from gnnscale.runtime.checkpoint.file import (
    BEST,
    LAST,
    check_same_run,
    has_checkpoint,
    max_bytes,
    read_checkpoint,
    save_checkpoint,
)
from gnnscale.runtime.checkpoint.saved_run import SavedRun, optimizer_state, restore_optimizer
from gnnscale.runtime.drm.rebalancer import Rebalancer
from gnnscale.runtime.evaluation.evaluate import ceiling, measure
from gnnscale.runtime.pipeline.pipeline import Pipeline
from gnnscale.runtime.pipeline.schedule import BatchSlice, Schedule
from gnnscale.runtime.pipeline.stages import Stages, measured, pipeline, running
from gnnscale.runtime.planning.profile import PlanProfile, profile_plan
from gnnscale.runtime.planning.search import PlanSearch
from gnnscale.runtime.settings import TrainConfig
from gnnscale.runtime.sync.group import Group
from gnnscale.runtime.sync.synchronizer import StepTotals, Synchronizer
from gnnscale.runtime.telemetry.counters import EpochCounters
from gnnscale.runtime.telemetry.recorder import StepRecorder
from gnnscale.runtime.telemetry.records import (
    EpochRecord,
    Observer,
    TrainResult,
    best_epoch,
    waited,
)
from gnnscale.sampler import Sampler
from gnnscale.sampler.seed_order import labelled

__all__ = ["Run"]

log = logging.getLogger(__name__)

#: Seconds of a step from which on a rehearsal takes long enough to be told of.
_SLOW_S = 0.5
#: Seconds from one checkpoint to the next at least: a short epoch is trained again sooner than the
#: disk has it. After the last epoch there always is one.
_CHECKPOINT_EVERY_S = 1.0


@dataclass(kw_only=True)
class Run:
    """One worker's view of a training run.

    Attributes:
        config: its options.
        options: ``config`` as plain values, by which checkpoints recognise the run.
        directory: where its checkpoints go.
        group: the workers of the run.
        observer: is told what happens, in the worker that leads.
        plan: the device plan that the run began with.
        predicted: what the performance model says of it.
        planning_s: seconds that it took to find.
        epoch: epochs done.
        step: steps done, over all epochs; with the seed it fixes samples and dropout.
        history: records of the epochs done.
        best_weights: the model's state after the best epoch, in the worker that leads.
        saved_at: when it last began to write a checkpoint.
        saved_best: the epoch whose weights are on disk as the best.
    """

    config: TrainConfig
    options: dict[str, Any]
    directory: Path
    group: Group
    observer: Observer
    graph: Graph
    train_idx: NDArray[np.integer[Any]]
    valid_idx: NDArray[np.integer[Any]]
    model: GNN
    sampler: Sampler
    loader: FeatureLoader
    backend: Backend
    stages: Stages
    synchronizer: Synchronizer
    optimizer: torch.optim.Optimizer
    epoch: int = 0
    step: int = 0
    history: list[EpochRecord] = field(default_factory=list)
    best_weights: dict[str, Tensor] = field(default_factory=dict)
    saved_at: float = -math.inf
    saved_best: int | None = None
    plan: DevicePlan = field(init=False)
    predicted: Prediction | None = None
    planning_s: float = 0.0
    pipeline: Pipeline[BatchSlice] = field(init=False)
    schedule: Schedule = field(init=False)
    rebalancer: Rebalancer | None = field(init=False, default=None)
    accounts: StepRecorder = field(init=False)

    @classmethod
    @contextmanager
    def open(
        cls,
        config: TrainConfig,
        directory: Path,
        options: dict[str, Any],
        group: Group,
        observer: Observer,
    ) -> Iterator[Run]:
        """Open the graph, initialise the model from the seed, load a checkpoint, start stages."""
        if group.is_rank0:
            _warn_of_threads(config)
        torch.set_num_threads(min(config.num_threads, usable_cores()))
        keep_freed_memory()
        graph = _open_graph(config, group)
        torch.manual_seed(config.seed)
        model = config.model.build(num_features=graph.num_features, num_classes=graph.num_classes)
        sampler = config.sampler.sampler(graph, seed=config.seed, num_threads=config.num_threads)
        loader = FeatureLoader(
            graph,
            model,
            num_threads=config.num_threads,
            fused=config.runtime.fused,
            compute_dtype=getattr(torch, config.runtime.compute_dtype),
        )
        device = config.device_plan.parsed()[group.rank]
        backend = open_backend(device, graph, model, sampler, loader)
        run = cls(
            config=config,
            options=options,
            directory=directory,
            group=group,
            observer=observer,
            graph=graph,
            train_idx=labelled(graph, "train"),
            valid_idx=labelled(graph, "valid"),
            model=model,
            sampler=sampler,
            loader=loader,
            backend=backend,
            stages=Stages(backend),
            synchronizer=Synchronizer(model, backend, group),
            optimizer=config.optimizer.build(model),
        )
        run._start()
        try:
            yield run
        finally:
            run.schedule.close()
            run.pipeline.close()

    def _start(self) -> None:
        """Take over a checkpoint, agree on a plan, and let the stages run ahead."""
        saved = self._resume() if self.config.resume is not None else None
        self._make_plan(saved)
        share = self.plan.shares[self.group.rank]
        limit = self.config.runtime.prefetch_depth
        ahead = any(each.prefetch != "none" for each in self.plan.shares)
        lead_steps = limit + 1 if ahead else 1
        manages = self.config.runtime.drm and (len(self.plan.shares) > 1 or ahead)
        self.schedule = Schedule(
            self.train_idx,
            self.plan,
            rank=self.group.rank,
            seed=self.config.seed,
            epochs=self.config.epochs,
            first_step=self.step,
            lead_steps=lead_steps if manages else None,
        )
        if manages:
            self.rebalancer = Rebalancer(
                self.schedule, self.plan, first_step=self.step, lead_steps=lead_steps
            )
        self.backend.set_threads(share.threads)
        self.pipeline = pipeline(
            self.stages,
            self.schedule.work(),
            prefetch=share.prefetch,
            has_link=not share.device.on_host,
            limit=limit,
        )
        self.group.barrier()
        self.accounts = StepRecorder(self.plan, self.group, self.backend, start=time.perf_counter())
        if self.group.is_rank0:
            self.observer.started(self.result())

    def _make_plan(self, saved: SavedRun | None) -> None:
        """Let the process that leads plan, or go on with the checkpoint's plan; profile_plan it."""
        begin = time.perf_counter()
        devices = self.config.device_plan.parsed()
        known = None if saved is None else saved.plan_under(self.options)
        planning = None
        if self.group.is_rank0:
            planning = PlanSearch(
                self.config,
                self.graph,
                self.model,
                self.group,
                known,
                num_train=len(self.train_idx),
            )
        while True:
            now = planning and (planning.plan.to_values(), planning.converged)
            values, converged = self.group.broadcast_json(now)
            self.plan = DevicePlan.from_values(devices, values)
            if converged:
                break
            if planning is not None and planning.predicted.step_s > _SLOW_S:
                expected = planning.predicted.step_s
                log.info(f"rehearsing the device plan: a few steps, about {expected:.1f} s each")
            mine = json.dumps(asdict(self._rehearse())).encode()
            every = [PlanProfile.from_dict(json.loads(each)) for each in self.group.gather(mine)]
            if planning is not None:
                planning.learn(every)
        if planning is not None:
            self.predicted = planning.predicted
        self.planning_s = time.perf_counter() - begin

    def _rehearse(self) -> PlanProfile:
        """Try ``plan`` for a few steps."""
        return profile_plan(
            self.train_idx,
            self.plan,
            rank=self.group.rank,
            seed=self.config.seed,
            model=self.model,
            backend=self.backend,
            synchronizer=self.synchronizer,
            optimizer=self.config.optimizer.build(self.model),
        )

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
    def steps_per_epoch(self) -> int:
        """Mini-batches of an epoch."""
        return self.schedule.steps_per_epoch

    def begin_epoch(self) -> None:
        """Set the epoch's learning rate."""
        self.model.train()
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate

    @property
    def learning_rate(self) -> float:
        """Learning rate of the epoch to come."""
        metrics = [each.valid_metric for each in self.history if each.valid_metric is not None]
        return self.config.optimizer.learning_rate(
            self.epoch, epochs=self.config.epochs, metrics=metrics
        )

    def synchronize(self, work: BatchSlice, loss: float) -> StepTotals:
        """Sum the gradients of all workers.

        Raises:
            ConfigError: the loss is no longer finite.
        """
        batch = work.batch
        with measured(work, "sync"):
            step = self.synchronizer.synchronize(
                loss,
                self.accounts.with_last_sync(work.stages),
                num_edges=batch.num_edges if batch is not None else 0,
                num_vertices=batch.num_vertices if batch is not None else 0,
            )
        if not math.isfinite(step.loss):
            raise ConfigError(
                f"optimizer.lr={self.config.optimizer.lr}: the loss is {step.loss} in epoch "
                f"{self.epoch + 1}, step {self.step}; a lower rate or runtime.clip_norm may help"
            )
        return step

    def update(self, work: BatchSlice) -> None:
        """Apply the gradients to the weights."""
        with measured(work, "sync"):
            if self.config.runtime.clip_norm is not None:
                torch.nn.utils.clip_grad_norm_(
                    self.model.parameters(), self.config.runtime.clip_norm
                )
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.backend.weights_in()
        self.step += 1

    def account(self, traffic: EpochCounters, work: BatchSlice, step: StepTotals) -> None:
        """Take note of the step just done, and let resource management look at it."""
        first = (self.step - 1) % self.steps_per_epoch * self.config.batch_size
        num_seeds = min(self.config.batch_size, len(self.train_idx) - first)
        traffic.count(
            num_seeds=num_seeds,
            num_edges=step.num_edges,
            num_vertices=step.num_vertices,
            loss=step.loss,
        )
        plan = self.schedule.plan_of(work.step)
        decision = None
        if self.rebalancer is not None:
            full = num_seeds == self.config.batch_size
            decision = self.rebalancer.observe(work.step, step.stages, full=full)
            ahead = self.schedule.plan_of(work.step + 1).shares[self.group.rank].threads
            if ahead != plan.shares[self.group.rank].threads:
                self.backend.set_threads(ahead)
        self.accounts.add(work, plan, step.stages, num_seeds)
        if self.group.is_rank0:
            self.observer.stepped(
                self.accounts.step_record(
                    traffic,
                    step,
                    work.step,
                    epoch=self.epoch + 1,
                    num_steps=self.steps_per_epoch,
                    decision=decision,
                )
            )

    def end_epoch(self, traffic: EpochCounters) -> None:
        """Validate, keep the weights if they are the best so far, and write the checkpoint."""
        self.synchronizer.average_buffers()
        devices = self.accounts.end_epoch()
        values = None
        if self.group.is_rank0:
            self.observer.traced(self.accounts.spans)
            self.observer.trained()
            valid_metric, eval_time = self._validate()
            values = self.accounts.epoch_record(
                traffic,
                devices,
                epoch=self.epoch + 1,
                lr=self.learning_rate,
                valid_metric=valid_metric,
                eval_time=eval_time,
            ).to_dict()
        record = EpochRecord.from_dict(self.group.broadcast_json(values))
        self.history.append(record)
        self.epoch += 1
        if self.group.is_rank0:
            self._keep(record)

    def _keep(self, record: EpochRecord) -> None:
        if best_epoch(self.history) == self.epoch:
            weights = self.model.state_dict()
            self.best_weights = {name: value.clone() for name, value in weights.items()}
        waited_s = time.perf_counter() - self.saved_at
        if self.config.runtime.checkpoint and (self.finished or waited_s >= _CHECKPOINT_EVERY_S):
            self._save()
        self.observer.finished_epoch(record)

    def result(self) -> TrainResult:
        """Describe the run so far, without a test."""
        return TrainResult(
            dataset=self.graph.name,
            model=type(self.config.model).__name__,
            seed=self.config.seed,
            metric=self.graph.metric,
            ceiling=ceiling(self.graph),
            history=tuple(self.history),
            plan=self.plan,
            predicted=self.predicted,
            planning_s=self.planning_s,
            stopped_early=self.out_of_patience and self.epoch < self.config.epochs,
        )

    def test(self) -> float | None:
        """Return the test metric under the best weights, which the model keeps; None elsewhere."""
        if not self.group.is_rank0:
            return None
        self.model.load_state_dict(self.best_weights)
        with self._all_threads():
            return measure(self.model, self.graph, [labelled(self.graph, "test")], self.config)[0]

    @running("validate")
    def _validate(self) -> tuple[float | None, float | None]:
        """The validation metric, and the seconds it took; both None where it is not due."""
        last = self.epoch + 1 == self.config.epochs
        if (self.epoch + 1) % self.config.runtime.eval_every and not last:
            return None, None
        start = time.perf_counter()
        with self._all_threads():
            metric = measure(self.model, self.graph, [self.valid_idx], self.config)[0]
        return metric, time.perf_counter() - start

    @contextmanager
    def _all_threads(self) -> Iterator[None]:
        """Let one process use all threads while the others wait for it."""
        before = torch.get_num_threads()
        torch.set_num_threads(min(self.config.num_threads, usable_cores()))
        try:
            yield
        finally:
            torch.set_num_threads(before)

    @running("checkpoint")
    def _save(self) -> None:
        """Write the best weights where they are new, then everything."""
        self.saved_at = time.perf_counter()
        best = best_epoch(self.history)
        if best != self.saved_best:
            save_checkpoint(self.directory / BEST, {"epoch": best, "model": self.best_weights})
            self.saved_best = best
        save_checkpoint(
            self.directory / LAST,
            {
                "epoch": self.epoch,
                "step": self.step,
                "model": self.model.state_dict(),
                "best_model": self.best_weights,
                "optimizer": optimizer_state(self.optimizer),
                "torch_rng": torch.get_rng_state(),
                "history": [record.to_dict() for record in self.history],
                "plan": self.schedule.plan_of(self.step).to_values(),
                "config": self.options,
                "graph": self._graph_identity(),
            },
        )

    def _resume(self) -> SavedRun | None:
        """Take over the checkpoint that the leading process reads, and return it."""
        file = self.directory / LAST
        content = b""
        if self.group.is_rank0 and has_checkpoint(file):
            content = read_checkpoint(file, limit=max_bytes(self.model))
            self._saved(file, content)
        content = self.group.broadcast(content if self.group.is_rank0 else None)
        if not content:
            if self.group.is_rank0:
                log.info(f"{file}: the run stopped before its first checkpoint; it starts again")
            return None
        saved = self._saved(file, content)
        self.epoch, self.step = saved.epoch, saved.step
        self.history = saved.history
        self.best_weights = saved.best_model
        self.model.load_state_dict(saved.model)
        restore_optimizer(self.optimizer, saved.optimizer)
        torch.set_rng_state(saved.torch_rng)
        if self.group.is_rank0:
            log.info(f"{file}: resuming after epoch {self.epoch} of {self.config.epochs}")
        return saved

    def _saved(self, file: Path, content: bytes) -> SavedRun:
        """Read a checkpoint, and make sure that it is one of this run.

        Raises:
            ConfigError: it is not.
        """
        names = self.config.optimizer.state_names
        saved = SavedRun.load(file, content)
        check_same_run(file, saved, config=self.options, graph=self._graph_identity())
        saved.check_tensors(file, self.model, self.optimizer, names)
        saved.check_progress(file, self.config, self.options, num_train=len(self.train_idx))
        return saved

    def _graph_identity(self) -> dict[str, Any]:
        graph = self.graph
        return {
            "name": graph.name,
            "num_vertices": graph.num_vertices,
            "num_edges": graph.num_edges,
            "num_features": graph.num_features,
            "num_classes": graph.num_classes,
            "num_train": len(graph.train_idx),
            "content": graph.content,
        }


def _open_graph(config: TrainConfig, group: Group) -> Graph:
    """Open the store; where it is missing, one process of each machine prepares it first."""
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
