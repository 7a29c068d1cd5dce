"""A process that ``torchrun`` started, on one machine or on several, as a worker of the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gnnscale.plan.device import process_group_backend
from gnnscale.runtime.pipeline.repeatable import fix_instruction_set
from gnnscale.runtime.settings import TrainConfig
from gnnscale.runtime.sync.group import join_torchrun
from gnnscale.runtime.telemetry.records import Observer, TrainResult
from gnnscale.runtime.train import train

__all__ = ["train_other_rank", "train_rank0"]


class _Nobody(Observer):
    """The observer of a worker that is not rank 0, and is never called."""


def train_other_rank(
    config: TrainConfig, directory: Path, *, options: dict[str, Any], job: int = 0
) -> None:
    """Train the part of a process other than the first; nothing is reported or written here."""
    train_rank0(config, directory, _Nobody(), options=options, job=job)


def train_rank0(
    config: TrainConfig,
    directory: Path,
    observer: Observer,
    *,
    options: dict[str, Any],
    job: int = 0,
) -> TrainResult:
    """Train the part of the device whose position in the plan is this process's rank.

    ``torchrun`` starts the processes and ends them all when one fails. ``num_threads`` counts the
    threads of one machine. The observer receives all events where this is rank 0. ``job`` is the
    number of the run in its sweep.

    Raises:
        ConfigError: what ``train`` raises, or another number of processes than devices.
        PeerLostError: another process is gone.
    """
    if config.runtime.deterministic:
        fix_instruction_set()
    devices = config.device_plan.parsed()
    backend = process_group_backend(devices)
    with join_torchrun(len(devices), backend=backend, job=job) as group:
        return train(
            config,
            directory,
            observer,
            options=options,
            group=group,
        )
