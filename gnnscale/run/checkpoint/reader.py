"""What a run takes from a checkpoint, once all of it fits the run: types, shapes and sums.

What only the worker of one device knows inside an epoch, as a checkpoint keeps it.

The epochs of a run in ``metrics.jsonl``: what a checkpoint has not to hold again.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor, nn

from gnnscale.core import STAGES, ConfigError, Count, Positive, decode, shown
from gnnscale.core.config.run_directory import METRICS_FILE, STEPS_FILE, SUMMARY_FILE
from gnnscale.core.config.yaml_file import read_regular
from gnnscale.nn import TrainableModel
from gnnscale.nn.learned_embeddings import LearnedEmbedding
from gnnscale.nn.optim.dense import restore_optimizer
from gnnscale.planner import DevicePlan
from gnnscale.run.checkpoint import BEST, SIGNATURE
from gnnscale.run.checkpoint.file import load_checkpoint, pack
from gnnscale.run.config import RunConfig
from gnnscale.run.records import EpochRecord, EpochSums

#: Bytes of a line that could be one of a run.
_MAX_LINE = 1 << 20
_MAX_SUMMARY_BYTES = 16 << 20
#: The epoch of a step in ``steps.jsonl``.
_STEP_EPOCH = re.compile(rb'"epoch": ?(\d{1,18})\b')
_STAGES = set(STAGES)
_THREADS = {"sample", "load", "propagate"}


def read_history(directory: Path) -> Iterator[EpochRecord]:
    """Yield the epochs of a run from the first on, as far as one follows the other.

    A line that a crash cut off ends them, and so does one of something else.

    Raises:
        ConfigError: the file is no regular file, or cannot be read.
    """
    lines = _open(directory / METRICS_FILE)
    if lines is None:
        return
    expected = 1
    with lines:
        while line := lines.readline(_MAX_LINE):
            record = _parsed(line)
            if record is None or record.epoch != expected:
                return
            yield record
            expected += 1


def find_progress(directory: Path, *, in_records: bool) -> str | None:
    """Return what a run directory has of an epoch that was done; None if it shows none.

    The best weights are written after a checkpoint. So is a line of ``metrics.jsonl``, unless the
    disk takes more than a second for the first one. A directory without a checkpoint and with any
    of these has lost it.

    Args:
        in_records: look for records of epochs, too.
    """
    for file in (BEST, SIGNATURE):
        if os.path.lexists(directory / file):
            return f"it has {file}"
    if not in_records:
        return None
    if _size_of(directory / METRICS_FILE):
        return f"{METRICS_FILE} has epochs of it"
    if _epochs_of_summary(directory / SUMMARY_FILE):
        return f"{SUMMARY_FILE} has epochs of it"
    if _last_epoch_of_steps(directory / STEPS_FILE) > 1:
        return f"{STEPS_FILE} has epochs of it"
    return None


def _size_of(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _epochs_of_summary(file: Path) -> int:
    """Return the epochs in a ``summary.json``; 0 without a count."""
    try:
        epochs = json.loads(read_regular(file, limit=_MAX_SUMMARY_BYTES))["epochs"]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return 0
    return epochs if type(epochs) is int else 0


def _last_epoch_of_steps(file: Path) -> int:
    """Return the epoch of the last step in a ``steps.jsonl``; 0 without one."""
    lines = _open(file)
    if lines is None:
        return 0
    with lines:
        lines.seek(max(lines.seek(0, os.SEEK_END) - 2 * _MAX_LINE, 0))
        found = _STEP_EPOCH.findall(lines.read(2 * _MAX_LINE))
    return int(found[-1]) if found else 0


def num_recorded(directory: Path, history: Sequence[EpochRecord]) -> int:
    """Return how many epochs of ``history`` are in ``metrics.jsonl``, on the disk.

    What writes that file may be late, or not have begun: it then ends with an epoch of before
    the run was resumed, or of another run. Or it is ahead, if this is asked in the background.

    Args:
        directory: of the run.
        history: its epochs from the first on.

    Raises:
        ConfigError: the file is no regular file, or cannot be read.
    """
    lines = _open(directory / METRICS_FILE)
    if lines is None:
        return 0
    with lines:
        size = lines.seek(0, os.SEEK_END)
        lines.seek(max(size - 2 * _MAX_LINE, 0))
        whole = lines.read().rpartition(b"\n")[0]
        record = _last_of(whole, len(history))
        if record is None or record != history[record.epoch - 1]:
            return 0
        os.fsync(lines.fileno())
        return record.epoch


def is_validation_of(trained: EpochRecord, record: EpochRecord) -> bool:
    """Whether ``record`` is ``trained`` and what its validation has found."""
    return replace(record, valid_metric=None, valid_metrics={}, eval_time_s=None) == trained


def check_record(record: EpochRecord, number: int) -> None:
    """Refuse an epoch of which a report could not be made.

    Raises:
        ValueError: naming it.
    """
    devices = record.devices
    if (
        record.epoch != number
        or record.epoch_time_s <= 0
        or min(record.num_edges, record.num_vertices) < 0
        or not record.stage_times_s.keys() >= _STAGES
        or not all(each.stage_times_s.keys() >= _STAGES for each in devices)
        or not all(each.threads.keys() == _THREADS for each in devices)
    ):
        raise ValueError(f"record of epoch {number}")


def _open(file: Path) -> BinaryIO | None:
    """Open a file of lines, None if there is none; a pipe is not waited for."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return open(descriptor, "rb")
    os.close(descriptor)
    raise ConfigError(f"{file}: not a regular file")


