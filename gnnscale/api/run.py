"""Training in one call, and what came of a run, whoever started it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gnnscale.api.hitgnn.design import OptionGroup, check_made, own_module
from gnnscale.api.hitgnn.training import as_dataset, as_graph, run, shown_log
from gnnscale.core import (
    Array,
    ConfigError,
    Float32Array,
    check_choice,
    check_range,
    listed_numbers,
    standard_arithmetic,
)
from gnnscale.core.config.run_directory import SUMMARY_FILE
from gnnscale.core.config.user_code import importable_name
from gnnscale.core.config.yaml_file import read_regular
from gnnscale.data.array_inputs import kind_of
from gnnscale.data.tables.selection import find_pairs, find_vertices
from gnnscale.data.tables.vertex_ids import read_ids
from gnnscale.graph import Graph
from gnnscale.inference.evaluate import Evaluation
from gnnscale.inference.evaluate import evaluate as evaluate_run
from gnnscale.inference.export import outputs as answers
from gnnscale.inference.export import weights
from gnnscale.inference.export.predict import EDGES, find_candidates, find_edges
from gnnscale.inference.load_run import (
    TrainedModel,
    load_run,
    load_trained,
    open_other,
    open_run_task,
)
from gnnscale.inference.pair_scoring import EdgePredictor, PairScorer
from gnnscale.inference.predictor import Predictor
from gnnscale.nn import ModelConfig, user_module
from gnnscale.nn.link_decoder import EdgeGNN, LinkGNN
from gnnscale.nn.options import CustomModel
from gnnscale.run import commands as command_options
from gnnscale.run import config as settings
from gnnscale.run.checkpoint import BEST
from gnnscale.run.checkpoint.reader import read_history
from gnnscale.run.records import EpochRecord, Observer, TrainResult, best_epoch

_MAX_SUMMARY_BYTES = 16 << 20
#: Keywords of ``train``, and the options that they are on the command line.
_KEYWORDS = {
    "epochs": "epochs",
    "batch_size": "batch_size",
    "seed": "seed",
    "num_threads": "num_threads",
    "hidden": "model.hidden",
    "num_layers": "model.num_layers",
    "dropout": "model.dropout",
    "fanouts": "sampler.fanouts",
    "lr": "optimizer.lr",
}


#: Epochs that a printed result lists, the last ones.
_LISTED_EPOCHS = 10


@dataclass(frozen=True, kw_only=True, repr=False)
class Result:
    """A run: its figures, its model, and what that says of vertices.

    Attributes:
        directory: the run directory.
        config: the run's options.
        history: a record for each epoch: ``epoch``, ``train_loss``, ``valid_metric`` and others.
        test_metric: under the weights of ``best_epoch``; None if the run did not get there, or
            the metric is not defined.
        metric: what ``valid_metric`` and ``test_metric`` are.
    """

    directory: Path
    config: settings.RunConfig
    history: tuple[EpochRecord, ...]
    test_metric: float | None
    metric: str

    @classmethod
    def of(cls, config: settings.RunConfig, directory: Path, run: TrainResult) -> Result:
        """Return what came of a run that has just ended."""
        return cls(
            directory=directory,
            config=config,
            history=tuple(run.history),
            test_metric=run.test_metric,
            metric=run.metric,
        )

    def __repr__(self) -> str:
        """Return one line: what was trained, how well, and its directory."""
        return (
            f"<gnnscale.Result: {self.config.model.name}, {len(self.history)} epochs, test "
            f"{self.metric} {_figure(self.test_metric)}, directory={str(self.directory)!r}>"
        )

    def __str__(self) -> str:
        """Return a table of the last epochs, the metrics and the directory: half a screen."""
        best = self.best_epoch
        lines = [
            f"{self.config.model.name}: test {self.metric} {_figure(self.test_metric)}, validation "
            f"{_figure(self.valid_metric)}" + ("" if best is None else f", epoch {best}")
        ]
        if self.history:
            shown = self.history[-_LISTED_EPOCHS:]
            lines.append(f"{'epoch':>7}  {'loss':>8}  {'validation':>10}  {'seconds':>7}")
            if len(shown) < len(self.history):
                lines.append(f"{'...':>7}")
            lines += [
                f"{each.epoch:>7}  {each.train_loss:>8.4f}  {_figure(each.valid_metric):>10}  "
                f"{each.epoch_time_s:>7.2f}{'  best' if each.epoch == best else ''}"
                for each in shown
            ]
        return "\n".join([*lines, f"directory: {self.directory}"])

    @property
    def best_epoch(self) -> int | None:
        """The epoch with the best validation metric, from 1; None before the first."""
        return best_epoch(self.history, self.metric)

    @property
    def valid_metric(self) -> float | None:
        """The validation metric of ``best_epoch``, None if it has none."""
        best = self.best_epoch
        return None if best is None else self.history[best - 1].valid_metric

    @property
    def model(self) -> torch.nn.Module:
        """A torch module with the weights of ``best_epoch``, in evaluation mode.

        Raises:
            ConfigError: the run has no such checkpoint.
        """
        model = self._trained.model
        return model.module if isinstance(model, user_module.UserModel) else model

    @cached_property
    @standard_arithmetic()
    def graph(self) -> Graph:
        """The graph that the run samples.

        Raises:
            ConfigError: as ``model`` does, or its store is gone or has changed.
            GraphError: it is not usable.
        """
        graph = open_run_task(self.config, self.directory).graph
        self._trained.check_own(graph)
        self._trained.give_rows(graph)
        return graph

    @standard_arithmetic()
    def predict(
        self,
        vertices: Any = None,
        *,
        graph: Any = None,
        what: str | None = None,
        inference: str = "exact",
    ) -> Array:
        """Return what the model says of ``vertices``, in their order.

        Args:
            vertices: distinct ids, the user's own if the graph has such; ``train``, ``valid`` or
                ``test``; a ``.npy`` file of ids; None for all.
            graph: whose vertices they are, of any kind that ``train`` takes; None for the run's
                own. Its features have to be those that the model was trained on.
            what: ``classes``, ``probabilities`` or ``logits``; None for classes, or for values
                if labels are values.
            inference: ``exact``, over all neighbours; or ``sampled``, as the run's sampler does.

        Returns:
            ``[n]`` int64 classes, or ``[n, num_classes]`` float32. Where a vertex may have several
            classes, they are ``[n, num_classes]`` uint8 zeros and ones.

        Raises:
            ConfigError: an id is no vertex, an option is not one of those above, the features
                of ``graph`` are others, or the run predicts edges or their labels.
            GraphError: the graph, or a file of ids, is not usable.
        """
        if isinstance(self._trained.model, EdgeGNN):
            raise ConfigError("predict: the run predicts labels of edges; use predict_edges")
        if isinstance(self._trained.model, LinkGNN):
            raise ConfigError(
                "predict: the run predicts edges; use scores for pairs and partners for the best "
                "of a vertex, or embeddings(layer=-1) for the rows that they compare"
            )
        what = self._answer(what)
        return self._rows(vertices, graph, layer=-1, what=what, inference=inference)

    @standard_arithmetic()
    def predict_edges(
        self, edges: str = "all", *, pairs: Any = None, graph: Any = None, what: str | None = None
    ) -> Array:
        """Return what the model says of labelled edges, in the order in which they were published.

        Args:
            edges: ``all``, ``train``, ``valid`` or ``test``.
            pairs: ids of sources and targets ``[n, 2]``, or a file of them, in place of the graph's
                edges; not if the model reads features of edges.
            graph: as in ``predict``.
            what: likewise.

        Returns:
            ``[n]`` int64 classes, or ``[n, num_classes]`` float32.

        Raises:
            ConfigError: the run predicts something else, or there are no such edges.
            GraphError: as ``predict`` does.
        """
        check_choice("edges", edges, EDGES)
        model, signature = self._trained.model, self._trained.signature
        if not isinstance(model, EdgeGNN):
            raise ConfigError("predict_edges: labels of edges are those of task=edges")
        what, graph = self._answer(what), self._opened(graph)
        ends, rows = find_edges(edges, pairs, graph, read_ids(graph), signature)
        predictor = EdgePredictor(model, Predictor(model, graph, self.config))
        made = [
            answers.answer(what, outputs, multilabel=False)
            for outputs in predictor.outputs(ends, rows, graph.edge_features)
        ]
        return np.concatenate(made)

    def _answer(self, what: str | None) -> str:
        """Return what is made of outputs: what was asked for, or what the labels are."""
        signature = self._trained.signature
        answers.check_labels(what, signature)
        return answers.VALUES if signature.regression else what or "classes"

    @standard_arithmetic()
    def embeddings(
        self, vertices: Any = None, *, graph: Any = None, layer: int = -2
    ) -> Float32Array:
        """Return the rows of a hidden layer, over all neighbours, as the next layer sees them.

        Args:
            vertices: as in ``predict``.
            graph: likewise.
            layer: counted from the end: -2 is the layer before the last.

        Returns:
            ``[n, hidden]`` float32, in the order of ``vertices``.

        Raises:
            ConfigError: an id is no vertex, or the model has no such layer.
            GraphError: as ``predict`` does.
        """
        what = answers.EMBEDDINGS
        return self._rows(vertices, graph, layer=layer, what=what, inference="exact")

    @standard_arithmetic()
    def scores(self, pairs: Any, *, graph: Any = None) -> Float32Array:
        """Return the scores of edges that might be, of a run that predicts edges.

        Args:
            pairs: ids of sources and targets ``[n, 2]``, or a file of them, as ``pairs`` of
                ``gnnscale predict``.
            graph: as in ``predict``.

        Returns:
            ``[n]`` float32; the higher, the likelier.

        Raises:
            ConfigError: the run predicts vertices, or an id is no vertex.
            GraphError: as ``predict`` does.
        """
        graph, scorer = self._scorer("scores", graph)
        found = find_pairs(pairs, graph, read_ids(graph))
        return np.concatenate(list(scorer.scores(found)))

    @standard_arithmetic()
    def partners(
        self, vertices: Any = None, k: int = 10, *, candidates: Any = None, graph: Any = None
    ) -> tuple[Array, Float32Array]:
        """Return the ``k`` vertices that an edge most likely leads to, of each of ``vertices``.

        Every candidate is compared, but a vertex with itself.

        Args:
            vertices: as in ``predict``.
            k: how many.
            candidates: as ``vertices``, those that may be partners.
            graph: as in ``predict``.

        Returns:
            Ids ``[n, k]``, best first, and their scores ``[n, k]`` float32.

        Raises:
            ConfigError: the run predicts vertices, an id is no vertex, or a vertex has fewer
                candidates besides itself.
            GraphError: as ``predict`` does.
        """
        check_range("k", k, 1, 1 << 16)
        graph, scorer = self._scorer("partners", graph)
        own = read_ids(graph)
        wanted = find_vertices(vertices, graph, own)
        if wanted is None:
            wanted = np.arange(graph.num_vertices)
        others = find_candidates(candidates, graph, own, wanted, k, option="k")
        parts, scores = zip(*scorer.partners(wanted, others, k), strict=True)
        flat = answers.RowIds(vertices=np.concatenate(parts).reshape(-1), own=own)
        return flat.array(0, len(wanted) * k).reshape(-1, k), np.concatenate(scores)

    def _scorer(self, what: str, given: Any) -> tuple[Graph, PairScorer]:
        model = self._trained.model
        if not isinstance(model, LinkGNN):
            raise ConfigError(f"{what}: the run predicts vertices; edges are those of task=links")
        graph = self._opened(given)
        return graph, PairScorer(model, Predictor(model, graph, self.config), graph)

    def _opened(self, given: Any) -> Graph:
        """Return another graph that is given, whose features fit; or the run's own."""
        if given is None:
            return self.graph
        return open_other(self.config, self._trained, as_graph(given))

    @standard_arithmetic()
    def export(
        self, file: str | Path, *, format: str = "safetensors", force: bool = False
    ) -> weights.ExportedWeights:
        """Write the weights of ``best_epoch``, as ``gnnscale export`` does.

        Args:
            file: to write, ``.safetensors``.
            format: whose names the weights get: ``safetensors`` (our own), ``pyg`` or ``dgl``.
            force: overwrite the file if it exists.

        Returns:
            The file, and a program that loads it.

        Raises:
            ConfigError: the model has no counterpart in the library, or the file exists.
            GraphError: as ``model`` does.
            OSError: the file cannot be written.
        """
        config = weights.ExportConfig(
            run=self.directory, format=format, out=Path(file), force=force
        )
        trained = self._trained
        weighted = trained.is_weighted(self.config, self.directory)
        return weights.export_model(config, self.config.model, trained.model, weighted=weighted)

    def _rows(self, vertices: Any, given: Any, *, layer: int, what: str, inference: str) -> Array:
        check_choice("inference", inference, settings.INFERENCE)
        model, signature = self._trained.model, self._trained.signature
        graph = self._opened(given)
        asked = None if what in (answers.EMBEDDINGS, answers.VALUES) else what
        num_layers = answers.check_layer(
            layer, answers.num_layers_of(model), inference=inference, what=asked
        )
        config = replace(self.config, runtime=replace(self.config.runtime, inference=inference))
        predictor = Predictor(model, graph, config, num_layers=num_layers)
        wanted = find_vertices(vertices, graph, read_ids(graph))
        made = [
            answers.answer(what, rows, multilabel=signature.multilabel)
            for rows in predictor.rows(wanted)
        ]
        return np.concatenate(made)

    @cached_property
    @standard_arithmetic()
    def _trained(self) -> TrainedModel:
        # Building a model draws weights, and the program's random numbers are its own.
        with torch.random.fork_rng(devices=[]):
            trained = load_trained(self.directory, self.config)
        trained.model.eval()
        return trained


