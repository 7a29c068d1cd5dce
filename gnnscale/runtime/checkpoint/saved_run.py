"""What a run takes from a checkpoint, once all of it fits the run: types, shapes and sums."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gnnscale.core.errors import ConfigError, shown
from gnnscale.plan import DevicePlan
from gnnscale.runtime.checkpoint.file import load_checkpoint
from gnnscale.runtime.checkpoint.history import check_record
from gnnscale.runtime.checkpoint.worker_part import WorkerPart
from gnnscale.runtime.settings import TrainConfig
from gnnscale.runtime.telemetry.epoch_sums import EpochSums
from gnnscale.runtime.telemetry.records import EpochRecord

__all__ = ["SavedRun", "check_weights", "foreign"]


@dataclass(frozen=True, kw_only=True)
class SavedRun:
    """The content of ``LAST``.

    Attributes:
        epoch: epochs trained to their end.
        step: steps done, over all epochs.
        model: the weights.
        best_model: those of the best epoch before; empty where there is none.
        optimizer: state of each parameter, by its number.
        torch_rng: state of torch's generator.
        records: of the last epochs, which ``metrics.jsonl`` did not have yet. Behind an epoch the
            last of them is the one that is to be validated.
        sums: what the epoch has added up so far; None behind an epoch.
        workers: what each worker alone knows inside an epoch; empty behind one.
        plan: the device plan of the next step as plain values, None where not kept.
        management: where resource management stands as plain values, None where not kept.
        config: the run's options as plain values.
        graph: its graph's identity.
    """

    epoch: int
    step: int
    model: dict[str, Tensor]
    best_model: dict[str, Tensor]
    optimizer: dict[int, dict[str, Tensor]]
    torch_rng: Tensor
    records: list[EpochRecord]
    sums: EpochSums | None
    workers: list[WorkerPart]
    plan: list[Any] | None
    management: dict[str, Any] | None
    config: dict[str, Any]
    graph: dict[str, Any]

    @classmethod
    def load(cls, file: Path, content: bytes) -> SavedRun:
        """Read a checkpoint's bytes, named ``file`` in errors.

        Raises:
            ConfigError: the bytes are no checkpoint, or not one of a run.
        """
        saved = load_checkpoint(file, content)
        try:
            return cls._of(saved)
        except ValueError as error:
            raise foreign(file, str(error)) from None

    def check_tensors(
        self,
        file: Path,
        model: nn.Module,
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
        check_weights(file, self.model, model)
        if self.best_model or self.epoch > (1 if self.sums is None else 0):
            check_weights(file, self.best_model, model)
        _check_optimizer(file, self.optimizer, optimizer, state_names)

    def plan_under(self, options: Mapping[str, Any]) -> list[Any] | None:
        """Return the plan to go on with; with options that it does not follow from, None."""
        return self.plan if _plan_options(self.config) == _plan_options(options) else None

    def management_under(self, options: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return where the management of ``plan_under`` stands; None where nothing goes on."""
        return None if self.plan_under(options) is None else self.management

    def check_progress(
        self, file: Path, config: TrainConfig, options: Mapping[str, Any], *, steps_per_epoch: int
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
            raise foreign(file, f"{self.step} steps in {self.epoch} epochs")
        plan = self.plan_under(options)
        if plan is None:
            return
        try:
            batch_size = DevicePlan.from_values(config.device_plan.parsed(), plan).batch_size
        except ValueError as error:
            raise foreign(file, str(error)) from None
        if batch_size != config.batch_size:
            raise foreign(file, f"its plan shares out {batch_size} seeds")

    @classmethod
    def _of(cls, saved: Mapping[Any, Any]) -> SavedRun:
        """Check the types of all that does not depend on the model."""
        sums, workers = _inside(saved)
        epoch = saved.get("epoch")
        if type(epoch) is not int or epoch < (1 if sums is None else 0):
            raise ValueError(f"{shown(epoch)} epochs")
        last = _records(saved.get("records"), epoch, behind=sums is None)
        step, rng = saved.get("step"), saved.get("torch_rng")
        if type(step) is not int or not 0 < step < 2**63:
            raise ValueError(f"{shown(step)} steps")
        if not isinstance(rng, Tensor):
            raise ValueError("no state of the random generator")
        try:
            torch.Generator().set_state(rng)
        except (RuntimeError, TypeError):
            raise ValueError("no state of the random generator") from None
        plan = saved.get("plan")
        if plan is not None and not isinstance(plan, list):
            raise ValueError("no device plan")
        management = saved.get("management")
        return cls(
            epoch=epoch,
            step=step,
            model=_tensors(saved.get("model"), str),
            best_model=_tensors(saved.get("best_model"), str),
            optimizer={
                key: _tensors(each, str)
                for key, each in _mapping(saved.get("optimizer"), int).items()
            },
            torch_rng=rng,
            records=last,
            sums=sums,
            workers=workers,
            plan=plan,
            management=None if management is None else _plain(management, "resource management"),
            config=_plain(saved.get("config"), "options"),
            graph=_plain(saved.get("graph"), "graph"),
        )


def check_weights(file: Path, weights: Any, model: nn.Module) -> dict[str, Tensor]:
    """Return ``weights``, refused where they are not those of ``model``.

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
            shape = list(found.shape) if isinstance(found, Tensor) else shown(found)
            raise ConfigError(
                f"{file}: not weights of this model ({name} is {shape}, not {list(tensor.shape)})"
            )
    return dict(weights)


def _check_optimizer(
    file: Path,
    state: Mapping[int, Mapping[str, Tensor]],
    optimizer: torch.optim.Optimizer,
    names: frozenset[str],
) -> None:
    """Refuse a state that does not fit: an update reads it without looking at its size."""
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    for number, kept in state.items():
        if not 0 <= number < len(parameters) or not (kept.keys() == names or not kept):
            raise foreign(file, "the optimizer's state is another's")
        for name, tensor in kept.items():
            like = torch.empty(()) if name == "step" else parameters[number]
            if (tensor.shape, tensor.dtype) != (like.shape, like.dtype):
                raise foreign(file, f"the optimizer's {name} is {list(tensor.shape)}")


def _plan_options(options: Mapping[str, Any]) -> tuple[Any, ...]:
    """The options that a plan follows from: a run that is resumed with others plans anew."""
    prefetch = options.get("runtime", {}).get("prefetch")
    names = ("device_plan", "num_threads", "cache_plan", "cache_planner", "features")
    return prefetch, *(options.get(name) for name in names)


def _inside(saved: Mapping[Any, Any]) -> tuple[EpochSums | None, list[WorkerPart]]:
    """Return the sums and the workers' parts of a checkpoint inside an epoch."""
    sums, workers = saved.get("sums"), saved.get("workers")
    if not isinstance(workers, list) or bool(workers) != (sums is not None):
        raise ValueError("no parts of its workers")
    found = None if sums is None else EpochSums.from_values(sums)
    return found, [WorkerPart.of(each) for each in workers]


def _records(values: Any, epoch: int, *, behind: bool) -> list[EpochRecord]:
    """Return the records of the last epochs; ``behind`` an epoch, its own is not validated."""
    if not isinstance(values, list) or not int(behind) <= len(values) <= epoch:
        raise ValueError("no records of its epochs")
    found = [EpochRecord.from_dict(each) for each in values]
    for number, record in enumerate(found, start=epoch - len(found) + 1):
        check_record(record, number)
    last = found[-1] if behind else None
    if last is not None and (
        last.valid_metric is not None or last.valid_metrics or last.eval_time_s is not None
    ):
        raise ValueError(f"record of epoch {epoch}")
    return found


def _mapping(value: Any, key: type) -> dict[Any, Any]:
    if not isinstance(value, dict) or not all(type(each) is key for each in value):
        raise ValueError(f"{shown(type(value).__name__)} in place of a mapping")
    return value


def _tensors(value: Any, key: type) -> dict[Any, Tensor]:
    found = _mapping(value, key)
    if not all(isinstance(each, Tensor) for each in found.values()):
        raise ValueError("something else in place of a tensor")
    return found


def _plain(value: Any, what: str) -> dict[str, Any]:
    """Return a mapping that JSON could hold: nothing in it behaves in ways of its own."""
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        raise ValueError(f"no {what}") from None
    return _mapping(value, str)


def foreign(file: Path, reason: str) -> ConfigError:
    """Return the error of a checkpoint with something in it that its run cannot have written."""
    return ConfigError(f"{file}: not a checkpoint of this run ({reason})")
