"""Observers of a run: construction of loggers and custom observers, and delivery of events."""

import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gnnscale.core import ConfigError, UserError, explain, one_line, standard_numpy_errors
from gnnscale.core.config.user_code import load_named, name_of_code
from gnnscale.run.inputs import ReportOptions
from gnnscale.run.loggers import LOGGER_CLASSES
from gnnscale.run.records import Observer, RunObserver, StopTraining

#: Prefix of the labels of loggers.
_LOGGER_PREFIX = "logger="
#: Exceptions of an observer that end the run; ``sys.exit`` counts as a failure too.
_FAILURES = (Exception, SystemExit)
_EVENTS = [name for name in vars(Observer) if not name.startswith("_")]
#: Built-in loggers, which never end training: epochs do not wait for them.
_BUILT_IN = tuple(LOGGER_CLASSES.values())
#: Maximum characters of the reason in ``StopTraining``.
_MAX_REASON = 200


class ObserverError(ConfigError):
    """Exception of an observer, which ends the run, with a message of one line."""

    def __init__(self, label: str, event: str, raised: Exception | SystemExit) -> None:
        """Describe the exception that observer ``label`` raised in ``event``."""
        reason = str(raised) if isinstance(raised, UserError) else explain(raised)
        if reason is None:
            frame = traceback.extract_tb(raised.__traceback__)[-1]
            reason = f"{type(raised).__name__}: {raised} ({frame.filename}:{frame.lineno})"
        is_line = isinstance(raised, UserError)
        super().__init__(reason if is_line else f"{label}: {event} failed: {reason}")
        self.raised = raised  #: the observer's exception
        self.of_logger = label.startswith(_LOGGER_PREFIX)  #: whether a built-in logger raised it


def open_observers(
    requested: ReportOptions,
    directory: Path,
    options: Mapping[str, Any],
    observers: Sequence[Observer] = (),
) -> dict[str, Observer]:
    """Return the ``requested`` loggers and observers, and ``observers``, by labels for errors."""
    by_label: dict[str, Observer] = {}
    for name, enabled in requested.loggers.items():
        if enabled:
            by_label[f"{_LOGGER_PREFIX}{name}"] = LOGGER_CLASSES[name](directory, options)
    for name in requested.observers:
        label = f"observers={name}"
        cls = load_named(name, option="observers")
        try:
            by_label[label] = cls(directory, options)
        except _FAILURES as error:
            raise ObserverError(label, "its construction", error) from error
    for number, observer in enumerate(observers):
        by_label[f"observers[{number}] ({name_of_code(observer)})"] = observer
    for label, observer in by_label.items():
        missing = [event for event in _EVENTS if not callable(getattr(observer, event, None))]
        if missing:
            raise ConfigError(
                f"{label}: expected a method {missing[0]}; gnnscale.Observer as its base has all"
            )
    return by_label


def _forwarder(event: str) -> Callable[..., None]:
    """Return a method that passes ``event`` on to each observer."""

    def notify(self: "Observers", *content: Any) -> None:
        self._notify(event, *content)

    return notify


class Observers(RunObserver):
    """Observer that forwards each event to all observers of a run in order.

    An observer's ``StopTraining`` sets ``stop_reason``; other exceptions become an ObserverError.

    Attributes:
        stop_reason: label of the observer that ended training, and its reason; None if none has.
    """

    def __init__(self, report: Observer, by_label: Mapping[str, Observer]) -> None:
        """Notify ``report`` first, then the observers in ``by_label``."""
        self._report = report
        self._by_label = by_label
        self.may_stop = any(not isinstance(observer, _BUILT_IN) for observer in by_label.values())
        self.stop_reason: str | None = None

    @property
    def stop_requested(self) -> bool:  # type: ignore[override]
        """Whether an observer has raised ``StopTraining``."""
        return self.stop_reason is not None

    started = _forwarder("started")
    stepped = _forwarder("stepped")
    traced = _forwarder("traced")
    trained = _forwarder("trained")
    finished_epoch = _forwarder("finished_epoch")
    finished = _forwarder("finished")

    def close(self) -> None:
        """Close all observers, and raise the ObserverError of the first failure."""
        self._report.close()
        failures = []
        for label, observer in self._by_label.items():
            try:
                observer.close()
            except StopTraining:
                pass  # training has ended
            except _FAILURES as error:
                failures.append(ObserverError(label, "close", error))
        if failures:
            raise failures[0]

    def _notify(self, event: str, *content: Any) -> None:
        with standard_numpy_errors():
            getattr(self._report, event)(*content)
        for label, observer in self._by_label.items():
            try:
                getattr(observer, event)(*content)
            except StopTraining as stop:
                reason = one_line(str(stop), _MAX_REASON)
                self.stop_reason = self.stop_reason or (f"{label}: {reason}" if reason else label)
            except _FAILURES as error:
                raise ObserverError(label, event, error) from error
