"""A run, shown while it trains, and the files in its directory, however it ends."""

import logging
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console

from gnnscale.core import ConfigError, UserError, explain, standard_numpy_errors, write_atomically
from gnnscale.core.config import run_directory
from gnnscale.core.config import untrusted as found
from gnnscale.core.config.run_directory import STEPS_FILE, SUMMARY_FILE
from gnnscale.report import formatting as figures
from gnnscale.report import fpga, prediction, terminal
from gnnscale.report.page.page import REPORT_FILE, render
from gnnscale.report.steps import TRACE_FILE, read_steps, write_trace
from gnnscale.report.summary import summarise, write_json
from gnnscale.run.callbacks import Observers, open_observers
from gnnscale.run.config import RunConfig
from gnnscale.run.records import Observer, TrainResult


@standard_numpy_errors()
def write_outcome(
    report: terminal.RunReport,
    run: TrainResult,
    *,
    status: str,
    error: str | None = None,
    console: Console | None = None,
    predictions: bool = False,
) -> dict[str, Any]:
    """Close ``report``, write the run's files, and print tables of the run.

    They are predicted next to measured stage times if there are several devices that measured
    any, which emulated ones were late, and what C simulation counted.

    ``summary.json`` comes first: a disk that is full before the report is written has it.

    Args:
        status: ``completed``, ``interrupted`` or ``failed``.
        console: where to print the tables, None for nowhere.
        predictions: print predicted stage times of a single device, too, and what is not known.

    Returns:
        The content of ``summary.json``.

    Raises:
        ConfigError: the run directory was moved or removed.
        OSError: with the file's name; it could not be written.
    """
    report.close()
    # The page reads them many times.
    run = replace(run, history=tuple(run.history))
    directory = report.directory
    steps = read_steps(directory / STEPS_FILE, num_devices=len(run.plan.shares))
    predicted = prediction.compare(run, steps)
    summary = summarise(
        run,
        status=status,
        predicted=predicted,
        error=error,
        first_step_s=report.first_step_s,
        command=report.command,
        started=report.started_at,
        ended=time.time(),
    )
    write_json(directory / SUMMARY_FILE, summary)
    spans = report.spans.all()
    # A run that was resumed after its last epoch has run no step; its timeline stays.
    if len(spans) or not (directory / TRACE_FILE).exists():
        write_trace(directory / TRACE_FILE, run.plan, spans)
    page = render(run, summary, steps, spans, report.options)
    write_atomically(directory / REPORT_FILE, page)
    if console is not None:
        measured = predicted is not None and predicted["measured_step_s"] is not None
        if predicted is not None and (predictions or (measured and len(run.plan.shares) > 1)):
            terminal.print_prediction(predicted, console, absent=predictions)
        num_steps = len(run.history) * (run.steps_per_epoch or 0) or len(steps)
        energy = figures.energy_sentence(summary)
        if energy is not None:
            console.print(energy, highlight=False, soft_wrap=True, markup=False)
        for sentence in figures.late_sentences(summary["devices"], num_steps=num_steps):
            console.print(sentence, highlight=False, soft_wrap=True, markup=False)
        fpga.print_csim(summary["devices"], console)
    return summary


log = logging.getLogger(__name__)


class RunTraining(Protocol):
    """What trains: ``launch``, or another process's part of it."""

    def __call__(
        self, config: RunConfig, directory: Path, observer: Observer, *, options: dict[str, Any]
    ) -> TrainResult:
        """Train, and notify ``observer``."""
        ...


def train_and_report(
    config: RunConfig,
    directory: Path,
    *,
    options: dict[str, Any],
    run_training: RunTraining,
    began: float | None = None,
    table: Console | None = None,
    observers: Sequence[Observer] = (),
    command: str | None = None,
) -> TrainResult:
    """Train, show it on standard error, and write the files of the run directory.

    Its options are there from the start, so that it can be resumed whenever it is killed. If it
    is refused, no options are left; those of an earlier run stay until this one starts.

    Args:
        began: when the command began, by ``time.monotonic``; None for now.
        table: where tables of the run are printed, None for nowhere.
        command: the line that repeats the run; None if no line does.

    Raises:
        ConfigError: a logger is not installed.
        ObserverError: an observer raised an exception, which it has as ``raised``.
        Exception: what ``run_training`` raises; ``summary.json`` records it.
        OSError: a file cannot be written.
    """
    console = Console(stderr=True)
    others = open_observers(config, directory, options, observers)
    report = terminal.RunReport(
        directory,
        epochs=config.epochs,
        options=options,
        console=console,
        began=began,
        command=command,
    )
    everybody = Observers(report, others)
    is_new = not (directory / run_directory.CONFIG_FILE).exists()
    if is_new:
        report.write_options()
    try:
        result = run_training(config, directory, everybody, options=options)
    except BaseException as error:
        _write_stopped(report, error)
        if is_new and report.run is None and isinstance(error, UserError):
            (directory / run_directory.CONFIG_FILE).unlink(missing_ok=True)
            found.forget_own(directory)
        _close_after_failure(everybody, error)
        raise
    report.close()
    result = replace(result, history=tuple(result.history))
    try:
        if result.stopped_early:
            log.info(early_stop(result, config, everybody.stop_reason))
        write_outcome(
            report, result, status="completed", console=table, predictions=config.predictions
        )
        everybody.finished(result)
    finally:
        everybody.close()
    return result


def early_stop(result: TrainResult, config: RunConfig, observer: str | None = None) -> str:
    """Say in a line why a run stopped before its last epoch.

    Args:
        observer: which observer ended training, and why; None if patience ran out.
    """
    if observer is not None:
        return (
            f"stopped after epoch {len(result.history)}: by {observer}; best was epoch "
            f"{result.best_epoch}"
        )
    patience = config.runtime.patience
    return (
        f"stopped after epoch {len(result.history)}: no better {result.metric} for {patience} "
        f"validations (runtime.patience={patience}); best was epoch {result.best_epoch}"
    )


def _close_after_failure(everybody: Observers, cause: BaseException) -> None:
    """Close what follows a run; what fails then is no more than a line beside the cause."""
    try:
        everybody.close()
    except (ConfigError, OSError) as failure:
        _tell(failure, cause)


def _tell(failure: Exception, cause: BaseException) -> None:
    """Show what failed after the cause of a run's end, unless that is the same."""
    if str(failure) != str(cause):
        print(explain(failure) or failure, file=sys.stderr)


def _write_stopped(report: terminal.RunReport, error: BaseException) -> None:
    """Summarise a run that had begun and did not come to its end."""
    if report.run is None:
        return
    interrupted = isinstance(error, KeyboardInterrupt)
    try:
        write_outcome(
            report,
            report.run,
            status="interrupted" if interrupted else "failed",
            error=None if interrupted else explain(error) or repr(error),
        )
    except (ConfigError, OSError) as failure:
        _tell(failure, error)
