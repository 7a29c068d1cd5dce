"""A table of epochs, ``metrics.csv`` in the run directory."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gnnscale.files import write_atomically
from gnnscale.report.loggers.values import epoch_values
from gnnscale.runtime.telemetry.records import EpochRecord, Observer, TrainResult

__all__ = ["CSV_FILE", "CsvLogger"]

CSV_FILE = "metrics.csv"


class CsvLogger(Observer):
    """One line for each epoch; what an epoch has not stays empty."""

    def __init__(self, directory: Path, options: Mapping[str, Any]) -> None:
        """Write to ``directory``; options are in ``config.yaml`` already."""
        self._file = directory / CSV_FILE
        self._columns: tuple[str, ...] = ()

    def started(self, run: TrainResult) -> None:
        """Write the head, and the epochs that the run goes on from."""
        measured = [f"valid_{name}" for name in run.measures]
        times = ("lr", "epoch_time_s", "eval_time_s", "mteps", "peak_rss_bytes")
        self._columns = ("epoch", "train_loss", *measured, *times)
        lines = [self._columns, *map(self._row, run.history)]
        write_atomically(self._file, "".join(map(_line, lines)))

    def finished_epoch(self, record: EpochRecord) -> None:
        """Add the epoch's line."""
        with self._file.open("a", newline="") as file:
            file.write(_line(self._row(record)))

    def _row(self, record: EpochRecord) -> list[Any]:
        values = {"epoch": record.epoch, **epoch_values(record)}
        return [values.get(name, "") for name in self._columns]


def _line(row: Sequence[Any]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(row)
    return text.getvalue()
