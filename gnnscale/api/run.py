"""Training in one call, and runs opened and evaluated again."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch

from gnnscale.api.hitgnn import training
from gnnscale.api.hitgnn.design import OptionGroup, check_option_group, choose_module
from gnnscale.api.hitgnn.input_graph import as_dataset
from gnnscale.api.result import Result
from gnnscale.api.seeds import SeedResults, each_seed, listed_seeds
from gnnscale.core import ConfigError, brief, decode, listed_numbers, standard_arithmetic
from gnnscale.core.config import SUMMARY_FILE, flat_options, option_of_keyword, read_regular
from gnnscale.core.config.user_code import name_of_code, pass_code, short_name
from gnnscale.core.notebook import in_notebook
from gnnscale.data.array_inputs import type_name
from gnnscale.inference.evaluate import Evaluation, measure
from gnnscale.inference.load_run import load_run, open_run_task, with_inference
from gnnscale.inference.trained_model import open_trained
from gnnscale.nn import CustomModel, ModelConfig
from gnnscale.ops.products import torch_threads
from gnnscale.run import EvaluateConfig, Observer
from gnnscale.run.checkpoint import BEST
from gnnscale.run.checkpoint.reader import read_history

_MAX_SUMMARY_BYTES = 16 << 20
#: Options on the command line for keywords of ``train``.
_KEYWORDS = {
    **{name: name for name in ("epochs", "batch_size", "seed", "num_threads")},
    **{name: f"model.{name}" for name in ("hidden", "num_layers", "dropout")},
    **{"fanouts": "sampler.fanouts", "lr": "optimizer.lr"},
}

_Model = str | Callable[..., Any] | OptionGroup[Any]


@overload
def train(
    graph: Any,
    model: _Model = "sage",
    *,
    arguments: Mapping[str, Any] | None = None,
    split: str | Mapping[str, Any] | None = None,
    mask: int | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    hidden: int | None = None,
    num_layers: int | None = None,
    dropout: float | None = None,
    fanouts: Sequence[int] | None = None,
    lr: float | None = None,
    seed: int | None = None,
    seeds: None = None,
    num_threads: int | None = None,
    options: Mapping[str, Any] | None = None,
    directory: str | Path | None = None,
    resume: str | Path | None = None,
    observers: Sequence[Observer] = (),
    progress: bool | None = None,
    **further: Any,
) -> Result: ...


@overload
def train(
    graph: Any, model: _Model = "sage", *, seeds: int | Sequence[int], **further: Any
) -> SeedResults: ...


def train(
    graph: Any,
    model: _Model = "sage",
    *,
    arguments: Mapping[str, Any] | None = None,
    split: str | Mapping[str, Any] | None = None,
    mask: int | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    hidden: int | None = None,
    num_layers: int | None = None,
    dropout: float | None = None,
    fanouts: Sequence[int] | None = None,
    lr: float | None = None,
    seed: int | None = None,
    seeds: int | Sequence[int] | None = None,
    num_threads: int | None = None,
    options: Mapping[str, Any] | None = None,
    directory: str | Path | None = None,
    resume: str | Path | None = None,
    observers: Sequence[Observer] = (),
    progress: bool | None = None,
    **further: Any,
) -> Result | SeedResults:
    """Train as ``gnnscale train`` does, with its defaults, errors and run directory.

    Args:
        graph: a ``Graph``; a graph or data set of PyG, DGL, OGB, networkx or SciPy, which is first
            written to a store; a store's folder; or a result of ``api.load_input_graph``.
        model: ``gcn``, ``sage``, ``gat`` or ``gin``; a subclass of ``torch.nn.Module``, a module,
            or a function that returns one (docs/your-model.md); or a result of ``api.gnn_model``.
        arguments: arguments of the module's constructor, by name.
        split, mask: split of a graph in memory, as for ``from_arrays``. None: the graph's own.
        epochs, batch_size: passes over the training vertices; seeds of a step, over all devices.
        hidden, num_layers, dropout: features of hidden layers; layers; share of dropped features.
        fanouts, lr: neighbors of each hop, one number per layer; learning rate.
        seed, seeds: seed of all random choices; seeds of several runs, n means 0 to n - 1.
        num_threads: threads that compute on the host.
        options: options by their names on the command line, also in nested mappings, and code as
            it is: ``{"optimizer": "sgd", "runtime.eval_every": 5, "loss": my_loss}``.
        directory, resume: new run directory, or one in ``outputs/train``; a run to continue.
        observers: callbacks of steps and epochs; exceptions but ``StopTraining`` are raised.
        progress: whether to show notes and epochs as the command does; None: in a notebook.
        **further: options by the last part of their names, such as ``weight_decay``.

    Returns:
        The result of the run; with ``seeds``, those of all runs, in folders of ``directory``.

    Raises:
        ConfigError, GraphError, WorkerError: options or the graph are refused, a worker failed.
    """
    keywords = {name: value for name, value in locals().items() if name in _KEYWORDS} | further
    with training.shown_log(in_notebook() if progress is None else progress):
        with standard_arithmetic():
            merged = _merge_options(keywords, options or {})
            numbers = listed_seeds(seeds, merged, resume)
            dataset = as_dataset(graph, split=split, mask=mask, of=_labeled(merged))
            groups, merged = _choose_groups(dataset, model, arguments, merged)
        run = partial(_run, groups, merged, resume=resume, observers=observers)
        return run(directory) if numbers is None else each_seed(run, numbers, directory)


def _run(
    groups: Sequence[OptionGroup[Any]],
    options: Mapping[str, Any],
    directory: str | Path | None,
    *,
    seed: int | None = None,
    **settings: Any,
) -> Result:
    """Train once by ``training.run``, with ``seed`` unless it is None; return the result."""
    options = dict(options) if seed is None else {**options, "seed": seed}
    return Result.of(*training.run(groups, options, directory=directory, **settings))


def _merge_options(keywords: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return keywords of ``train`` that are not None, and ``options``, by option names.

    ConfigError: an option is given twice, or a keyword names no single option.
    """
    merged = flat_options(options)
    for keyword, value in keywords.items():
        option = _KEYWORDS.get(keyword) or option_of_keyword(keyword, _KEYWORDS)
        for name, part in flat_options({} if value is None else {option: value}).items():
            if name in merged:
                raise ConfigError(f"options: {name}: expected once, got a keyword too")
            merged[name] = part
    if "sampler.fanouts" in merged:
        merged["sampler.fanouts"] = listed_numbers("fanouts", merged["sampler.fanouts"], "[15, 10]")
    return merged


