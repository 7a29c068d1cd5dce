"""Task of ``gnnscale train``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnscale.cli.commands import tasks
from gnnscale.cli.commands.tasks import BY_POPULARITY
from gnnscale.core import RESTART_WAIT_S, explain, hardware, process_age_s, sole_writer
from gnnscale.core.config import repeat_command, run_directory, with_absolute_paths

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from gnnscale.run.config import RunConfig
    from gnnscale.run.records import Observer, TrainResult


def train(options: DictConfig) -> float | None:
    """Train, write ``summary.json``, also if training fails, and return the validation metric.

    None: the metric is not defined, or this process is a torchrun rank above 0.
    """
    # The time of a sweep's job starts now, otherwise with the process.
    began = time.monotonic() - (0.0 if tasks.in_sweep() else process_age_s() or 0.0)
    try:
        return _train(options, began)
    except Exception as error:
        if tasks.in_sweep():
            # For the sweep's table of results.
            _write_failure(tasks.job_directory(), explain(error) or repr(error))
        raise


def _train(options: DictConfig, began: float) -> float | None:
    hardware.let_idle_threads_sleep()

    from omegaconf import OmegaConf
    from rich.console import Console

    from gnnscale.report.formatting import network_line
    from gnnscale.report.run_report import train_and_report
    from gnnscale.run import Observer, parse_run_options
    from gnnscale.training.launcher.launch import launch

    config = parse_run_options(options)
    values: dict[str, Any] = OmegaConf.to_container(options, resolve=True) | {"resume": None}  # type: ignore[operator, assignment]
    values = with_absolute_paths(values, type(config))
    resumes, run = config.resume is not None, hardware.restarting_run()
    if run is not None:
        if config.resume is None and hardware.leads_machine():
            run_directory.claim(tasks.job_directory(), run)
        # Without a checkpoint the run starts from the beginning.
        config = replace(config, resume=tasks.job_directory())
    if hardware.torchrun_rank():
        _train_rank(config, tasks.job_directory(), Observer(), options=values)
        return None
    run_training = launch if hardware.torchrun_rank() is None else _train_rank
    with _locked_run_directory(options) as directory:
        result = train_and_report(
            partial(run_training, config, directory, options=values),
            directory,
            report_options=config.report_options,
            options=values,
            began=began,
            table=Console(),
            command=None if resumes else repeat_command(directory, values, type(config)),
        )
        if (line := network_line(result)) is not None:
            print(line)
        print(_result_line(result))
        if result.test_popularity:
            from gnnscale.report.formatting import metrics_line

            print(f"{BY_POPULARITY} {metrics_line(result.test_popularity, None)}")
        print(directory)
    return result.valid_metric


def _train_rank(
    config: RunConfig, directory: Path, observer: Observer, *, options: dict[str, Any]
) -> TrainResult:
    """Train as one of torchrun's processes, and return the run's result."""
    from gnnscale.training.launcher.torchrun import train_rank
    from gnnscale.training.setup import open_run

    return train_rank(
        partial(open_run, config, directory, options),
        observer,
        devices=config.device_plan.parsed(),
        runtime=config.runtime,
        options=options,
        job=tasks.job_number(),
    )


@contextmanager
def _locked_run_directory(options: DictConfig) -> Iterator[Path]:
    """Create and lock the run directory, log into it, and yield it.

    In a sweep Hydra has created the directory, the job's folder.
    """
    if tasks.in_sweep():
        directory = tasks.job_directory()
        with sole_writer(directory, option="hydra.sweep.dir"), run_directory.logged(directory):
            yield directory
        return
    hydra = tasks.hydra_settings()
    is_typed = any(option.startswith("hydra.run.dir=") for option in tasks.typed_options("hydra"))
    resumes, restarts = options.get("resume") is not None, bool(hardware.restarting_run())
    with run_directory.create_run_directory(
        hydra.run.dir,
        options,
        hydra,
        fresh=not (is_typed or resumes or restarts),
        option="resume" if resumes else "output",
        wait_s=RESTART_WAIT_S if restarts else 0.0,
    ) as directory:
        yield directory


def _write_failure(directory: Path, message: str) -> None:
    """Write ``summary.json`` for a failed job, unless the run has written it."""
    from gnnscale.report.summary import write_json

    file = directory / run_directory.SUMMARY_FILE
    if not file.exists():
        write_json(file, {"status": "failed", "error": message})


def _result_line(result: TrainResult) -> str:
    """Return a run's test metrics and best epoch in one line, or that there is no test metric."""
    epoch = f"the weights of epoch {result.best_epoch} of {len(result.history)}"
    of = "vertices" if result.graph is None else result.graph.split_of
    if not result.valid_metrics:
        epoch += f", the last, without validation {of}"
    if not result.test_metrics:
        return f"no test metric, since {result.dataset} has no labeled test {of}; kept are {epoch}"
    if result.test_metric is None:
        return f"test {result.metric} is not defined on {result.dataset}"
    attainable = "" if result.ceiling is None else f" of {result.ceiling:.4f} attainable"
    from gnnscale.report.formatting import metrics_line

    metrics = {name: v for name, v in result.test_metrics.items() if name != result.metric}
    rates = {} if result.graph is None else result.graph.base_rates
    further = metrics_line(metrics, rates.get("test"))
    figures = f"{result.metric} {result.test_metric:.4f}{attainable}{further and ', '}{further}"
    return f"test {figures}, with {epoch}"
