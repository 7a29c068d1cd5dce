"""A run, shown while it goes on, and what it leaves in its directory whatever its end."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console

from gnnscale.errors import UserError, explain
from gnnscale.report.files.outcome import write_outcome
from gnnscale.report.terminal.live import RunReport
from gnnscale.run_directory import CONFIG_FILE
from gnnscale.runtime.settings import TrainConfig
from gnnscale.runtime.telemetry.records import Observer, TrainResult

__all__ = ["RunTraining", "train_and_report"]


class RunTraining(Protocol):
    """What trains: ``launch``, or another process's part of it."""

    def __call__(
        self, config: TrainConfig, directory: Path, observer: Observer, *, options: dict[str, Any]
    ) -> TrainResult:
        """Train, and tell ``observer``."""
        ...


def train_and_report(
    config: TrainConfig,
    directory: Path,
    *,
    options: dict[str, Any],
    run_training: RunTraining,
    began: float | None = None,
    table: Console | None = None,
) -> TrainResult:
    """Train, show it on standard error, and write the files of the run directory.

    Its options are there from the start, so that it can be resumed whenever it is killed. Where it
    is refused, none are left; where another run has been, that one's stay until this one starts.

    Args:
        config: the run's options.
        directory: the run directory, which exists.
        options: ``config`` as plain values.
        run_training: trains.
        began: when the command began, by ``time.monotonic``; None for now.
        table: where tables of the run are printed, None for nowhere.

    Raises:
        Exception: what ``run_training`` raises; ``summary.json`` tells it.
        OSError: a file cannot be written.
    """
    console = Console(stderr=True)
    report = RunReport(
        directory, epochs=config.epochs, options=options, console=console, began=began
    )
    is_new = not (directory / CONFIG_FILE).exists()
    if is_new:
        report.write_options()
    try:
        result = run_training(config, directory, report, options=options)
    except BaseException as error:
        _write_stopped(report, error)
        if is_new and report.run is None and isinstance(error, UserError):
            (directory / CONFIG_FILE).unlink(missing_ok=True)
        raise
    finally:
        report.close()
    write_outcome(report, result, status="completed", console=table, predictions=config.predictions)
    return result


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
