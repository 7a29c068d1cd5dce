"""What follows a run: its report, loggers, and custom observers."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale.core.errors import ConfigError, UserError, explain
from gnnscale.options.user_code import load_named, name_of_code
from gnnscale.report.loggers import CsvLogger, MlflowLogger, TensorBoardLogger
from gnnscale.runtime.settings import TrainConfig
from gnnscale.runtime.telemetry.records import EpochRecord, Observer, StepRecord, TrainResult

_LOGGERS: dict[str, type[Any]] = {
    "csv": CsvLogger,
    "tensorboard": TensorBoardLogger,
    "mlflow": MlflowLogger,
}
#: What an observer may raise; calling ``sys.exit`` is reported as a failure as well.
_FAILURES = (Exception, SystemExit)
_EVENTS = [name for name in vars(Observer) if not name.startswith("_")]


def open_observers(
    config: TrainConfig,
    directory: Path,
    options: Mapping[str, Any],
    given: Sequence[Observer] = (),
) -> dict[str, Observer]:
    """Return loggers and custom observers of a run, keyed by their names in errors.

    Nothing is written before the run has started.

    Raises:
        ConfigError: a logger is not installed, or there is no such observer.
    """
    found: dict[str, Observer] = {}
    for name, wanted in config.logger.items():
        if wanted:
            found[f"logger={name}"] = _LOGGERS[name](directory, options)
    for name in config.observers:
        label = f"observers={name}"
        cls = load_named(name, option="observers")
        try:
            found[label] = cls(directory, options)
        except _FAILURES as error:
            raise _failed(label, "making it", error) from error
    for number, observer in enumerate(given):
        found[f"observers[{number}] ({name_of_code(observer)})"] = observer
    for label, observer in found.items():
        lacking = [each for each in _EVENTS if not callable(getattr(observer, each, None))]
        if lacking:
            raise ConfigError(
                f"{label}: has no method {lacking[0]}; gnnscale.Observer as its base has all"
            )
    return found


class Observers(Observer):
    """Passes each event to all observers in order; a failing one ends the run in one line."""

    def __init__(self, report: Observer, others: Mapping[str, Observer]) -> None:
        """Notify ``report`` first, then ``others``, which are keyed by their names in errors."""
        self._report = report
        self._others = others

    def started(self, run: TrainResult) -> None:
        """Notify all observers."""
        self._notify("started", run)

    def stepped(self, record: StepRecord) -> None:
        """Notify all observers."""
        self._notify("stepped", record)

    def traced(self, spans: NDArray[np.void]) -> None:
        """Notify all observers."""
        self._notify("traced", spans)

    def trained(self) -> None:
        """Notify all observers."""
        self._notify("trained")

    def finished_epoch(self, record: EpochRecord) -> None:
        """Notify all observers."""
        self._notify("finished_epoch", record)

    def finished(self, run: TrainResult) -> None:
        """Notify all observers."""
        self._notify("finished", run)

    def close(self) -> None:
        """Close all observers, even if one of them fails.

        Raises:
            ConfigError: an observer failed; the message is of the first.
        """
        self._report.close()
        failures = []
        for label, observer in self._others.items():
            try:
                observer.close()
            except _FAILURES as error:
                failures.append(_failed(label, "close", error))
        if failures:
            raise failures[0]

    def _notify(self, event: str, *content: Any) -> None:
        getattr(self._report, event)(*content)
        for label, observer in self._others.items():
            try:
                getattr(observer, event)(*content)
            except _FAILURES as error:
                raise _failed(label, event, error) from error


def _failed(label: str, what: str, error: Exception | SystemExit) -> ConfigError:
    """Return the error of an observer, in one line."""
    if isinstance(error, UserError):
        return ConfigError(str(error))
    reason = explain(error)
    if reason is None:
        place = traceback.extract_tb(error.__traceback__)[-1]
        reason = f"{type(error).__name__}: {error} ({place.filename}:{place.lineno})"
    return ConfigError(f"{label}: {what} failed: {reason}")
