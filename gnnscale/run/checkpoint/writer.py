"""The checkpoint of a run: what rank 0 writes while it trains, and what all workers resume from."""

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gnnscale.core import ConfigError, shown
from gnnscale.core.config.renamed import current_path
from gnnscale.core.config.run_directory import METRICS_FILE
from gnnscale.core.config.typed import differences
from gnnscale.core.locks import KnownFolder
from gnnscale.distributed.heartbeat import activity
from gnnscale.distributed.process_group import Group, trade_values
from gnnscale.features import (
    DiskFeaturesConfig,
    HostFeaturesConfig,
    PreaggregatedFeaturesConfig,
    SharedFeaturesConfig,
)
from gnnscale.graph import Graph
from gnnscale.nn import TrainableModel
from gnnscale.planner import DevicePlan
from gnnscale.run.checkpoint import BEST, FILES, LAST, SIGNATURE, remove_parts
from gnnscale.run.checkpoint import file as files
from gnnscale.run.checkpoint import reader as saved_run
from gnnscale.run.checkpoint.file import save_checkpoint
from gnnscale.run.checkpoint.input_schema import InputSchema, write_signature
from gnnscale.run.checkpoint.reader import SavedRun
from gnnscale.run.checkpoint.replicas import CheckpointReplicas, read_newest
from gnnscale.run.config import RunConfig
from gnnscale.run.records import EpochRecord, EpochSums

Job = Callable[[], None]


class BackgroundWriter:
    """Runs one job at a time in a separate thread, which begins with the first of them.

    Only one job may wait for the one in flight, and a newer one takes its place: a disk that is too
    slow delays writes and does not pile them up.
    """

    def __init__(self) -> None:
        self._pool = futures.ThreadPoolExecutor(1, "checkpoint")
        self._waiting: deque[Job] = deque(maxlen=1)
        self._last: futures.Future[None] | None = None

    @property
    def idle(self) -> bool:
        """Whether nothing is being written."""
        return self._last is None or self._last.done()

    def check(self) -> None:
        """Raise what a job has failed with, as an OSError of a full disk; it is raised once."""
        if self._last is not None and self._last.done():
            last, self._last = self._last, None
            last.result()

    def begin(self, job: Job) -> None:
        """Begin ``job``; nothing may be in flight."""
        assert self.idle, "one write at a time"
        self.check()
        self._last = self._pool.submit(self._run, job)

    def follow(self, job: Job) -> None:
        """Begin ``job`` after the one in flight, in place of what was to follow it; or now."""
        if self._last is None or self._last.done():
            self.begin(job)
            return
        # Only what follows waits here: a job in flight may not have reached its thread yet, and
        # must not be taken for one that waits.
        self._waiting.append(job)
        self._last = self._pool.submit(self._run_waiting, self._last)

    def wait(self, limit_s: float | None = None) -> None:
        """Wait until all is written, or so many seconds; raise what a job has failed with."""
        if self._last is not None:
            futures.wait([self._last], limit_s)
        self.check()

    def close(self) -> None:
        """Wait until all is written, and end the thread; errors are dropped."""
        self._pool.shutdown()

    @activity("checkpoint")
    def _run(self, job: Job) -> None:
        job()

    def _run_waiting(self, before: futures.Future[None]) -> None:
        """Run the job that waits, unless a newer one took its place."""
        before.result()  # what was to follow a failure would continue from what is not there
        if self._waiting:
            self._run(self._waiting.popleft())


log = logging.getLogger(__name__)

#: Where no interval is given, it is so many seconds from one checkpoint to the next, and so many
#: times as long as one takes.
_EVERY_S = 1.0
_TIMES = 10


