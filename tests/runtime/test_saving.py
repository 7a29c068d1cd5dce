"""Checkpoints inside epochs: a run that goes on from one ends as if it had never stopped."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import DictConfig, OmegaConf

from gnnscale.core.errors import ConfigError
from gnnscale.options.config import typed
from gnnscale.runtime.checkpoint import run_checkpoint
from gnnscale.runtime.checkpoint.file import BEST, LAST, load_checkpoint, save_checkpoint
from gnnscale.runtime.checkpoint.run_checkpoint import RunCheckpoint
from gnnscale.runtime.settings import TrainConfig
from gnnscale.runtime.state.schedule import WorkerSchedule
from gnnscale.runtime.telemetry.records import TrainResult
from gnnscale.runtime.train import train

pytestmark = pytest.mark.timeout(120)

Compose = Callable[..., DictConfig]
#: Of an epoch of the tiny graph.
STEPS = 6
NORM = ("model.norm=batch", "model.dropout=0.5", "optimizer.schedule=plateau")
EMULATED = (
    "{kind:emulated,macs_per_s:1e10,memory_bandwidth:5e9,memory_bytes:1073741824,"
    "link_bandwidth:1e9,launch_s:5e-3}"
)


def run(options: Compose, directory: Path, observer: Any, *overrides: str) -> TrainResult:
    node = options(*overrides)
    plain: Any = OmegaConf.to_container(node, resolve=True)
    return train(typed(node, TrainConfig), directory, observer, options=plain | {"resume": None})


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[int, Path]:
    """Begin a checkpoint behind every step; the directory of each, by its step."""
    found: dict[int, Path] = {}

    def keep(file: Path, content: Any) -> None:
        save_checkpoint(file, content)
        if file.name == LAST.name:
            found.setdefault(content["step"], tmp_path / f"after-{content['step']}")
            save_checkpoint(found[content["step"]] / LAST, content)

    monkeypatch.setattr(run_checkpoint, "save_checkpoint", keep)
    monkeypatch.setattr(RunCheckpoint, "is_due", property(lambda self: self.wait() is None))
    return found


def same(left: Path, right: Path) -> bool:
    """Whether the weights, the statistics, and what the optimizer keeps are the same bits."""
    pairs = [[load_checkpoint(each / file) for each in (left, right)] for file in (LAST, BEST)]
    states = [
        [each["model"], *(each["optimizer"].values() if "optimizer" in each else ())]
        for pair in pairs
        for each in pair
    ]
    return all(
        first.keys() == second.keys() and all(torch.equal(first[k], second[k]) for k in first)
        for one, other in zip(states[::2], states[1::2], strict=True)
        for first, second in zip(one, other, strict=True)
    )


def told(result: TrainResult) -> list[Any]:
    return [
        (each.epoch, each.train_loss, each.valid_metric, each.lr, each.num_edges, each.num_vertices)
        for each in result.history
    ]


@pytest.mark.parametrize("overrides", [(), NORM, ("runtime.patience=1", *NORM)])
def test_a_run_goes_on_from_every_step(
    options: Compose, observer: Any, tmp_path: Path, kept: dict[int, Path], overrides: Any
) -> None:
    overrides = (*overrides, "runtime.checkpoint_every_s=0")
    known = run(options, tmp_path / "whole", observer, *overrides)
    steps = list(kept)
    assert steps == list(range(1, len(known.history) * STEPS + 1))
    for step in (1, 5, 6, 7, 11, 16):
        if step >= steps[-1]:
            continue
        observer.events.clear()
        part = kept[step]
        resumed = run(options, part, observer, *overrides, f"resume={part}")
        assert same(tmp_path / "whole", part)
        assert told(resumed) == told(known)
        assert resumed.test_metric == known.test_metric
        assert all(each.epoch_time_s > 0 for each in resumed.history)
        first = next(each for name, each in observer.events if name == "stepped")
        assert (first.global_step, first.step) == (step, step % STEPS + 1)
        _, started = observer.events[0]
        assert started.steps_done == step


def test_seconds_of_an_epoch_are_counted_on(
    options: Compose, observer: Any, tmp_path: Path, kept: dict[int, Path]
) -> None:
    run(options, tmp_path / "whole", observer, "epochs=1", "runtime.checkpoint_every_s=0")
    content = load_checkpoint(kept[3] / LAST)
    content["sums"]["seconds"] += 1000.0
    content["sums"]["devices"][0]["stages"]["sample"] += 500.0
    save_checkpoint(kept[3] / LAST, content)
    overrides = ("epochs=1", f"resume={kept[3]}")
    (record,) = run(options, kept[3], observer, *overrides).history
    assert 1000 < record.epoch_time_s < 1100
    assert 500 < (record.stage_times_s["sample"] or 0) < 600
    assert record.devices[0].batch_share == 1.0


def test_other_devices_go_on_inside_an_epoch(
    options: Compose, observer: Any, tmp_path: Path, kept: dict[int, Path]
) -> None:
    every = (*NORM, "runtime.checkpoint_every_s=0", "runtime.drm=false", "epochs=2")
    known = run(options, tmp_path / "whole", observer, *every)
    other = (*every, f"device_plan.devices=[{EMULATED}]", f"resume={kept[4]}")
    resumed = run(options, kept[4], observer, *other)
    for left, right in zip(known.history, resumed.history, strict=True):
        assert (left.num_edges, left.num_vertices) == (right.num_edges, right.num_vertices)
        assert left.train_loss == pytest.approx(right.train_loss, rel=1e-4)
    # What the first device did in the first steps is none of the second one's.
    (device,) = resumed.history[0].devices
    assert (device.kind, device.batch_share) == ("emulated", 1.0)


def test_parts_of_another_number_of_workers_are_refused(
    options: Compose, observer: Any, tmp_path: Path, kept: dict[int, Path]
) -> None:
    run(options, tmp_path / "whole", observer, "epochs=1", "runtime.checkpoint_every_s=0", *NORM)
    whole = load_checkpoint(kept[3] / LAST)
    (part,) = whole["workers"]
    for changes, message in (
        ({"workers": [part, part]}, "parts of 2 workers"),
        ({"workers": [part | {"buffers": {}}]}, "workers: buffers of another model"),
        ({"workers": []}, "no parts of its workers"),
        ({"sums": whole["sums"] | {"num_batches": 2}}, "3 steps in 0 epochs"),
        ({"sums": None, "workers": []}, "0 epochs"),
        ({"step": 6, "sums": whole["sums"] | {"num_batches": 6}}, "6 steps in 0 epochs"),
    ):
        save_checkpoint(kept[3] / LAST, whole | changes)
        with pytest.raises(ConfigError, match=message) as error:
            run(options, kept[3], observer, "epochs=1", *NORM, f"resume={kept[3]}")
        assert "\n" not in str(error.value)


class Counting:
    """An observer that counts steps, and lets something happen behind one of them."""

    def __init__(self, at: int, action: Callable[[], object]) -> None:
        self.steps = 0
        self._at, self._action = at, action

    def started(self, run: Any) -> None: ...

    def stepped(self, record: Any) -> None:
        self.steps += 1
        if self.steps == self._at:
            self._action()

    def traced(self, spans: Any) -> None: ...

    def trained(self) -> None: ...

    def finished_epoch(self, record: Any) -> None: ...


def test_training_does_not_wait_for_the_disk(
    options: Compose, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = threading.Event()
    written: list[tuple[str, int]] = []
    writing = threading.Lock()

    def slowly(file: Path, content: Any) -> None:
        assert writing.acquire(blocking=False)  # one at a time
        assert ready.wait(timeout=60)
        save_checkpoint(file, content)
        written.append((file.stem, content["epoch"]))
        writing.release()

    monkeypatch.setattr(run_checkpoint, "save_checkpoint", slowly)
    pauses: list[int] = []
    pause = WorkerSchedule.paused

    def paused(self: WorkerSchedule) -> Any:
        pauses.append(observer.steps)
        return pause(self)

    monkeypatch.setattr(WorkerSchedule, "paused", paused)
    # The first one is written only once the run is in its third epoch.
    observer: Any = Counting(2 * STEPS + 2, ready.set)
    every = ("runtime.checkpoint_every_s=0", "runtime.prefetch=two_stage")
    run(options, tmp_path, observer, "epochs=4", *every)
    assert observer.steps == 4 * STEPS
    # Later steps are sampled and loaded on, but for validations.
    assert pauses == [STEPS, 2 * STEPS, 3 * STEPS, 4 * STEPS]
    assert written[0] == ("last", 0)
    # Those that were due meanwhile were not queued; the next one tells of what came since.
    assert written[1][1] >= 2
    assert load_checkpoint(tmp_path / LAST)["step"] == 4 * STEPS
    best = load_checkpoint(tmp_path / BEST)
    assert best["epoch"] == max(epoch for name, epoch in written if name == "best")


def test_a_disk_that_fails_ends_the_run_at_a_step(
    options: Compose, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = threading.Event()

    def fail(file: Path, content: Any) -> None:
        failed.set()
        raise OSError(28, "No space left on device", str(file))

    monkeypatch.setattr(run_checkpoint, "save_checkpoint", fail)
    threads = set(threading.enumerate())
    observer: Any = Counting(3, lambda: failed.wait(timeout=60))
    with pytest.raises(OSError, match="No space left on device"):
        run(options, tmp_path, observer, "epochs=100", "runtime.checkpoint_every_s=0")
    assert observer.steps <= 2 * STEPS
    assert "checkpoint" not in {each.name for each in set(threading.enumerate()) - threads}


HYBRID = (
    *("dataset.num_vertices=600", "dataset.num_edges=3000", "dataset.num_features=8"),
    *("dataset.train_fraction=0.6", "model.hidden=8", "sampler.fanouts=[5,3]", "batch_size=64"),
    *("model.dropout=0.5", "num_threads=2", "epochs=3", "runtime.deterministic=true"),
    "runtime.checkpoint_every_s=0",
)
SEVERAL = {
    "hybrid": (f"device_plan.devices=[cpu,{EMULATED}]", "runtime.prefetch=one_stage", *NORM[:1]),
    "cpu_x2": ("device_plan=cpu_x2", "runtime.prefetch=two_stage", *NORM[:1]),
    "p3": ("algorithm=p3", "device_plan=cpu_x2", *NORM[:1]),
    "legion": ("algorithm=legion", "device_plan=cpu_x2"),
}


@pytest.mark.long
@pytest.mark.parametrize("plan", SEVERAL)
def test_workers_agree_and_go_on_from_every_step(
    options: Compose, together: Callable[..., None], tmp_path: Path, plan: str
) -> None:
    every = (*HYBRID, *SEVERAL[plan], "device_plan.split=[32,32]")
    steps = (1, 4, 9, 11, 16)
    runs = {"kept": every}
    runs |= {f"after-{n}+resumed": (*every, f"resume={tmp_path / f'after-{n}'}") for n in steps}
    (tmp_path / "runs.json").write_text(json.dumps(runs))
    together("train_together", 2, tmp_path)
    known = json.loads((tmp_path / "kept.json").read_text())
    others = torch.load(tmp_path / "kept.1.pt", weights_only=True)
    for step in steps:
        name = f"after-{step}+resumed"
        assert same(tmp_path / "kept", tmp_path / f"after-{step}")
        mine = torch.load(tmp_path / f"{name}.1.pt", weights_only=True)
        # With P3, the other's weights are part of the whole model that is saved.
        assert plan == "p3" or all(torch.equal(others[key], mine[key]) for key in others)
        found = json.loads((tmp_path / f"{name}.json").read_text())
        for what in ("losses", "splits", "decisions"):
            assert found[what] == known[what][step:]
        assert found["epochs"] == known["epochs"][step // STEPS :]
    if plan == "hybrid":
        assert any(known["decisions"])
