"""Loggers of a run: CSV, MLflow, Prometheus, TensorBoard, Weights & Biases."""

import csv
import hashlib
import io
import itertools
import os
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from gnnscale.core import ConfigError, mteps, write_atomically
from gnnscale.core.config.option_names import all_entries
from gnnscale.run.prometheus import text_format
from gnnscale.run.records import EpochRecord, Observer, TrainResult


def epoch_values(record: EpochRecord) -> dict[str, float]:
    """Return an epoch's loss, metrics, times and memory by name, without None."""
    values: dict[str, float | None] = {
        "train_loss": record.train_loss,
        **{f"valid_{name}": value for name, value in record.valid_metrics.items()},
        "lr": record.lr,
        "epoch_time_s": record.epoch_time_s,
        "eval_time_s": record.eval_time_s,
        "mteps": mteps(record.num_edges, record.epoch_time_s),
        "peak_rss_bytes": record.peak_rss_bytes,
    }
    return {name: value for name, value in values.items() if value is not None}


def final_values(run: TrainResult) -> dict[str, float]:
    """Return the test metrics that are not None, by name with the prefix ``test_``."""
    metrics = run.test_metrics.items()
    return {f"test_{name}": value for name, value in metrics if value is not None}


def flat_options(options: Mapping[str, Any]) -> dict[str, str]:
    """Return options as text by dotted name; a list is one value."""
    return {
        name: "null" if value is None else str(value)
        for name, value in all_entries(options)
        if not isinstance(value, Mapping)
    }


def _import_logger(module: str, name: str) -> Any:
    """Return the imported ``module``; ConfigError: the package of ``logger=NAME`` is missing."""
    try:
        return import_module(module)
    except ImportError:
        raise ConfigError(f"logger={name}: is not installed; pip install {name}") from None


CSV_FILE = "metrics.csv"


class CsvLogger(Observer):
    """Logger that writes a line per epoch to ``metrics.csv``; a missing value is empty."""

    def __init__(self, directory: Path, options: Mapping[str, Any]) -> None:
        """Log to ``directory``; ``options`` are not logged, as ``config.yaml`` has them."""
        self._file = directory / CSV_FILE
        self._columns: tuple[str, ...] = ()

    def started(self, run: TrainResult) -> None:
        """Write the header and the epochs before a resumption."""
        measured = [f"valid_{name}" for name in run.measures]
        times = ("lr", "epoch_time_s", "eval_time_s", "mteps", "peak_rss_bytes")
        self._columns = ("epoch", "train_loss", *measured, *times)
        lines = [self._columns, *map(self._row, run.history)]
        write_atomically(self._file, "".join(map(_format_line, lines)))

    def finished_epoch(self, record: EpochRecord) -> None:
        """Append the epoch's line."""
        with self._file.open("a", newline="") as file:
            file.write(_format_line(self._row(record)))

    def _row(self, record: EpochRecord) -> list[Any]:
        values = {"epoch": record.epoch, **epoch_values(record)}
        return [values.get(name, "") for name in self._columns]


