"""Checkpoints inside epochs: a run that goes on from one ends as if it had never stopped."""

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from devices import accelerator, plan_of
from learnt import all_same, same
from losses import At
from one_line import one_line

from gnnscale.run.checkpoint import BEST, LAST
from gnnscale.run.checkpoint import writer as run_checkpoint
from gnnscale.run.checkpoint.file import load_checkpoint, save_checkpoint
from gnnscale.run.checkpoint.writer import RunCheckpoint
from gnnscale.run.records import EpochRecord, Observer, TrainResult
from gnnscale.training.worker.schedule import BatchSchedule

pytestmark = pytest.mark.timeout(120)

#: Of an epoch of the tiny graph.
STEPS = 6
ALWAYS = "runtime.checkpoint_every_s=0"
NORM = ("model.norm=batch", "model.dropout=0.5", "optimizer.schedule=plateau")
EMULATED = accelerator(launch_s=5e-3)


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[int, Path]:
    """Begin a checkpoint after every step; the directory of each, by its step."""
    found: dict[int, Path] = {}

    def keep(file: Path, content: Any) -> None:
        save_checkpoint(file, content)
        if file.name == LAST.name:
            found.setdefault(content["step"], tmp_path / f"after-{content['step']}")
            save_checkpoint(found[content["step"]] / LAST, content)

    monkeypatch.setattr(run_checkpoint, "save_checkpoint", keep)
    monkeypatch.setattr(RunCheckpoint, "is_due", property(lambda self: self.wait() is None))
    return found


def learnt(result: TrainResult) -> list[Any]:
    return [
        (each.epoch, each.train_loss, each.valid_metric, each.lr, each.num_edges, each.num_vertices)
        for each in result.history
    ]


@pytest.mark.long
@pytest.mark.parametrize("overrides", [(), ("runtime.patience=1", *NORM)])
def test_a_run_goes_on_from_every_step(run, observer, tmp_path, kept, overrides) -> None:
    known = run(tmp_path / "whole", *overrides, ALWAYS)
    steps = list(kept)
    assert steps == list(range(1, len(known.history) * STEPS + 1))
    for step in (each for each in (1, 5, 6, 7, 11, 16) if each < steps[-1]):
        observer.events.clear()
        part = kept[step]
        resumed = run(part, *overrides, ALWAYS, f"resume={part}")
        assert all_same(tmp_path / "whole", part)
        assert learnt(resumed) == learnt(known)
        assert resumed.test_metric == known.test_metric
        assert all(each.epoch_time_s > 0 for each in resumed.history)
        first = next(each for name, each in observer.events if name == "stepped")
        assert (first.global_step, first.step) == (step, step % STEPS + 1)
        _, started = observer.events[0]
        assert started.steps_done == step


@pytest.mark.long
def test_seconds_of_an_epoch_are_counted_on(run, tmp_path, kept) -> None:
    run(tmp_path / "whole", "epochs=1", ALWAYS)
    content = load_checkpoint(kept[3] / LAST)
    content["sums"]["seconds"] += 1000.0
    content["sums"]["devices"][0]["stages"]["sample"] += 500.0
    save_checkpoint(kept[3] / LAST, content)
    (record,) = run(kept[3], "epochs=1", f"resume={kept[3]}").history
    assert 1000 < record.epoch_time_s < 1100
    assert 500 < (record.stage_times_s["sample"] or 0) < 600
    assert record.devices[0].batch_share == 1.0


@pytest.mark.long
def test_other_devices_go_on_inside_an_epoch(run, tmp_path, kept) -> None:
    every = (*NORM, ALWAYS, "runtime.drm=false", "epochs=2")
    known = run(tmp_path / "whole", *every)
    resumed = run(kept[4], *every, plan_of(EMULATED), f"resume={kept[4]}")
    for left, right in zip(known.history, resumed.history, strict=True):
        assert (left.num_edges, left.num_vertices) == (right.num_edges, right.num_vertices)
        assert left.train_loss == pytest.approx(right.train_loss, rel=1e-4)
    # What the first device did in the first steps is none of the second one's.
    (device,) = resumed.history[0].devices
    assert (device.kind, device.batch_share) == ("emulated", 1.0)


@pytest.mark.long
def test_parts_of_other_workers_are_refused(run, tmp_path, kept) -> None:
    run(tmp_path / "whole", "epochs=1", ALWAYS, *NORM)
    whole = load_checkpoint(kept[3] / LAST)
    (part,) = whole["workers"]
    for changes, message in (
        ({"workers": [part, part]}, "expected 1 workers, got 2"),
        ({"workers": [part | {"buffers": {}}]}, "workers: buffers of another model"),
        ({"workers": []}, "no parts of its workers"),
        ({"sums": whole["sums"] | {"num_batches": 2}}, "3 steps in 0 epochs"),
        ({"sums": None, "workers": []}, "0 epochs"),
        ({"step": 6, "sums": whole["sums"] | {"num_batches": 6}}, "6 steps in 0 epochs"),
    ):
        save_checkpoint(kept[3] / LAST, whole | changes)
        with one_line(message):
            run(kept[3], "epochs=1", *NORM, f"resume={kept[3]}")


