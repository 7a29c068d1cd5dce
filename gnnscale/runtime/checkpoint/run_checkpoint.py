"""The checkpoint of a run: what rank 0 writes after an epoch, and what all workers resume from."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gnnscale.config import ConfigError
from gnnscale.graph import Graph
from gnnscale.model import TrainableModel
from gnnscale.optimizer.state import restore_optimizer
from gnnscale.plan import DevicePlan
from gnnscale.run_directory import METRICS_FILE
from gnnscale.runtime.checkpoint.file import (
    BEST,
    LAST,
    check_same_run,
    has_checkpoint,
    max_bytes,
    read_checkpoint,
    save_checkpoint,
)
from gnnscale.runtime.checkpoint.history import is_validation_of, num_recorded, read_history
from gnnscale.runtime.checkpoint.saved_run import SavedRun
from gnnscale.runtime.pipeline.stages import running
from gnnscale.runtime.settings import TrainConfig
from gnnscale.runtime.sync.group import Group
from gnnscale.runtime.telemetry.records import EpochRecord

__all__ = ["RunCheckpoint", "graph_identity"]

log = logging.getLogger(__name__)

#: From one checkpoint to the next it is so many times as long as one takes.
_TIMES = 10


@dataclass(kw_only=True)
class RunCheckpoint:
    """Where a run keeps its checkpoints, by what they recognise it, and when they were written.

    Attributes:
        directory: the run directory.
        config: the run's options.
        options: the same as plain values.
        graph: the graph that is trained on.
        partition: hash of the partition whose parts give the order of seeds; None without.
        saved_at: when the last one was begun, on the performance counter's clock.
        took_s: seconds that it took.
        saved_epoch: the epoch that it is behind.
        saved_best: the epoch whose weights are on disk as the best.
    """

    directory: Path
    config: TrainConfig
    options: Mapping[str, Any]
    graph: Graph
    partition: str | None = None
    saved_at: float = -math.inf
    took_s: float = 0.0
    saved_epoch: int | None = None
    saved_best: int | None = None

    @property
    def is_due(self) -> bool:
        """Whether the last one is long enough ago; they take at most a tenth of the time."""
        interval = self.config.runtime.checkpoint_interval_s
        wait_s = max(interval, _TIMES * self.took_s) if interval else 0.0
        return time.perf_counter() - self.saved_at >= wait_s

    @running("checkpoint")
    def save(
        self,
        *,
        model: TrainableModel,
        optimizer: Mapping[int, Mapping[str, Tensor]],
        step: int,
        history: Sequence[EpochRecord],
        best_weights: Mapping[str, Tensor],
        plan: DevicePlan,
        management: Mapping[str, Any] | None = None,
    ) -> None:
        """Write everything that the run needs to go on, but for epochs in ``metrics.jsonl``.

        Args:
            model: the whole model.
            optimizer: its optimizer's state of each parameter, by its number.
            step: steps done.
            history: records of all epochs, the last of which is yet to be validated.
            best_weights: those of the best epoch before it.
            plan: applies to the next step.
            management: where resource management stands; None where there is none.
        """
        self.saved_at = time.perf_counter()
        known = num_recorded(self.directory, history[:-1])
        save_checkpoint(
            self.directory / LAST,
            {
                "epoch": len(history),
                "step": step,
                "model": model.state_dict(),
                "best_model": dict(best_weights),
                "optimizer": {number: dict(each) for number, each in optimizer.items()},
                "torch_rng": torch.get_rng_state(),
                "records": [record.to_dict() for record in history[known:]],
                "plan": plan.to_values(),
                "management": management,
                "config": dict(self.options),
                "graph": self._identity,
            },
        )
        self.saved_epoch = len(history)
        self.took_s = time.perf_counter() - self.saved_at

    @running("checkpoint")
    def save_best(self, epoch: int, weights: Mapping[str, Tensor]) -> None:
        """Write the best weights where they are new.

        Args:
            epoch: the best one.
            weights: those behind it.
        """
        if epoch == self.saved_best:
            return
        begin = time.perf_counter()
        save_checkpoint(
            self.directory / BEST,
            {"epoch": epoch, "model": dict(weights), "graph": graph_identity(self.graph)},
        )
        self.saved_best = epoch
        self.took_s += time.perf_counter() - begin

    def begin(self) -> None:
        """Remove what another run has left in the directory: this one could not resume from it."""
        for file in (LAST, BEST):
            (self.directory / file).unlink(missing_ok=True)

    def resume(
        self,
        group: Group,
        model: TrainableModel,
        optimizer: torch.optim.Optimizer,
        *,
        steps_per_epoch: int,
    ) -> SavedRun | None:
        """Restore model, optimizer and random numbers from what rank 0 reads.

        Returns:
            The rest of the checkpoint, or None where the run stopped before its first. Rank 0 has
            the epochs before it from ``history_of``.

        Raises:
            ConfigError: the checkpoint is damaged, or not one of this run.
        """
        file = self.directory / LAST
        content = b""
        if group.is_rank0 and has_checkpoint(file):
            content = read_checkpoint(file, limit=max_bytes(model))
            self._checked(file, content, model, optimizer, steps_per_epoch)
        content = group.broadcast(content if group.is_rank0 else None)
        if not content:
            if group.is_rank0:
                log.info(f"{file}: the run stopped before its first checkpoint; it starts again")
            return None
        saved = self._checked(file, content, model, optimizer, steps_per_epoch)
        model.load_state_dict(saved.model)
        restore_optimizer(optimizer, saved.optimizer)
        torch.set_rng_state(saved.torch_rng)
        self.saved_epoch = saved.epoch
        if group.is_rank0:
            log.info(f"{file}: resuming after epoch {saved.epoch} of {self.config.epochs}")
        return saved

    def history_of(self, saved: SavedRun) -> tuple[list[EpochRecord], EpochRecord | None]:
        """Return the epochs that a checkpoint goes on from, and the one that it was written in.

        The latter is None where the run has come to its validation: it is then one of the former.

        Raises:
            ConfigError: ``metrics.jsonl`` lacks one of those before.
        """
        found = list(islice(read_history(self.directory), saved.epoch))
        first = saved.epoch - len(saved.records)
        if len(found) < first:
            raise ConfigError(
                f"{self.directory / METRICS_FILE}: has epochs 1 to {len(found)} of the {first} "
                f"that {LAST} goes on from; a copy of the run directory needs it, too"
            )
        *records, last = saved.records
        before = [*found[:first], *records]
        if len(found) == saved.epoch and is_validation_of(last, found[-1]):
            return [*before, found[-1]], None
        return before, last

    @property
    def _identity(self) -> dict[str, Any]:
        """The graph, and the partition of it that is trained over."""
        return {**graph_identity(self.graph), "partition": self.partition}

    def _checked(
        self,
        file: Path,
        content: bytes,
        model: TrainableModel,
        optimizer: torch.optim.Optimizer,
        steps_per_epoch: int,
    ) -> SavedRun:
        """Read a checkpoint, and make sure that it is one of this run."""
        saved = SavedRun.load(file, content)
        check_same_run(file, saved, config=self.options, graph=self._identity)
        saved.check_tensors(file, model, optimizer, self.config.optimizer.state_names)
        saved.check_progress(file, self.config, self.options, steps_per_epoch=steps_per_epoch)
        return saved


def graph_identity(graph: Graph) -> dict[str, Any]:
    """Return by what a checkpoint recognises its graph: name, sizes and content hash."""
    return {
        "name": graph.name,
        "num_vertices": graph.num_vertices,
        "num_edges": graph.num_edges,
        "num_features": graph.num_features,
        "num_classes": graph.num_classes,
        "num_train": len(graph.train_idx),
        "content": graph.content,
    }
