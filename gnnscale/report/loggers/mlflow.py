"""A run of MLflow: parameters, and metrics over epochs."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gnnscale.config import ConfigError
from gnnscale.report.loggers.values import epoch_values, flat_options
from gnnscale.runtime.telemetry.records import EpochRecord, Observer, TrainResult

__all__ = ["MLFLOW_DIR", "MlflowLogger"]

MLFLOW_DIR = "mlruns"
#: What MLflow takes: parameters of one call, and characters of one.
_MAX_PARAMS = 100
_MAX_VALUE = 500


class MlflowLogger(Observer):
    """Logs to ``MLFLOW_TRACKING_URI``, or to the folder ``mlruns`` beside the run directory.

    A run that is resumed is a new run of MLflow, with the epochs before.
    """

    def __init__(self, directory: Path, options: Mapping[str, Any]) -> None:
        """Log the run in ``directory``.

        Raises:
            ConfigError: MLflow is not installed.
        """
        try:
            import mlflow
        except ImportError:
            raise ConfigError("logger=mlflow: is not installed; pip install mlflow") from None
        self._mlflow: Any = mlflow
        self._directory = directory.resolve()
        self._options = options
        self._runs = False

    def started(self, run: TrainResult) -> None:
        """Begin a run with the options, and the epochs that it goes on from."""
        if not os.environ.get("MLFLOW_TRACKING_URI"):
            self._mlflow.set_tracking_uri((self._directory.parent / MLFLOW_DIR).as_uri())
        self._mlflow.start_run(run_name=self._directory.name)
        self._runs = True
        params = iter(flat_options(self._options).items())
        while part := dict(itertools.islice(params, _MAX_PARAMS)):
            self._mlflow.log_params({name: value[:_MAX_VALUE] for name, value in part.items()})
        for record in run.history:
            self.finished_epoch(record)

    def finished_epoch(self, record: EpochRecord) -> None:
        """Log the epoch's numbers."""
        self._log(epoch_values(record), record.epoch)

    def finished(self, run: TrainResult) -> None:
        """Log test metrics, at the epoch whose weights were tested, and end the run."""
        found = {f"test_{name}": each for name, each in run.test_metrics.items()}
        known = {name: each for name, each in found.items() if each is not None}
        self._log(known, run.best_epoch)
        self._end("FINISHED")

    def close(self) -> None:
        """End a run that did not come to its end."""
        self._end("FAILED")

    def _log(self, values: Mapping[str, float], epoch: int | None) -> None:
        """Log numbers, by names that MLflow takes: ``hits@10`` is none."""
        named = {name.replace("@", "_at_"): value for name, value in values.items()}
        self._mlflow.log_metrics(named, step=epoch)

    def _end(self, status: str) -> None:
        if self._runs:
            self._runs = False
            self._mlflow.end_run(status=status)
