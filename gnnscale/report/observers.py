"""Those who follow a run: its report, loggers, and observers of a user's own."""

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

__all__ = ["Observers", "open_observers"]

_LOGGERS: dict[str, type[Any]] = {
    "csv": CsvLogger,
    "tensorboard": TensorBoardLogger,
    "mlflow": MlflowLogger,
}
#: What an observer may fail with; one that calls ``sys.exit`` does not end the command unheard.
_FAILURES = (Exception, SystemExit)
_EVENTS = [name for name in vars(Observer) if not name.startswith("_")]


def open_observers(
    config: TrainConfig,
    directory: Path,
    options: Mapping[str, Any],
    given: Sequence[Observer] = (),
) -> dict[str, Observer]:
    """Return what follows a run beside its report, by what errors call it.

    Nothing is written before the run has started.

    Args:
        config: the run's options, ``logger`` and ``observers`` among them.
        directory: the run directory.
        options: ``config`` as plain values.
        given: observers that a program passes.

    Raises:
        ConfigError: a logger is not installed, or there is no such observer.
    """
    found: dict[str, Observer] = {}
    for name, wanted in config.logger.items():
        if wanted:
            found[f"logger={name}"] = _LOGGERS[name](directory, options)
    for name in config.observers:
        said = f"observers={name}"
        cls = load_named(name, option="observers")
        try:
            found[said] = cls(directory, options)
        except _FAILURES as error:
            raise _failed(said, "making it", error) from error
    for number, observer in enumerate(given):
        found[f"observers[{number}] ({name_of_code(observer)})"] = observer
    for said, observer in found.items():
        lacking = [each for each in _EVENTS if not callable(getattr(observer, each, None))]
        if lacking:
            raise ConfigError(
                f"{said}: has no method {lacking[0]}; gnnscale.Observer as its base has all"
            )
    return found


class Observers(Observer):
    """Tells each event to all, in their order; what fails ends the run in one line."""

    def __init__(self, report: Observer, others: Mapping[str, Observer]) -> None:
        """Tell the report first, and then ``others``, by what errors call them."""
        self._report = report
        self._others = others

    def started(self, run: TrainResult) -> None:
        """As the observers say."""
        self._tell("started", run)

    def stepped(self, record: StepRecord) -> None:
        """As the observers say."""
        self._tell("stepped", record)

    def traced(self, spans: NDArray[np.void]) -> None:
        """As the observers say."""
        self._tell("traced", spans)

    def trained(self) -> None:
        """As the observers say."""
        self._tell("trained")

    def finished_epoch(self, record: EpochRecord) -> None:
        """As the observers say."""
        self._tell("finished_epoch", record)

    def finished(self, run: TrainResult) -> None:
        """As the observers say."""
        self._tell("finished", run)

    def close(self) -> None:
        """Close all of them, whatever one of them says.

        Raises:
            ConfigError: an observer failed; the first is told.
        """
        self._report.close()
        failures = []
        for said, observer in self._others.items():
            try:
                observer.close()
            except _FAILURES as error:
                failures.append(_failed(said, "close", error))
        if failures:
            raise failures[0]

    def _tell(self, event: str, *content: Any) -> None:
        getattr(self._report, event)(*content)
        for said, observer in self._others.items():
            try:
                getattr(observer, event)(*content)
            except _FAILURES as error:
                raise _failed(said, event, error) from error


def _failed(said: str, what: str, error: Exception | SystemExit) -> ConfigError:
    """Return the error of an observer, in one line."""
    if isinstance(error, UserError):
        return ConfigError(str(error))
    reason = explain(error)
    if reason is None:
        place = traceback.extract_tb(error.__traceback__)[-1]
        reason = f"{type(error).__name__}: {error} ({place.filename}:{place.lineno})"
    return ConfigError(f"{said}: {what} failed: {reason}")
