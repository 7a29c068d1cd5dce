"""Content of a run's checkpoint with its checks, and the epochs in ``metrics.jsonl``."""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor, nn

from gnnscale.core import STAGES, ConfigError, Count, Positive, decode
from gnnscale.core.config import METRICS_FILE, STEPS_FILE, SUMMARY_FILE, read_regular
from gnnscale.core.files import open_regular
from gnnscale.nn import TrainableModel
from gnnscale.nn.optim.update_rules import restore_optimizer
from gnnscale.planner import Device, DevicePlan
from gnnscale.run.checkpoint import BEST, INPUT_SCHEMA
from gnnscale.run.checkpoint.file import check_optimizer_state, check_weights, load_checkpoint, pack
from gnnscale.run.records import EpochRecord, EpochSums

#: Maximum bytes of a line of a run.
_MAX_LINE = 1 << 20
_MAX_SUMMARY_BYTES = 16 << 20
#: Pattern of a step's epoch in ``steps.jsonl``.
_STEP_EPOCH = re.compile(rb'"epoch": ?(\d{1,18})\b')
_STAGES = set(STAGES)
_THREADS = {"sample", "load", "propagate"}


def read_history(directory: Path) -> Iterator[EpochRecord]:
    """Yield the epochs in ``metrics.jsonl``, from epoch 1 up to a gap or a damaged line."""
    lines = _open(directory / METRICS_FILE)
    if lines is None:
        return
    expected = 1
    with lines:
        while line := lines.readline(_MAX_LINE):
            record = _parse_record(line)
            if record is None or record.epoch != expected:
                return
            yield record
            expected += 1


def find_progress(directory: Path, *, in_records: bool) -> str | None:
    """Return words for an error about a file that shows a finished epoch; None: no file does.

    Such a file in a directory without checkpoint shows that the checkpoint was lost. Searched are
    best weights and input schema, if ``in_records`` also the records of epochs and steps.
    """
    for file in (BEST, INPUT_SCHEMA):
        if os.path.lexists(directory / file):
            return f"it has {file}"
    if not in_records:
        return None
    metrics = directory / METRICS_FILE
    has_epochs = {
        METRICS_FILE: metrics.is_file() and metrics.stat().st_size > 0,
        SUMMARY_FILE: _epochs_of_summary(directory / SUMMARY_FILE) > 0,
        STEPS_FILE: _last_epoch_of_steps(directory / STEPS_FILE) > 1,
    }
    name = next((name for name, has in has_epochs.items() if has), None)
    return None if name is None else f"{name} has epochs of it"


def _epochs_of_summary(file: Path) -> int:
    """Return the number of epochs in a ``summary.json``; 0 without a number."""
    try:
        epochs = json.loads(read_regular(file, limit=_MAX_SUMMARY_BYTES))["epochs"]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return 0
    return epochs if type(epochs) is int else 0


def _last_epoch_of_steps(file: Path) -> int:
    """Return the epoch of the last step in a ``steps.jsonl``; 0 without a step."""
    lines = _open(file)
    if lines is None:
        return 0
    with lines:
        lines.seek(max(lines.seek(0, os.SEEK_END) - 2 * _MAX_LINE, 0))
        epochs = _STEP_EPOCH.findall(lines.read(2 * _MAX_LINE))
    return int(epochs[-1]) if epochs else 0


def num_recorded(directory: Path, history: Sequence[EpochRecord]) -> int:
    """Sync ``metrics.jsonl`` to the disk; return how many epochs of ``history`` it has.

    The file may end before ``history``, as its writer may be late, or after it, when called in the
    background. It may have epochs of another run or from before a resumption: if its record of the
    last such epoch differs, the result is 0.
    """
    lines = _open(directory / METRICS_FILE)
    if lines is None:
        return 0
    with lines:
        size = lines.seek(0, os.SEEK_END)
        lines.seek(max(size - 2 * _MAX_LINE, 0))
        whole = lines.read().rpartition(b"\n")[0]
        record = _last_record(whole, len(history))
        if record is None or record != history[record.epoch - 1]:
            return 0
        os.fsync(lines.fileno())
        return record.epoch


