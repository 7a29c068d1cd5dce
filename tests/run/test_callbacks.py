from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gnnscale.core.errors import ConfigError
from gnnscale.run.callbacks import ObserverError, Observers, open_observers
from gnnscale.run.loggers import CsvLogger
from gnnscale.run.records import Observer, StopTraining


class Notes(Observer):
    """Keeps what happens, in order with others, and raises what it is asked to."""

    def __init__(self, happened: list[str], name: str, fails: dict[str, Exception]) -> None:
        self._happened, self._name, self._fails = happened, name, fails

    def _note(self, event: str) -> None:
        self._happened.append(f"{self._name}.{event}")
        if event in self._fails:
            raise self._fails[event]

    def trained(self) -> None:
        self._note("trained")

    def close(self) -> None:
        self._note("close")


def opened(directory: Path, *given: Any, **names: object) -> dict[str, Observer]:
    requested: Any = SimpleNamespace(**{"loggers": {}, "observers": [], **names})
    return open_observers(requested, directory, {"seed": 1}, given)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(28, "No space left on device", "/x/y"), "a: trained failed: /x/y: No space left"),
        (KeyError("x"), r"a: trained failed: KeyError: 'x' \(.*test_callbacks.py:\d+\)"),
        (ConfigError("said already"), "^said already$"),
        (SystemExit(3), r"a: trained failed: SystemExit: 3 \(.*test_callbacks.py:\d+\)"),
    ],
)
def test_what_fails_is_told_in_one_line(error: BaseException, message: str) -> None:
    happened: list[str] = []
    failing = Notes(happened, "a", {"trained": error, "close": error})
    everybody = Observers(Observer(), {"a": failing, "b": Notes(happened, "b", {})})
    with pytest.raises(ConfigError, match=message) as raised:
        everybody.trained()
    assert "\n" not in str(raised.value)
    # All are closed.
    with pytest.raises(ConfigError):
        everybody.close()
    assert happened == ["a.trained", "a.close", "b.close"]


def test_all_are_told_in_their_order_and_what_fails_is_kept() -> None:
    raised = KeyError("x")
    everybody = Observers(Observer(), {"a": Notes([], "a", {"trained": raised})})
    with pytest.raises(ObserverError) as found:
        everybody.trained()
    assert found.value.raised is raised
    assert not found.value.of_logger
    assert ObserverError("logger=csv", "trained", raised).of_logger
    happened: list[str] = []
    report, first, second = (Notes(happened, name, {}) for name in ("report", "a", "b"))
    everybody = Observers(report, {"a": first, "b": second})
    everybody.trained()
    everybody.close()
    names = ("report", "a", "b")
    assert happened == [f"{each}.{event}" for event in ("trained", "close") for each in names]


def test_an_observer_ends_training_and_the_others_are_told(tmp_path: Path) -> None:
    happened: list[str] = []
    first = Notes(happened, "a", {"trained": StopTraining("for\ntoday"), "close": StopTraining()})
    everybody = Observers(Observer(), {"a": first, "b": Notes(happened, "b", {})})
    assert everybody.may_stop
    assert not everybody.stop_requested
    everybody.trained()
    everybody.close()
    assert everybody.stop_requested
    assert everybody.stop_reason == r"a: for\ntoday"
    assert happened == ["a.trained", "b.trained", "a.close", "b.close"]
    assert not Observers(Observer(), {"logger=csv": CsvLogger(tmp_path, {})}).may_stop


def test_loggers_and_own_classes_are_made(tmp_path: Path) -> None:
    loggers, own = {"csv": True, "mlflow": False}, ["own_observers:Watch"]
    found = opened(tmp_path, Observer(), loggers=loggers, observers=own)
    csv, own, passed = found.values()
    assert isinstance(csv, CsvLogger)
    assert (own.directory, own.options) == (tmp_path, {"seed": 1})
    last = f"observers[0] ({Observer.__module__}:Observer)"
    assert list(found) == ["logger=csv", "observers=own_observers:Watch", last]
    assert type(passed) is Observer


def test_what_is_no_observer(tmp_path: Path) -> None:
    for name, message in (
        ("Half", "observers=own_observers:Half: expected a method stepped; gnn"),
        ("Broken", "its construction failed: ZeroDivisionError: division by zero"),
        ("Nobody", "has no Nobody"),
    ):
        with pytest.raises(ConfigError, match=message):
            opened(tmp_path, observers=[f"own_observers:{name}"])
