"""Runtime phase: training, the trained model, and its files (HitGNN, Listing 1)."""

import hashlib
import io
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from omegaconf import OmegaConf
from torch.nn import Module

from gnnscale.api.hitgnn import design
from gnnscale.api.hitgnn.design import OptionGroup, OwnerFunction, check_option_group, choose
from gnnscale.api.hitgnn.hardware import Runtime
from gnnscale.api.trained_run import TrainedRun
from gnnscale.core import ConfigError, brief, home, standard_arithmetic, write_atomically
from gnnscale.core.config import is_of_program, load_call, refuse_while_importing, separate_hydra
from gnnscale.core.config.repeat import repeat_command, with_absolute_paths
from gnnscale.core.config.run_directory import CONFIG_FILE, create_run_directory, read_run
from gnnscale.core.errors import is_interrupted
from gnnscale.core.process import SharedSetting
from gnnscale.data import GraphSource
from gnnscale.features import FeatureStoreConfig
from gnnscale.inference.trained_model import load_trained
from gnnscale.nn import ModelConfig, TrainableModel
from gnnscale.partition import FromFile, PartitionerConfig, simple
from gnnscale.planner import DevicePlanConfig
from gnnscale.report.formatting import least_real
from gnnscale.report.run_report import train_and_report
from gnnscale.run import Observer, ObserverError, TrainResult, parse_run_options, run_option_names
from gnnscale.training.launcher.launch import launch

log = logging.getLogger(__name__)


def _show_log() -> Callable[[], None]:
    """Let the package log its INFO lines; return a function that restores the previous state.

    The lines go to standard error, unless the program has handlers of ``logging``, which get them.
    """
    package, root = logging.getLogger("gnnscale"), logging.getLogger()
    level = package.level
    # Handlers of the program print the lines themselves. A daemon has no stderr.
    has_output = root.handlers or package.handlers or sys.stderr is None
    handler = None if has_output else logging.StreamHandler(sys.stderr)
    if not package.isEnabledFor(logging.INFO):
        package.setLevel(logging.INFO)
    if handler is not None:
        handler.setFormatter(logging.Formatter("%(message)s"))
        package.addHandler(handler)

    def undo() -> None:
        package.setLevel(level)
        if handler is not None:
            package.removeHandler(handler)

    return undo


_SHOWN_LOG = SharedSetting(_show_log)


def shown_log(shows: bool) -> AbstractContextManager[None]:
    """Return a block within which, if ``shows``, logged lines appear on standard error."""
    return _SHOWN_LOG.active() if shows else nullcontext()


@dataclass(frozen=True, kw_only=True)
class Training:
    """Result of ``start_training``: the trained model, the run directory and metrics."""

    model: TrainableModel = field(repr=False)  #: with the weights of the best epoch
    directory: Path  #: the run directory
    result: TrainResult = field(repr=False)  #: epochs, device plan and metrics

    @property
    def losses(self) -> list[float]:
        """Mean training loss of every epoch."""
        return [epoch.train_loss for epoch in self.result.history]

    @property
    def metrics(self) -> list[float | None]:
        """Validation metric of every epoch. None: undefined, or the epoch was not validated."""
        return [epoch.valid_metric for epoch in self.result.history]

    @property
    def test_metric(self) -> float | None:
        """Test metric of ``model``. None: undefined, or not measured."""
        return self.result.test_metric

    @property
    def figures(self) -> str:
        """Origin of the run's times, by its least real device: measured, emulated or csim."""
        return least_real(share.device.figures for share in self.result.plan.shares)


def load_input_graph(
    dataset: str, path: str | Path | None = None, **options: Any
) -> OptionGroup[GraphSource]:
    """Name the input graph (``Load_Input_Graph``); training reads it when it starts.

    Args:
        dataset: a file layout or a generator, as ``dataset=`` on the command line.
        path: the file or folder. None: download from a known address, or generate.
        **options: options of the dataset, such as ``name``.
    """
    raw = {} if path is None else {"raw": str(path)}
    return choose("dataset", dataset, GraphSource, {**raw, **options})


