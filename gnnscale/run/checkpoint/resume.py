"""Conditions under which a run resumes from a checkpoint, and the epochs that it continues."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from gnnscale.core import ConfigError, brief
from gnnscale.core.config import METRICS_FILE, current_path, differences, is_moved
from gnnscale.distributed.process_group import Group, all_gather_object
from gnnscale.features import (
    DiskFeaturesConfig,
    HostFeaturesConfig,
    PreaggregatedFeaturesConfig,
    SharedFeaturesConfig,
)
from gnnscale.graph import Graph
from gnnscale.nn import TrainableModel
from gnnscale.nn.optim import OptimizerConfig
from gnnscale.planner import DevicePlanConfig
from gnnscale.run.checkpoint import LAST
from gnnscale.run.checkpoint.file import ADDED_OPTIONS, FREE_OPTIONS, PLAN_OPTIONS, check_same_graph
from gnnscale.run.checkpoint.reader import (
    SavedRun,
    find_progress,
    is_validation_of,
    read_history,
)
from gnnscale.run.records import EpochRecord

#: Stores of the graph's own features.
_GRAPH_FEATURES = (
    *(DiskFeaturesConfig, HostFeaturesConfig),
    *(PreaggregatedFeaturesConfig, SharedFeaturesConfig),
)


@dataclass(frozen=True, kw_only=True)
class RunIdentity:
    """Options and graph of a run, to which its checkpoint must belong."""

    options: Mapping[str, Any]  #: the run's options as plain values
    optimizer: OptimizerConfig
    device_plan: DevicePlanConfig
    batch_size: int  #: seeds of a mini-batch, summed over the devices
    graph: Graph  #: the training graph
    partition: str | None = None  #: hash of the partition, if it determines the order of seeds
    candidates: str | None = None  #: hash of the candidates of link prediction; None: all vertices

    @property
    def data(self) -> dict[str, Any]:
        """Identity of the graph, with hashes of partition and link-prediction candidates."""
        candidates = {} if self.candidates is None else {"candidates": self.candidates}
        return {**graph_identity(self.graph), "partition": self.partition, **candidates}

    def load(
        self,
        file: Path,
        content: bytes,
        model: TrainableModel,
        optimizer: torch.optim.Optimizer,
        steps_per_epoch: int,
    ) -> SavedRun:
        """Read the checkpoint in ``content``; ConfigError if it does not belong to this run."""
        saved = SavedRun.load(file, content)
        check_same_run(file, saved, config=self.options, graph=self.data)
        saved.check_tensors(file, model, optimizer, self.optimizer.state_names)
        devices, size = self.device_plan.parsed(), self.batch_size
        saved.check_progress(file, self.options, devices, size, steps_per_epoch=steps_per_epoch)
        return saved


def check_not_begun(directory: Path, group: Group, *, restarts: bool, writes: bool) -> None:
    """Raise ConfigError in every process if a machine's directory shows a finished epoch.

    ``restarts``: torchrun restarts the run, and records of epochs do not count. ``writes``: the run
    writes checkpoints, as the error says.
    """
    progress = None
    if group.local_rank == 0:
        # A restart may follow the loss of the machine with the only checkpoint.
        progress = find_progress(directory, in_records=not restarts)
    progresses = [file for file in all_gather_object(progress, group) if file is not None]
    if not progresses:
        return
    if writes:
        missing = f"{LAST} is missing; copy it to {LAST.parent} of this folder"
    else:
        missing = "runtime.checkpoint=false wrote no checkpoint; leave it as it is"
    raise ConfigError(
        f"resume={directory}: {progresses[0]}, and {missing}, or train in another folder"
    )


def check_same_run(
    file: Path, saved: SavedRun, *, config: Mapping[str, Any], graph: Mapping[str, Any]
) -> None:
    """Raise ConfigError if the plain options or the graph's identity differ from a checkpoint's."""
    check_same_options(file, saved.config, config=config)
    divided = "valid_fraction" in config.get("task", {})
    check_same_graph(file, saved.graph, graph=graph, option="resume", divided=divided)


def check_same_options(file: Path, saved: Mapping[str, Any], *, config: Mapping[str, Any]) -> None:
    """Raise ConfigError for the first option of ``config`` that differs from those in ``file``.

    Options that only affect length, paths and speed may differ. If the run is and was
    ``runtime.deterministic``, options that determine plans must be equal, too. ``config`` and
    ``saved``, the content of the file, are plain values.
    """
    free = FREE_OPTIONS
    if config.get("optimizer", {}).get("schedule") == "cosine":
        # The cosine schedule spans all epochs: another number of epochs changes every step.
        free = tuple(option for option in free if option != "epochs")
    if _replaces_features(config) or _replaces_features(saved):
        free = tuple(option for option in free if option != "features")
    if _is_deterministic(config) and _is_deterministic(saved):
        free = tuple(option for option in free if option not in PLAN_OPTIONS)
    for option, new, old in differences(config, saved, ignore=free):
        if old is None and ADDED_OPTIONS.get(option) == new:
            continue
        if is_moved(new, old):
            continue
        if isinstance(old, str) and new == os.path.abspath(old):  # of an earlier release
            continue
        raise ConfigError(
            f"resume: {brief(option)} is {brief(new)}, but {file} was written with {brief(old)}"
        )


def _is_deterministic(options: Mapping[str, Any]) -> bool:
    runtime = options.get("runtime")
    return isinstance(runtime, Mapping) and runtime.get("deterministic") is True


def _replaces_features(options: Mapping[str, Any]) -> bool:
    """Whether a run reads learned or structural rows instead of the graph's features."""
    features = options.get("features")
    target = features.get("_target_", "") if isinstance(features, Mapping) else ""
    name = current_path(str(target)).rpartition(".")[2]
    return bool(name) and name not in {store.__name__ for store in _GRAPH_FEATURES}


def epochs_before(directory: Path, saved: SavedRun) -> tuple[list[EpochRecord], EpochRecord | None]:
    """Return the records of the epochs before a checkpoint, and the epoch that lacks validation.

    The second is None if the last epoch was validated, or if the checkpoint is inside an epoch.
    ConfigError if ``metrics.jsonl`` lacks an epoch before the checkpoint.
    """
    recorded = list(islice(read_history(directory), saved.epoch))
    first = saved.epoch - len(saved.records)
    if len(recorded) < first:
        raise ConfigError(
            f"{directory / METRICS_FILE}: expected epochs 1 to {first} before {LAST}, got "
            f"{len(recorded)}; copy it with the run directory"
        )
    if saved.sums is not None:
        return [*recorded[:first], *saved.records], None
    *records, last = saved.records
    validated = [*recorded[:first], *records]
    if len(recorded) == saved.epoch and is_validation_of(last, recorded[-1]):
        return [*validated, recorded[-1]], None
    return validated, last


def describe_position(saved: SavedRun, steps_per_epoch: int, epochs: int) -> str:
    """Return the position of a checkpoint in the run, such as ``after epoch 3 of 10``."""
    if saved.sums is None:
        return f"after epoch {saved.epoch} of {epochs}"
    return (
        f"after step {saved.sums.num_batches} of {steps_per_epoch} in epoch {saved.epoch + 1} "
        f"of {epochs}"
    )


def graph_identity(graph: Graph) -> dict[str, Any]:
    """Return the identity of a graph in a checkpoint: name, sizes and content hash."""
    return {
        "name": graph.name,
        "num_vertices": graph.num_vertices,
        "num_edges": graph.num_edges,
        "num_features": graph.num_features,
        "num_classes": graph.num_classes,
        "num_train": len(graph.train_idx),
        "content": graph.content,
    }
