import json
import logging
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from gnnscale.core.config.run_directory import read_run
from gnnscale.core.errors import ConfigError
from gnnscale.report.run_report import train_and_report
from gnnscale.run.inputs import ReportOptions
from gnnscale.run.records import Observer

OPTIONS = {"seed": 5, "epochs": 2}


def train(directory: Path, run_training: Callable[..., Any], **values: Any) -> Any:
    few: dict[str, Any] = {"loggers": {}, "observers": [], "predictions": False, "patience": None}
    options = ReportOptions(epochs=2, **few | values)
    return train_and_report(run_training, directory, report_options=options, options=OPTIONS)


def ended_by(error: BaseException) -> Callable[..., Any]:
    return mock.Mock(side_effect=error)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError(), OSError(28, "full")])
def test_a_run_that_did_not_start_can_be_resumed(tmp_path: Path, error: BaseException) -> None:
    with pytest.raises(type(error)):
        train(tmp_path, ended_by(error))
    assert [each.name for each in tmp_path.iterdir()] == ["config.yaml"]
    assert read_run(tmp_path, OPTIONS, option="resume") == OPTIONS


@pytest.mark.parametrize(
    ("message", "logger"),
    [("^wrong$", {}), ("^logger=mlflow: is not installed", {"csv": True, "mlflow": True})],
)
def test_a_refused_run_leaves_nothing(tmp_path, monkeypatch, message, logger) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ConfigError, match=message):
        train(tmp_path, ended_by(ConfigError("wrong")), loggers=logger)
    assert list(tmp_path.iterdir()) == []


def test_options_of_another_run_stay_until_the_start(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("seed: 7\n")
    for error in (KeyboardInterrupt(), ConfigError("wrong")):
        with pytest.raises(type(error)):
            train(tmp_path, ended_by(error))
        assert (tmp_path / "config.yaml").read_text() == "seed: 7\n"


def test_an_early_stop(tmp_path: Path, hybrid_run: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    def run_training(observer: Observer) -> Any:
        hybrid_run.tell(observer)
        return replace(hybrid_run.result, stopped_early=True)

    result = train(tmp_path, run_training, patience=5, loggers={"csv": True})
    assert caplog.messages[-1] == (
        f"stopped after epoch 3: no better {result.metric} for 5 validations "
        f"(runtime.patience=5); best was epoch {result.best_epoch}"
    )
    assert (tmp_path / "metrics.csv").read_text().count("\n") == 4


def test_a_logger_that_fails_ends_the_run_in_one_line(tmp_path: Path, hybrid_run: Any) -> None:
    def run_training(observer: Observer) -> Any:
        observer.started(hybrid_run.started)
        (tmp_path / "metrics.csv").unlink()
        (tmp_path / "metrics.csv").mkdir()
        observer.finished_epoch(hybrid_run.epochs[0])

    said = r"logger=csv: finished_epoch failed: .*metrics\.csv: Is a directory$"
    with pytest.raises(ConfigError, match=said) as error:
        train(tmp_path, run_training, loggers={"csv": True})
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["status"], summary["error"]) == ("failed", str(error.value))
