"""TensorBoard's event files, in ``tensorboard`` below the run directory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gnnscale.config import ConfigError
from gnnscale.report.loggers.values import epoch_values, flat_options
from gnnscale.runtime.telemetry.records import EpochRecord, Observer, TrainResult

__all__ = ["TENSORBOARD_DIR", "TensorBoardLogger"]

TENSORBOARD_DIR = "tensorboard"


class TensorBoardLogger(Observer):
    """Scalars over epochs, and the options as a text."""

    def __init__(self, directory: Path, options: Mapping[str, Any]) -> None:
        """Write below ``directory``.

        Raises:
            ConfigError: TensorBoard is not installed.
        """
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ConfigError(
                "logger=tensorboard: is not installed; pip install tensorboard"
            ) from None
        self._open = SummaryWriter
        self._directory = directory / TENSORBOARD_DIR
        self._options = options
        self._writer: Any = None

    def started(self, run: TrainResult) -> None:
        """Write options and the epochs that the run goes on from.

        What an earlier part of the run, or another run, has written to the directory is hidden.
        """
        self._writer = self._open(str(self._directory), purge_step=0)
        rows = (f"| {name} | {value} |" for name, value in flat_options(self._options).items())
        self._writer.add_text("options", "\n".join(("| option | value |", "| --- | --- |", *rows)))
        for record in run.history:
            self.finished_epoch(record)

    def finished_epoch(self, record: EpochRecord) -> None:
        """Write the epoch's numbers, which may be looked at from now on."""
        self._add(epoch_values(record), record.epoch)

    def finished(self, run: TrainResult) -> None:
        """Write test metrics, at the epoch whose weights were tested."""
        found = {f"test_{name}": value for name, value in run.test_metrics.items()}
        self._add(found, run.best_epoch or 0)

    def close(self) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()

    def _add(self, values: Mapping[str, float | None], epoch: int) -> None:
        for name, value in values.items():
            if value is not None:
                self._writer.add_scalar(name, value, epoch)
        self._writer.flush()
