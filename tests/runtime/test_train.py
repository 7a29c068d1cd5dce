from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import DictConfig, OmegaConf

from gnnscale.backend import loading
from gnnscale.core.errors import ConfigError
from gnnscale.core.hardware import multiplies_bfloat16, usable_cores
from gnnscale.dataset import Dataset, StoreWriter, from_arrays
from gnnscale.graph import Graph
from gnnscale.options.config import typed
from gnnscale.runtime import opening
from gnnscale.runtime.checkpoint import run_checkpoint
from gnnscale.runtime.checkpoint.file import BEST, LAST, load_checkpoint, save_checkpoint
from gnnscale.runtime.checkpoint.run_checkpoint import RunCheckpoint
from gnnscale.runtime.evaluation.evaluate import VertexExaminer
from gnnscale.runtime.evaluation.plan import InferencePlan
from gnnscale.runtime.pipeline.stages import Stages
from gnnscale.runtime.settings import TrainConfig
from gnnscale.runtime.sync.group import Group
from gnnscale.runtime.telemetry.records import TrainResult
from gnnscale.runtime.train import train
from gnnscale.sampler import LayerSampling

pytestmark = pytest.mark.integration

Compose = Callable[..., DictConfig]


def run(options: Compose, directory: Path, observer: Any, *overrides: str) -> TrainResult:
    node = options(*overrides)
    plain: Any = OmegaConf.to_container(node, resolve=True)
    return train(typed(node, TrainConfig), directory, observer, options=plain | {"resume": None})


def weights(directory: Path, file: Path = LAST) -> dict[str, torch.Tensor]:
    return dict(load_checkpoint(directory / file)["model"])


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)


@pytest.fixture(scope="module")
def done() -> dict[tuple[str, ...], TrainResult]:
    """What came of runs by their options, for tests that compare others with them."""
    return {}


@pytest.fixture
def whole(
    options: Compose,
    observer: Any,
    tmp_path_factory: pytest.TempPathFactory,
    done: dict[tuple[str, ...], TrainResult],
) -> Callable[..., tuple[TrainResult, Path]]:
    """Return what came of a run that nobody disturbs, and its directory; it is done once."""

    def run_once(*overrides: str) -> tuple[TrainResult, Path]:
        directory = tmp_path_factory.getbasetemp() / f"whole-{'-'.join(overrides)}"
        if overrides not in done:
            done[overrides] = run(options, directory, observer, *overrides)
        return done[overrides], directory

    return run_once


