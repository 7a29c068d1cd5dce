"""Writer of a run's checkpoints in the background, and their restoration in all workers."""

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from gnnscale.core.binary_metrics import Thresholds
from gnnscale.core.config import CONFIG_FILE, read_yaml, resolved
from gnnscale.core.locks import KnownFolder
from gnnscale.distributed import Group, activity
from gnnscale.nn import TrainableModel
from gnnscale.planner import DevicePlan
from gnnscale.run.checkpoint import BEST, FILES, INPUT_SCHEMA, LAST, remove_unfinished_files
from gnnscale.run.checkpoint.file import max_bytes, read_checkpoint, save_checkpoint, unpack
from gnnscale.run.checkpoint.input_schema import InputSchema, write_input_schema
from gnnscale.run.checkpoint.reader import SavedRun, num_recorded
from gnnscale.run.checkpoint.replicas import CheckpointReplicas, read_newest
from gnnscale.run.checkpoint.resume import (
    RunIdentity,
    check_not_begun,
    check_same_options,
    describe_position,
    graph_identity,
)
from gnnscale.run.records import EpochRecord, EpochSums
from gnnscale.run.runtime_config import RuntimeConfig
from gnnscale.run.tasks import TaskConfig

Job = Callable[[], None]


class BackgroundWriter:
    """Thread that runs one write job at a time; only the newest further job waits for it."""

    def __init__(self) -> None:
        self._pool = futures.ThreadPoolExecutor(1, "checkpoint")
        self._waiting: deque[Job] = deque(maxlen=1)
        self._last: futures.Future[None] | None = None

    @property
    def idle(self) -> bool:
        """Whether no job is running."""
        return self._last is None or self._last.done()

    def check(self) -> None:
        """Raise the exception of a failed job, once."""
        if self._last is not None and self._last.done():
            last, self._last = self._last, None
            last.result()

    def begin(self, job: Job) -> None:
        """Start ``job``, or raise the exception of the last job; no job may be running."""
        assert self.idle, "one write at a time"
        self.check()
        self._last = self._pool.submit(self._run, job)

    def follow(self, job: Job) -> None:
        """Run ``job`` after the running one, replacing a waiting job; start it if none runs."""
        if self._last is None or self._last.done():
            self.begin(job)
            return
        # A submitted job may not have reached its thread yet, so it is not kept in the queue.
        self._waiting.append(job)
        self._last = self._pool.submit(self._run_waiting, self._last)

    def wait(self, limit_s: float | None = None) -> None:
        """Wait for all jobs, at most ``limit_s`` seconds; raise the exception of a failed job."""
        if self._last is not None:
            futures.wait([self._last], limit_s)
        self.check()

    def close(self) -> None:
        """Wait for all jobs and end the thread; exceptions are dropped."""
        self._pool.shutdown()

    @activity("checkpoint")
    def _run(self, job: Job) -> None:
        job()

    def _run_waiting(self, previous: futures.Future[None]) -> None:
        """Run the waiting job, if any; if job ``previous`` failed, raise its exception instead."""
        previous.result()  # a failed write also fails its successor
        if self._waiting:
            self._run(self._waiting.popleft())


log = logging.getLogger(__name__)

#: Without ``checkpoint_every_s``: minimum seconds between checkpoints, and minimum interval as a
#: multiple of the time of a write.
_MIN_INTERVAL_S = 1.0
_MIN_WRITE_TIMES = 10