def _figure(value: float | None) -> str:
    return "not defined" if value is None else f"{value:.4f}"


def train(
    graph: Any,
    model: str | type[torch.nn.Module] | torch.nn.Module | OptionGroup[Any] = "sage",
    *,
    arguments: Mapping[str, Any] | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    hidden: int | None = None,
    num_layers: int | None = None,
    dropout: float | None = None,
    fanouts: Sequence[int] | None = None,
    lr: float | None = None,
    seed: int | None = None,
    num_threads: int | None = None,
    options: Mapping[str, Any] | None = None,
    directory: str | Path | None = None,
    resume: str | Path | None = None,
    observers: Sequence[Observer] = (),
    progress: bool = False,
) -> Result:
    """Train as ``gnnscale train`` does, with its defaults, errors and run directory.

    Args:
        graph: a ``Graph``; a PyG ``Data`` or a DGL graph; the folder of a graph store; or what
            ``api.load_input_graph`` returns. One in memory is written to a store first.
        model: ``gcn``, ``sage``, ``gat`` or ``gin``; a class of ``torch.nn.Module``, or a module
            that is built (docs/your-model.md); or what ``api.gnn_model`` returns.
        arguments: of the module's constructor, by name.
        epochs: passes over the training vertices.
        batch_size: seeds of a mini-batch, over all devices.
        hidden: features of hidden layers.
        num_layers: of the model.
        dropout: probability of dropping a hidden feature.
        fanouts: neighbours of each hop, one number for each layer.
        lr: learning rate.
        seed: fixes weights, order, samples and dropout.
        num_threads: threads that compute on the host.
        options: any others, by their names on the command line, as in
            ``{"optimizer": "sgd", "device_plan": "cpu_x2", "runtime.eval_every": 5}``.
        directory: the run directory, which holds no run yet; None for one of its own in
            ``outputs/train``.
        resume: run directory to continue.
        observers: follow the run, and are told of every step and epoch.
        progress: show on standard error what the command shows there: notes and epochs. If your
            program has handlers of ``logging``, they get these lines.

    Raises:
        ConfigError: an option is not allowed, or does not fit another one or the graph; or
            ``directory`` holds a run.
        GraphError: the graph cannot be read or written.
        WorkerError: a worker failed or died; the message says which and why.
        Exception: what an observer raised, but ``StopTraining``, which ends training.
    """
    given = {name: value for name, value in locals().items() if name in _KEYWORDS}
    with shown_log() if progress else nullcontext():
        with standard_arithmetic():
            chosen, asked = _choices(graph, model, arguments, _asked(given, options or {}))
        done = run(chosen, asked, directory=directory, resume=resume, observers=observers)
    return Result.of(*done)