def test_a_run_learns_and_tells_its_observer(
    options: Compose, observer: Any, tmp_path: Path
) -> None:
    overrides = ("epochs=10", "optimizer.lr=0.01", "runtime.prefetch=none")
    result = run(options, tmp_path, observer, *overrides)
    assert result.history[-1].train_loss < 0.7 * result.history[0].train_loss
    assert result.test_metric is not None
    assert result.test_metric > 0.5
    assert result.ceiling is not None
    assert result.test_metric <= result.ceiling + 0.1
    names = [name for name, _ in observer.events]
    steps = -(-360 // 64)
    epoch = ["stepped"] * steps + ["traced", "trained", "finished_epoch"]
    assert names == ["started", *epoch * 10]
    _, last = observer.events[steps]
    assert (last.step, last.num_steps, last.epoch) == (steps, steps, 1)
    assert last.num_edges == result.history[0].num_edges > 0
    for record in result.history:
        stages = record.stage_times_s
        assert {name for name, value in stages.items() if value is None} == {"exchange", "transfer"}
        assert all(value is None or value > 0 for value in stages.values())
        assert record.epoch_time_s > 0


def test_the_same_options_give_the_same_weights(
    options: Compose, observer: Any, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        run(options, tmp_path / name, observer)
    assert same(weights(tmp_path / "a"), weights(tmp_path / "b"))
    run(options, tmp_path / "c", observer, "seed=1")
    assert not same(weights(tmp_path / "a"), weights(tmp_path / "c"))


def test_a_validation_without_room_is_refused_before_the_first_step(
    options: Compose, observer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: InferencePlan) -> None:
        raise ConfigError("no room")

    monkeypatch.setattr(InferencePlan, "check_disk", refuse)
    with pytest.raises(ConfigError, match="no room"):
        run(options, tmp_path, observer)
    assert observer.events == []
    run(options, tmp_path, observer, "runtime.inference=sampled", "epochs=1")


@pytest.fixture
def behind_every_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is waited for, and a checkpoint behind every epoch, however short."""
    monkeypatch.setattr(RunCheckpoint, "is_due", property(lambda self: self.wait() is None))


class StopAt:
    """An observer that breaks the run off at a step, as a crash would."""

    def __init__(self, step: int) -> None:
        self.left = step

    def started(self, run: Any) -> None: ...

    def stepped(self, record: Any) -> None:
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt

    def traced(self, spans: Any) -> None: ...

    def trained(self) -> None: ...

    def finished_epoch(self, record: Any) -> None: ...


SGD = ["optimizer=sgd", "optimizer.schedule=cosine", "model.dropout=0.5"]
PLATEAU = ["optimizer.schedule=plateau", "optimizer.schedule_epochs=1", "model.norm=batch"]


@pytest.mark.parametrize(
    ("overrides", "step", "every_s"),
    [
        *(([], *each) for each in [(2, 0), (9, 0), (17, 0), (9, "null"), (17, "null")]),
        *((SGD, *each) for each in [(9, 0), (17, "null")]),
        *((PLATEAU, *each) for each in [(9, 0), (17, 0), (17, "null"), (17, 1000)]),
    ],
)
def test_a_resumed_run_ends_as_one_never_stopped(
    options: Compose,
    observer: Any,
    whole: Callable[..., tuple[TrainResult, Path]],
    tmp_path: Path,
    overrides: list[str],
    step: int,
    every_s: float | str,
) -> None:
    known, directory = whole(*overrides)
    overrides = [*overrides, f"runtime.checkpoint_every_s={every_s}"]
    with pytest.raises(KeyboardInterrupt):
        run(options, tmp_path / "part", StopAt(step), *overrides)
    resume = f"resume={tmp_path / 'part'}"
    resumed = run(options, tmp_path / "part", observer, resume, *overrides)
    for file in (LAST, BEST):
        assert same(weights(directory, file), weights(tmp_path / "part", file))
    assert resumed.test_metric == known.test_metric
    assert resumed.best_epoch == known.best_epoch
    losses = [record.train_loss for record in resumed.history]
    assert losses == [record.train_loss for record in known.history]


@pytest.mark.usefixtures("behind_every_epoch")
@pytest.mark.parametrize("overrides", [(), ("optimizer.schedule=plateau", "runtime.patience=2")])
def test_an_epoch_whose_validation_fails_is_not_trained_again(
    options: Compose,
    observer: Any,
    whole: Callable[..., tuple[TrainResult, Path]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    overrides: tuple[str, ...],
) -> None:
    known, directory = whole(*overrides)
    measure, calls = VertexExaminer.measure, iter(range(100))

    def fail_once(self: VertexExaminer, splits: Any) -> Any:
        if next(calls) in (1, 2):  # of the second epoch, and again as it is resumed
            raise MemoryError
        return measure(self, splits)

    part = (tmp_path, observer, *overrides)
    with monkeypatch.context() as patch:
        patch.setattr(VertexExaminer, "measure", fail_once)
        with pytest.raises(MemoryError):
            run(options, *part)
        assert load_checkpoint(tmp_path / LAST)["epoch"] == 2
        with pytest.raises(MemoryError):
            run(options, *part, f"resume={tmp_path}")
    observer.events.clear()
    resumed = run(options, *part, f"resume={tmp_path}")
    names = [name for name, _ in observer.events]
    assert names[:3] == ["started", "finished_epoch", "stepped"]
    assert names.count("stepped") == -(-360 // 64)
    for file in (LAST, BEST):
        assert same(weights(directory, file), weights(tmp_path, file))
    learnt = [
        [(epoch.epoch, epoch.train_loss, epoch.valid_metric, epoch.lr) for epoch in each.history]
        for each in (known, resumed)
    ]
    assert learnt[0] == learnt[1]
    assert resumed.test_metric == known.test_metric


@pytest.mark.parametrize("prefetch", ["one_stage", "two_stage"])
def test_nothing_of_an_epoch_is_done_while_the_one_before_is_validated(
    options: Compose,
    observer: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    prefetch: str,
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
    run(options, tmp_path, observer, f"runtime.prefetch={prefetch}", "epochs=4")
    assert len(begun) > 4
    assert not any(begun)


def test_workers_wait_for_each_other_behind_all_that_rank_0_does(
    options: Compose, observer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    metrics = iter([0.1, 0.3, 0.2, 0.2, 0.0])
    broadcast = Group.broadcast_json

    def measure(*_: Any) -> Any:
        done.append("validated")
        return [{"accuracy": next(metrics)}]

    def save(file: Path, content: Any) -> None:
        done.append(file.stem)
        save_checkpoint(file, content)

    def together(self: Group, content: Any) -> Any:
        done.append("together")
        return broadcast(self, content)

    monkeypatch.setattr(VertexExaminer, "measure", measure)
    monkeypatch.setattr(run_checkpoint, "save_checkpoint", save)
    monkeypatch.setattr(Group, "broadcast_json", together)
    # The last epoch is known for it by its validation alone.
    overrides = ("epochs=9", "runtime.patience=2", "runtime.checkpoint_every_s=1000")
    run(options, tmp_path, observer, *overrides)
    epochs = " ".join(done[done.index("validated") :]).split(" together")
    assert epochs == [
        "validated",
        " validated",
        " validated",
        " validated last best",
        " validated",  # this is the test
    ]


def test_a_run_in_the_directory_of_another_resumes_as_itself(
    options: Compose,
    observer: Any,
    whole: Callable[..., tuple[TrainResult, Path]],
    tmp_path: Path,
) -> None:
    run(options, tmp_path, observer, "epochs=1", "seed=1")
    with pytest.raises(KeyboardInterrupt):
        run(options, tmp_path, StopAt(2))
    run(options, tmp_path, observer, f"resume={tmp_path}")
    _, directory = whole()
    assert same(weights(directory), weights(tmp_path))


@pytest.mark.parametrize(
    ("every", "stop", "epochs", "best"),
    [
        ("null", "runtime.patience=null", [1, 6], [1, 2]),
        ("null", "runtime.patience=2", [1, 4], [1, 2]),
        ("1000", "runtime.patience=null", [6], [2]),
    ],
)
def test_checkpoints_of_short_epochs_wait(
    options: Compose,
    observer: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    every: str,
    stop: str,
    epochs: list[int],
    best: list[int],
) -> None:
    written: list[tuple[Path, int]] = []

    def save(file: Path, content: Any) -> None:
        written.append((file.relative_to(tmp_path), content["epoch"]))
        save_checkpoint(file, content)

    metrics = iter([0.1, 0.3, 0.2, 0.2, 0.2, 0.2, 0.0])
    monkeypatch.setattr(VertexExaminer, "measure", lambda *_: [{"accuracy": next(metrics)}])
    monkeypatch.setattr(run_checkpoint, "save_checkpoint", save)
    monkeypatch.setattr(run_checkpoint, "_EVERY_S", 1000.0)
    run(options, tmp_path, observer, "epochs=6", stop, f"runtime.checkpoint_every_s={every}")
    assert [epoch for file, epoch in written if file == LAST] == epochs
    # The best weights go with a checkpoint of a later epoch, where theirs was not due.
    assert [epoch for file, epoch in written if file == BEST] == best
    assert load_checkpoint(tmp_path / BEST)["epoch"] == 2


def test_more_epochs_continue_a_finished_run(
    options: Compose, observer: Any, tmp_path: Path
) -> None:
    run(options, tmp_path / "whole", observer, "epochs=4")
    run(options, tmp_path / "part", observer, "epochs=2")
    result = run(options, tmp_path / "part", observer, "epochs=4", f"resume={tmp_path / 'part'}")
    assert len(result.history) == 4
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "part"))


def test_a_run_that_goes_on_with_another_device_is_planned_anew(
    options: Compose, observer: Any, tmp_path: Path
) -> None:
    run(options, tmp_path, observer, "epochs=1", "num_threads=2", "runtime.prefetch=none")
    go_on = (f"resume={tmp_path}", "num_threads=2", "runtime.prefetch=none")
    same_device = run(options, tmp_path, observer, "epochs=2", *go_on)
    (share,) = same_device.plan.shares
    assert share.threads.propagate == 2
    emulated = (
        "device_plan.devices=[{kind:emulated,macs_per_s:1e10,memory_bandwidth:1e10,"
        "memory_bytes:100000000,link_bandwidth:1e9}]"
    )
    other_device = run(options, tmp_path, observer, "epochs=3", emulated, *go_on)
    (share,) = other_device.plan.shares
    assert share.threads.propagate == 0
    assert len(other_device.history) == 3


def test_resuming_with_other_options_is_refused(
    options: Compose, observer: Any, tmp_path: Path
) -> None:
    run(options, tmp_path, observer, "epochs=1")
    before = (tmp_path / LAST).read_bytes()
    with pytest.raises(ConfigError, match=r"resume: model\.hidden is 16, but .* with 8"):
        run(options, tmp_path, observer, "model.hidden=16", f"resume={tmp_path}")
    config = typed(options("dataset.num_vertices=700", f"resume={tmp_path}"), TrainConfig)
    saved = load_checkpoint(tmp_path / LAST)["config"]
    with pytest.raises(ConfigError, match="the graph's num_vertices is 700"):
        train(config, tmp_path, observer, options=saved)
    # Other data of the same sizes.
    config = typed(options("dataset.split_seed=1", f"resume={tmp_path}"), TrainConfig)
    with pytest.raises(ConfigError, match="the graph's content is "):
        train(config, tmp_path, observer, options=saved)
    assert (tmp_path / LAST).read_bytes() == before


def test_patience_stops_early(options: Compose, observer: Any, tmp_path: Path) -> None:
    result = run(
        options, tmp_path, observer, "epochs=50", "runtime.patience=2", "optimizer.lr=1e-9"
    )
    assert result.stopped_early
    assert result.best_epoch == len(result.history) - 2


def test_epochs_between_validations_have_no_metric(
    options: Compose, observer: Any, tmp_path: Path
) -> None:
    result = run(options, tmp_path, observer, "epochs=5", "runtime.eval_every=2")
    validated = [record.valid_metric is not None for record in result.history]
    assert validated == [False, True, False, True, True]
    assert result.history[0].eval_time_s is None


def test_a_loss_that_is_not_finite_stops_the_run(
    options: Compose, observer: Any, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"optimizer\.lr=1e\+30: the loss is (nan|inf)") as error:
        run(options, tmp_path, observer, "optimizer=sgd", "optimizer.lr=1e30", "epochs=5")
    assert "\n" not in str(error.value)


def test_gradients_are_clipped(options: Compose, observer: Any, tmp_path: Path) -> None:
    overrides = ("optimizer=sgd", "optimizer.momentum=0", "optimizer.lr=1", "epochs=1")
    start = run(options, tmp_path / "s", observer, *overrides, "optimizer.lr=1e-12")
    clipped = (*overrides, "runtime.clip_norm=1e-3", "batch_size=360")
    run(options, tmp_path / "c", observer, *clipped)
    before, after = weights(tmp_path / "s"), weights(tmp_path / "c")
    moved = sum(float((after[k] - before[k]).square().sum()) for k in before) ** 0.5
    assert moved == pytest.approx(1e-3, rel=1e-2)
    assert start.history


def test_more_threads_than_cores_are_warned_of(
    options: Compose, observer: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    threads = torch.get_num_threads()
    wanted = usable_cores() + 1
    try:
        run(options, tmp_path, observer, "epochs=1", f"num_threads={wanted}")
    finally:
        torch.set_num_threads(threads)
    assert f"num_threads={wanted}: this process may use {wanted - 1} cores" in caplog.text


def test_without_checkpoints_nothing_is_written(
    options: Compose, observer: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        result = run(options, tmp_path, observer, "epochs=1", "runtime.checkpoint=false")
    assert result.test_metric is not None
    assert list(tmp_path.iterdir()) == []


LOSSLESS = [
    "device_plan.devices=[{kind:cpu,host_aggregates:false}]",
    "num_threads=2",
    "runtime.inference=sampled",
]


@pytest.mark.parametrize("override", LOSSLESS)
@pytest.mark.parametrize("model", ["sage", "gcn", "gin", "gat"])
def test_how_a_run_is_carried_out_does_not_change_what_it_learns(
    options: Compose,
    observer: Any,
    whole: Callable[..., tuple[TrainResult, Path]],
    tmp_path: Path,
    model: str,
    override: str,
) -> None:
    common = (f"model={model}", "model.hidden=8", "model.dropout=0", "epochs=2")
    threads = torch.get_num_threads()
    try:
        one, _ = whole(*common)
        other = run(options, tmp_path / "other", observer, *common, override)
    finally:
        torch.set_num_threads(threads)
    losses = [record.train_loss for record in one.history]
    assert losses == pytest.approx([record.train_loss for record in other.history], rel=1e-5)


def test_bfloat16_learns_nearly_the_same(options: Compose, observer: Any, tmp_path: Path) -> None:
    exact = run(options, tmp_path / "a", observer, "epochs=5")
    lossy = run(options, tmp_path / "b", observer, "epochs=5", "runtime.compute_dtype=bfloat16")
    equal = lossy.history[-1].train_loss == exact.history[-1].train_loss
    assert equal != multiplies_bfloat16()
    assert lossy.history[-1].train_loss == pytest.approx(exact.history[-1].train_loss, rel=0.05)


@pytest.mark.parametrize(
    ("has_instructions", "told"),
    [(True, "products by the processor's instructions"), (False, "float32 in its place")],
)
def test_what_becomes_of_bfloat16_is_told(
    has_instructions: bool,
    told: str,
    options: Compose,
    observer: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for module in (opening, loading):
        monkeypatch.setattr(module, "multiplies_bfloat16", lambda: has_instructions)
    exact = run(options, tmp_path / "a", observer, "epochs=1")
    with caplog.at_level(logging.INFO):
        found = run(options, tmp_path / "b", observer, "epochs=1", "runtime.compute_dtype=bfloat16")
    assert f"runtime.compute_dtype=bfloat16: {told}" in caplog.text
    equal = found.history[-1].train_loss == exact.history[-1].train_loss
    assert equal != has_instructions


def test_layer_wise_sampling_trains(
    settings: Callable[..., TrainConfig], observer: Any, tmp_path: Path
) -> None:
    config = replace(settings("epochs=5"), sampler=LayerSampling(layer_sizes=[100, 100]))
    result = train(config, tmp_path, observer, options={})
    assert result.history[-1].train_loss < result.history[0].train_loss


@dataclass(frozen=True, kw_only=True)
class InMemory(Dataset):
    """A graph that the test made."""

    graph: Graph

    def raw_files(self) -> list[Path]:
        return []

    def read(self, writer: StoreWriter) -> None:
        raise NotImplementedError

    def open(self) -> Graph:
        return self.graph


def two_labels() -> Graph:
    generator = np.random.default_rng(0)
    features = generator.standard_normal((300, 6)).astype(np.float32)
    ends = generator.integers(0, 300, (2, 900))
    order = generator.permutation(300)
    return from_arrays(
        (ends[0], ends[1]),
        features,
        (features[:, :3] > 0).astype(np.uint8),
        train_idx=order[:200],
        valid_idx=order[200:250],
        test_idx=order[250:],
        num_classes=3,
    )


@pytest.mark.parametrize("metric", ["micro_f1", "roc_auc", "accuracy"])
def test_several_labels_are_learnt(
    settings: Callable[..., TrainConfig], observer: Any, tmp_path: Path, metric: str
) -> None:
    graph = replace(two_labels(), metric=metric)
    config = replace(
        settings("epochs=20", "optimizer.lr=0.02", "model.dropout=0"),
        dataset=InMemory(name="two", graph=graph),
    )
    result = train(config, tmp_path, observer, options={})
    assert result.metric == metric
    assert result.test_metric is not None
    assert result.test_metric > 0.8
    assert result.ceiling is None


def test_vertices_without_label_take_no_part(
    settings: Callable[..., TrainConfig], observer: Any, tmp_path: Path
) -> None:
    graph = two_labels()
    labels = graph.labels[:, 0].astype(np.int64)
    labels[graph.train_idx[:50]] = -1
    labels[graph.test_idx[:7]] = -1
    graph = replace(graph, labels=labels, num_classes=2, metric="roc_auc")
    config = replace(settings("epochs=20"), dataset=InMemory(name="two", graph=graph))
    result = train(config, tmp_path, observer, options={})
    assert result.test_metric is not None
    _, step = observer.events[1]
    assert step.num_steps == -(-150 // 64)


def test_a_metric_that_is_not_defined_is_none(
    settings: Callable[..., TrainConfig], observer: Any, tmp_path: Path
) -> None:
    graph = two_labels()
    labels = np.zeros(300, np.int64)
    graph = replace(graph, labels=labels, num_classes=2, metric="roc_auc")
    config = replace(settings("epochs=2"), dataset=InMemory(name="one", graph=graph))
    result = train(config, tmp_path, observer, options={})
    assert (result.valid_metric, result.test_metric, result.best_epoch) == (None, None, 2)