@dataclass(kw_only=True)
class RunCheckpoint:
    """Where a run keeps its checkpoints, by what they recognise it, and when they were written.

    They are written in the background: ``save`` copies what training changes later, and leaves
    the rest to a thread. What that fails with is raised by ``check``, ``save`` or ``wait``.
    """

    directory: Path  #: the run directory
    config: RunConfig  #: the run's options
    options: Mapping[str, Any]  #: the same as plain values
    graph: Graph  #: the graph that is trained on
    #: hash of the partition whose parts give the order of seeds; None without
    partition: str | None = None
    candidates: str | None = None  #: hash of the candidates of its edges; None for all vertices
    #: whether torchrun starts the run again, perhaps on another machine
    restarts: bool = False
    copies: CheckpointReplicas | None = None  #: who else keeps it; None if nobody does
    #: when the last one was begun, on the performance counter's clock; before the first, when the
    #: run was opened
    saved_at: float = field(default_factory=lambda: time.perf_counter())
    took_s: float = 0.0  #: seconds that it took, most of them in the background
    saved_step: int | None = None  #: the step after which it is
    saved_best: int | None = None  #: the epoch whose weights are written as the best
    _writer: BackgroundWriter = field(default_factory=BackgroundWriter, init=False, repr=False)
    _folder: KnownFolder = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._folder = KnownFolder(self.directory)

    @property
    def is_due(self) -> bool:
        """Whether the next one may begin after an epoch: the last is written, and long ago."""
        passed_s = time.perf_counter() - self.saved_at
        every_s = self.config.runtime.checkpoint_every_s
        if every_s is None:
            wait_s = max(_EVERY_S, _TIMES * self.took_s) if self.saved_step is not None else 0.0
        else:
            wait_s = every_s
        return self.config.runtime.checkpoint and passed_s >= wait_s and self._writer.idle

    @property
    def is_due_inside(self) -> bool:
        """As ``is_due``, inside an epoch."""
        return self.config.runtime.checkpoint_every_s is not None and self.is_due

    def check(self) -> None:
        """Raise what the last one could not be written for, such as an OSError of a full disk."""
        self._writer.check()

    def wait(self, limit_s: float | None = None) -> None:
        """Wait until the disk has the last one, or so many seconds; raise as ``check``."""
        self._writer.wait(limit_s)

    def end(self) -> None:
        """Wait until all disks have the last one, at the end of the run; every worker calls this.

        Raises:
            OSError: it could not be written.
            PeerLostError: another process is gone.
        """
        self.wait()
        if self.copies is not None:
            self.copies.end()

    def close(self) -> None:
        """Let what was begun come to its end, whatever became of the run."""
        self._writer.close()
        if self.copies is not None:
            self.copies.close()

    @activity("checkpoint")
    def save(
        self,
        *,
        model: TrainableModel,
        optimizer: Mapping[int, Mapping[str, Tensor]],
        step: int,
        history: Sequence[EpochRecord],
        trained: EpochRecord | None = None,
        best_weights: Mapping[str, Tensor],
        plan: DevicePlan,
        management: Mapping[str, Any] | None = None,
        sums: EpochSums | None = None,
        workers: Sequence[bytes] = (),
        best: int | None = None,
    ) -> None:
        """Copy everything that the run needs to go on, and begin to write it.

        The epochs in ``metrics.jsonl`` are not written again. Nothing may be in flight.

        Args:
            optimizer: its optimizer's state of each parameter, by its number.
            history: records of all epochs that are trained to their end and validated; it never
                changes.
            trained: after an epoch, its record, which is yet to be validated; None inside one.
            best_weights: those of the best epoch that is validated; never changed in place.
            plan: applies to the next step.
            management: where resource management stands; None if there is none.
            sums: what the epoch has added up so far; None after an epoch.
            workers: each worker's ``WorkerPart``, packed; empty after an epoch.
            best: the epoch of ``best_weights``, which are written too if they are new; None after
                an epoch, whose validation may find better ones.
        """
        self.saved_at, self.saved_step = time.perf_counter(), step
        content = {
            "epoch": len(history) + (trained is not None),
            "step": step,
            "model": _copied(model.state_dict()),
            "best_model": dict(best_weights),
            "optimizer": {number: _copied(each) for number, each in optimizer.items()},
            "torch_rng": torch.get_rng_state(),
            "sums": None if sums is None else replace(sums, counters={}),
            "plan": plan.to_values(),
            "management": management,
            "config": dict(self.options),
            "graph": self._identity,
        }
        self._writer.begin(partial(self._write, content, history, trained, tuple(workers), best))

    def _write(
        self,
        content: dict[str, Any],
        history: Sequence[EpochRecord],
        trained: EpochRecord | None,
        workers: Sequence[bytes],
        best: int | None,
    ) -> None:
        """Write a checkpoint, and then the weights of epoch ``best`` if they are new."""
        # Another machine has no ``metrics.jsonl`` of before.
        known = 0 if self.restarts else saved_run.num_recorded(self.directory, history)
        content["records"] = [*history[known:], *(() if trained is None else (trained,))]
        content["workers"] = [files.unpack(each) for each in workers]
        self._folder.check()
        save_checkpoint(self.directory / LAST, content)
        if self.copies is not None:
            self.copies.send((self.directory / LAST).read_bytes())
        if best is not None:
            self._write_best(best, content["best_model"])
        self.took_s = time.perf_counter() - self.saved_at

    def restore_best(self, epoch: int, weights: Mapping[str, Tensor]) -> None:
        """Write the best weights, never changed in place, again if the directory has lost them."""
        if not all((self.directory / file).exists() for file in (BEST, SIGNATURE)):
            self.save_best(epoch, weights)

    def save_best(self, epoch: int, weights: Mapping[str, Tensor]) -> None:
        """Write the best weights, never changed in place, if new, after what is in flight."""
        self._writer.follow(partial(self._write_best, epoch, weights))

    def _write_best(self, epoch: int, weights: Mapping[str, Tensor]) -> None:
        if epoch == self.saved_best:
            return
        self._folder.check()
        if self.saved_best is None:
            labels = self.config.task.labels(self.graph)
            write_signature(self.directory, InputSchema.of(self.graph, labels))
        save_checkpoint(
            self.directory / BEST,
            {"epoch": epoch, "model": dict(weights), "graph": graph_identity(self.graph)},
        )
        self.saved_best = epoch

    def begin(self) -> None:
        """Remove what another run has left in the directory: this one could not resume from it."""
        for file in FILES:
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

        If torchrun starts the run again, that is the newest checkpoint of all machines.

        Returns:
            The rest of the checkpoint, or None if the run stopped before its first. Rank 0 has
            the epochs before it from ``history_of``.

        Raises:
            ConfigError: the checkpoint is damaged, or not one of this run; or it is missing, and
                the run has done an epoch.
        """
        file = self.directory / LAST
        content, limit = b"", files.max_bytes(model)
        if group.local_rank == 0:
            remove_parts(self.directory)
        if self.restarts:
            content = read_newest(group, self.directory, limit=limit)
        else:
            if group.is_rank0 and os.path.lexists(file):
                content = files.read_checkpoint(file, limit=limit)
                self._checked(file, content, model, optimizer, steps_per_epoch)
            content = group.broadcast(content if group.is_rank0 else None)
        if not content:
            self._check_not_begun(group)
            if group.is_rank0 and not self.restarts:
                log.info(f"{file}: the run stopped before its first checkpoint; it starts again")
            return None
        saved = self._checked(file, content, model, optimizer, steps_per_epoch)
        saved.learnt.restore(model, optimizer)
        self.saved_step = saved.step
        if group.is_rank0:
            log.info(f"{file}: resuming {_place(saved, steps_per_epoch, self.config.epochs)}")
        return saved

    def _check_not_begun(self, group: Group) -> None:
        """Refuse to begin a run again that has done an epoch, as any machine's directory shows.

        Raises:
            ConfigError: in every process, with what the first such directory has.
        """
        done = None
        if group.local_rank == 0:
            # A run that torchrun starts again may have lost its machine just before.
            done = saved_run.find_progress(self.directory, in_records=not self.restarts)
        found = next((each for each in trade_values(done, group) if each is not None), None)
        if found is None:
            return
        if self.config.runtime.checkpoint:
            missing = f"{LAST} is missing; copy it to {LAST.parent} of this folder"
        else:
            missing = "runtime.checkpoint=false wrote no checkpoint; leave it as it is"
        raise ConfigError(
            f"resume={self.directory}: {found}, and {missing}, or train in another folder"
        )

    def history_of(self, saved: SavedRun) -> tuple[list[EpochRecord], EpochRecord | None]:
        """Return the epochs that a checkpoint continues, and the one after which it was written.

        The latter is None if the run has come to its validation, which makes it one of the
        former, and where the checkpoint is inside an epoch.

        Raises:
            ConfigError: ``metrics.jsonl`` lacks one of those before.
        """
        found = list(islice(saved_run.read_history(self.directory), saved.epoch))
        first = saved.epoch - len(saved.records)
        if len(found) < first:
            raise ConfigError(
                f"{self.directory / METRICS_FILE}: has epochs 1 to {len(found)} of the {first} "
                f"that {LAST} goes on from; a copy of the run directory needs it, too"
            )
        if saved.sums is not None:
            return [*found[:first], *saved.records], None
        *records, last = saved.records
        before = [*found[:first], *records]
        if len(found) == saved.epoch and saved_run.is_validation_of(last, found[-1]):
            return [*before, found[-1]], None
        return before, last

    @property
    def _identity(self) -> dict[str, Any]:
        """The graph, the partition of it that is trained over, and the candidates of its edges."""
        candidates = {} if self.candidates is None else {"candidates": self.candidates}
        return {**graph_identity(self.graph), "partition": self.partition, **candidates}

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


def _copied(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: each.detach().clone() for name, each in tensors.items()}


def check_same_run(
    file: Path, saved: SavedRun, *, config: Mapping[str, Any], graph: Mapping[str, Any]
) -> None:
    """Refuse to resume under other options, or on another graph, than the checkpoint's.

    With ``runtime.deterministic`` before and now, options that plans follow from stay too.

    Raises:
        ConfigError: naming the first option that differs, and both values.
    """
    free = files.FREE_OPTIONS
    if config.get("optimizer", {}).get("schedule") == "cosine":
        # The cosine runs over all epochs; with another number of them every step would differ.
        free = tuple(option for option in free if option != "epochs")
    if _replaces(config) or _replaces(saved.config):
        free = tuple(option for option in free if option != "features")
    if _repeats(config) and _repeats(saved.config):
        free = tuple(option for option in free if option not in files.PLAN_OPTIONS)
    for option, new, old in differences(config, saved.config, ignore=free):
        if old is None and files.ADDED_OPTIONS.get(option) == new:
            continue
        raise ConfigError(
            f"resume: {shown(option)} is {shown(new)}, but {file} was written with {shown(old)}"
        )
    divided = "valid_fraction" in config.get("task", {})
    files.check_same_graph(file, saved.graph, graph=graph, option="resume", divided=divided)


def _repeats(options: Mapping[str, Any]) -> bool:
    """Whether a run with these options repeats bit for bit."""
    runtime = options.get("runtime")
    return isinstance(runtime, Mapping) and runtime.get("deterministic") is True


def _replaces(options: Mapping[str, Any]) -> bool:
    """Whether a run with these options reads other rows than the graph's features."""
    features = options.get("features")
    target = features.get("_target_", "") if isinstance(features, Mapping) else ""
    name = current_path(str(target)).rpartition(".")[2]
    kinds = (
        DiskFeaturesConfig,
        HostFeaturesConfig,
        PreaggregatedFeaturesConfig,
        SharedFeaturesConfig,
    )
    return bool(name) and name not in {each.__name__ for each in kinds}


def _place(saved: SavedRun, steps_per_epoch: int, epochs: int) -> str:
    if saved.sums is None:
        return f"after epoch {saved.epoch} of {epochs}"
    return (
        f"after step {saved.sums.num_batches} of {steps_per_epoch} in epoch {saved.epoch + 1} "
        f"of {epochs}"
    )


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