def _asked(given: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options by their names on the command line: keywords that are given, and others."""
    asked = {_KEYWORDS[name]: value for name, value in given.items() if value is not None}
    if "sampler.fanouts" in asked:
        fanouts = listed_numbers("fanouts", asked["sampler.fanouts"], "[15, 10]")
        asked["sampler.fanouts"] = fanouts
    for option in options.keys() & asked.keys():
        raise ConfigError(f"options: {option}: is given by a keyword too")
    return asked | dict(options)


def _choices(
    graph: Any,
    model: str | type[torch.nn.Module] | torch.nn.Module | OptionGroup[Any],
    arguments: Mapping[str, Any] | None,
    asked: dict[str, Any],
) -> tuple[list[OptionGroup[Any]], dict[str, Any]]:
    """Return the groups that ``graph`` and ``model`` choose, and the options that are left."""
    chosen: list[OptionGroup[Any]] = [as_dataset(graph)]
    if arguments is not None and isinstance(model, (str, OptionGroup)):
        raise ConfigError("arguments: are of a module of your own, which model is not")
    if isinstance(model, str):
        return chosen, {"model": model} | asked
    if isinstance(model, (torch.nn.Module, type)):
        own = {name: asked.pop(name) for name in [*asked] if name.startswith("model.")}
        return [*chosen, own_module(model, arguments or {}, own)], asked
    check_made("model", model, "model")
    return [*chosen, model], asked


@standard_arithmetic()
def load(
    run_directory: str | Path,
    *,
    module: str | type[torch.nn.Module] | torch.nn.Module | None = None,
    arguments: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Result:
    """Return what came of a run, whether a command or a program started it.

    Args:
        run_directory: of the run.
        module: the code of its model if the run names some, given again: a class or its name,
            which is imported; or a module that is built as the trained one was, whose weights are
            replaced in a copy.
        arguments: of the class's constructor, by name, in place of those that the run was given.
        options: paths that the run names outside of its directory and ``GNNSCALE_HOME``, named
            again, as in ``{"dataset.store": "stores/mine"}``; docs/security.md says when.

    Raises:
        ConfigError: it is no run directory, names code or a path that is not named again, or holds
            what no run wrote; or ``module`` takes other arguments, or has other weights.
    """
    folder = _run_folder(run_directory)
    given = {option: _plain(value) for option, value in (options or {}).items()}
    if module is not None:
        given["model.module"] = module if isinstance(module, str) else importable_name(module)
    named = {f"model.arguments.{name}": each for name, each in (arguments or {}).items()}
    # Others than plain values have no place among options, and are put in afterwards.
    given |= {option: _plain(each) for option, each in named.items() if _is_plain(each)}
    config = load_run(folder, given, in_program=True)
    if module is not None:
        config = replace(config, model=_with_module(config.model, module, arguments or {}))
    summary = _test_metric(folder)
    # A run that was killed has no summary.
    if summary is None:
        summary = open_run_task(config, folder).measures[0], None
    metric, found = summary
    result = Result(
        directory=folder,
        config=config,
        history=tuple(read_history(folder)),
        test_metric=found,
        metric=metric,
    )
    if module is not None and (folder / BEST).exists():
        _ = result.model  # refused here if its weights or arguments are others
    return result


def _run_folder(run: Any) -> Path:
    if not isinstance(run, (str, PathLike)):
        raise ConfigError(f"run: {kind_of(run)}, expected a result or the path of a run directory")
    return Path(run).absolute()


def _with_module(
    model: ModelConfig,
    module: str | type[torch.nn.Module] | torch.nn.Module,
    arguments: Mapping[str, Any],
) -> ModelConfig:
    assert isinstance(model, CustomModel)
    if isinstance(module, torch.nn.Module):
        # The arguments have gone into a module that is built, and build_user_model refuses others.
        return replace(model, module=module, arguments=dict(arguments))
    return replace(model, module=module, arguments={**model.arguments, **arguments})


@standard_arithmetic()
def evaluate(
    run: Result | str | Path,
    *,
    inference: str | None = None,
    metrics: Sequence[str] | None = None,
    num_threads: int | None = None,
) -> Evaluation:
    """Measure the best weights of a run on each split, as ``gnnscale evaluate`` does.

    Args:
        run: a result, or the run directory.
        inference: ``exact`` or ``sampled``; None as the run itself did.
        metrics: what is measured, as the option ``metrics``; None for what the run measured.
        num_threads: threads to use; None for as many as the run's.

    Raises:
        ConfigError: it is no run, has no checkpoint, or ``metrics`` are others than its task's.
        GraphError: its graph store is not usable.
    """
    found = run if isinstance(run, Result) else load(run)
    threads = found.config.num_threads if num_threads is None else num_threads
    config = command_options.EvaluateConfig(
        run=found.directory, num_threads=threads, inference=inference
    )
    options = found.config if metrics is None else replace(found.config, metrics=list(metrics))
    before = torch.get_num_threads()
    try:
        with torch.random.fork_rng(devices=[]):
            return evaluate_run(config, options)
    finally:
        torch.set_num_threads(before)


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (str, int, float, Path, list, tuple, dict))


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


def _test_metric(folder: Path) -> tuple[str, float | None] | None:
    """Return the name and the value of the test metric in ``summary.json``; None without one.

    The value is None if a run was stopped before it had one.
    """
    file = folder / SUMMARY_FILE
    try:
        summary = json.loads(read_regular(file, limit=_MAX_SUMMARY_BYTES))
        name, found = summary["metric"], summary["test_metric"]
        if not isinstance(name, str) or not (found is None or isinstance(found, float)):
            raise ValueError(found)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from None
    except (ValueError, TypeError, KeyError, RecursionError):
        raise ConfigError(f"{file}: not the summary of a run") from None
    return name, found
