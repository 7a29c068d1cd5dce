"""The folder that a command writes into."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gnnscale.cli import output
from gnnscale.cli.output import Before, check_unused, resume_command, taken_back
from gnnscale.core.errors import ConfigError


@pytest.mark.parametrize("name", ["config.yaml", "summary.json", "checkpoints", ".hydra"])
def test_a_folder_that_holds_a_run_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "mine").touch()
    check_unused(tmp_path)
    check_unused(tmp_path / "missing")
    (tmp_path / name).mkdir()
    with pytest.raises(ConfigError, match=f"^output={tmp_path}: holds a run; resume={tmp_path} "):
        check_unused(tmp_path)


@pytest.mark.parametrize("name", ["multirun.yaml", "results.json", "0"])
def test_a_folder_that_holds_a_sweep_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(ConfigError, match="holds a sweep"):
        check_unused(tmp_path, jobs=True)
    check_unused(tmp_path)


def interrupted(directory: Path, *made: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        make(directory, *made)


def make(directory: Path, *made: str) -> None:
    before = Before(directory)
    directory.mkdir(parents=True, exist_ok=True)
    with taken_back(before, "a", "b"):
        for name in made:
            (directory / name).touch()
        raise KeyboardInterrupt


def test_what_was_made_is_taken_back(tmp_path: Path) -> None:
    interrupted(tmp_path / "x" / "y", "a", "b")
    assert os.listdir(tmp_path) == []


def test_what_was_there_stays(tmp_path: Path) -> None:
    for name in ("mine", "a"):
        (tmp_path / name).touch()
    interrupted(tmp_path, "a", "b")
    assert sorted(os.listdir(tmp_path)) == ["a", "mine"]


def test_a_run_that_has_begun_stays(tmp_path: Path) -> None:
    interrupted(tmp_path / "x", "a", "checkpoint")
    assert sorted(os.listdir(tmp_path / "x")) == ["a", "checkpoint"]


def test_the_command_that_goes_on_is_for_a_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "_in_use", None)
    assert resume_command() is None
    directory = tmp_path / "it's mine"
    directory.mkdir()
    monkeypatch.setattr(output, "_in_use", directory)
    assert resume_command() is None
    (directory / "config.yaml").touch()
    told = resume_command()
    assert told is not None
    assert told == f"gnnscale train 'resume={tmp_path}/it'\"'\"'s mine'"


@pytest.mark.long
def test_one_of_two_commands_has_the_folder(
    run_lines: Callable[..., list[Any]], tmp_path: Path
) -> None:
    """A folder that another command has claimed, and has not yet written anything else into."""
    (tmp_path / "run" / ".hydra").mkdir(parents=True)
    (answer,) = run_lines([["simulate", f"output={tmp_path}/run"]])
    assert answer.status == 1
    assert "holds a run" in answer.stderr
    assert os.listdir(tmp_path / "run") == [".hydra"]
