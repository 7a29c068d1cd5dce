"""A kind of accelerator from outside the package: two classes and a registration, nothing else.

It is ``tests/fakes/copying_device.py``: planned, trained by worker processes, managed, reported,
resumed.
"""

from typing import Any

import numpy as np
import pytest
import torch
from copying_device import PROPAGATE_S
from devices import accelerator, plan_of
from learnt import weights

pytestmark = pytest.mark.timeout(120)

COPYING = accelerator("copying")
ALONE, HYBRID = plan_of(COPYING), plan_of("cpu", COPYING)
BATCH, STEPS = 64, 6


def check_device(run: Any, rank: int) -> None:
    """What every report says of the device, by its own clock and its own words."""
    steps = run.of_device(rank)
    trained = [step for step in steps if step["seeds"]]
    assert trained
    # Workers send seconds as numbers of 32 bits.
    seconds = {np.float32(step["stage_s"]["propagate"]) for step in trained}
    assert seconds == {np.float32(PROPAGATE_S)}
    assert all(step["stage_s"]["transfer"] > 0 for step in trained)
    moved = [step["traffic"][part]["link_bytes"] for step in trained for part in ("rows", "lists")]
    assert min(moved) > 0

    device = run.summary["devices"][rank]
    epochs = run.summary["epochs"]
    assert (device["name"], device["kind"]) == (f"copying:{rank}", "copying")
    assert device["figures"] == run.summary["figures"] == "pretended"
    assert device["counters"] == {"launches": len(trained)}
    assert device["host_to_device_bytes"] == round(sum(moved) / epochs) > 0
    mean = len(trained) * PROPAGATE_S / epochs
    assert device["stage_times_s"]["propagate"] == pytest.approx(mean)
    assert run.summary["predicted"]["devices"][rank]["by_rates"]["stage_times_s"]["transfer"] > 0
    assert f"copying:{rank}" in run.page
    assert '<span class="badge">pretended</span>' in run.page


def test_alone(launched, tmp_path) -> None:
    options = ("runtime.prefetch=two_stage", "model.norm=batch", "model.dropout=0.5")
    run = launched(tmp_path / "own", *options, ALONE)
    check_device(run, 0)
    assert [step["seeds"] for step in run.of_device(0)] == [*[BATCH] * (STEPS - 1), 40] * 3
    # It owns its statistics too; the host validates with them, and learns what a processor does.
    known = launched(tmp_path / "cpu", *options, "device_plan=cpu")
    assert run.losses == pytest.approx(known.losses, rel=1e-5)
    assert run.summary["test_metric"] == pytest.approx(known.summary["test_metric"], abs=0.02)
    own, cpu = weights(tmp_path / "own"), weights(tmp_path / "cpu")
    assert any("running_mean" in name for name in own)
    torch.testing.assert_close(own, cpu, rtol=1e-3, atol=1e-5)


def test_beside_a_processor_and_managed(launched, tmp_path) -> None:
    options = ("runtime.drm=true", "device_plan.split=[4,60]", "epochs=6", "num_threads=2")
    run = launched(tmp_path / "own", *options, HYBRID)
    check_device(run, 1)
    assert run.summary["devices"][0]["figures"] == "measured"
    assert "transfer" not in run.of_device(0)[0]["stage_s"]
    assert all(sum(split) in (BATCH, 40) for split in run.seeds)
    # Its clock says the same of any slice: others get its seeds.
    assert run.seeds[0] == (4, 60)
    assert len({split for split in run.seeds if sum(split) == BATCH}) > 1
    decisions = [step["decision"] for step in run.steps if step["decision"] is not None]
    assert any("copying:1" in decision for decision in decisions)
    known = launched(tmp_path / "cpu", "epochs=6", "num_threads=2", "device_plan=cpu")
    assert run.losses == pytest.approx(known.losses, rel=1e-4)


@pytest.mark.long
def test_a_resumed_run_ends_as_one_never_stopped(resumed_and_whole) -> None:
    how = ("model.norm=batch", "runtime.drm=false", "runtime.prefetch=one_stage")
    resumed, whole = resumed_and_whole(HYBRID, "device_plan.split=[40,24]", *how)
    # Steps that were trained while the command was interrupted are reported to nobody.
    numbers = [step["global_step"] for step in resumed.steps]
    assert numbers[-1] == len(whole.result.history) * STEPS - 1
    assert resumed.losses == [whole.losses[number] for number in numbers]
