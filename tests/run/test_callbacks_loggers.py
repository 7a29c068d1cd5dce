import csv
import json
import re
import struct
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from one_line import one_line

from gnnscale.run.loggers import (
    CSV_FILE,
    TENSORBOARD_DIR,
    CsvLogger,
    MlflowLogger,
    TensorBoardLogger,
    WandbLogger,
    epoch_values,
    flat_options,
)
from gnnscale.run.records import Observer, TrainResult

#: Options of a made-up run.
OPTIONS = {"seed": 3, "model": {"hidden": 16, "dims": [4, 5]}, "cache_plan": None}
Follow = Callable[..., TrainResult]


@pytest.fixture
def measured(hybrid_run: Any) -> Any:
    """Three epochs with two metrics, the second of which was not validated."""
    values = [{"accuracy": 0.5, "macro_f1": None}, {}, {"accuracy": 0.75, "macro_f1": 0.25}]
    epochs = tuple(
        replace(each, valid_metrics=found, valid_metric=found.get("accuracy"))
        for each, found in zip(hybrid_run.epochs, values, strict=True)
    )
    started = replace(hybrid_run.started, measures=("accuracy", "macro_f1"))
    return replace(hybrid_run, started=started, epochs=epochs)


@pytest.fixture
def follow(measured: Any) -> Follow:
    """Tell an observer of the run, the first epochs of which were done before it was resumed."""

    def tell(observer: Observer, *, known: int = 0) -> TrainResult:
        observer.started(replace(measured.started, history=measured.epochs[:known]))
        for epoch in measured.epochs[known:]:
            observer.trained()
            observer.finished_epoch(epoch)
        result = replace(measured.result, test_metrics={"accuracy": 0.7, "macro_f1": None})
        observer.finished(result)
        observer.close()
        return result

    return tell


class Calls(ModuleType):
    """A module ``mlflow`` that keeps what it is told, and takes what the documented one takes."""

    def __init__(self) -> None:
        super().__init__("mlflow")
        self.calls: list[Any] = []
        self.active: Any = None  #: the run of the program
        self.entities = SimpleNamespace(Metric=lambda *given: given, Param=lambda *given: given)

    def active_run(self) -> Any:
        return self.active

    def MlflowClient(self) -> "Client":
        return Client(self.calls)

    def set_tracking_uri(self, uri: str | None) -> None:
        self.calls.append(("set_tracking_uri", uri))

    def start_run(self, *, run_name: str) -> None:
        self.calls.append(("start_run", run_name))

    def log_params(self, params: dict[str, Any]) -> None:
        assert len(params) <= 100
        assert all(len(value) <= 500 for value in params.values())
        self.calls.append(("log_params", params))

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        assert all(isinstance(each, (int, float)) for each in metrics.values())
        # As mlflow.utils.validation has it.
        assert all(re.fullmatch(r"[/\w.\- ]*", name) for name in metrics)
        self.calls.append(("log_metrics", metrics, step))

    def end_run(self, status: str) -> None:
        self.calls.append(("end_run", status))


class Client:
    """MLflow's client, by which runs are logged to that are not the active one."""

    def __init__(self, calls: list[Any]) -> None:
        self.calls = calls

    def create_run(self, experiment_id: str, *, run_name: str, tags: dict[str, str]) -> Any:
        self.calls.append(("create_run", experiment_id, run_name, tags))
        return SimpleNamespace(info=SimpleNamespace(run_id="child"))

    def log_batch(self, run_id: str, *, metrics: Any = (), params: Any = ()) -> None:
        self.calls.append(("log_batch", run_id, list(metrics), list(params)))

    def set_terminated(self, run_id: str, *, status: str) -> None:
        self.calls.append(("set_terminated", run_id, status))


@pytest.fixture
def mlflow(monkeypatch: pytest.MonkeyPatch) -> Calls:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    calls = Calls()
    monkeypatch.setitem(sys.modules, "mlflow", calls)
    return calls


def test_what_an_epoch_has_not_is_left_out(measured: Any) -> None:
    first, second, third = map(epoch_values, measured.epochs)
    assert (first["valid_accuracy"], third["valid_macro_f1"]) == (0.5, 0.25)
    assert not {name for name in second if name.startswith("valid")}
    assert "valid_macro_f1" not in first
    record = measured.epochs[0]
    assert first["train_loss"] == record.train_loss
    assert first["mteps"] == record.num_edges / record.epoch_time_s / 1e6
    assert all(isinstance(value, (int, float)) for value in first.values())
    model = {"model.hidden": "16", "model.dims": "[4, 5]"}
    assert flat_options(OPTIONS) == {"seed": "3", **model, "cache_plan": "null"}


