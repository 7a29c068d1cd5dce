"""What follows a run: its report, custom observers, and loggers (CSV, MLflow, TensorBoard, W&B)."""

import csv
import io
import itertools
import os
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gnnscale.core import (
    ConfigError,
    StructArray,
    UserError,
    explain,
    mteps,
    one_line,
    standard_numpy_errors,
    write_atomically,
)
from gnnscale.core.config.user_code import load_named, name_of_code
from gnnscale.run.config import RunConfig
from gnnscale.run.records import (
    EpochRecord,
    Observer,
    RunObserver,
    StepRecord,
    StopTraining,
    TrainResult,
)


def epoch_values(record: EpochRecord) -> dict[str, float]:
    """Return the numbers of an epoch; those that it has not are left out."""
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


def flat_options(options: Mapping[str, Any]) -> dict[str, str]:
    """Return resolved options as text by their dotted names; lists stay whole."""
    return dict(_flat(options, ""))


def _flat(options: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", "null" if value is None else str(value)


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


MLFLOW_DIR = "mlruns"

_MLFLOW_ADDRESS = "MLFLOW_TRACKING_URI"

#: What MLflow takes: parameters of one call, and characters of one.
_MAX_PARAMS = 100

_MAX_VALUE = 500


class MlflowLogger(Observer):
    """Logs to ``MLFLOW_TRACKING_URI``, or to the folder ``mlruns`` beside the run directory.

    A run that is resumed is a new run of MLflow, with the epochs before. If the program has an
    active run, the new run is its child, and the program's run stays active.
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
        self._sets_address = False
        #: logs to the child of the program's active run; None without an active run
        self._client: Any = None
        self._run_id = ""

    def started(self, run: TrainResult) -> None:
        """Begin a run with the options, and the epochs that it goes on from."""
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

    def _start(self) -> None:
        """Make a new run the active one of the process."""
        self._sets_address = not os.environ.get(_MLFLOW_ADDRESS)
        if self._sets_address:
            self._mlflow.set_tracking_uri((self._directory.parent / MLFLOW_DIR).as_uri())
        self._mlflow.start_run(run_name=self._directory.name)

    def _log(self, values: Mapping[str, float], epoch: int | None) -> None:
        """Log numbers, by names that MLflow takes: ``hits@10`` is none."""
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
            # It writes the address to the environment as well.
            self._mlflow.set_tracking_uri(None)
            os.environ.pop(_MLFLOW_ADDRESS, None)


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


WANDB_PROJECT = "gnnscale"


class WandbLogger(Observer):
    """Logs to Weights & Biases, as its environment variables say.

    Without ``WANDB_PROJECT`` the project is ``gnnscale``; without ``WANDB_DIR`` files are kept in
    the folder ``wandb`` beside the run directory. ``WANDB_MODE=offline`` sends nothing. A run that
    is resumed is a new run of W&B, with the epochs before.

    If the program has an active run, as in a sweep, epochs are logged to that run, which stays
    open: without a step, which is the program's own, and with ``epoch`` as the axis of the metrics.
    The options are under ``gnnscale`` in its configuration.
    """

    def __init__(self, directory: Path, options: Mapping[str, Any]) -> None:
        """Log the run in ``directory``.

        Raises:
            ConfigError: W&B is not installed.
        """
        try:
            import wandb
        except ImportError:
            raise ConfigError("logger=wandb: is not installed; pip install wandb") from None
        self._wandb: Any = wandb
        self._directory = directory.resolve()
        self._options = options
        self._run: Any = None
        self._is_own = True  # whether the run is not the program's

    def started(self, run: TrainResult) -> None:
        """Begin a run, or continue the active one, with the options and the epochs so far."""
        self._is_own = self._wandb.run is None
        if self._is_own:
            self._run = self._start()
        else:
            self._run = self._wandb.run
            options = {"gnnscale": dict(self._options)}
            self._run.config.update(options, allow_val_change=True)
        for record in run.history:
            self.finished_epoch(record)

    def _start(self) -> Any:
        beside = None if os.environ.get("WANDB_DIR") else str(self._directory.parent)
        return self._wandb.init(
            project=os.environ.get("WANDB_PROJECT") or WANDB_PROJECT,
            name=self._directory.name,
            dir=beside,
            config=dict(self._options),
            settings=self._wandb.Settings(
                # Its own lines would mix with those of the run.
                silent=True,
                console="off",
                # Other runs of the program, which are not the active one, stay open.
                reinit="create_new",
            ),
        )

    def finished_epoch(self, record: EpochRecord) -> None:
        """Log the epoch's numbers."""
        values = epoch_values(record)
        if self._is_own:
            self._run.log(values, step=record.epoch)
            return
        for name in values:
            self._run.define_metric(name, step_metric="epoch")
        self._run.log({**values, "epoch": record.epoch})

    def finished(self, run: TrainResult) -> None:
        """Add test metrics, and the epoch whose weights were tested, to the summary; end the run.

        Steps of W&B only grow, so that they cannot be of that epoch.
        """
        found = {f"test_{name}": each for name, each in run.test_metrics.items()}
        known = {name: each for name, each in found.items() if each is not None}
        self._run.summary.update({**known, "best_epoch": run.best_epoch})
        self._end(0)

    def close(self) -> None:
        """End a run that did not come to its end."""
        self._end(1)

    def _end(self, status: int) -> None:
        if self._run is not None and self._is_own:
            self._run.finish(exit_code=status)
        self._run = None


_LOGGERS: dict[str, type[Any]] = {
    "csv": CsvLogger,
    "tensorboard": TensorBoardLogger,
    "mlflow": MlflowLogger,
    "wandb": WandbLogger,
}
#: With it the names of loggers begin, in errors.
_LOGGER = "logger="
#: What an observer may raise; calling ``sys.exit`` is reported as a failure as well.
_FAILURES = (Exception, SystemExit)


class ObserverError(ConfigError):
    """An observer raised an exception, which ends the run. The message is one line."""

    def __init__(self, label: str, event: str, raised: Exception | SystemExit) -> None:
        """Describe what observer ``label`` raised in ``event``."""
        super().__init__(_failure_line(label, event, raised))
        self.raised = raised  #: the observer's own exception
        self.of_logger = label.startswith(_LOGGER)  #: whether a logger of ours raised it


_EVENTS = [name for name in vars(Observer) if not name.startswith("_")]
#: Loggers, which do not end training, so that no epoch waits for them.
_OURS = tuple(_LOGGERS.values())
#: Characters of an observer's reason to end training.
_MAX_REASON = 200


def open_observers(
    config: RunConfig, directory: Path, options: Mapping[str, Any], given: Sequence[Observer] = ()
) -> dict[str, Observer]:
    """Return loggers and custom observers of a run, keyed by their names in errors.

    Nothing is written before the run has started.

    Raises:
        ConfigError: a logger is not installed, or there is no such observer.
    """
    found: dict[str, Observer] = {}
    for name, wanted in config.logger.items():
        if wanted:
            found[f"{_LOGGER}{name}"] = _LOGGERS[name](directory, options)
    for name in config.observers:
        label = f"observers={name}"
        cls = load_named(name, option="observers")
        try:
            found[label] = cls(directory, options)
        except _FAILURES as error:
            raise ObserverError(label, "making it", error) from error
    for number, observer in enumerate(given):
        found[f"observers[{number}] ({name_of_code(observer)})"] = observer
    for label, observer in found.items():
        lacking = [each for each in _EVENTS if not callable(getattr(observer, each, None))]
        if lacking:
            raise ConfigError(
                f"{label}: has no method {lacking[0]}; gnnscale.Observer as its base has all"
            )
    return found


class Observers(RunObserver):
    """Passes each event to all observers in order; a failing one ends the run in one line.

    Attributes:
        stop_reason: which observer ended training, and why; None if none has.
    """

    def __init__(self, report: Observer, others: Mapping[str, Observer]) -> None:
        """Notify ``report`` first, then ``others``, which are keyed by their names in errors."""
        self._report = report
        self._others = others
        self.may_stop = any(not isinstance(each, _OURS) for each in others.values())
        self.stop_reason: str | None = None

    @property
    def stop_requested(self) -> bool:  # type: ignore[override]
        """Whether an observer has raised ``StopTraining``."""
        return self.stop_reason is not None

    def started(self, run: TrainResult) -> None:
        """Notify all observers."""
        self._notify("started", run)

    def stepped(self, record: StepRecord) -> None:
        """Notify all observers."""
        self._notify("stepped", record)

    def traced(self, spans: StructArray) -> None:
        """Notify all observers."""
        self._notify("traced", spans)

    def trained(self) -> None:
        """Notify all observers."""
        self._notify("trained")

    def finished_epoch(self, record: EpochRecord) -> None:
        """Notify all observers."""
        self._notify("finished_epoch", record)

    def finished(self, run: TrainResult) -> None:
        """Notify all observers."""
        self._notify("finished", run)

    def close(self) -> None:
        """Close all observers, even if one of them fails.

        Raises:
            ObserverError: an observer failed; the message is of the first.
        """
        self._report.close()
        failures = []
        for label, observer in self._others.items():
            try:
                observer.close()
            except StopTraining:
                pass  # it has ended
            except _FAILURES as error:
                failures.append(ObserverError(label, "close", error))
        if failures:
            raise failures[0]

    def _notify(self, event: str, *content: Any) -> None:
        with standard_numpy_errors():
            getattr(self._report, event)(*content)
        for label, observer in self._others.items():
            try:
                getattr(observer, event)(*content)
            except StopTraining as stop:
                reason = one_line(str(stop), _MAX_REASON)
                self.stop_reason = self.stop_reason or (f"{label}: {reason}" if reason else label)
            except _FAILURES as error:
                raise ObserverError(label, event, error) from error


def _failure_line(label: str, what: str, error: Exception | SystemExit) -> str:
    """Describe the exception of an observer in one line."""
    if isinstance(error, UserError):
        return str(error)
    reason = explain(error)
    if reason is None:
        place = traceback.extract_tb(error.__traceback__)[-1]
        reason = f"{type(error).__name__}: {error} ({place.filename}:{place.lineno})"
    return f"{label}: {what} failed: {reason}"
