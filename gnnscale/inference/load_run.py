"""What is left of a run: its options, its task, and its model with the best weights."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf

from gnnscale.core import ConfigError, shown
from gnnscale.core.config import run_directory, user_code
from gnnscale.core.config import untrusted as found
from gnnscale.core.config.typed import typed
from gnnscale.features import LearnedFeaturesConfig
from gnnscale.graph import Graph
from gnnscale.nn import ModelConfig, TrainableModel
from gnnscale.nn.learned_embeddings import LearnedEmbedding
from gnnscale.nn.link_decoder import LinkGNN
from gnnscale.nn.optim.sparse import ROW_OPTIMIZERS
from gnnscale.nn.options import CustomModel
from gnnscale.run import artifacts as artefacts
from gnnscale.run.checkpoint import BEST, SIGNATURE
from gnnscale.run.checkpoint import file as files
from gnnscale.run.checkpoint import reader as saved_run
from gnnscale.run.checkpoint.input_schema import InputSchema, read_input_schema
from gnnscale.run.checkpoint.writer import graph_identity
from gnnscale.run.config import RunConfig
from gnnscale.run.inputs import check_features, graph_read, with_features
from gnnscale.run.tasks.base import Task
from gnnscale.run.tasks.options import LinkPrediction
from gnnscale.sampling import Sampler, SamplerConfig

#: Groups of a run's options that are used after it, the last only with the run's own graph. Losses
#: and observers stay what they are, names.
_USED = ("model.", "task.", "dataset.")
#: Stands for a sampler that is not imported while the other options are checked.
_ALL_NEIGHBORS = "gnnscale.sampling.neighbor.NeighborSampling"


def load_run(
    run: Path,
    given: Mapping[str, Any] | None = None,
    *,
    in_program: bool = False,
    own_graph: bool = True,
    measures: bool = False,
) -> RunConfig:
    """Read the options that the run in directory ``run`` was started with.

    Args:
        given: options that the user named again, by their dotted names.
        in_program: whether ``gnnscale.load`` was given ``run``, and no command, for errors.
        own_graph: whether the run's own graph may be opened, so that its places are checked.
        measures: whether what the run measures is measured. Otherwise metrics of the user's, which
            are code, are left out unless ``given`` names them.

    Parts of the run that were the user's code are not imported: nothing uses them after training,
    but the sampler if inference is sampled.

    Raises:
        ConfigError: the directory is none of a training run, or its ``config.yaml`` is not valid,
            or names code or a place that it may not, and that ``given`` does not name again.
    """
    file = run / run_directory.CONFIG_FILE
    known = {each.name for each in fields(RunConfig)}
    given = given or {}
    values = run_directory.read_run(run, known, option="run")
    found.check_found(
        values,
        RunConfig,
        directory=run,
        given=given,
        in_program=in_program,
        used=(*(_USED if own_graph else _USED[:-1]), *(("metrics",) if measures else ())),
    )
    sampler = _leave_out_code(values, given)
    if "model.module" in given and "module" not in values.get("model", {}):
        raise ConfigError("model.module: the run trained a model of gnnscale, and needs no module")
    options = OmegaConf.create(values)
    for option, value in given.items():
        OmegaConf.update(options, option, value)
    try:
        config = typed(options, RunConfig)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None
    if sampler is None:
        return config
    return replace(config, sampler=_NotImported(name=sampler, layers=config.model.num_layers))


@dataclass(frozen=True, kw_only=True)
class _NotImported(SamplerConfig):
    """The sampler of a run, which is code that nobody has named again."""

    name: str = field(metadata=found.names("text"))
    layers: int

    @property
    def num_layers(self) -> int:
        """Those of the model."""
        return self.layers

    def sampler(self, graph: Graph, *, seed: int, num_threads: int) -> Sampler:
        """Refuse to sample."""
        raise ConfigError(
            f"sampler: the run's is code, and nothing is imported because a file that was found "
            f"says so; sampler._target_={self.name} names it again, inference=exact needs none"
        )


def _leave_out_code(values: dict[str, Any], given: Mapping[str, Any]) -> str | None:
    """Remove parts that are the user's code from a run's options, and return its sampler's name.

    The sampler stays, and None is returned, if it is no code, or the user has named it.
    """
    targets = {group: f"{group}._target_" for group in user_code.GROUPS}
    user_code.allow(str(given[target]) for target in targets.values() if target in given)
    if "metrics" not in given and isinstance(values.get("metrics"), list):
        values["metrics"] = [each for each in values["metrics"] if not user_code.is_name(each)]
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


def open_other(run: RunConfig, trained: TrainedModel, graph: Graph) -> Graph:
    """Return a graph that the run was not trained on, with its features as the model reads them.

    Args:
        run: the run's options.
        graph: as it was opened.

    Raises:
        ConfigError: the model learned rows of the vertices that it was trained on; or features are
            not those of the run; or edges
            have weights that the run had not, or the other way round, and the model uses them.
        GraphError: the graph has no features, and the run makes none.
    """
    check_predicts_others(run, trained.signature)
    if trained.model.uses_edge_weights:
        trained.signature.check_weights(graph)
    graph = with_features(run.features, graph, num_threads=run.num_threads)
    return graph_read(run, trained.signature.fitted(graph))


def check_predicts_others(run: RunConfig, signature: InputSchema) -> None:
    """Raise ConfigError if the model learned rows of the vertices that it was trained on."""
    if run.features.learns:
        raise ConfigError(
            f"dataset: the run has learned a row for each vertex of {signature.graph}, and "
            "knows no vertex of another graph; train with features=degrees or with features of "
            "the vertices to predict other graphs"
        )


def open_run_task(run: RunConfig, directory: Path | None = None, *, ranks: bool = False) -> Task:
    """Open what a run predicts; what it needs of its graph is made if it is gone.

    Args:
        run: the run's options.
        directory: of the run, if its options were read there.
        ranks: whether edges are ranked, for which the file of their candidates is read.

    Raises:
        ConfigError: the graph store that they name is gone, or it does not go with them.
        GraphError: it is not usable.
    """
    file = None if directory is None else directory / run_directory.CONFIG_FILE
    if file is not None:
        run_directory.check_store_of_run(file, run.dataset.store)
    if not ranks and isinstance(run.task, LinkPrediction):
        run = replace(run, task=replace(run.task, candidates=None, candidate_column=None))
    graph = run.dataset.open()
    check_features(run.features, graph)
    links = artefacts.make_links(run, graph)
    try:
        return artefacts.open_task(run, () if links is None else (links,), graph)
    except ConfigError as error:
        if file is None:
            raise
        raise ConfigError(f"{file}: {error}") from None  # the option was read there


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainedModel:
    """The model of a run."""

    model: TrainableModel  #: with the weights of ``epoch``
    signature: InputSchema  #: of the graph that it was trained on
    epoch: int  #: the best, from 1
    file: Path  #: the checkpoint
    trained_on: Mapping[str, Any]  #: the graph, as ``graph_identity`` returns it

    def is_weighted(self, run: RunConfig, directory: Path) -> bool:
        """Whether edges of the graph that the model was trained on have weights.

        Args:
            run: the run's options, whose graph is opened if the signature does not say it.
            directory: of the run.

        Raises:
            ConfigError: that graph is needed, and gone.
            GraphError: it is not usable.
        """
        if self.signature.edge_weights is None:
            return open_run_task(run, directory).graph.edge_weights is not None
        return self.signature.edge_weights

    def give_rows(self, graph: Graph) -> None:
        """Let ``graph``, on which the model was trained, have the rows that it learned, if any."""
        rows = self.model.vertex_rows
        if rows is not None:
            # Both then have the same memory, and the file's is free.
            graph.features[...] = rows.weight.numpy()
            rows.weight = torch.nn.Parameter(torch.from_numpy(graph.features), requires_grad=False)

    def check_own(self, graph: Graph) -> None:
        """Refuse ``graph`` unless it is the one that the model was trained on.

        Raises:
            ConfigError: it differs; names in what.
        """
        files.check_same_graph(
            self.file,
            self.trained_on,
            graph=graph_identity(graph),
            option="run",
            divided=isinstance(self.model, LinkGNN),
        )


def load_trained(directory: Path, run: RunConfig, graph: Graph | None = None) -> TrainedModel:
    """Return the model of the run in ``directory``, with its best weights.

    Args:
        run: the run's options.
        graph: that the run samples, if it is open; it gets the rows that the run has learned.
            Without, no graph is needed, unless the run has learned rows, or was trained by a
            release that wrote no signature.

    Raises:
        ConfigError: there is no best checkpoint, or it does not fit the options or the graph.
        GraphError: the run's graph store is needed, and not usable.
    """
    file = directory / BEST
    if not os.path.lexists(file):
        raise ConfigError(f"{file}: no such checkpoint")
    # Learned rows are those of a graph's vertices, of which there are so many.
    needed = graph is not None or run.features.learns
    signature = None if needed else read_input_schema(directory)
    if signature is None:
        graph = open_run_task(run, directory).graph if graph is None else graph
        signature = InputSchema.of(graph, run.task.labels(graph))
    elif not (signature.num_classes or isinstance(run.task, LinkPrediction)):
        raise ConfigError(
            f"{directory / SIGNATURE}: signature.num_classes is 0; a run of labels has some"
        )
    model = _build(run, signature)
    if isinstance(run.features, LearnedFeaturesConfig):
        assert graph is not None
        optimizer = ROW_OPTIMIZERS[run.features.optimizer]
        model.vertex_rows = LearnedEmbedding(torch.from_numpy(graph.features), optimizer)
    best = files.load_checkpoint(file, files.read_checkpoint(file, limit=files.max_bytes(model)))
    epoch = best.get("epoch")
    if type(epoch) is not int:
        raise ConfigError(f"{file}: not weights of a run (its epoch is {shown(epoch)})")
    trained_on = best.get("graph")
    if not isinstance(trained_on, dict):
        raise ConfigError(f"{file}: not weights of a run (its graph is {shown(trained_on)})")
    trained = TrainedModel(
        model=model, signature=signature, epoch=epoch, file=file, trained_on=trained_on
    )
    if graph is not None:
        trained.check_own(graph)
    weights = saved_run.check_weights(file, best.get("model"), model)
    model.load_state_dict(weights, assign=_is_ours(run.model))
    if graph is not None:
        trained.give_rows(graph)
    return trained


def _build(run: RunConfig, signature: InputSchema) -> TrainableModel:
    """Build the run's model, of ours without memory for its weights."""
    # A file that was found says how large they are: nothing is allocated before they are seen.
    place = torch.device("meta") if _is_ours(run.model) else nullcontext()
    with place:
        return run.task.build(
            run.model,
            num_features=signature.num_features,
            num_classes=signature.num_classes,
            num_edge_features=signature.num_edge_features,
        )


def _is_ours(model: ModelConfig) -> bool:
    """Whether no code of a user's builds the model."""
    return not (isinstance(model, CustomModel) or model.only_in_programs)