@pytest.mark.parametrize("known", [0, 2])
def test_a_line_for_each_epoch(follow: Follow, measured: Any, tmp_path: Path, known: int) -> None:
    (tmp_path / CSV_FILE).write_text("of,another,run\n1,2,3\n")
    follow(CsvLogger(tmp_path, OPTIONS), known=known)
    rows = list(csv.DictReader((tmp_path / CSV_FILE).read_text().splitlines()))
    assert [row["epoch"] for row in rows] == ["1", "2", "3"]
    assert [row["valid_accuracy"] for row in rows] == ["0.5", "", "0.75"]
    assert [row["valid_macro_f1"] for row in rows] == ["", "", "0.25"]
    losses = [float(row["train_loss"]) for row in rows]
    assert losses == [each.train_loss for each in measured.epochs]


@pytest.mark.long
def test_nothing_is_written_before_the_run_starts(mlflow, tmp_path) -> None:
    for module in ("tensorboard", "wandb"):
        pytest.importorskip(module)
    for logger in (CsvLogger, TensorBoardLogger, MlflowLogger, WandbLogger):
        logger(tmp_path, OPTIONS).close()
        assert list(tmp_path.iterdir()) == mlflow.calls == []


@pytest.mark.parametrize("known", [0, 2])
def test_mlflow(mlflow: Calls, follow: Follow, measured: Any, tmp_path: Path, known: int) -> None:
    run = tmp_path / "my run"
    follow(MlflowLogger(run, OPTIONS), known=known)
    place, started, params, *epochs, tested, ended, back = mlflow.calls
    assert place == ("set_tracking_uri", f"file://{tmp_path}/mlruns")
    assert started == ("start_run", "my run")
    assert params[1]["model.hidden"] == "16"
    losses = [(each.epoch, each.train_loss) for each in measured.epochs]
    assert [(each[2], each[1]["train_loss"]) for each in epochs] == losses
    assert tested == ("log_metrics", {"test_accuracy": 0.7}, measured.result.best_epoch)
    assert ended == ("end_run", "FINISHED")
    assert back == ("set_tracking_uri", None), "the program's own address is set by itself"


def test_an_active_run_of_mlflow_gets_a_child_and_stays(mlflow, follow, measured, tmp_path) -> None:
    """A second run of the program would have to end the active one first."""
    mlflow.active = SimpleNamespace(info=SimpleNamespace(run_id="mine", experiment_id="7"))
    follow(MlflowLogger(tmp_path / "my run", OPTIONS))
    made, params, *epochs, tested, ended = mlflow.calls
    assert made == ("create_run", "7", "my run", {"mlflow.parentRunId": "mine"})
    assert ("model.hidden", "16") in params[3]
    values = [{name: (value, step) for name, value, _, step in each[2]} for each in epochs]
    losses = [(each.train_loss, each.epoch) for each in measured.epochs]
    assert [each["train_loss"] for each in values] == losses
    assert [each[0] for each in tested[2]] == ["test_accuracy"]
    assert ended == ("set_terminated", "child", "FINISHED")


def test_names_that_mlflow_does_not_take(mlflow: Calls, measured: Any, tmp_path: Path) -> None:
    logger = MlflowLogger(tmp_path, {})
    logger.started(measured.started)
    found = {"mrr": 0.5, "hits@10": 0.75}
    logger.finished_epoch(replace(measured.epochs[0], valid_metrics=found))
    assert mlflow.calls[-1][1]["valid_hits_at_10"] == 0.75


