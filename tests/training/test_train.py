import gc
import io
import logging
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from devices import accelerator, plan_of
from in_memory import InMemory
from learnt import same, weights
from losses import At
from one_line import one_line
from rich.console import Console

from gnnscale.backend import feature_loading as loading
from gnnscale.core.errors import ConfigError
from gnnscale.data import from_arrays
from gnnscale.distributed.process_group import SINGLE_PROCESS
from gnnscale.graph import Graph
from gnnscale.inference.evaluate import VertexExaminer
from gnnscale.inference.memory_plan import InferencePlan
from gnnscale.report.terminal import RunReport
from gnnscale.run.checkpoint import BEST, LAST
from gnnscale.run.checkpoint import writer as run_checkpoint
from gnnscale.run.checkpoint.file import load_checkpoint, save_checkpoint
from gnnscale.run.checkpoint.writer import RunCheckpoint
from gnnscale.run.records import EpochRecord, TrainResult
from gnnscale.training import setup as opening
from gnnscale.training.pipeline.stages import Stages
from gnnscale.training.setup import open_run
from gnnscale.training.train import train

pytestmark = pytest.mark.integration

#: Of an epoch: what is learnt.
LEARNT = ("epoch", "train_loss", "valid_metric", "lr")
Whole = Callable[..., tuple[TrainResult, Path]]
#: Of an epoch of the tiny graph.
STEPS = 6


@pytest.fixture(scope="module")
def done() -> dict[tuple[str, ...], tuple[TrainResult, Path]]:
    """What came of runs by their options, for tests that compare others with them."""
    return {}


@pytest.fixture
def whole(run: Any, tmp_path_factory: pytest.TempPathFactory, done: dict[Any, Any]) -> Whole:
    """Return what came of a run that nobody disturbs, and its directory; it is done once."""

    def run_once(*overrides: str) -> tuple[TrainResult, Path]:
        if overrides not in done:
            directory = tmp_path_factory.mktemp("whole")
            done[overrides] = (run(directory, *overrides), directory)
        return done[overrides]

    return run_once


def losses(result: TrainResult) -> list[float]:
    return [record.train_loss for record in result.history]


def test_a_run_learns_and_tells_its_observer(run, observer, tmp_path) -> None:
    result = run(tmp_path, "epochs=10", "optimizer.lr=0.01", "runtime.prefetch=none")
    assert result.history[-1].train_loss < 0.7 * result.history[0].train_loss
    assert 0.5 < result.test_metric <= result.ceiling + 0.1
    names = [name for name, _ in observer.events]
    epoch = ["stepped"] * STEPS + ["traced", "trained", "finished_epoch"]
    assert names == ["started", *epoch * 10]
    _, last = observer.events[STEPS]
    assert (last.step, last.num_steps, last.epoch) == (STEPS, STEPS, 1)
    assert last.num_edges == result.history[0].num_edges > 0
    for record in result.history:
        stages = record.stage_times_s
        assert {name for name, value in stages.items() if value is None} == {"exchange", "transfer"}
        assert all(value is None or value > 0 for value in stages.values())
        assert record.epoch_time_s > 0


def test_a_validation_without_room_is_refused_before_the_first_step(
    run, observer, tmp_path, monkeypatch
) -> None:
    def refuse(self: InferencePlan) -> None:
        raise ConfigError("no room")

    monkeypatch.setattr(InferencePlan, "check_disk", refuse)
    with pytest.raises(ConfigError, match="no room"):
        run(tmp_path)
    assert observer.events == []
    run(tmp_path, "runtime.inference=sampled", "epochs=1")


SGD = ["optimizer=sgd", "optimizer.schedule=cosine", "model.dropout=0.5"]
PLATEAU = ["optimizer.schedule=plateau", "optimizer.schedule_epochs=1", "model.norm=batch"]


