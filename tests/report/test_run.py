from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gnnscale.config import ConfigError
from gnnscale.report.run import train_and_report
from gnnscale.run_directory import read_run

OPTIONS = {"seed": 5, "epochs": 2}


def train(directory: Path, run_training: Callable[..., Any]) -> Any:
    return train_and_report(
        SimpleNamespace(epochs=2),  # type: ignore[arg-type]
        directory,
        options=OPTIONS,
        run_training=run_training,
    )


def ended_by(error: BaseException) -> Callable[..., Any]:
    """A run that comes to an end before it has started."""

    def run_training(*_: Any, **__: Any) -> Any:
        raise error

    return run_training


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError(), OSError(28, "full")])
def test_a_run_that_did_not_get_to_start_can_be_resumed(
    tmp_path: Path, error: BaseException
) -> None:
    with pytest.raises(type(error)):
        train(tmp_path, ended_by(error))
    assert [each.name for each in tmp_path.iterdir()] == ["config.yaml"]
    assert read_run(tmp_path, OPTIONS, option="resume") == OPTIONS


def test_a_refused_run_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="wrong"):
        train(tmp_path, ended_by(ConfigError("wrong")))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ConfigError("wrong")])
def test_options_of_another_run_stay_until_this_one_starts(
    tmp_path: Path, error: BaseException
) -> None:
    (tmp_path / "config.yaml").write_text("seed: 7\n")
    with pytest.raises(type(error)):
        train(tmp_path, ended_by(error))
    assert (tmp_path / "config.yaml").read_text() == "seed: 7\n"
