"""Tasks that read a trained run: evaluation, predictions and export of weights."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from gnnscale.core.config.run_directory import locked_run
from gnnscale.core.config.typed import typed
from gnnscale.core.hardware import let_idle_threads_sleep

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from gnnscale.data import GraphSource


def evaluate(options: DictConfig) -> None:
    """Evaluate the best checkpoint of a run, and write ``evaluation.json`` into its directory."""
    let_idle_threads_sleep()

    from gnnscale.inference.evaluate import evaluate as evaluate_run
    from gnnscale.report.summary import write_json
    from gnnscale.run.commands import EvaluateConfig

    config = typed(options, EvaluateConfig)
    file = config.run.resolve() / "evaluation.json"
    with locked_run(config.run):
        evaluation = evaluate_run(config)
        write_json(file, asdict(evaluation))
    for split in ("train", "valid", "test"):
        metrics = evaluation.metrics[split].items()
        print(split, ", ".join(f"{name} {format_metric(value)}" for name, value in metrics))
    print(file)


def format_metric(value: float | None) -> str:
    """Return the value of a metric for the terminal."""
    return "not defined" if value is None else f"{value:.4f}"


def predict(options: DictConfig) -> None:
    """Write predictions or embeddings of a run's best checkpoint."""
    let_idle_threads_sleep()

    from gnnscale.inference.export import predict as task

    graph = take_graph(options)
    config = replace(typed(options, task.PredictConfig), graph=graph)
    with locked_run(config.run, config.out):
        print(task.predict(config))


def take_graph(options: DictConfig) -> GraphSource | None:
    """Remove the dataset from ``options``; return it, or None if it is the run's dataset."""
    from omegaconf import open_dict

    from gnnscale.data import GraphSource

    if "_target_" not in options.dataset:
        return None  # its options are paths of the run's dataset
    with open_dict(options):
        dataset = options.pop("dataset")
        for name in ("store", "raw"):  # not fields of every dataset
            if dataset[name] is None:
                del dataset[name]
    base: Any = GraphSource  # abstract: ``_target_`` names a subclass
    return typed(dataset, base, group="dataset")


def export(options: DictConfig) -> None:
    """Write a run's best weights for another program, and print the code that loads them."""
    let_idle_threads_sleep()

    from gnnscale.inference.export import weights

    config = typed(options, weights.ExportConfig)
    with locked_run(config.run, config.file):
        done = weights.export(config)
    print(done.snippet)
    if done.note:
        print(f"note: {done.note}")
    print(done.file)