def _format_line(row: Sequence[Any]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(row)
    return text.getvalue()


MLFLOW_FILE = "mlflow.db"
_MLFLOW_ADDRESS = "MLFLOW_TRACKING_URI"
#: Limits of MLflow: parameters of a call, and characters of a parameter.
_MAX_PARAMS = 100
_MAX_VALUE = 500


class MlflowLogger(Observer):
    """Logger to ``MLFLOW_TRACKING_URI``, or to ``mlflow.db`` (SQLite) next to the run directory.

    A resumed run is a new run of MLflow with all epochs. If the program has an active run, the new
    run is its child, and the program's run stays active.
    """

    def __init__(self, directory: Path, options: Mapping[str, Any]) -> None:
        """Log the run in ``directory``; ConfigError if MLflow is not installed."""
        self._mlflow = _import_logger("mlflow", "mlflow")
        self._directory = directory.resolve()
        self._options = options
        self._runs = False
        self._sets_address = False
        #: client of the child of the program's active run; None without an active run
        self._client: Any = None
        self._run_id = ""

    def started(self, run: TrainResult) -> None:
        """Start a run with the options and the epochs before a resumption."""
        active = self._mlflow.active_run()
        if active is None:
            self._start()
        else:
            self._client = self._mlflow.MlflowClient()
            child = self._client.create_run(
                active.info.experiment_id,
                run_name=self._directory.name,
                tags={"mlflow.parentRunId": active.info.run_id},
            )
            self._run_id = child.info.run_id
        self._runs = True
        params = iter(flat_options(self._options).items())
        while part := dict(itertools.islice(params, _MAX_PARAMS)):
            self._log_params({name: value[:_MAX_VALUE] for name, value in part.items()})
        for record in run.history:
            self.finished_epoch(record)

    def finished_epoch(self, record: EpochRecord) -> None:
        """Log the values of the epoch."""
        self._log(epoch_values(record), record.epoch)

    def finished(self, run: TrainResult) -> None:
        """Log test metrics at the best epoch, whose weights were tested, and end the run."""
        self._log(final_values(run), run.best_epoch)
        self._end("FINISHED")

    def close(self) -> None:
        """End an unfinished run as failed."""
        self._end("FAILED")

    def _start(self) -> None:
        """Start a run as the process's active run, in SQLite if no tracking address is set."""
        self._sets_address = not os.environ.get(_MLFLOW_ADDRESS)
        if self._sets_address:
            self._mlflow.set_tracking_uri(_sqlite_address(self._directory.parent / MLFLOW_FILE))
        self._mlflow.start_run(run_name=self._directory.name)

    def _log(self, values: Mapping[str, float], epoch: int | None) -> None:
        """Log metrics under names that MLflow allows, such as ``hits_at_10`` for ``hits@10``."""
        named = {name.replace("@", "_at_"): value for name, value in values.items()}
        if self._client is None:
            self._mlflow.log_metrics(named, step=epoch)
            return
        entity, now = self._mlflow.entities.Metric, round(time.time() * 1000)
        metrics = [entity(name, value, now, epoch or 0) for name, value in named.items()]
        self._client.log_batch(self._run_id, metrics=metrics)

    def _log_params(self, values: Mapping[str, str]) -> None:
        if self._client is None:
            self._mlflow.log_params(values)
            return
        params = [self._mlflow.entities.Param(name, value) for name, value in values.items()]
        self._client.log_batch(self._run_id, params=params)

    def _end(self, status: str) -> None:
        if not self._runs:
            return
        self._runs = False
        if self._client is not None:
            self._client.set_terminated(self._run_id, status=status)
            return
        self._mlflow.end_run(status=status)
        if self._sets_address:
            # MLflow has also written the address to the environment.
            self._mlflow.set_tracking_uri(None)
            os.environ.pop(_MLFLOW_ADDRESS, None)


def _sqlite_address(file: Path) -> str:
    """Return the address of a file of SQLite; ConfigError if an address cannot hold its path."""
    if {"?", "#"} & {*str(file)}:
        raise ConfigError(
            f"logger=mlflow: {file}: an address holds no ? or #; set {_MLFLOW_ADDRESS}, or output "
            "to another folder"
        )
    return f"sqlite:///{file}"


PROMETHEUS_FILE = "metrics.prom"
#: Environment variable: folder that node_exporter's textfile collector reads.
_PROMETHEUS_DIR = "PROMETHEUS_TEXTFILE_DIR"


class PrometheusLogger(Observer):
    """Logger that replaces a file in Prometheus's text format after each epoch.

    The file is ``metrics.prom`` in the run directory, or with ``PROMETHEUS_TEXTFILE_DIR`` a file
    named after the run directory in that folder. All series have the label ``run``.
    """

    def __init__(self, directory: Path, options: Mapping[str, Any]) -> None:
        """Log the run in ``directory``; ConfigError if the folder of the variable is missing."""
        self._run = str(directory.resolve())
        self._file = directory / PROMETHEUS_FILE
        folder = os.environ.get(_PROMETHEUS_DIR)
        if folder:
            if not Path(folder).is_dir():
                raise ConfigError(f"logger=prometheus: {_PROMETHEUS_DIR}={folder}: no such folder")
            digest = hashlib.blake2b(self._run.encode(), digest_size=4).hexdigest()
            self._file = Path(folder) / f"gnnscale-{directory.name}-{digest}.prom"
        #: values by name in Prometheus and quality metric ("": none)
        self._series: dict[tuple[str, str], float] = {}

    def started(self, run: TrainResult) -> None:
        """Write the last epoch before a resumption, or that no epoch is done."""
        self._series["epoch", ""], self._series["running", ""] = 0, 1
        for record in run.history[-1:]:
            self._add(record)
        self._write()

    def finished_epoch(self, record: EpochRecord) -> None:
        """Replace the values by those of the epoch."""
        self._add(record)
        self._write()

    def finished(self, run: TrainResult) -> None:
        """Add the test metrics."""
        for name, value in final_values(run).items():
            self._series["test_metric", name.removeprefix("test_")] = value
        self.close()

    def close(self) -> None:
        """Say that a run, finished or not, has ended."""
        if self._series.get(("running", "")):
            self._series["running", ""] = 0
            self._write()

    def _add(self, record: EpochRecord) -> None:
        self._series["epoch", ""] = record.epoch
        for name, value in epoch_values(record).items():
            if name.startswith("valid_"):
                self._series["valid_metric", name.removeprefix("valid_")] = value
            else:
                self._series[name, ""] = value

    def _write(self) -> None:
        write_atomically(self._file, text_format(self._run, self._series))


TENSORBOARD_DIR = "tensorboard"


class TensorBoardLogger(Observer):
    """Logger of scalars per epoch, and of the options as text, to TensorBoard."""

    def __init__(self, directory: Path, options: Mapping[str, Any]) -> None:
        """Log to the folder ``tensorboard`` of ``directory``; ConfigError without TensorBoard."""
        tensorboard = _import_logger("torch.utils.tensorboard", "tensorboard")
        self._open_writer = tensorboard.SummaryWriter
        self._directory = directory / TENSORBOARD_DIR
        self._options = options
        self._writer: Any = None

    def started(self, run: TrainResult) -> None:
        """Write the options and the epochs before a resumption; older events are hidden."""
        self._writer = self._open_writer(str(self._directory), purge_step=0)
        rows = (f"| {name} | {value} |" for name, value in flat_options(self._options).items())
        self._writer.add_text("options", "\n".join(("| option | value |", "| --- | --- |", *rows)))
        for record in run.history:
            self.finished_epoch(record)

    def finished_epoch(self, record: EpochRecord) -> None:
        """Write and flush the values of the epoch."""
        self._add(epoch_values(record), record.epoch)

    def finished(self, run: TrainResult) -> None:
        """Write test metrics at the best epoch, whose weights were tested."""
        self._add(final_values(run), run.best_epoch or 0)

    def close(self) -> None:
        """Close the event file if it is open."""
        if self._writer is not None:
            self._writer.close()

    def _add(self, values: Mapping[str, float], epoch: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, epoch)
        self._writer.flush()


WANDB_PROJECT = "gnnscale"


class WandbLogger(Observer):
    """Logger to Weights & Biases, configured by its environment variables.

    Without ``WANDB_PROJECT`` the project is ``gnnscale``; without ``WANDB_DIR`` files go to the
    folder ``wandb`` next to the run directory. ``WANDB_MODE=offline`` sends nothing. A resumed run
    is a new run of W&B with all epochs.

    If the program has an active run, as in a sweep, epochs are logged to that run, which stays
    open. The program owns its steps, so that metrics have ``epoch`` as their axis. The options are
    under ``gnnscale`` in its configuration.
    """

    def __init__(self, directory: Path, options: Mapping[str, Any]) -> None:
        """Log the run in ``directory``; ConfigError if W&B is not installed."""
        self._wandb = _import_logger("wandb", "wandb")
        self._directory = directory.resolve()
        self._options = options
        self._run: Any = None
        self._is_own = True  # whether this logger has started the run

    def started(self, run: TrainResult) -> None:
        """Start a run or use the active one; log options and the epochs before a resumption."""
        self._is_own = self._wandb.run is None
        self._run = self._start() if self._is_own else self._wandb.run
        if not self._is_own:
            options = {"gnnscale": dict(self._options)}
            self._run.config.update(options, allow_val_change=True)
        for record in run.history:
            self.finished_epoch(record)

    def _start(self) -> Any:
        return self._wandb.init(
            project=os.environ.get("WANDB_PROJECT") or WANDB_PROJECT,
            name=self._directory.name,
            dir=None if os.environ.get("WANDB_DIR") else str(self._directory.parent),
            config=dict(self._options),
            # Output of W&B would mix with that of the run. Inactive runs of the program stay open.
            settings=self._wandb.Settings(silent=True, console="off", reinit="create_new"),
        )

    def finished_epoch(self, record: EpochRecord) -> None:
        """Log the values of the epoch."""
        values = epoch_values(record)
        if self._is_own:
            self._run.log(values, step=record.epoch)
            return
        for name in values:
            self._run.define_metric(name, step_metric="epoch")
        self._run.log({**values, "epoch": record.epoch})

    def finished(self, run: TrainResult) -> None:
        """Add test metrics and the best epoch to the summary, and end the logger's own run."""
        # Steps of W&B only increase, so that test metrics cannot be logged at the best epoch.
        self._run.summary.update({**final_values(run), "best_epoch": run.best_epoch})
        self._end(0)

    def close(self) -> None:
        """End an unfinished run that this logger started as failed."""
        self._end(1)

    def _end(self, status: int) -> None:
        if self._run is not None and self._is_own:
            self._run.finish(exit_code=status)
        self._run = None


LOGGER_CLASSES: dict[str, type[Any]] = {
    "csv": CsvLogger,
    "tensorboard": TensorBoardLogger,
    "mlflow": MlflowLogger,
    "prometheus": PrometheusLogger,
    "wandb": WandbLogger,
}
#: Loggers of a run in addition to its own files.
LOGGERS = tuple(LOGGER_CLASSES)
#: Addresses, by environment variables, of the loggers that write outside of the run directory.
_ADDRESSES = {
    "mlflow": f"mlflow://{_MLFLOW_ADDRESS}",
    "prometheus": f"prometheus://{_PROMETHEUS_DIR}",
    "wandb": "wandb://WANDB_BASE_URL",
}


def addresses_of(logger: Any) -> tuple[list[str], list[str]]:
    """Return the addresses of loggers that are enabled, and the names of all that are."""
    enabled = [name for name, on in logger.items() if on] if isinstance(logger, dict) else []
    return [_ADDRESSES[name] for name in _ADDRESSES if name in enabled], enabled