def test_training_does_not_wait_for_the_disk(run, tmp_path, monkeypatch) -> None:
    ready = threading.Event()
    written: list[tuple[str, int]] = []
    writing = threading.Lock()

    def slowly(file: Path, content: Any) -> None:
        assert writing.acquire(blocking=False)  # one at a time
        assert ready.wait(timeout=60)
        save_checkpoint(file, content)
        written.append((file.stem, content["epoch"]))
        writing.release()

    pauses: list[int] = []
    pause = BatchSchedule.paused

    def paused(self: BatchSchedule) -> Any:
        pauses.append(len(seen.steps))
        return pause(self)

    monkeypatch.setattr(run_checkpoint, "save_checkpoint", slowly)
    monkeypatch.setattr(BatchSchedule, "paused", paused)
    # The first one is written only once the run is in its third epoch.
    seen = At(2 * STEPS + 2, ready.set)
    run(tmp_path, "epochs=4", ALWAYS, "runtime.prefetch=two_stage", watched=seen)
    assert len(seen.steps) == 4 * STEPS
    # Later steps are sampled and loaded on, but for validations.
    assert pauses == [STEPS, 2 * STEPS, 3 * STEPS, 4 * STEPS]
    assert written[0] == ("last", 0)
    # Those that were due meanwhile were not queued; the next one tells of what came since.
    assert written[1][1] >= 2
    assert load_checkpoint(tmp_path / LAST)["step"] == 4 * STEPS
    best = load_checkpoint(tmp_path / BEST)
    assert best["epoch"] == max(epoch for name, epoch in written if name == "best")


def test_a_disk_that_fails_ends_the_run_at_a_step(run, tmp_path, monkeypatch) -> None:
    failed = threading.Event()

    def fail(file: Path, content: Any) -> None:
        failed.set()
        raise OSError(28, "No space left on device", str(file))

    monkeypatch.setattr(run_checkpoint, "save_checkpoint", fail)
    threads = set(threading.enumerate())
    seen = At(3, lambda: failed.wait(timeout=60))
    with pytest.raises(OSError, match="No space left on device"):
        run(tmp_path, "epochs=100", ALWAYS, watched=seen)
    assert len(seen.steps) <= 2 * STEPS
    assert "checkpoint" not in {each.name for each in set(threading.enumerate()) - threads}


SEVERAL = {
    "hybrid": (plan_of("cpu", EMULATED), "runtime.prefetch=one_stage", *NORM[:1]),
    "p3": ("algorithm=p3", "device_plan=cpu_x2", "runtime.prefetch=two_stage", *NORM[:1]),
    "legion": ("algorithm=legion", "device_plan=cpu_x2"),
}


@pytest.mark.long
@pytest.mark.parametrize("plan", SEVERAL)
def test_workers_go_on_from_every_step(trained_together, tmp_path, plan) -> None:
    every = (
        *("model.dropout=0.5", "num_threads=2", "runtime.deterministic=true", ALWAYS),
        *(*SEVERAL[plan], "device_plan.split=[32,32]"),
    )
    steps = (1, 9, 16)
    resumed = {f"after-{n}+resumed": (*every, f"resume={tmp_path / f'after-{n}'}") for n in steps}
    runs = trained_together(2, {"kept": every, **resumed})
    known = runs["kept"]
    others = torch.load(tmp_path / "kept.1.pt", weights_only=True)
    for step, name in zip(steps, resumed, strict=True):
        assert all_same(tmp_path / "kept", tmp_path / f"after-{step}")
        mine = torch.load(tmp_path / f"{name}.1.pt", weights_only=True)
        # With P3, the other's weights are part of the whole model that is saved.
        assert plan == "p3" or same(others, mine)
        for what in ("losses", "splits", "decisions"):
            assert runs[name][what] == known[what][step:]
        assert runs[name]["epochs"] == known["epochs"][step // STEPS :]
    if plan == "hybrid":
        assert any(known["decisions"])


@pytest.mark.long
def test_an_epoch_is_recorded_once_the_run_can_be_resumed(run, tmp_path) -> None:
    """An epoch in the files of a run without a checkpoint is one of which it was lost."""
    found: list[bool] = []

    class Looks(Observer):
        def finished_epoch(self, record: EpochRecord) -> None:
            found.append(all((tmp_path / file).exists() for file in (LAST, BEST)))

    run(tmp_path, "runtime.checkpoint_every_s=null", "epochs=2", watched=Looks())
    assert found == [True, True]