def is_validation_of(trained: EpochRecord, record: EpochRecord) -> bool:
    """Whether ``record`` equals ``trained`` except for the results of validation."""
    return replace(record, valid_metric=None, valid_metrics={}, eval_time_s=None) == trained


def check_record(record: EpochRecord, number: int) -> None:
    """Raise ValueError unless ``record`` is of epoch ``number``, with valid counts and stages."""
    devices = record.devices
    if (
        record.epoch != number
        or record.epoch_time_s <= 0
        or min(record.num_edges, record.num_vertices) < 0
        or not record.stage_times_s.keys() >= _STAGES
        or not all(device.stage_times_s.keys() >= _STAGES for device in devices)
        or not all(device.threads.keys() == _THREADS for device in devices)
    ):
        raise ValueError(f"record of epoch {number}")


def _open(file: Path) -> BinaryIO | None:
    """Open a regular file of lines; None if it is missing."""
    try:
        return open_regular(file)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from None


def _last_record(lines: bytes, num_epochs: int) -> EpochRecord | None:
    """Return the last record of epochs 1 to ``num_epochs``; None if a later line is damaged."""
    while lines:
        lines, _, line = lines.rpartition(b"\n")
        record = _parse_record(line + b"\n")
        if record is None or record.epoch < 1:
            return None
        if record.epoch <= num_epochs:
            return record
    return None


def _parse_record(line: bytes) -> EpochRecord | None:
    """Return the record in a complete line; None for any other bytes."""
    if not line.endswith(b"\n"):
        return None
    try:
        record = decode(EpochRecord, line, source="history")
        check_record(record, record.epoch)
    except ValueError:
        return None
    return record


@dataclass(frozen=True, kw_only=True)
class WorkerPart:
    """State that only the worker of a device has inside an epoch.

    Running statistics of normalization differ between devices until the epoch ends, and are then
    combined with the number of rows as weights.
    """

    buffers: dict[str, Tensor]  #: buffers of the device's model, by name
    rows: dict[Count, Count]  #: rows that each layer has normalized in the epoch, by layer
    counters: dict[str, int | float]  #: metrics of the device's kind in the epoch

    def packed(self) -> bytes:
        """Return the part as bytes for ``unpack``."""
        return pack(vars(self))

    @torch.no_grad()
    def restore_buffers(self, model: nn.Module) -> None:
        """Copy the buffers into ``model``; ValueError if names, shapes or dtypes differ."""
        model_buffers = dict(model.named_buffers())
        if model_buffers.keys() != self.buffers.keys():
            raise ValueError("workers: buffers of another model")
        for name, buffer in model_buffers.items():
            saved = self.buffers[name]
            if (saved.shape, saved.dtype) != (buffer.shape, buffer.dtype):
                raise ValueError(f"workers: {name} is {list(saved.shape)}")
        for name, buffer in model_buffers.items():
            buffer.copy_(self.buffers[name])


