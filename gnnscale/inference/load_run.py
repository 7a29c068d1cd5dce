"""Options and task of a run, read from its directory."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import OmegaConf

from gnnscale.core import ConfigError, IntArray, brief
from gnnscale.core.config import run_directory, untrusted, user_code
from gnnscale.graph import Graph
from gnnscale.run import artifacts, check_features
from gnnscale.run.config import RunConfig, parse_run_options, run_option_names
from gnnscale.run.tasks.base import Task
from gnnscale.run.tasks.links import read_candidates
from gnnscale.run.tasks.options import LinkPrediction
from gnnscale.sampling import Sampler, SamplerConfig

_LOG = logging.getLogger(__name__)

#: Option groups that inference uses, the last only with the run's own graph. Losses and observers
#: are not imported.
_USED = ("model.", "task.", "dataset.")
#: Class that replaces a custom sampler during validation of the options.
_ALL_NEIGHBORS = "gnnscale.sampling.neighbor.NeighborSampling"


def load_run(
    run: Path,
    overrides: Mapping[str, Any] | None = None,
    *,
    in_program: bool = False,
    own_graph: bool = True,
    measures: bool = False,
) -> RunConfig:
    """Return the options of the run in directory ``run``.

    The user's code is imported only if ``overrides`` names it again, such as the sampler for
    sampled inference.

    Args:
        run: the run directory.
        overrides: options that the user has named again, by dotted names.
        in_program: whether the caller is ``gnnscale.load``, which changes the hints in errors.
        own_graph: whether the caller opens the run's own graph. Otherwise code and paths in the
            run's ``dataset`` options, which are then unused, are not refused.
        measures: whether the run's metrics are needed. Otherwise custom metrics, which are code,
            are dropped unless ``overrides`` names them.

    Raises:
        ConfigError: the directory has no training run; or its ``config.yaml`` is not valid, or
            names code or a path that is untrusted and that ``overrides`` does not name.
    """
    file = run / run_directory.CONFIG_FILE
    overrides = overrides or {}
    values = run_directory.read_run(run, run_option_names(), option="run")
    untrusted.check_run_options(
        values,
        RunConfig,
        directory=run,
        overrides=overrides,
        in_program=in_program,
        used=(*(_USED if own_graph else _USED[:-1]), *(("metrics",) if measures else ())),
    )
    sampler = _drop_code(values, overrides)
    if "model.module" in overrides and "module" not in values.get("model", {}):
        raise ConfigError("model.module: the run trained a model of gnnscale, and needs no module")
    options = OmegaConf.create(values)
    for option, value in overrides.items():
        OmegaConf.update(options, option, value)
    try:
        config = parse_run_options(options)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None
    if sampler is None:
        return config
    return replace(config, sampler=_NotImported(name=sampler, layers=config.model.num_layers))


@dataclass(frozen=True, kw_only=True)
class _NotImported(SamplerConfig):
    """Stand-in for a run's custom sampler that is not imported; sampling raises ConfigError."""

    name: str = field(metadata=untrusted.names("text"))
    layers: int

    @property
    def num_layers(self) -> int:
        """Number of layers of the model."""
        return self.layers

    def sampler(self, graph: Graph, *, seed: int, num_threads: int) -> Sampler:
        """Raise ConfigError: a custom sampler is imported only if the user names it."""
        raise ConfigError(
            "sampler: expected the name of the run's custom sampler, as code from a run directory "
            f"is not imported; set sampler._target_={self.name}, or inference=exact"
        )


def _drop_code(values: dict[str, Any], overrides: Mapping[str, Any]) -> str | None:
    """Remove the user's code from ``values``; code that ``overrides`` names stays, and is allowed.

    Returns:
        The class path of a removed sampler; None if the sampler is of gnnscale or is named again.
    """
    targets = {group: f"{group}._target_" for group in user_code.GROUPS}
    user_code.allow(str(overrides[name]) for name in targets.values() if name in overrides)
    if "metrics" not in overrides and isinstance(values.get("metrics"), list):
        values["metrics"] = [name for name in values["metrics"] if not user_code.is_name(name)]
    sampler = None
    for group in targets:
        options = values.get(group)
        name = options.get("_target_") if isinstance(options, dict) else None
        if not user_code.is_name(name) or name in user_code.allowed():
            continue
        del values[group]
        if group == "sampler":
            sampler = str(name)
            model = values.get("model")
            num_layers = model.get("num_layers") if isinstance(model, dict) else None
            fanouts = [-1] * (num_layers if isinstance(num_layers, int) else 1)
            values[group] = {"_target_": _ALL_NEIGHBORS, "fanouts": fanouts}
    return sampler


def open_run_task(run: RunConfig, directory: Path | None = None, *, ranks: bool = False) -> Task:
    """Open a run's graph and task; write the task's edge split again if missing.

    Args:
        run: options of the run.
        directory: the run directory, if its options were read there.
        ranks: whether edges are ranked, for which the candidates are read.

    Raises:
        ConfigError: the graph store is missing, or does not fit the options.
        GraphError: the graph store is damaged.
    """
    file = None if directory is None else directory / run_directory.CONFIG_FILE
    if file is not None:
        run_directory.check_store_of_run(file, run.dataset.store)
    if not ranks and isinstance(run.task, LinkPrediction):
        unread: dict[str, Any] = dict.fromkeys(("candidates", "candidate_column", "candidate_kind"))
        run = replace(run, task=replace(run.task, **unread))
    graph = run.dataset.open()
    check_features(run.features, graph)
    links = artifacts.make_links(run.task_inputs, graph)
    try:
        return artifacts.open_task(run.task_inputs, () if links is None else (links,), graph)
    except ConfigError as error:
        if file is None:
            raise
        raise ConfigError(f"{file}: {error}") from None  # the option was read there


def run_candidates(run: RunConfig, directory: Path, graph: Graph) -> IntArray | None:
    """Return the ascending vertices of ``graph`` that a run of links has as candidates.

    None: all vertices (with types, of the destination type), or those of several kinds, of which a
    warning tells. ConfigError: the file of the candidates is missing.
    """
    task = run.task
    if not isinstance(task, LinkPrediction):
        return None
    if task.candidates is None and task.candidate_column is None:
        return None
    selection = task.candidates, task.candidate_column, task.candidate_kind
    try:
        edge_type = task.edge_type_in(graph)
        candidates, _ = read_candidates(*selection, graph, run.dataset, edge_type)
    except ConfigError as error:
        raise ConfigError(f"{directory / run_directory.CONFIG_FILE}: {error}") from None
    if len(candidates.offsets) > 2:
        _LOG.warning(
            "partners are of every kind, and the run was trained with candidates of its own "
            f"({brief(task)}); candidates=FILE names those to list"
        )
        return None
    _LOG.info(f"partners are among the {len(candidates.vertices):,} candidates of the run")
    return np.sort(candidates.vertices)


def with_inference(run: RunConfig, inference: str | None, num_threads: int) -> RunConfig:
    """Return ``run`` with another inference mode (None: the run's own) and number of threads."""
    runtime = replace(run.runtime, inference=inference or run.runtime.inference)
    return replace(run, num_threads=num_threads, runtime=runtime)