def _last_of(lines: bytes, num_epochs: int) -> EpochRecord | None:
    """Return the last epoch among the first ``num_epochs``; None if the lines do not tell."""
    while lines:
        lines, _, line = lines.rpartition(b"\n")
        record = _parsed(line + b"\n")
        if record is None or record.epoch < 1:
            return None
        if record.epoch <= num_epochs:
            return record
    return None


def _parsed(line: bytes) -> EpochRecord | None:
    """Return the epoch of a whole line, None for anything else."""
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
    """One worker's part of a checkpoint inside an epoch.

    Statistics of normalisations are each device's own until the epoch ends, and so are the counts
    that they are then combined by.

    Attributes:
        buffers: of the model that the device trains, by name.
        rows: rows that each layer wrote in the epoch.
        counters: figures that its kind of device has, of the epoch.
    """

    buffers: dict[str, Tensor]
    rows: dict[Count, Count]
    counters: dict[str, int | float]

    def packed(self) -> bytes:
        """Return it as bytes, for ``unpack``."""
        return pack(vars(self))

    @torch.no_grad()
    def restore_buffers(self, model: nn.Module) -> None:
        """Give ``model`` the buffers that it had.

        Raises:
            ValueError: they are another model's; nothing is changed then.
        """
        own = dict(model.named_buffers())
        if own.keys() != self.buffers.keys():
            raise ValueError("workers: buffers of another model")
        for name, buffer in own.items():
            kept = self.buffers[name]
            if (kept.shape, kept.dtype) != (buffer.shape, buffer.dtype):
                raise ValueError(f"workers: {name} is {list(kept.shape)}")
        for name, buffer in own.items():
            buffer.copy_(self.buffers[name])