def _labeled(options: Mapping[str, Any]) -> str | None:
    """Return what has the labels that a run learns, ``vertices`` or ``edges``; None: no labels."""
    task = options.get("task", "vertices")
    return task if isinstance(task, str) and task in ("vertices", "edges") else None


def _choose_groups(
    dataset: OptionGroup[Any],
    model: _Model,
    arguments: Mapping[str, Any] | None,
    options: dict[str, Any],
) -> tuple[list[OptionGroup[Any]], dict[str, Any]]:
    """Return option groups of ``dataset`` and ``model``, and the remaining options.

    A built-in model's name becomes the option ``model``; a module's group takes ``model.*``.
    """
    if "model" in options:
        raise ConfigError(f"options: model={brief(options['model'])}: expected as argument model")
    groups: list[OptionGroup[Any]] = [dataset]
    if arguments is not None and isinstance(model, (str, OptionGroup)):
        raise ConfigError("arguments: expected none without a module as model")
    if isinstance(model, str):
        return groups, {"model": model} | options
    if callable(model) and not isinstance(model, OptionGroup):
        names = [name for name in options if name.startswith("model.")]
        model_options = {name: options.pop(name) for name in names}
        _check_arguments(model, arguments or {})
        return [*groups, choose_module(model, arguments or {}, model_options)], options
    check_option_group("model", model, "model")
    return [*groups, model], options