@dataclass(kw_only=True)
class RunCheckpoint:
    """Checkpoints of a run: ``save`` copies the trained state, and a background thread writes it.

    ``check``, ``save`` and ``wait`` raise the exception of a failed write.
    """

    directory: Path  #: the run directory
    run: RunIdentity  #: options and graph to which checkpoints belong
    runtime: RuntimeConfig  #: whether and when checkpoints are written
    task: TaskConfig
    epochs: int  #: epochs of the run
    restarts: bool = False  #: whether torchrun restarts the run after a failure
    copies: CheckpointReplicas | None = None  #: None without replicas on other machines
    #: start of the last checkpoint, or of the run, by ``time.perf_counter``
    saved_at: float = field(default_factory=lambda: time.perf_counter())
    took_s: float = 0.0  #: seconds from the start of the last checkpoint to the end of its write
    saved_step: int | None = None  #: step of the last checkpoint
    saved_best: int | None = None  #: epoch of the stored best weights
    _writer: BackgroundWriter = field(default_factory=BackgroundWriter, init=False, repr=False)
    _folder: KnownFolder = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._folder = KnownFolder(self.directory)

    @property
    def is_due(self) -> bool:
        """Whether checkpoints are enabled, the last is written, and the interval has passed."""
        passed_s = time.perf_counter() - self.saved_at
        every_s = self.runtime.checkpoint_every_s
        if every_s is None and self.saved_step is not None:
            every_s = max(_MIN_INTERVAL_S, _MIN_WRITE_TIMES * self.took_s)
        wait_s = every_s or 0.0
        return self.runtime.checkpoint and passed_s >= wait_s and self._writer.idle

    @property
    def is_due_inside(self) -> bool:
        """Whether a checkpoint inside an epoch is due; false without ``checkpoint_every_s``."""
        return self.runtime.checkpoint_every_s is not None and self.is_due

    def check(self) -> None:
        """Raise the exception of a failed write, such as OSError for a full disk."""
        self._writer.check()

    def wait(self, limit_s: float | None = None) -> None:
        """Wait for all writes, at most ``limit_s`` seconds; raise the exception of a failed one."""
        self._writer.wait(limit_s)

    def end(self) -> None:
        """Wait until all machines have stored the last checkpoint; every worker calls this."""
        self.wait()
        if self.copies is not None:
            self.copies.end()

    def close(self) -> None:
        """Wait for pending writes without raising, and release the replicas."""
        self._writer.close()
        if self.copies is not None:
            self.copies.close()

    @activity("checkpoint")
    def save(
        self,
        *,
        model: TrainableModel,
        optimizer: Mapping[int, Mapping[str, torch.Tensor]],
        step: int,
        history: Sequence[EpochRecord],
        trained: EpochRecord | None = None,
        best_weights: Mapping[str, torch.Tensor],
        plan: DevicePlan,
        management: Mapping[str, Any] | None = None,
        sums: EpochSums | None = None,
        workers: Sequence[bytes] = (),
        best: int | None = None,
    ) -> None:
        """Copy the state of the run and start to write it; no write may be in progress.

        Args:
            optimizer: the optimizer's state of each parameter, by index.
            step: finished steps of the run.
            history: immutable records of all validated epochs; those in ``metrics.jsonl`` stay.
            trained: record of the finished, not yet validated epoch; None inside an epoch.
            best_weights: weights of the best validated epoch, never changed in place.
            plan: device plan of the next step.
            sums, workers: sums of the unfinished epoch, packed ``WorkerPart`` of each worker.
            best: epoch of ``best_weights``, to be written if new; None before its validation.
        """
        self.saved_at, self.saved_step = time.perf_counter(), step
        content = {
            "epoch": len(history) + (trained is not None),
            "step": step,
            "model": _copied(model.state_dict()),
            "best_model": dict(best_weights),
            "optimizer": {number: _copied(tensors) for number, tensors in optimizer.items()},
            "torch_rng": torch.get_rng_state(),
            "sums": None if sums is None else replace(sums, counters={}),
            "plan": plan.to_values(),
            "management": management,
            "config": dict(self.run.options),
            "graph": self.run.data,
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
        """Write and replicate a checkpoint, then ``best_model`` of epoch ``best``, if new."""
        # After a restart, another machine may lack the earlier ``metrics.jsonl``.
        first = 0 if self.restarts else num_recorded(self.directory, history)
        content["records"] = [*history[first:], *(() if trained is None else (trained,))]
        content["workers"] = [unpack(part) for part in workers]
        self._folder.check()
        save_checkpoint(self.directory / LAST, content)
        if self.copies is not None:
            self.copies.send((self.directory / LAST).read_bytes())
        if best is not None:
            self._write_best(best, content["best_model"])
        self.took_s = time.perf_counter() - self.saved_at

    def restore_best(self, epoch: int, weights: Mapping[str, torch.Tensor]) -> None:
        """Call ``save_best`` if the file of best weights or of the input schema is missing."""
        if not all((self.directory / file).exists() for file in (BEST, INPUT_SCHEMA)):
            self.save_best(epoch, weights)

    def save_best(self, epoch: int, weights: Mapping[str, torch.Tensor]) -> None:
        """Write ``weights``, never changed in place, of the best ``epoch``, if new, and schema."""
        self._writer.follow(partial(self._write_best, epoch, weights))

    def _write_best(self, epoch: int, weights: Mapping[str, torch.Tensor]) -> None:
        if epoch == self.saved_best:
            return
        self._folder.check()
        if self.saved_best is None:
            self._write_schema()
        content = {"epoch": epoch, "model": dict(weights), "graph": graph_identity(self.run.graph)}
        save_checkpoint(self.directory / BEST, content)
        self.saved_best = epoch

    def save_thresholds(self, thresholds: Thresholds) -> None:
        """Write the input schema again, with ``thresholds``, if the run writes checkpoints."""
        if self.runtime.checkpoint:
            self.wait()  # a running write may write the schema without
            self._write_schema(thresholds)

    def _write_schema(self, thresholds: Thresholds | None = None) -> None:
        self._folder.check()
        graph, by_type = self.run.graph, not self.task.compares_rows
        schema = InputSchema.of(graph, self.task.labels(graph), by_type=by_type)
        write_input_schema(self.directory, replace(schema, thresholds=thresholds))

    def begin(self) -> None:
        """Remove all checkpoint files from the run directory: a new run cannot resume from them."""
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
        """Restore model, optimizer and generator from the newest checkpoint; None: there is none.

        ConfigError: it is damaged, of another run, or missing though an epoch was finished.
        """
        file, content, limit = self.directory / LAST, b"", max_bytes(model)
        if group.local_rank == 0:
            remove_unfinished_files(self.directory)
        if self.restarts:
            content = read_newest(group, self.directory, limit=limit)
        else:
            if group.is_rank0 and os.path.lexists(file):
                content = read_checkpoint(file, limit=limit)
                self.run.load(file, content, model, optimizer, steps_per_epoch)
            content = group.broadcast(content if group.is_rank0 else None)
        if not content:
            self._check_restart(group)
            return None
        saved = self.run.load(file, content, model, optimizer, steps_per_epoch)
        saved.learnt.restore(model, optimizer)
        self.saved_step = saved.step
        if group.is_rank0:
            position = describe_position(saved, steps_per_epoch, self.epochs)
            log.info(f"{file}: resuming {position}")
        return saved

    def _check_restart(self, group: Group) -> None:
        """Raise ConfigError unless the run, without checkpoint, may start again as it began."""
        flags = {"restarts": self.restarts, "writes": self.runtime.checkpoint}
        check_not_begun(self.directory, group, **flags)
        if group.is_rank0 and not self.restarts:
            file, last = self.directory / CONFIG_FILE, self.directory / LAST
            if file.exists():
                check_same_options(file, resolved(read_yaml(file)), config=self.run.options)
            log.info(f"{last}: the run stopped before its first checkpoint; it starts again")


def _copied(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return copies of ``tensors``."""
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}
