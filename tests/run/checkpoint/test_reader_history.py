import os
from dataclasses import replace
from pathlib import Path

import pytest
from epochs import epoch

from gnnscale.core.errors import ConfigError
from gnnscale.report.summary import append_metrics, write_metrics
from gnnscale.run.checkpoint.reader import is_validation_of, num_recorded, read_history

HISTORY = [epoch(1), epoch(2, None), epoch(3)]


def test_epochs_are_read_as_they_were_written(tmp_path: Path) -> None:
    assert list(read_history(tmp_path)) == []
    assert num_recorded(tmp_path, HISTORY) == 0
    for number, record in enumerate(HISTORY):
        append_metrics(tmp_path, record)
        assert list(read_history(tmp_path)) == HISTORY[: number + 1]
        assert num_recorded(tmp_path, HISTORY) == number + 1


def test_a_line_of_something_else_ends_them(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    write_metrics(tmp_path, HISTORY[:2])
    whole = file.read_text()
    for line in ("", "{", "5", '{"epoch": 3}', "[" * 10**5, "\x00\xff"):
        file.write_text(f"{whole}{line}\n{whole}")
        assert list(read_history(tmp_path)) == HISTORY[:2]
    # One that was cut off.
    write_metrics(tmp_path, HISTORY)
    file.write_bytes(file.read_bytes()[:-1])
    assert list(read_history(tmp_path)) == HISTORY[:2]
    assert num_recorded(tmp_path, HISTORY) == 2


def test_epochs_of_another_time_do_not_count(tmp_path: Path) -> None:
    # A run that was resumed before its third epoch, whose lines are not taken away yet; or one that
    # is asked for an earlier state of it while it goes on.
    write_metrics(tmp_path, HISTORY)
    assert num_recorded(tmp_path, HISTORY[:2]) == 2
    assert num_recorded(tmp_path, [HISTORY[0], replace(HISTORY[1], epoch_time_s=9.0)]) == 0
    assert num_recorded(tmp_path, [*HISTORY[:2], replace(HISTORY[2], epoch_time_s=9.0)]) == 0
    # The first is missing.
    write_metrics(tmp_path, HISTORY[1:])
    assert list(read_history(tmp_path)) == []


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "metrics.jsonl")
    for ask in (lambda: list(read_history(tmp_path)), lambda: num_recorded(tmp_path, HISTORY)):
        with pytest.raises(ConfigError, match=r"metrics\.jsonl: not a regular file"):
            ask()


def test_a_validation_belongs_to_its_epoch() -> None:
    assert is_validation_of(epoch(2, None), epoch(2, 0.7))
    assert is_validation_of(epoch(2, None), epoch(2, None))
    assert not is_validation_of(epoch(2, None), epoch(3, 0.7))
    assert not is_validation_of(epoch(2, None), replace(epoch(2, 0.7), train_loss=0.25))