def _check_arguments(module: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """Raise ConfigError if an argument of the constructor is an object, which no option holds."""
    for name, value in arguments.items():
        if not _is_plain(value):
            raise ConfigError(
                f"arguments: {name}: expected numbers, texts, lists and mappings, got "
                f"{type_name(value)}; pass a function in place of the class, such as lambda "
                f"in_channels, out_channels: {short_name(name_of_code(module))}(in_channels, "
                f"out_channels, {name}=...)"
            )


@standard_arithmetic()
def load(
    run_directory: str | Path,
    *,
    module: str | Callable[..., Any] | None = None,
    arguments: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Result:
    """Return the result of an earlier run, which a command or a program has started.

    Args:
        run_directory: the run directory.
        module: code of the run's user-defined model, given again: a class, its importable name, or
            a module like the trained one, whose copy gets the trained weights.
        arguments: arguments of the class's constructor by name, replacing the run's.
        options: paths of the run outside of its directory and ``GNNSCALE_HOME``, given again, such
            as ``{"dataset.store": "stores/mine"}``; see docs/security.md.

    Raises:
        ConfigError: the directory has no valid run, code or a path has to be given again, or the
            arguments or weights of ``module`` differ.
    """
    folder = _run_folder(run_directory)
    replacements = flat_options(options or {})
    if module is not None:
        name = module if isinstance(module, str) else name_of_code(module)
        replacements["model.module"] = name
    # Options hold plain values only; _with_module adds other arguments below.
    for name, value in (arguments or {}).items():
        if _is_plain(value):
            replacements[f"model.arguments.{name}"] = value
    replacements = {option: _plain(value) for option, value in replacements.items()}
    config = load_run(folder, replacements, in_program=True)
    if module is not None:
        config = replace(config, model=_with_module(config.model, module, arguments or {}))
    # A run that was killed has no summary.
    metric, test_metrics = _test_metrics(folder) or (open_run_task(config, folder).measures[0], {})
    result = Result(
        directory=folder,
        config=config,
        history=tuple(read_history(folder)),
        test_metrics=test_metrics,
        metric=metric,
    )
    if module is not None and (folder / BEST).exists():
        _ = result.model  # raises ConfigError if weights or arguments differ
    return result


def _run_folder(run: Any) -> Path:
    if not isinstance(run, (str, PathLike)):
        raise ConfigError(f"run: expected a result or a run directory, got {type_name(run)}")
    return Path(run).absolute()


def _with_module(
    model: ModelConfig,
    module: str | Callable[..., Any],
    arguments: Mapping[str, Any],
) -> ModelConfig:
    assert isinstance(model, CustomModel)
    # A built module has consumed its arguments, and build_user_model refuses further ones.
    stored = {} if isinstance(module, torch.nn.Module) else model.arguments
    return replace(model, module=module, arguments={**stored, **arguments})


@standard_arithmetic()
def evaluate(
    run: Result | str | Path,
    *,
    inference: str | None = None,
    metrics: str | Sequence[str | Callable[..., Any]] | None = None,
    threshold: float | None = None,
    num_threads: int | None = None,
) -> Evaluation:
    """Measure the best weights of a run on each split, as ``gnnscale evaluate`` does.

    Args:
        run: a result, or the run directory.
        inference: ``exact`` or ``sampled``. None: the run's own setting.
        metrics: metrics, as in the option ``metrics``, or functions. None: the run's metrics.
        threshold: probability from which on a class is predicted, for two classes or multilabel.
            None: the threshold that the run has chosen, or 0.5.
        num_threads: number of threads. None: the run's number.

    Raises:
        ConfigError: there is no run or no checkpoint, or ``metrics`` do not fit its task.
        GraphError: the graph store is not usable.
    """
    result = run if isinstance(run, Result) else load(run)
    threads = result.config.num_threads if num_threads is None else num_threads
    options = EvaluateConfig(
        run=result.directory, num_threads=threads, inference=inference, threshold=threshold
    )
    config = result.config
    if metrics is not None:
        listed = [metrics] if isinstance(metrics, str) else metrics
        named = [name if isinstance(name, str) else pass_code(name) for name in listed]
        config = replace(config, metrics=named)
    config = with_inference(config, options.inference, options.num_threads)
    with torch.random.fork_rng(devices=[]), torch_threads(threads):
        task, trained = open_trained(result.directory, config, ranks=True)
        return measure(task, trained, config.evaluation_options, options.threshold)


@dataclass(frozen=True, kw_only=True)
class _Summary:
    """Entries of ``summary.json``."""

    metric: str
    test_metrics: dict[str, float | None]


def _is_plain(value: Any) -> bool:
    """Whether the options of a run can hold ``value``."""
    if isinstance(value, (list, tuple, dict)):
        return all(map(_is_plain, value.values() if isinstance(value, dict) else value))
    return value is None or isinstance(value, (str, int, float, Path, np.generic))


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    return str(value) if isinstance(value, Path) else value


def _test_metrics(folder: Path) -> tuple[str, dict[str, float | None]] | None:
    """Return the first metric's name and all test metrics in ``summary.json``; None: no such file.

    A value is None if the metric is undefined. ConfigError: the file is no summary of a run.
    """
    file = folder / SUMMARY_FILE
    try:
        content = read_regular(file, limit=_MAX_SUMMARY_BYTES)
        summary = decode(_Summary, content, source=SUMMARY_FILE)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from None
    except ValueError:
        raise ConfigError(f"{file}: expected the summary of a run") from None
    return summary.metric, summary.test_metrics
