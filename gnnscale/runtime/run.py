"""The state of a training run: what is opened at its start, kept by checkpoints, and updated."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnscale.config import ConfigError
from gnnscale.graph import Graph
from gnnscale.hardware import usable_cores
from gnnscale.metrics import Traffic, peak_rss_bytes
from gnnscale.model import GNN
from gnnscale.ops import keep_freed_memory
from gnnscale.runtime.batches import labelled, num_batches, seed_batches
from gnnscale.runtime.checkpoint import (
    BEST,
    LAST,
    check_same_run,
    load_checkpoint,
    save_checkpoint,
)
from gnnscale.runtime.evaluate import ceiling, measure
from gnnscale.runtime.loading import FeatureLoader
from gnnscale.runtime.loss import seed_loss
from gnnscale.runtime.records import EpochRecord, StepRecord, TrainResult, best_epoch, waited
from gnnscale.runtime.settings import TrainConfig
from gnnscale.sampler import MiniBatch, Sampler

__all__ = ["Run"]

log = logging.getLogger(__name__)

#: Stages that a CPU has not: it trains where the features lie.
_ABSENT_STAGES = ("transfer",)


@dataclass(kw_only=True)
class Run:
    """A training run on the CPU.

    Attributes:
        config: its options.
        options: ``config`` as plain values, by which checkpoints recognise the run.
        directory: where its checkpoints go.
        epoch: epochs done.
        step: steps done, over all epochs; with the seed it fixes samples and dropout.
        history: records of the epochs done.
        best_weights: the model's state after the best epoch.
    """

    config: TrainConfig
    options: dict[str, Any]
    directory: Path
    graph: Graph
    train_idx: NDArray[np.integer[Any]]
    valid_idx: NDArray[np.integer[Any]]
    model: GNN
    sampler: Sampler
    loader: FeatureLoader
    optimizer: torch.optim.Optimizer
    epoch: int = 0
    step: int = 0
    history: list[EpochRecord] = field(default_factory=list)
    best_weights: dict[str, Tensor] = field(default_factory=dict)

    @classmethod
    def open(cls, config: TrainConfig, directory: Path, options: dict[str, Any]) -> Run:
        """Open the graph, initialise the model from the seed, and load a checkpoint to resume."""
        cores = usable_cores()
        if config.num_threads > cores:
            log.warning(
                f"num_threads={config.num_threads}: this process may use {cores} cores; "
                "more threads than cores are slower"
            )
        torch.set_num_threads(config.num_threads)
        keep_freed_memory()
        graph = config.dataset.open()
        torch.manual_seed(config.seed)
        model = config.model.build(num_features=graph.num_features, num_classes=graph.num_classes)
        run = cls(
            config=config,
            options=options,
            directory=directory,
            graph=graph,
            train_idx=labelled(graph, "train"),
            valid_idx=labelled(graph, "valid"),
            model=model,
            sampler=config.sampler.sampler(graph, seed=config.seed, num_threads=config.num_threads),
            loader=FeatureLoader(
                graph,
                model,
                num_threads=config.num_threads,
                fused=config.runtime.fused,
                compute_dtype=getattr(torch, config.runtime.compute_dtype),
            ),
            optimizer=config.optimizer.build(model),
        )
        if config.resume is not None:
            run._resume()
        return run

    @property
    def finished(self) -> bool:
        """Whether all epochs are done, or patience has run out."""
        return self.epoch >= self.config.epochs or self.out_of_patience

    @property
    def out_of_patience(self) -> bool:
        """Whether ``runtime.patience`` validations in a row brought nothing better."""
        patience = self.config.runtime.patience
        return patience is not None and waited(self.history) >= patience

    def batches(self) -> Iterator[NDArray[np.integer[Any]]]:
        """Yield the seeds of this epoch's mini-batches."""
        return seed_batches(
            self.train_idx, self.config.batch_size, seed=self.config.seed, epoch=self.epoch
        )

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

    def loss(self, logits: Tensor, batch: MiniBatch) -> Tensor:
        """Return the mean loss of the batch's seeds.

        Raises:
            ConfigError: it is no longer finite.
        """
        loss = seed_loss(self.graph, logits, batch.seeds)
        if not math.isfinite(loss.item()):
            raise ConfigError(
                f"optimizer.lr={self.config.optimizer.lr}: the loss is {loss.item()} in epoch "
                f"{self.epoch + 1}, step {self.step}; a lower rate or runtime.clip_norm may help"
            )
        return loss

    def update(self) -> None:
        """Apply the gradients to the weights."""
        if self.config.runtime.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.runtime.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1

    def progress(self, traffic: Traffic) -> StepRecord:
        """Describe the step just done."""
        return StepRecord(
            epoch=self.epoch + 1,
            step=traffic.num_batches,
            num_steps=num_batches(len(self.train_idx), self.config.batch_size),
            loss=traffic.loss / traffic.num_seeds,
            num_edges=traffic.num_edges,
            seconds=traffic.elapsed(),
        )

    def end_epoch(self, traffic: Traffic) -> EpochRecord:
        """Validate, keep the weights if they are the best so far, and write the checkpoint."""
        valid_metric, eval_time = self._validate()
        stages = asdict(traffic.stages)
        record = EpochRecord(
            epoch=self.epoch + 1,
            train_loss=traffic.loss / traffic.num_seeds,
            valid_metric=valid_metric,
            lr=self.learning_rate,
            epoch_time_s=traffic.seconds,
            eval_time_s=eval_time,
            num_edges=traffic.num_edges,
            num_vertices=traffic.num_vertices,
            stage_times_s={
                name: None if name in _ABSENT_STAGES else seconds
                for name, seconds in stages.items()
            },
            peak_rss_bytes=peak_rss_bytes(),
        )
        self.history.append(record)
        self.epoch += 1
        if best_epoch(self.history) == self.epoch:
            weights = self.model.state_dict()
            self.best_weights = {name: value.clone() for name, value in weights.items()}
        if self.config.runtime.checkpoint:
            self._save()
        return record

    def result(self) -> TrainResult:
        """Describe the run so far, without a test."""
        return TrainResult(
            dataset=self.graph.name,
            model=type(self.config.model).__name__,
            seed=self.config.seed,
            metric=self.graph.metric,
            ceiling=ceiling(self.graph),
            history=tuple(self.history),
            stopped_early=self.out_of_patience and self.epoch < self.config.epochs,
        )

    def test(self) -> float | None:
        """Return the test metric under the best weights, which the model keeps."""
        self.model.load_state_dict(self.best_weights)
        return measure(self.model, self.graph, [labelled(self.graph, "test")], self.config)[0]

    def _validate(self) -> tuple[float | None, float | None]:
        """The validation metric, and the seconds it took; both None where it is not due."""
        last = self.epoch + 1 == self.config.epochs
        if (self.epoch + 1) % self.config.runtime.eval_every and not last:
            return None, None
        start = time.perf_counter()
        metric = measure(self.model, self.graph, [self.valid_idx], self.config)[0]
        return metric, time.perf_counter() - start

    def _save(self) -> None:
        """Write the best weights where this epoch made them, then everything."""
        if best_epoch(self.history) == self.epoch:
            save_checkpoint(
                self.directory / BEST, {"epoch": self.epoch, "model": self.best_weights}
            )
        save_checkpoint(
            self.directory / LAST,
            {
                "epoch": self.epoch,
                "step": self.step,
                "model": self.model.state_dict(),
                "best_model": self.best_weights,
                "optimizer": self.optimizer.state_dict(),
                "torch_rng": torch.get_rng_state(),
                "history": [record.to_dict() for record in self.history],
                "config": self.options,
                "graph": self._graph_sizes(),
            },
        )

    def _resume(self) -> None:
        file = self.directory / LAST
        if not file.exists():
            log.info(f"{file}: the run stopped before its first checkpoint; it starts again")
            return
        saved = load_checkpoint(file)
        check_same_run(file, saved, config=self.options, graph=self._graph_sizes())
        self.epoch, self.step = saved["epoch"], saved["step"]
        self.history = [EpochRecord.from_dict(values) for values in saved["history"]]
        self.best_weights = saved["best_model"]
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        torch.set_rng_state(saved["torch_rng"])
        log.info(f"{file}: resuming after epoch {self.epoch} of {self.config.epochs}")

    def _graph_sizes(self) -> dict[str, Any]:
        graph = self.graph
        return {
            "name": graph.name,
            "num_vertices": graph.num_vertices,
            "num_edges": graph.num_edges,
            "num_features": graph.num_features,
            "num_classes": graph.num_classes,
            "num_train": len(graph.train_idx),
        }