@pytest.mark.parametrize(
    ("overrides", "step", "every_s"),
    [([], 2, 0), (SGD, 17, "null"), (PLATEAU, 17, 1000)],
)
def test_a_resumed_run_ends_as_one_never_stopped(
    run, whole, tmp_path, overrides, step, every_s
) -> None:
    known, directory = whole(*overrides)
    overrides = [*overrides, f"runtime.checkpoint_every_s={every_s}"]
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, *overrides, watched=At(step))
    resumed = run(tmp_path, *overrides, f"resume={tmp_path}")
    for file in (LAST, BEST):
        assert same(weights(directory, file), weights(tmp_path, file))
    assert resumed.test_metric == known.test_metric
    assert resumed.best_epoch == known.best_epoch
    assert losses(resumed) == losses(known)


def test_an_epoch_whose_validation_fails_is_not_trained_again(
    run, observer, whole, tmp_path, monkeypatch
) -> None:
    overrides = ("optimizer.schedule=plateau", "runtime.patience=2")
    # The disk is waited for: a checkpoint follows every epoch, however short.
    monkeypatch.setattr(RunCheckpoint, "is_due", property(lambda self: self.wait() is None))
    known, directory = whole(*overrides)
    measure, calls = VertexExaminer.measure, iter(range(100))

    def fail_once(self: VertexExaminer, splits: Any) -> Any:
        if next(calls) in (1, 2):  # of the second epoch, and again as it is resumed
            raise MemoryError
        return measure(self, splits)

    with monkeypatch.context() as patch:
        patch.setattr(VertexExaminer, "measure", fail_once)
        with pytest.raises(MemoryError):
            run(tmp_path, *overrides)
        assert load_checkpoint(tmp_path / LAST)["epoch"] == 2
        with pytest.raises(MemoryError):
            run(tmp_path, *overrides, f"resume={tmp_path}")
    observer.events.clear()
    resumed = run(tmp_path, *overrides, f"resume={tmp_path}")
    names = [name for name, _ in observer.events]
    assert names[:3] == ["started", "finished_epoch", "stepped"]
    assert names.count("stepped") == STEPS
    for file in (LAST, BEST):
        assert same(weights(directory, file), weights(tmp_path, file))
    for left, right in zip(known.history, resumed.history, strict=True):
        assert all(getattr(left, name) == getattr(right, name) for name in LEARNT)
    assert resumed.test_metric == known.test_metric


def test_nothing_of_an_epoch_is_done_while_the_one_before_is_validated(
    run, tmp_path, monkeypatch
) -> None:
    validating = False
    begun: list[bool] = []

    def measure(self: VertexExaminer, splits: Any) -> Any:
        nonlocal validating
        validating = True
        time.sleep(0.05)
        validating = False
        return [{"accuracy": 0.5}]

    def noted(method: Any) -> Any:
        def stage(self: Stages, batch: Any) -> None:
            begun.append(validating)
            time.sleep(0.005)  # longer than a step, so that there is something left to do
            method(self, batch)

        return stage

    monkeypatch.setattr(VertexExaminer, "measure", measure)
    for name in ("sample", "load"):
        monkeypatch.setattr(Stages, name, noted(getattr(Stages, name)))
    run(tmp_path, "runtime.prefetch=two_stage", "epochs=4")
    assert len(begun) > 4
    assert not any(begun)


def test_a_run_in_anothers_directory_resumes_as_itself(run, whole, tmp_path) -> None:
    run(tmp_path, "epochs=1", "seed=1")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, watched=At(2))
    run(tmp_path, f"resume={tmp_path}")
    _, directory = whole()
    assert same(weights(directory), weights(tmp_path))