@dataclass(frozen=True, kw_only=True)
class TrainedState:
    """State that training changes: weights, best weights, optimizer and random generator."""

    model: dict[str, Tensor]  #: weights, by name
    best_model: dict[str, Tensor]  #: weights of the best validated epoch; empty before validation
    optimizer: dict[int, dict[str, Tensor]]  #: state of each parameter, by index
    torch_rng: Tensor  #: state of torch's random generator

    def __post_init__(self) -> None:
        try:
            torch.Generator().set_state(self.torch_rng)
        except (RuntimeError, TypeError):
            raise ValueError("no state of the random generator") from None

    def restore(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Restore the state of model, optimizer and torch's random generator."""
        model.load_state_dict(self.model)
        restore_optimizer(optimizer, self.optimizer)
        torch.set_rng_state(self.torch_rng)


@dataclass(frozen=True, kw_only=True)
class SavedRun:
    """Content of a run's last checkpoint, from which the run resumes."""

    epoch: Count  #: finished epochs
    step: Positive  #: finished steps, over all epochs
    learnt: TrainedState  #: state that training changes, as top-level entries of the file
    #: last epochs that ``metrics.jsonl`` may lack; after an epoch, the last is not validated
    records: list[EpochRecord]
    workers: list[WorkerPart]  #: state of each worker inside an epoch; empty after an epoch
    config: dict[str, Any]  #: the run's options as plain values
    graph: dict[str, Any]  #: identity of the run's graph
    sums: EpochSums | None = None  #: sums of the unfinished epoch; None after an epoch
    plan: list[Any] | None = None  #: device plan of the next step as plain values, if stored
    management: dict[str, Any] | None = None  #: state of resource management, if stored

    def __post_init__(self) -> None:
        """Raise ValueError for content that no run can have written."""
        inside = self.sums is not None
        if bool(self.workers) != inside:
            raise ValueError("no parts of its workers")
        if self.epoch < int(not inside):
            raise ValueError(f"{self.epoch} epochs")
        if not int(not inside) <= len(self.records) <= self.epoch:
            raise ValueError("no records of its epochs")
        for number, record in enumerate(self.records, self.epoch - len(self.records) + 1):
            check_record(record, number)
        # The last epoch is not validated yet.
        if not inside and not is_validation_of(self.records[-1], self.records[-1]):
            raise ValueError(f"record of epoch {self.epoch}")
        try:
            # Plain values only: tensors have an ``==`` of their own.
            json.dumps([self.plan, self.management, self.config, self.graph])
        except TypeError:
            raise ValueError("no plain options") from None

    @classmethod
    def load(cls, file: Path, content: bytes) -> "SavedRun":
        """Read the checkpoint in ``content``, the bytes of ``file``; ConfigError if it is none."""
        saved = load_checkpoint(file, content)
        try:
            learnt = decode(TrainedState, saved, source="checkpoint")
            return decode(cls, {**saved, "learnt": learnt}, source="checkpoint")
        except ValueError as error:
            raise not_of_this_run(file, str(error)) from None

    def check_tensors(
        self,
        file: Path,
        model: TrainableModel,
        optimizer: torch.optim.Optimizer,
        state_names: frozenset[str],
    ) -> None:
        """Raise ConfigError for tensors that do not fit the model or the state of a parameter."""
        check_weights(file, self.learnt.model, model)
        if self.learnt.best_model or self.epoch > (1 if self.sums is None else 0):
            check_weights(file, self.learnt.best_model, model)
        try:
            check_optimizer_state(self.learnt.optimizer, optimizer, state_names, model.vertex_rows)
        except ValueError as error:
            raise not_of_this_run(file, str(error)) from None

    def plan_for(self, options: Mapping[str, Any]) -> list[Any] | None:
        """Return the saved device plan; None: none, or options that determine it differ."""
        return self.plan if _plan_options(self.config) == _plan_options(options) else None

    def management_for(self, options: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the state of resource management; None if ``plan_for`` returns None."""
        return None if self.plan_for(options) is None else self.management

    def check_progress(
        self,
        file: Path,
        options: Mapping[str, Any],
        devices: Sequence[Device],
        batch_size: int,
        *,
        steps_per_epoch: int,
    ) -> None:
        """Raise ConfigError for a step or a plan that is impossible in the resumed run."""
        done = 0 if self.sums is None else self.sums.num_batches
        if self.step != self.epoch * steps_per_epoch + done or done >= steps_per_epoch:
            raise not_of_this_run(file, f"{self.step} steps in {self.epoch} epochs")
        plan = self.plan_for(options)
        if plan is None:
            return
        try:
            planned_size = DevicePlan.from_values(devices, plan).batch_size
        except ValueError as error:
            raise not_of_this_run(file, str(error)) from None
        if planned_size != batch_size:
            raise not_of_this_run(file, f"its plan has {planned_size} seeds")


def _plan_options(options: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the options that determine a device plan."""
    prefetch = options.get("runtime", {}).get("prefetch")
    names = ("device_plan", "num_threads", "cache_plan", "cache_planner", "features")
    return prefetch, *(options.get(name) for name in names)


def not_of_this_run(file: Path, reason: str) -> ConfigError:
    """Return the error of a checkpoint with content that its run cannot have written."""
    return ConfigError(f"{file}: not a checkpoint of this run ({reason})")
