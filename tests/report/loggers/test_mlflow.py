from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gnnscale.config import ConfigError
from gnnscale.report.loggers.mlflow import MlflowLogger


class Calls(ModuleType):
    """A module ``mlflow`` that keeps what it is told, and takes what the documented one takes."""

    def __init__(self) -> None:
        super().__init__("mlflow")
        self.calls: list[Any] = []

    def set_tracking_uri(self, uri: str) -> None:
        self.calls.append(("set_tracking_uri", uri))

    def start_run(self, *, run_name: str) -> None:
        self.calls.append(("start_run", run_name))

    def log_params(self, params: dict[str, Any]) -> None:
        assert len(params) <= 100
        assert all(len(value) <= 500 for value in params.values())
        self.calls.append(("log_params", params))

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        assert all(isinstance(each, (int, float)) for each in metrics.values())
        # As mlflow.utils.validation has it.
        assert all(re.fullmatch(r"[/\w.\- ]*", name) for name in metrics)
        self.calls.append(("log_metrics", metrics, step))

    def end_run(self, status: str) -> None:
        self.calls.append(("end_run", status))


@pytest.fixture
def mlflow(monkeypatch: pytest.MonkeyPatch) -> Calls:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    calls = Calls()
    monkeypatch.setitem(sys.modules, "mlflow", calls)
    return calls


@pytest.mark.parametrize("known", [0, 2])
def test_what_mlflow_is_told(
    mlflow: Calls,
    follow: Callable[..., Any],
    measured: Any,
    options: Any,
    tmp_path: Path,
    known: int,
) -> None:
    run = tmp_path / "my run"
    follow(MlflowLogger(run, options), known=known)
    place, started, params, *epochs, tested, ended = mlflow.calls
    assert place == ("set_tracking_uri", f"file://{tmp_path}/mlruns")
    assert started == ("start_run", "my run")
    assert params[1]["model.hidden"] == "16"
    assert [(each[2], each[1]["train_loss"]) for each in epochs] == [
        (each.epoch, each.train_loss) for each in measured.epochs
    ]
    assert tested == ("log_metrics", {"test_accuracy": 0.7}, measured.result.best_epoch)
    assert ended == ("end_run", "FINISHED")


def test_names_that_mlflow_does_not_take(mlflow: Calls, measured: Any, tmp_path: Path) -> None:
    logger = MlflowLogger(tmp_path, {})
    logger.started(measured.started)
    found = {"mrr": 0.5, "hits@10": 0.75}
    logger.finished_epoch(replace(measured.epochs[0], valid_metrics=found))
    assert mlflow.calls[-1][1]["valid_hits_at_10"] == 0.75


def test_many_options_take_several_calls(
    mlflow: Calls, measured: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://somewhere")
    options = {f"option{number}": "x" * 1000 for number in range(150)}
    logger = MlflowLogger(tmp_path, options)
    logger.started(measured.started)
    logger.close()
    names = [each[0] for each in mlflow.calls]
    assert names == ["start_run", "log_params", "log_params", "end_run"]
    assert mlflow.calls[-1] == ("end_run", "FAILED")
    assert sum(len(each[1]) for each in mlflow.calls if each[0] == "log_params") == 150


def test_a_run_that_did_not_start_is_none(mlflow: Calls, options: Any, tmp_path: Path) -> None:
    MlflowLogger(tmp_path, options).close()
    assert mlflow.calls == []


@pytest.mark.skipif(find_spec("mlflow") is not None, reason="mlflow is installed")
def test_one_line_says_what_to_install(options: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        MlflowLogger(tmp_path, options)
    assert str(error.value) == "logger=mlflow: is not installed; pip install mlflow"