def test_many_options_take_several_calls(mlflow, measured, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://somewhere")
    options = {f"option{number}": "x" * 1000 for number in range(150)}
    logger = MlflowLogger(tmp_path, options)
    logger.started(measured.started)
    logger.close()
    names = [each[0] for each in mlflow.calls]
    assert names == ["start_run", "log_params", "log_params", "end_run"]
    assert mlflow.calls[-1] == ("end_run", "FAILED")
    assert sum(len(each[1]) for each in mlflow.calls if each[0] == "log_params") == 150


def test_one_line_says_what_to_install(tmp_path, monkeypatch) -> None:
    for logger, module in (
        (MlflowLogger, "mlflow"),
        (TensorBoardLogger, "torch.utils.tensorboard"),
        (WandbLogger, "wandb"),
    ):
        monkeypatch.setitem(sys.modules, module, None)
        name = module.rpartition(".")[2]
        with one_line(begins=f"logger={name}: is not installed; pip install {name}"):
            logger(tmp_path, OPTIONS)


def test_tensorboard_epochs(follow: Follow, measured: Any, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    follow(TensorBoardLogger(tmp_path, OPTIONS))
    result = follow(TensorBoardLogger(tmp_path, OPTIONS), known=2)
    found = EventAccumulator(str(tmp_path / TENSORBOARD_DIR)).Reload()
    losses = [(each.step, each.value) for each in found.Scalars("train_loss")]
    expected = [(each.epoch, pytest.approx(each.train_loss)) for each in measured.epochs]
    assert losses == expected
    assert [each.step for each in found.Scalars("valid_accuracy")] == [1, 3]
    (tested,) = found.Scalars("test_accuracy")
    assert (tested.step, tested.value) == (result.best_epoch, pytest.approx(0.7))
    assert "test_macro_f1" not in found.Tags()["scalars"]
    (event,) = found.Tensors("options/text_summary")[-1:]
    assert b"| model.hidden | 16 |" in event.tensor_proto.string_val[0]


def records_of_wandb(file: Path) -> list[Any]:
    """Return the records that W&B has kept in a file, offline.

    It has a head of 7 bytes, and records of a checksum, a length, a type and the content.
    """
    from wandb.proto.wandb_internal_pb2 import Record

    content, at, found = file.read_bytes(), 7, []
    while at < len(content):
        _, size, whole = struct.unpack_from("<IHB", content, at)
        assert whole == 1
        found.append(Record.FromString(content[at + 7 : at + 7 + size]))
        at += 7 + size
    return found


@pytest.mark.long
def test_an_active_run_of_wandb_is_logged_to_and_stays_open(
    follow: Follow, measured: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent of a sweep has started the run, and looks for the metric there."""
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    settings = wandb.Settings(silent=True, console="off")
    run = wandb.init(project="mine", config={"lr": 1}, settings=settings)
    try:
        beside = wandb.init(project="mine", settings=settings, reinit="create_new")
        run.log({"before": 1})
        follow(WandbLogger(tmp_path / "run", OPTIONS))
        assert wandb.run is run
        run.log({"after": 2})
        assert (run.config["lr"], run.config["gnnscale"]["seed"]) == (1, OPTIONS["seed"])
        beside.log({"open": 1})
        beside.finish()
    finally:
        run.finish()
        wandb.teardown()
    found = [records_of_wandb(each) for each in tmp_path.glob("wandb/*/*.wandb")]
    (records,) = (each for each in found if len(epochs_of_wandb(each)) > 1)
    epochs = epochs_of_wandb(records)
    names = [next(iter(each.keys() & {"before", "after"}), each.get("epoch")) for each in epochs]
    assert names == ["before", *(each.epoch for each in measured.epochs), "after"]
    losses = [each["train_loss"] for each in epochs if "epoch" in each]
    assert losses == [pytest.approx(each.train_loss) for each in measured.epochs]


def epochs_of_wandb(records: list[Any]) -> list[dict[str, Any]]:
    return [values_of(each.history.item) for each in records if each.HasField("history")]


def values_of(items: Any) -> dict[str, Any]:
    return {"/".join(each.nested_key) or each.key: json.loads(each.value_json) for each in items}


@pytest.mark.long
def test_wandb_offline(follow, measured, tmp_path, monkeypatch) -> None:
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    for name in ("WANDB_PROJECT", "WANDB_DIR"):
        monkeypatch.delenv(name, raising=False)
    run = tmp_path / "my run"
    result = follow(WandbLogger(run, OPTIONS), known=2)
    wandb.teardown()  # the end of a process, which waits for what writes the file
    (file,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    records = records_of_wandb(file)
    (started,) = (each.run for each in records if each.HasField("run"))
    assert (started.project, started.display_name) == ("gnnscale", "my run")
    options = values_of(started.config.update)
    assert {name: options[name] for name in OPTIONS} == OPTIONS
    epochs = epochs_of_wandb(records)
    losses = [(each["_step"], each["train_loss"]) for each in epochs]
    assert losses == [(each.epoch, pytest.approx(each.train_loss)) for each in measured.epochs]
    assert [each.get("valid_accuracy") for each in epochs] == [0.5, None, 0.75]
    summary: dict[str, Any] = {}
    for each in records:
        summary |= values_of(each.summary.update)
    assert (summary["test_accuracy"], summary["best_epoch"]) == (0.7, result.best_epoch)
    assert "test_macro_f1" not in summary
    (ended,) = (each.exit for each in records if each.HasField("exit"))
    assert ended.exit_code == 0
