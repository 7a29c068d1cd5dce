"""A run, shown while it goes on, and the files in its directory, however it ends."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console

from gnnscale.core.errors import ConfigError, UserError, explain
from gnnscale.options import found, run_directory
from gnnscale.report.files.outcome import write_outcome
from gnnscale.report.observers import Observers, open_observers
from gnnscale.report.terminal.live import RunReport
from gnnscale.runtime.settings import TrainConfig
from gnnscale.runtime.telemetry.records import Observer, TrainResult

log = logging.getLogger(__name__)


class RunTraining(Protocol):
    """What trains: ``launch``, or another process's part of it."""

    def __call__(
        self, config: TrainConfig, directory: Path, observer: Observer, *, options: dict[str, Any]
    ) -> TrainResult:
        """Train, and notify ``observer``."""
        ...


def train_and_report(
    config: TrainConfig,
    directory: Path,
    *,
    options: dict[str, Any],
    run_training: RunTraining,
    began: float | None = None,
    table: Console | None = None,
    observers: Sequence[Observer] = (),
) -> TrainResult:
    """Train, show it on standard error, and write the files of the run directory.

    Its options are there from the start, so that it can be resumed whenever it is killed. If it
    is refused, no options are left; those of an earlier run stay until this one starts.

    Args:
        began: when the command began, by ``time.monotonic``; None for now.
        table: where tables of the run are printed, None for nowhere.

    Raises:
        ConfigError: a logger is not installed, or an observer fails.
        Exception: what ``run_training`` raises; ``summary.json`` records it.
        OSError: a file cannot be written.
    """
    console = Console(stderr=True)
    others = open_observers(config, directory, options, observers)
    report = RunReport(
        directory, epochs=config.epochs, options=options, console=console, began=began
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
        _close_after_failure(everybody)
        raise
    report.close()
    try:
        if result.stopped_early:
            log.info(early_stop(result, config))
        write_outcome(
            report, result, status="completed", console=table, predictions=config.predictions
        )
        everybody.finished(result)
    finally:
        everybody.close()
    return result


def early_stop(result: TrainResult, config: TrainConfig) -> str:
    """Say in a line why a run stopped before its last epoch."""
    patience = config.runtime.patience
    return (
        f"stopped after epoch {len(result.history)}: no better {result.metric} for {patience} "
        f"validations (runtime.patience={patience}); best was epoch {result.best_epoch}"
    )


def _close_after_failure(everybody: Observers) -> None:
    """Close what follows a run; what fails then is no more than a line beside the cause."""
    try:
        everybody.close()
    except (ConfigError, OSError) as failure:
        print(explain(failure) or failure, file=sys.stderr)


def _write_stopped(report: RunReport, error: BaseException) -> None:
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
    except OSError as failure:
        print(explain(failure) or failure, file=sys.stderr)