def start_training(
    model: OptionGroup[ModelConfig] | Runtime,
    graph: OptionGroup[GraphSource],
    platform: OptionGroup[DevicePlanConfig] | None = None,
    *,
    partition: OptionGroup[PartitionerConfig] | OwnerFunction | None = None,
    features: OptionGroup[FeatureStoreConfig] | None = None,
    epochs: int | None = None,
    options: Mapping[str, Any] | None = None,
    directory: str | Path | None = None,
    resume: str | Path | None = None,
    observers: Sequence[Observer] = (),
) -> Training:
    """Train as ``gnnscale train`` does (``Start_training``).

    Args:
        model: result of ``gnn_model``; or the runtime of ``generate_design``, with its model,
            platform and options.
        graph: result of ``load_input_graph``.
        platform: result of ``platform_metadata``. None: one processor, or the runtime's platform.
        partition: result of ``graph_partition``. None: no partition.
        features: result of ``feature_storing``. None: host memory.
        epochs: passes over the training vertices. None: the default.
        options: further options by their names on the command line, such as ``{"optimizer": "sgd",
            "optimizer.lr": 0.1}``.
        directory, resume, observers: as in ``gnnscale.train``, as are the errors.
    """
    if isinstance(model, Runtime):
        if platform is not None:
            raise ConfigError("platform: expected None, since the runtime has its platform")
        options = {**model.options, **(options or {})}
        platform, model = model.platform, model.model
    _check_groups(model, graph, platform, partition, features)
    groups: list[OptionGroup[Any]] = [model, graph]
    groups += [group for group in (platform, features) if group is not None]
    if isinstance(partition, OwnerFunction):
        num_parts = len(platform.config.devices) if platform is not None else 1
        with standard_arithmetic():
            groups.append(_save_owners(partition, graph.config, num_parts))
    elif partition is not None:
        groups.append(partition)
    options = dict(options or {}) | ({} if epochs is None else {"epochs": epochs})
    trained_run, result = run(
        groups, options, directory=directory, resume=resume, observers=observers
    )
    with standard_arithmetic(), torch.random.fork_rng(devices=[]):
        trained = load_trained(trained_run.directory, trained_run.config)
    return Training(model=trained.model.eval(), directory=trained_run.directory, result=result)


def _check_groups(
    model: object, graph: object, platform: object, partition: object, features: object
) -> None:
    """Raise ConfigError unless each argument is a result of its function, such as ``gnn_model``.

    ``platform``, ``partition`` and ``features`` may be None, ``partition`` an ``OwnerFunction``.
    """
    check_option_group("model", model, "model")
    check_option_group("graph", graph, "dataset")
    partition = None if isinstance(partition, OwnerFunction) else partition
    further = {"platform": platform, "features": features, "partition": partition}
    groups = {"platform": "device_plan", "features": "features", "partition": "partitioner"}
    for argument, value in further.items():
        if value is not None:
            check_option_group(argument, value, groups[argument])


