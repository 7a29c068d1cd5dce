"""A device that owns its steps: the runtime starts them, and reads the outcomes late.

It is ``tests/fakes/owning_device.py``: it learns what a processor does, bit for bit, whatever its
pauses, and resumes from every checkpoint.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from devices import ROWS, accelerator, plan_of
from interrupted import StopAfterAnEpoch
from learnt import same, weights
from losses import At, Losses
from owning_device import SECONDS

from gnnscale.run.checkpoint import BEST, LAST
from gnnscale.run.checkpoint.file import load_checkpoint
from gnnscale.training.pipeline.device_step import MAX_LATE

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

OWNING = accelerator("owning", pause_s=0.002)
ALONE, HYBRID = plan_of(OWNING), plan_of("cpu", OWNING)
STEPS = 6
LEARNING = ("model.norm=batch", "model.dropout=0.5", "optimizer.schedule=plateau")
#: A module that draws from torch's generator, which is seeded in every step.
DRAWING = ("model=custom", "model.module=own_modules:OwnBlocks", "model.dropout=0.5")
ALWAYS = "runtime.checkpoint_every_s=0"


def learnt(directory: Path) -> list[dict[str, torch.Tensor]]:
    """The weights, the statistics, and what the optimizer keeps."""
    last, best = (load_checkpoint(directory / file) for file in (LAST, BEST))
    return [last["model"], best["model"], *last["optimizer"].values()]


def all_same(left: Path, right: Path) -> bool:
    return all(same(*pair) for pair in zip(learnt(left), learnt(right), strict=True))


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        (*LEARNING, "runtime.clip_norm=0.1"),
        (*LEARNING, "runtime.accumulate=4"),
        ("optimizer=sgd", "optimizer.momentum=0.9", "optimizer.warmup_epochs=1"),
        ("runtime.deterministic=true", "model=gat"),
    ],
)
def test_it_learns_what_a_processor_does(run: Any, tmp_path: Path, overrides: Any) -> None:
    known, found = Losses(), Losses()
    run(tmp_path / "cpu", *overrides, plan_of(ROWS), watched=known)
    result = run(tmp_path / "own", *overrides, ALONE, watched=found)
    assert found.steps == known.steps
    assert all_same(tmp_path / "own", tmp_path / "cpu")
    assert result.steps_done == 3 * STEPS
    assert sum(each.num_edges for each in result.history) > 0


def test_what_is_reported_is_by_its_own_clock(launched: Any, tmp_path: Path) -> None:
    reported = launched(tmp_path, ALONE, "runtime.drm=true")
    assert [step["global_step"] for step in reported.steps] == list(range(3 * STEPS))
    for step in reported.of_device(0):
        assert {name: step["stage_s"][name] for name in SECONDS} == SECONDS
        assert step["traffic"]["rows"]["link_bytes"] > 0
    (device,) = reported.summary["devices"]
    assert device["counters"] == {"launches": 3 * STEPS}
    assert reported.result.layout.plan.shares[0].prefetch == "device"
    assert "overlaps its stages by itself" in reported.page


def test_the_host_reads_outcomes_late(run: Any, tmp_path: Path) -> None:
    started: list[int] = []

    class Watching(Losses):
        def stepped(self, record: Any) -> None:
            super().stepped(record)
            started.append(len(self.steps))

    run(tmp_path, plan_of(accelerator("owning", pause_s=0.05)), "epochs=2", watched=Watching())
    assert started == list(range(1, 2 * STEPS + 1))
    assert MAX_LATE < STEPS


@pytest.mark.parametrize("step", [4, 9])
@pytest.mark.parametrize("learning", [(*LEARNING, "runtime.clip_norm=1"), DRAWING])
def test_a_run_resumes_from_any_step(run: Any, tmp_path: Path, step: int, learning: Any) -> None:
    options = (*learning, ALWAYS, ALONE)
    run(tmp_path / "whole", *options)
    part = tmp_path / "part"
    with pytest.raises(KeyboardInterrupt):
        run(part, *options, watched=At(step))
    run(part, *options, f"resume={part}")
    assert all_same(part, tmp_path / "whole")


def test_beside_a_processor_the_host_updates_the_weights(launched: Any, tmp_path: Path) -> None:
    options = ("runtime.drm=false", "device_plan.split=[40,24]", "num_threads=2", *LEARNING)
    found = launched(tmp_path / "own", HYBRID, *options)
    assert found.result.layout.plan.shares[1].prefetch != "device"
    known = launched(tmp_path / "cpu", "device_plan=cpu_x2", *options)
    assert found.losses == pytest.approx(known.losses, rel=1e-5)


def test_a_step_that_fails_ends_the_run(run: Any, tmp_path: Path) -> None:
    failing = plan_of(accelerator("owning", fails_at=8))
    found = Losses()
    with pytest.raises(RuntimeError, match="out of memory in step 8"):
        run(tmp_path, failing, watched=found)
    assert len(found.steps) == 8


def test_weights_are_those_of_the_host_after_a_rehearsal(run: Any, tmp_path: Path) -> None:
    once = run(tmp_path / "once", ALONE, "epochs=1")
    long = run(tmp_path / "long", ALONE, "epochs=1", "runtime.prefetch=none")
    assert once.history[0].train_loss == long.history[0].train_loss
    assert same(weights(tmp_path / "once"), weights(tmp_path / "long"))


#: Long enough for a rehearsal to pay, and over as soon as nothing gets better.
LONG = ("epochs=100000", "runtime.patience=2", "num_threads=2", "model.dropout=0.5")


SLOW_TOGETHER = plan_of("cpu", accelerator("owning", asked_s=0.05))


def test_a_processor_that_shortens_no_step_is_left_out(launched: Any, tmp_path: Path) -> None:
    found = launched(tmp_path / "hybrid", SLOW_TOGETHER, *LONG)
    left_out = found.result.layout.left_out
    assert (left_out.names, left_out.name) == (("cpu:0",), "owning:1")
    assert left_out.step_without_s <= left_out.step_with_s
    (device,) = found.summary["devices"]
    assert device["name"] == "owning:1"
    assert found.summary["left_out"]["names"] == ["cpu:0"]
    assert "cpu:0 left out: a step takes" in found.page
    # It is the run of the accelerator alone.
    known = launched(tmp_path / "alone", plan_of(accelerator("owning")), *LONG)
    assert found.losses == known.losses
    assert same(weights(tmp_path / "hybrid"), weights(tmp_path / "alone"))


@pytest.mark.parametrize(
    "stays",
    [
        "device_plan.split=[40,24]",  # as the user says
        "runtime.deterministic=true",  # seconds do not repeat
        "epochs=2",  # nothing is rehearsed
    ],
)
def test_a_processor_stays(launched: Any, tmp_path: Path, stays: str) -> None:
    found = launched(tmp_path, SLOW_TOGETHER, *LONG, "epochs=2", stays)
    assert found.result.layout.left_out is None
    assert len(found.summary["devices"]) == 2


def test_a_processor_that_shortens_steps_stays(launched: Any, tmp_path: Path) -> None:
    slow = plan_of("cpu", accelerator("owning", pause_s=0.3))  # a pause that it has alone
    found = launched(tmp_path, slow, *LONG)
    assert found.result.layout.left_out is None
    assert len(found.summary["devices"]) == 2


def test_a_run_without_its_processor_resumes(launched: Any, tmp_path: Path) -> None:
    part, options = tmp_path / "part", (SLOW_TOGETHER, ALWAYS, *LONG)
    with pytest.raises(KeyboardInterrupt):
        launched(part, *options, report=StopAfterAnEpoch)
    found = launched(part, *options, f"resume={part}")
    assert found.result.layout.left_out is not None
    launched(tmp_path / "whole", *options)
    assert all_same(part, tmp_path / "whole")