@dataclass(frozen=True, kw_only=True)
class TrainedState:
    """What every step changes.

    Attributes:
        model: the weights.
        best_model: those of the best epoch before; empty if there is none.
        optimizer: state of each parameter, by its number.
        torch_rng: state of torch's generator.
    """

    model: dict[str, Tensor]
    best_model: dict[str, Tensor]
    optimizer: dict[int, dict[str, Tensor]]
    torch_rng: Tensor

    def __post_init__(self) -> None:
        try:
            torch.Generator().set_state(self.torch_rng)
        except (RuntimeError, TypeError):
            raise ValueError("no state of the random generator") from None

    def restore(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Give model, optimizer and torch's generator what they had."""
        model.load_state_dict(self.model)
        restore_optimizer(optimizer, self.optimizer)
        torch.set_rng_state(self.torch_rng)


@dataclass(frozen=True, kw_only=True)
class SavedRun:
    """The content of ``LAST``.

    Attributes:
        epoch: epochs trained to their end.
        step: steps done, over all epochs.
        learnt: what training changes, whose entries stand beside the others in the file.
        records: of the last epochs, which ``metrics.jsonl`` did not have yet. After an epoch the
            last of them is the one that is to be validated.
        sums: what the epoch has added up so far; None after an epoch.
        workers: what each worker alone knows inside an epoch; empty after one.
        plan: the device plan of the next step as plain values, None if not kept.
        management: where resource management stands as plain values, None if not kept.
        config: the run's options as plain values.
        graph: its graph's identity.
    """

    epoch: Count
    step: Positive
    learnt: TrainedState
    records: list[EpochRecord]
    workers: list[WorkerPart]
    config: dict[str, Any]
    graph: dict[str, Any]
    sums: EpochSums | None = None
    plan: list[Any] | None = None
    management: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        """Check all that depends neither on the model nor on the run."""
        inside = self.sums is not None
        if bool(self.workers) != inside:
            raise ValueError("no parts of its workers")
        if self.epoch < int(not inside):
            raise ValueError(f"{self.epoch} epochs")
        if not int(not inside) <= len(self.records) <= self.epoch:
            raise ValueError("no records of its epochs")
        for number, record in enumerate(self.records, self.epoch - len(self.records) + 1):
            check_record(record, number)
        # After an epoch, its own record is yet to be validated.
        if not inside and not is_validation_of(self.records[-1], self.records[-1]):
            raise ValueError(f"record of epoch {self.epoch}")
        try:
            # JSON could hold these: nothing in them is compared in ways of its own.
            json.dumps([self.plan, self.management, self.config, self.graph])
        except TypeError:
            raise ValueError("no plain options") from None

    @classmethod
    def load(cls, file: Path, content: bytes) -> SavedRun:
        """Read a checkpoint's bytes, named ``file`` in errors.

        Raises:
            ConfigError: the bytes are no checkpoint, or not one of a run.
        """
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
        """Refuse tensors that are not those of a model and its optimizer.

        Args:
            file: named in errors.
            model: whose weights they must be.
            optimizer: whose state they must be.
            state_names: what it keeps of every parameter.

        Raises:
            ConfigError: a name, a shape or a type differs.
        """
        check_weights(file, self.learnt.model, model)
        if self.learnt.best_model or self.epoch > (1 if self.sums is None else 0):
            check_weights(file, self.learnt.best_model, model)
        _check_optimizer(file, self.learnt.optimizer, optimizer, state_names, model.vertex_rows)

    def plan_under(self, options: Mapping[str, Any]) -> list[Any] | None:
        """Return the plan to go on with; with options that it does not follow from, None."""
        return self.plan if _plan_options(self.config) == _plan_options(options) else None

    def management_under(self, options: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return where the management of ``plan_under`` stands; None if nothing goes on."""
        return None if self.plan_under(options) is None else self.management

    def check_progress(
        self, file: Path, config: RunConfig, options: Mapping[str, Any], *, steps_per_epoch: int
    ) -> None:
        """Refuse steps and a plan that a run of such a size cannot have.

        Args:
            file: named in errors.
            config: the options of the run that resumes.
            options: the same as plain values.
            steps_per_epoch: of the run that resumes.

        Raises:
            ConfigError: the steps are not those of the epochs, or the plan is not one of the batch
                on these devices.
        """
        done = 0 if self.sums is None else self.sums.num_batches
        if self.step != self.epoch * steps_per_epoch + done or done >= steps_per_epoch:
            raise not_of_this_run(file, f"{self.step} steps in {self.epoch} epochs")
        plan = self.plan_under(options)
        if plan is None:
            return
        try:
            batch_size = DevicePlan.from_values(config.device_plan.parsed(), plan).batch_size
        except ValueError as error:
            raise not_of_this_run(file, str(error)) from None
        if batch_size != config.batch_size:
            raise not_of_this_run(file, f"its plan shares out {batch_size} seeds")


def check_weights(file: Path, weights: Any, model: nn.Module) -> dict[str, Tensor]:
    """Return ``weights``, refused if they are not those of ``model``.

    Raises:
        ConfigError: a name, a shape or a type differs.
    """
    expected = model.state_dict()
    if not isinstance(weights, Mapping) or weights.keys() != expected.keys():
        raise ConfigError(f"{file}: not weights of this model (others are named)")
    for name, tensor in expected.items():
        found = weights[name]
        same = isinstance(found, Tensor) and (found.shape, found.dtype) == (
            tensor.shape,
            tensor.dtype,
        )
        if not same:
            found = _described(found, other=tensor) if isinstance(found, Tensor) else shown(found)
            raise ConfigError(
                f"{file}: not weights of this model ({name} is {found}, not "
                f"{_described(tensor, other=weights[name])})"
            )
    return dict(weights)


def _described(tensor: Tensor, *, other: Any) -> str:
    """Return the shape of ``tensor``, and its type if that is what differs from ``other``."""
    shape = str(list(tensor.shape))
    if isinstance(other, Tensor) and other.dtype != tensor.dtype:
        return f"{shape} {str(tensor.dtype).removeprefix('torch.')}"
    return shape


def _check_optimizer(
    file: Path,
    state: Mapping[int, Mapping[str, Tensor]],
    optimizer: torch.optim.Optimizer,
    names: frozenset[str],
    rows: LearnedEmbedding | None,
) -> None:
    """Refuse a state that does not fit: an update reads it without looking at its size.

    Args:
        names: what is kept of every parameter.
        rows: learned rows, of which their own state is kept instead, or None.
    """
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    for number, kept in state.items():
        if not 0 <= number < len(parameters):
            raise not_of_this_run(file, "the optimizer's state is another's")
        parameter = parameters[number]
        if rows is not None and parameter is rows.weight:
            shapes = rows.state_shapes
        else:
            shapes = {name: () if name == "step" else tuple(parameter.shape) for name in names}
        if kept and kept.keys() != shapes.keys():
            raise not_of_this_run(file, "the optimizer's state is another's")
        for name, tensor in kept.items():
            dtype = torch.float32 if name == "step" else parameter.dtype
            if (tuple(tensor.shape), tensor.dtype) != (shapes[name], dtype):
                raise not_of_this_run(file, f"the optimizer's {name} is {list(tensor.shape)}")


def _plan_options(options: Mapping[str, Any]) -> tuple[Any, ...]:
    """The options that a plan follows from: a run that is resumed with others plans anew."""
    prefetch = options.get("runtime", {}).get("prefetch")
    names = ("device_plan", "num_threads", "cache_plan", "cache_planner", "features")
    return prefetch, *(options.get(name) for name in names)


def not_of_this_run(file: Path, reason: str) -> ConfigError:
    """Return the error of a checkpoint with something in it that its run cannot have written."""
    return ConfigError(f"{file}: not a checkpoint of this run ({reason})")
