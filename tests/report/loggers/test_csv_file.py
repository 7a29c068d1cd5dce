from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gnnscale.report.loggers.csv_file import CSV_FILE, CsvLogger


@pytest.mark.parametrize("known", [0, 2])
def test_a_line_for_each_epoch_whenever_it_was_done(
    follow: Callable[..., Any], measured: Any, options: Any, tmp_path: Path, known: int
) -> None:
    (tmp_path / CSV_FILE).write_text("of,another,run\n1,2,3\n")
    follow(CsvLogger(tmp_path, options), known=known)
    with (tmp_path / CSV_FILE).open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["epoch"] for row in rows] == ["1", "2", "3"]
    assert [row["valid_accuracy"] for row in rows] == ["0.5", "", "0.75"]
    assert [row["valid_macro_f1"] for row in rows] == ["", "", "0.25"]
    losses = [float(row["train_loss"]) for row in rows]
    assert losses == [each.train_loss for each in measured.epochs]


def test_nothing_is_written_before_the_run_starts(options: Any, tmp_path: Path) -> None:
    CsvLogger(tmp_path, options).close()
    assert list(tmp_path.iterdir()) == []