def run(
    groups: Sequence[OptionGroup[Any]],
    options: Mapping[str, Any],
    *,
    directory: str | Path | None,
    resume: str | Path | None,
    observers: Sequence[Observer] = (),
    job: int | None = None,
) -> tuple[TrainedRun, TrainResult]:
    """Train as ``start_training`` does; return the run and its result.

    ``groups`` are complete option groups, ``options`` all other options by their names on the
    command line, ``job`` the run's number in a sweep.
    """
    refuse_while_importing()
    options, objects = design.name_code(options)
    groups = [*groups, *objects]
    if resume is not None:
        # The options are those of this call; training refuses a checkpoint with other options.
        read_run(Path(resume), run_option_names(), option="resume")
        options["resume"] = str(Path(resume).absolute())
    with separate_hydra():
        node, hydra = design.compose_run(groups, options)
        if job is not None:
            hydra.job.num = job
        config = parse_run_options(node)
        values: Any = OmegaConf.to_container(node, resolve=True)
        run_directory = resume or directory or hydra.run.dir
    config = replace(config, **{group.group: group.config for group in groups})
    if not config.runtime.checkpoint:
        raise ConfigError("runtime.checkpoint=false: expected true; its model is returned")
    values |= {group.group: group.values for group in groups if group.values} | {"resume": None}
    values = with_absolute_paths(values, type(config))
    # No file has a module that a program has built.
    repeats = resume is None and not isinstance(getattr(config.model, "module", None), Module)
    fresh, option = resume is None, "directory" if resume is None else "resume"
    with create_run_directory(run_directory, node, hydra, fresh=fresh, option=option) as folder:
        trained_run = TrainedRun(directory=folder, config=config)
        command = repeat_command(folder, values, type(config)) if repeats else None
        result = _train(trained_run, values, observers, command)
        if is_of_program(values["model"].get("module")):
            log.info(f"{load_call(folder, values)} opens the run again")
    return trained_run, result


def _train(
    run: TrainedRun, values: dict[str, Any], observers: Sequence[Observer], command: str | None
) -> TrainResult:
    """Train ``run`` with the plain options ``values``; ``command``, if any, repeats it.

    An observer's exception is raised as it is. After a failure, the log says how to continue.
    """
    config, folder = run.config, run.directory
    log.info(f"run directory: {folder}")
    try:
        return train_and_report(
            partial(launch, config, folder, options=values),
            folder,
            report_options=config.report_options,
            options=values,
            observers=observers,
            command=command,
        )
    except ObserverError as error:
        _tell_directory(folder, "ended by an observer", logging.INFO)
        if error.of_logger:
            raise
        raised = error.raised
    except BaseException as error:
        status = "interrupted" if is_interrupted(error) else "failed"
        _tell_directory(folder, status, logging.WARNING)
        raise
    raise raised  # outside of the except block, so that the exception gets no context


def _tell_directory(folder: Path, status: str, level: int) -> None:
    """Log how to continue a run that has ended early, unless it was refused before it started."""
    if (folder / CONFIG_FILE).exists():
        line = f"{status}; gnnscale.train(..., resume={str(folder)!r}) continues the run"
        log.log(level, line)


def save_model(training: Training, path: str | Path) -> None:
    """Write the trained weights to a safetensors file (``Save_model``).

    Args:
        training: result of ``start_training``.
        path: the file; ``model.load_state_dict(safetensors.torch.load_file(path))`` reads it.
    """
    if not isinstance(training, Training):
        raise ConfigError(f"training={brief(training)}: expected the result of start_training")
    weights = {name: value.clone() for name, value in training.model.state_dict().items()}
    write_atomically(Path(path), safetensors.torch.save(weights))


def _save_owners(
    owners: OwnerFunction, dataset: GraphSource, num_parts: int
) -> OptionGroup[PartitionerConfig]:
    """Call the user's function, and return options of a partitioner that reads its stored result.

    The function returns the device, of ``num_parts``, of each vertex.
    """
    graph = dataset.open()
    owner_ids = owners.function(graph, num_parts)
    source = f"graph_partition: {getattr(owners.function, '__name__', 'the function')}"
    content = io.BytesIO()
    np.save(content, simple.check_owners(owner_ids, graph, num_parts, source=source))
    folder = home() / "owners"
    folder.mkdir(parents=True, exist_ok=True)
    # The name is a hash of the content, so that equal owners give the same partition.
    digest = hashlib.blake2b(content.getvalue(), digest_size=16).hexdigest()
    file = folder / f"{digest}.npy"
    write_atomically(file, content.getvalue(), shared=True)
    target = {"_target_": design.class_path(FromFile)}
    values = {**target, "num_parts": None, "store": None, "owners": str(file)}
    return OptionGroup(group="partitioner", config=FromFile(owners=str(file)), values=values)
