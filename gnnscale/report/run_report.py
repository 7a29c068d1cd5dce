"""Training with a live report, and the files that a run leaves in its directory."""

import logging
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from gnnscale.core import ConfigError, UserError, explain, standard_numpy_errors, write_atomically
from gnnscale.core.config import CONFIG_FILE, STEPS_FILE, SUMMARY_FILE, untrusted
from gnnscale.core.errors import is_interrupted
from gnnscale.report import formatting, fpga, prediction, terminal
from gnnscale.report.page.page import REPORT_FILE, render
from gnnscale.report.steps import TRACE_FILE, read_steps, write_trace
from gnnscale.report.summary import summarize, write_json
from gnnscale.run import Observer, Observers, ReportOptions, TrainResult, open_observers


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
    """Close ``report``, write the run's files, and return the content of ``summary.json``.

    ``status`` is ``completed``, ``interrupted`` or ``failed``, with the message ``error``.
    ``summary.json`` is written first, so that it exists if the disk fills up afterwards.
    ``console`` prints tables of the run; ``predictions`` adds predicted stage times of a single
    device, and unknown values. ConfigError if the run directory was moved or removed.
    """
    report.close()
    # A tuple: ``History`` reads its file again at each access, and the page has many.
    run = replace(run, history=tuple(run.history))
    directory = report.directory
    steps = read_steps(directory / STEPS_FILE, num_devices=len(run.plan.shares))
    predicted = prediction.compare(run, steps)
    summary = summarize(
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
    # A run that resumed after its last epoch has no spans, and keeps the earlier timeline.
    if len(spans) or not (directory / TRACE_FILE).exists():
        write_trace(directory / TRACE_FILE, run.plan, spans)
    page = render(run, summary, steps, spans, report.options, directory)
    write_atomically(directory / REPORT_FILE, page)
    if console is not None:
        num_steps = len(run.history) * (run.steps_per_epoch or 0) or len(steps)
        _print_tables(summary, console, num_steps=num_steps, predictions=predictions)
    return summary


def _print_tables(
    summary: dict[str, Any], console: Console, *, num_steps: int, predictions: bool
) -> None:
    """Print stage times, energy, too slow emulation, and counts of C simulation.

    Stage times of a run on one device are printed only if ``predictions``.
    """
    predicted, devices = summary["predicted"], summary["devices"]
    measured = predicted is not None and predicted["measured_step_s"] is not None
    if predicted is not None and (predictions or (measured and len(devices) > 1)):
        terminal.print_prediction(predicted, console, absent=predictions)
    energy = formatting.energy_sentence(summary)
    sentences = [] if energy is None else [energy]
    sentences += formatting.late_sentences(devices, num_steps=num_steps)
    formatting.print_lines(console, sentences)
    fpga.print_csim(devices, console)


log = logging.getLogger(__name__)


def train_and_report(
    run_training: Callable[[Observer], TrainResult],
    directory: Path,
    *,
    report_options: ReportOptions,
    options: dict[str, Any],
    began: float | None = None,
    table: Console | None = None,
    observers: Sequence[Observer] = (),
    command: str | None = None,
) -> TrainResult:
    """Train, show progress on standard error, and write the run directory; return the result.

    ``config.yaml`` is written before training, so that a killed run can resume. An exception of
    ``run_training`` is raised again after its message was written to ``summary.json``.

    Args:
        options: options of the run as plain values, for ``config.yaml``.
        began: start of the command by ``time.monotonic``; None: now.
        table: prints tables of the run; None: no tables.
        observers: further observers; their exceptions become an ObserverError.
        command: command line that repeats the run; None: there is none.
    """
    further = open_observers(report_options, directory, options, observers)
    report = terminal.RunReport(
        directory,
        epochs=report_options.epochs,
        options=options,
        console=Console(stderr=True, force_jupyter=False),  # a notebook gets log lines
        began=began,
        command=command,
    )
    all_observers = Observers(report, further)
    is_new = not (directory / CONFIG_FILE).exists()
    if is_new:
        report.write_options()
    try:
        result = run_training(all_observers)
    except BaseException as error:
        _end_failed_run(report, all_observers, error, is_new=is_new)
        raise
    report.close()
    result = replace(result, history=tuple(result.history))
    try:
        if result.stopped_early:
            log.info(early_stop(result, report_options.patience, all_observers.stop_reason))
        if result.thresholds is not None:
            log.info(formatting.thresholds_line(result.thresholds))
        predictions = report_options.predictions
        write_outcome(report, result, status="completed", console=table, predictions=predictions)
        all_observers.finished(result)
    finally:
        all_observers.close()
    return result


def early_stop(result: TrainResult, patience: int | None, observer: str | None = None) -> str:
    """Return a line about a run that stopped early: its last epoch, the reason, the best epoch.

    ``observer`` is the label, with the reason if it gave one, of the observer that stopped the run.
    None: the metric was no better for ``patience`` validations.
    """
    if observer is not None:
        return (
            f"stopped after epoch {len(result.history)}: by {observer}; best was epoch "
            f"{result.best_epoch}"
        )
    return (
        f"stopped after epoch {len(result.history)}: no better {result.metric} for {patience} "
        f"validations (runtime.patience={patience}); best was epoch {result.best_epoch}"
    )


def _end_failed_run(
    report: terminal.RunReport, observers: Observers, cause: BaseException, *, is_new: bool
) -> None:
    """Write the files of a run that ``cause`` ended, and close the observers.

    If a new run was refused before its start, remove its ``config.yaml``. Further failures are
    printed.
    """
    _write_stopped(report, cause)
    # A new run that was refused before it started leaves no options.
    if is_new and report.run is None and isinstance(cause, UserError):
        (report.directory / CONFIG_FILE).unlink(missing_ok=True)
        untrusted.forget_own(report.directory)
    try:
        observers.close()
    except (ConfigError, OSError) as failure:
        _print_failure(failure, cause)


def _print_failure(failure: Exception, cause: BaseException) -> None:
    """Print ``failure`` on standard error, unless its message is that of ``cause``."""
    if str(failure) != str(cause):
        print(explain(failure) or failure, file=sys.stderr)


def _write_stopped(report: terminal.RunReport, error: BaseException) -> None:
    """Write the files of a run that ``error`` ended; nothing if it had not started."""
    if report.run is None:
        return
    interrupted = is_interrupted(error)
    try:
        write_outcome(
            report,
            report.run,
            status="interrupted" if interrupted else "failed",
            error=None if interrupted else explain(error) or repr(error),
        )
    except (ConfigError, OSError) as failure:
        _print_failure(failure, error)