@pytest.mark.parametrize(("every", "stop", "last"), [("null", "2", 4), ("1000", "null", 6)])
def test_checkpoints_of_short_epochs_wait(run, tmp_path, monkeypatch, every, stop, last) -> None:
    written: dict[str, list[int]] = {"last": [], "best": []}

    def save(file: Path, content: Any) -> None:
        written[file.stem].append(content["epoch"])
        save_checkpoint(file, content)

    metrics = iter([0.1, 0.3, 0.2, 0.2, 0.2, 0.2, 0.0])
    monkeypatch.setattr(VertexExaminer, "measure", lambda *_: [{"accuracy": next(metrics)}])
    monkeypatch.setattr(run_checkpoint, "save_checkpoint", save)
    monkeypatch.setattr(run_checkpoint, "_MIN_INTERVAL_S", 1000.0)
    runtime = (f"runtime.patience={stop}", f"runtime.checkpoint_every_s={every}")
    run(tmp_path, "epochs=6", *runtime)
    # The best weights go with a checkpoint of a later epoch, if theirs was not due.
    assert written == {"last": [1, last], "best": [1, 2]}
    assert load_checkpoint(tmp_path / BEST)["epoch"] == 2


def test_a_run_that_goes_on_with_another_device_is_planned_anew(run, tmp_path) -> None:
    common = ("num_threads=2", "runtime.prefetch=none")
    run(tmp_path, "epochs=1", *common)
    for epochs, device, threads in ((2, "cpu", 2), (3, accelerator(), 0)):
        result = run(tmp_path, *common, f"epochs={epochs}", plan_of(device), f"resume={tmp_path}")
        (share,) = result.plan.shares
        assert share.threads.propagate == threads
    assert len(result.history) == 3


def test_resumed_with_other_options(run, settings, observer, tmp_path) -> None:
    run(tmp_path, "epochs=1")
    before = (tmp_path / LAST).read_bytes()
    resume = f"resume={tmp_path}"
    with pytest.raises(ConfigError, match=r"resume: model\.hidden is 16, but .* with 8"):
        run(tmp_path, "model.hidden=16", resume)
    saved = load_checkpoint(tmp_path / LAST)["config"]
    for other, message in (
        ("dataset.num_vertices=700", "the graph's num_vertices is 700"),
        ("dataset.split_seed=1", "the graph's content is "),  # other data of the same sizes
    ):
        with pytest.raises(ConfigError, match=message):
            train(open_run(settings(other, resume), tmp_path, saved, SINGLE_PROCESS), observer)
    assert (tmp_path / LAST).read_bytes() == before


def test_patience_and_epochs_between_validations(run, tmp_path) -> None:
    result = run(tmp_path / "stops", "epochs=50", "runtime.patience=2", "optimizer.lr=1e-9")
    assert result.stopped_early
    assert result.best_epoch == len(result.history) - 2
    result = run(tmp_path / "seldom", "epochs=5", "runtime.eval_every=2")
    validated = [record.valid_metric is not None for record in result.history]
    assert validated == [False, True, False, True, True]
    assert result.history[0].eval_time_s is None


def test_a_loss_that_is_not_finite_stops_the_run(run, tmp_path) -> None:
    with one_line("optimizer.lr=1e+30: expected a finite loss, got "):
        run(tmp_path, "optimizer=sgd", "optimizer.lr=1e30", "epochs=5")


def test_gradients_are_clipped(run, tmp_path) -> None:
    common = ("optimizer=sgd", "optimizer.momentum=0", "epochs=1")
    clipped = ("optimizer.lr=1", "runtime.clip_norm=1e-3", "batch_size=360")
    run(tmp_path / "start", *common, "optimizer.lr=1e-12")
    run(tmp_path / "clipped", *common, *clipped)
    before, after = weights(tmp_path / "start"), weights(tmp_path / "clipped")
    moved = sum(float((after[k] - before[k]).square().sum()) for k in before) ** 0.5
    assert moved == pytest.approx(1e-3, rel=1e-2)


def test_without_checkpoints_nothing_is_written(run, tmp_path) -> None:
    assert run(tmp_path, "epochs=1", "runtime.checkpoint=false").test_metric is not None
    assert list(tmp_path.iterdir()) == []


