import csv
import json
import os
import struct
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from one_line import one_line

from gnnscale.run.loggers import (
    CSV_FILE,
    LOGGER_CLASSES,
    TENSORBOARD_DIR,
    CsvLogger,
    MlflowLogger,
    PrometheusLogger,
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


@pytest.fixture
def mlflow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """MLflow, whose address is not set."""
    module = pytest.importorskip("mlflow")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    yield module
    while module.active_run() is not None:
        module.end_run()
    module.set_tracking_uri(None)


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
def test_nothing_is_written_before_the_run_starts(tmp_path) -> None:
    for module in ("mlflow", "tensorboard", "wandb"):
        pytest.importorskip(module)
    for logger in LOGGER_CLASSES.values():
        logger(tmp_path, OPTIONS).close()
        assert list(tmp_path.iterdir()) == []


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_mlflow(mlflow: Any, follow: Follow, measured: Any, tmp_path: Path) -> None:
    """Runs of a folder share a file; a run of the program gets a child, and stays active."""
    many = {f"option{number}": "x" * 1000 for number in range(150)}
    follow(MlflowLogger(tmp_path / "my run", OPTIONS | many), known=2)
    assert "MLFLOW_TRACKING_URI" not in os.environ
    broken = MlflowLogger(tmp_path / "broken", {})
    broken.started(measured.started)
    found = {"mrr": 0.5, "hits@10": 0.75}
    broken.finished_epoch(replace(measured.epochs[0], valid_metrics=found))
    broken.close()
    assert {each.name for each in tmp_path.iterdir()} == {"mlflow.db"}

    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    with mlflow.start_run(run_name="mine") as mine:
        follow(MlflowLogger(tmp_path / "child", OPTIONS))
        assert mlflow.active_run().info.run_id == mine.info.run_id
        mlflow.log_metric("after", 1)
    client = mlflow.MlflowClient()
    runs = {each.info.run_name: each for each in client.search_runs(["0"])}
    states = {name: each.info.status for name, each in runs.items()}
    assert states == dict.fromkeys(("my run", "child", "mine"), "FINISHED") | {"broken": "FAILED"}
    assert runs["child"].data.tags["mlflow.parentRunId"] == mine.info.run_id
    for name in ("my run", "child"):
        run, values = runs[name], runs[name].data
        losses = client.get_metric_history(run.info.run_id, "train_loss")
        expected = [(each.epoch, each.train_loss) for each in measured.epochs]
        assert sorted((each.step, each.value) for each in losses) == expected
        assert (values.params["model.hidden"], values.metrics["test_accuracy"]) == ("16", 0.7)
        assert "test_macro_f1" not in values.metrics
    assert runs["my run"].data.params["option149"] == "x" * 500
    assert runs["broken"].data.metrics["valid_hits_at_10"] == 0.75
    with one_line("an address holds no ? or #; set MLFLOW_TRACKING_URI"):
        mlflow.set_tracking_uri(None)
        MlflowLogger(tmp_path / "what?" / "run", {}).started(measured.started)


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


def test_prometheus(follow, measured, tmp_path, monkeypatch) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    def values(file: Path) -> dict[tuple[str, str], float]:
        families = list(text_string_to_metric_families(file.read_text()))
        samples = [each for family in families for each in family.samples]
        assert {each.labels["run"] for each in samples} == {str(run)}
        assert len({family.name for family in families}) == len(families)
        return {(each.name[9:], each.labels.get("metric", "")): each.value for each in samples}

    run = tmp_path / 'my "run\\ of ü'
    run.mkdir()
    logger = PrometheusLogger(run, OPTIONS)
    logger.started(measured.started)
    assert values(run / "metrics.prom") == {("epoch", ""): 0, ("running", ""): 1}
    logger.finished_epoch(measured.epochs[0])
    assert values(run / "metrics.prom")["running", ""] == 1
    monkeypatch.setenv("PROMETHEUS_TEXTFILE_DIR", str(tmp_path))
    follow(PrometheusLogger(run, OPTIONS), known=2)
    (file,) = tmp_path.glob("gnnscale-*.prom")
    found, last = values(file), measured.epochs[-1]
    assert (found["epoch", ""], found["running", ""]) == (3, 0)
    assert found["train_loss", ""] == last.train_loss
    assert found["edges_per_second", ""] == pytest.approx(last.num_edges / last.epoch_time_s)
    metrics = {key: value for key, value in found.items() if key[1]}
    assert metrics == {
        ("valid_metric", "accuracy"): 0.75,
        ("valid_metric", "macro_f1"): 0.25,
        ("test_metric", "accuracy"): 0.7,
    }
    monkeypatch.setenv("PROMETHEUS_TEXTFILE_DIR", str(tmp_path / "none"))
    with one_line("PROMETHEUS_TEXTFILE_DIR", "no such folder"):
        PrometheusLogger(run, OPTIONS)


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
