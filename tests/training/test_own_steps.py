"""A device that owns its steps: the runtime starts them, and reads the outcomes late.

It is ``tests/fakes/owning_device.py``: it learns what a processor does, bit for bit, whatever its
pauses, and resumes.
"""

import pytest
from devices import ROWS, accelerator, plan_of
from interrupted import StopAfterAnEpoch
from learnt import all_same
from losses import Losses
from owning_device import SECONDS

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

ALONE = plan_of(accelerator("owning", pause_s=0.002))
STEPS = 6
LEARNING = ("model.norm=batch", "model.dropout=0.5", "optimizer.schedule=plateau")
ALWAYS = "runtime.checkpoint_every_s=0"


@pytest.mark.parametrize(
    "overrides",
    [
        (*LEARNING, "runtime.clip_norm=0.1", "runtime.accumulate=4"),
        ("optimizer=sgd", "optimizer.momentum=0.9", "optimizer.warmup_epochs=1"),
        ("runtime.deterministic=true", "model=gat"),
    ],
)
def test_it_learns_what_a_processor_does(losses, tmp_path, overrides) -> None:
    known = losses(tmp_path / "cpu", *overrides, plan_of(ROWS))
    assert losses(tmp_path / "own", *overrides, ALONE) == known
    assert all_same(tmp_path / "own", tmp_path / "cpu")
    assert len(known) == 3 * STEPS


def test_what_is_reported_is_by_its_own_clock(launched, tmp_path) -> None:
    reported = launched(tmp_path, ALONE, "runtime.drm=true")
    assert [step["global_step"] for step in reported.steps] == list(range(3 * STEPS))
    for step in reported.of_device(0):
        assert {name: step["stage_s"][name] for name in SECONDS} == SECONDS
        assert step["traffic"]["rows"]["link_bytes"] > 0
    (device,) = reported.summary["devices"]
    assert device["counters"] == {"launches": 3 * STEPS}
    assert reported.result.layout.plan.shares[0].prefetch == "device"
    assert "overlaps its stages by itself" in reported.page


def test_a_step_that_fails_ends_the_run(run, tmp_path) -> None:
    failing = plan_of(accelerator("owning", fails_at=8))
    found = Losses()
    with pytest.raises(RuntimeError, match="out of memory in step 8"):
        run(tmp_path, failing, watched=found)
    assert len(found.steps) == 8


#: Long enough for a rehearsal to pay, and over as soon as nothing gets better.
LONG = ("epochs=100000", "runtime.patience=2", "num_threads=2", "model.dropout=0.5")


SLOW_TOGETHER = plan_of("cpu", accelerator("owning", asked_s=0.05))


def test_a_processor_that_shortens_no_step_is_left_out(launched, tmp_path) -> None:
    options = (SLOW_TOGETHER, ALWAYS, *LONG)
    found = launched(tmp_path / "hybrid", *options)
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
    assert all_same(tmp_path / "hybrid", tmp_path / "alone")
    # And it resumes.
    part = tmp_path / "part"
    with pytest.raises(KeyboardInterrupt):
        launched(part, *options, report=StopAfterAnEpoch)
    resumed = launched(part, *options, f"resume={part}")
    assert resumed.result.layout.left_out is not None
    assert all_same(part, tmp_path / "hybrid")


@pytest.mark.parametrize(
    "stays",
    [
        "device_plan.split=[40,24]",  # as the user says
        "runtime.deterministic=true",  # seconds do not repeat
    ],
)
def test_a_processor_stays(launched, tmp_path, stays) -> None:
    found = launched(tmp_path, SLOW_TOGETHER, *LONG, "runtime.patience=1", stays)
    assert found.result.layout.left_out is None
    assert len(found.summary["devices"]) == 2


def test_a_processor_that_shortens_steps_stays(launched, tmp_path) -> None:
    slow = plan_of("cpu", accelerator("owning", pause_s=0.3))  # a pause that it has alone
    found = launched(tmp_path, slow, *LONG)
    assert found.result.layout.left_out is None
    assert len(found.summary["devices"]) == 2