def test_bfloat16_learns_nearly_the_same(run, whole, tmp_path, monkeypatch, caplog) -> None:
    exact, _ = whole()
    instructions = "matrix products use the processor's bfloat16 instructions"
    for has, message in ((True, instructions), (False, "float32 replaces it")):
        for module in (opening, loading):
            monkeypatch.setattr(module, "multiplies_bfloat16", lambda has=has: has)
        with caplog.at_level(logging.INFO):
            found = run(tmp_path / str(has), "runtime.compute_dtype=bfloat16")
        assert f"runtime.compute_dtype=bfloat16: {message}" in caplog.text
        assert (losses(found) == losses(exact)) != has
        assert losses(found) == pytest.approx(losses(exact), rel=0.05)


def two_labels(**fields: Any) -> Graph:
    generator = np.random.default_rng(0)
    features = generator.standard_normal((300, 6)).astype(np.float32)
    ends = generator.integers(0, 300, (2, 900))
    train_idx, valid_idx, test_idx = np.split(generator.permutation(300), [200, 250])
    graph = from_arrays(
        (ends[0], ends[1]),
        features,
        (features[:, :3] > 0).astype(np.uint8),
        train_idx=train_idx,
        valid_idx=valid_idx,
        test_idx=test_idx,
        num_classes=3,
    )
    return replace(graph, **fields)


def test_several_labels_are_learnt(run, tmp_path) -> None:
    how = ("epochs=20", "optimizer.lr=0.02", "model.dropout=0")
    result = run(tmp_path, *how, dataset=InMemory(graph=two_labels(metric="micro_f1")))
    assert (result.metric, result.ceiling) == ("micro_f1", None)
    assert result.test_metric > 0.8


def test_vertices_without_label_take_no_part(run, observer, tmp_path) -> None:
    graph = two_labels()
    labels = graph.labels[:, 0].astype(np.int64)
    labels[graph.train_idx[:50]] = -1
    labels[graph.test_idx[:7]] = -1
    graph = replace(graph, labels=labels, num_classes=2, metric="roc_auc")
    result = run(tmp_path, "epochs=20", dataset=InMemory(graph=graph))
    assert result.test_metric is not None
    _, step = observer.events[1]
    assert step.num_steps == -(-150 // 64)


def test_a_metric_that_is_not_defined_is_none(run, tmp_path) -> None:
    graph = two_labels(labels=np.zeros(300, np.int64), num_classes=2, metric="roc_auc")
    result = run(tmp_path, "epochs=2", dataset=InMemory(graph=graph))
    assert (result.valid_metric, result.test_metric, result.best_epoch) == (None, None, 2)


#: Epochs after which allocations are traced, and looked at: what libraries keep for reuse has grown
#: by the first look, and records of 64 are written to a file at a time.
TRACED, FIRST, LAST_LOOK = 64, 128, 192


@pytest.mark.timeout(120)
def test_memory_does_not_grow_with_the_epochs(run, tmp_path) -> None:
    """Neither what rank 0 keeps of an epoch, nor what the process keeps that reports it."""
    found: dict[int, int] = {}

    class Looks(RunReport):
        def finished_epoch(self, record: EpochRecord) -> None:
            super().finished_epoch(record)
            if record.epoch == TRACED:
                tracemalloc.start()
            if record.epoch in (FIRST, LAST_LOOK):
                gc.collect()
                found[record.epoch] = tracemalloc.get_traced_memory()[0]
            if record.epoch == LAST_LOOK:
                tracemalloc.stop()

    console = Console(file=io.StringIO())
    report = Looks(tmp_path, epochs=LAST_LOOK, options={}, console=console)
    done = run(tmp_path, f"epochs={LAST_LOOK}", "batch_size=512", watched=report)
    report.close()
    assert len(done.history) == LAST_LOOK
    # Of the first 2,000 steps the timeline takes 300 bytes each.
    assert (found[LAST_LOOK] - found[FIRST]) / (LAST_LOOK - FIRST) < 1200
