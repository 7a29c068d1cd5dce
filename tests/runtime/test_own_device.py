"""A kind of accelerator from outside the package: two classes and a registration, nothing else.

It is ``tests/seams/copying_device.py``: planned, trained by worker processes, managed, reported,
resumed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from copying_device import PROPAGATE_S, Copying

from gnnscale.report.terminal import RunReport
from gnnscale.runtime.checkpoint.file import LAST, load_checkpoint

pytestmark = pytest.mark.timeout(120)

COPYING = (
    "{kind:copying,macs_per_s:1e10,memory_bandwidth:5e9,memory_bytes:1073741824,link_bandwidth:1e9}"
)
ALONE = f"device_plan.devices=[{COPYING}]"
HYBRID = f"device_plan.devices=[cpu,{COPYING}]"
BATCH, STEPS = 64, 6


def weights(directory: Path) -> dict[str, torch.Tensor]:
    return dict(load_checkpoint(directory / LAST)["model"])


def check_device(run: Any, rank: int) -> None:
    """What every report says of the device, by its own clock and its own words."""
    steps = run.of_device(rank)
    trained = [step for step in steps if step["seeds"]]
    assert trained
    assert {step["stage_s"]["propagate"] for step in trained} == {PROPAGATE_S}
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


def test_alone(launched: Any, tmp_path: Path) -> None:
    options = ("runtime.prefetch=two_stage", "model.norm=batch", "model.dropout=0.5")
    run = launched(tmp_path / "own", *options, ALONE)
    check_device(run, 0)
    assert [step["seeds"] for step in run.of_device(0)] == [*[BATCH] * (STEPS - 1), 40] * 3
    # It owns its statistics too; the host validates with them, and learns what a processor does.
    known = launched(tmp_path / "cpu", *options, "device_plan=cpu")
    assert run.losses == pytest.approx(known.losses, rel=1e-5)
    assert run.summary["test_metric"] == pytest.approx(known.summary["test_metric"], abs=0.02)
    left, right = weights(tmp_path / "own"), weights(tmp_path / "cpu")
    assert left.keys() == right.keys()
    assert any("running_mean" in name for name in left)
    for name in left:
        torch.testing.assert_close(left[name], right[name], rtol=1e-3, atol=1e-5)


def test_beside_a_processor_and_managed(launched: Any, tmp_path: Path) -> None:
    options = ("runtime.drm=true", "device_plan.split=[4,60]", "epochs=6", "num_threads=2")
    run = launched(tmp_path / "own", *options, HYBRID)
    check_device(run, 1)
    assert run.summary["devices"][0]["figures"] == "measured"
    assert "transfer" not in run.of_device(0)[0]["stage_s"]
    for step in run.steps:
        assert sum(device["seeds"] for device in step["devices"]) in (BATCH, 40)
    # Its clock says the same of any slice: others get its seeds.
    splits = [tuple(device["seeds"] for device in step["devices"]) for step in run.steps]
    assert splits[0] == (4, 60)
    assert len({split for split in splits if sum(split) == BATCH}) > 1
    decisions = [step["decision"] for step in run.steps if step["decision"] is not None]
    assert any("copying:1" in decision for decision in decisions)
    known = launched(tmp_path / "cpu", "epochs=6", "num_threads=2", "device_plan=cpu")
    assert run.losses == pytest.approx(known.losses, rel=1e-4)


def test_two_of_them_sum_their_gradients_by_their_own_library(
    launched: Any, tmp_path: Path
) -> None:
    assert Copying.collective is not None
    options = ("device_plan.split=[40,24]", "runtime.drm=false", "num_threads=2")
    run = launched(tmp_path / "own", f"device_plan.devices=[{COPYING},{COPYING}]", *options)
    for rank in range(2):
        check_device(run, rank)
    known = launched(tmp_path / "cpu", "num_threads=2", "device_plan=cpu")
    assert run.losses == pytest.approx(known.losses, rel=1e-5)


class StopAfterAnEpoch(RunReport):
    """Interrupts the run as Ctrl-C would, as soon as an epoch is done."""

    def finished_epoch(self, record: Any) -> None:
        super().finished_epoch(record)
        raise KeyboardInterrupt


@pytest.mark.parametrize("plan", [ALONE, HYBRID])
def test_a_resumed_run_ends_as_one_never_stopped(launched: Any, tmp_path: Path, plan: str) -> None:
    split = f"device_plan.split={[40, 24] if 'cpu' in plan else [BATCH]}"
    options = (plan, split, "model.norm=batch", "runtime.drm=false")
    options = (*options, "runtime.checkpoint_every_s=0", "runtime.prefetch=one_stage")
    part = tmp_path / "part"
    with pytest.raises(KeyboardInterrupt):
        launched(part, *options, "epochs=100000", report=StopAfterAnEpoch)
    # It goes on for two epochs, however far it came.
    epochs = load_checkpoint(part / LAST)["epoch"] + 2
    options = (*options, f"epochs={epochs}")
    resumed = launched(part, *options, f"resume={part}")
    whole = launched(tmp_path / "whole", *options)
    left, right = weights(tmp_path / "whole"), weights(part)
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in left)
    losses = [[epoch.train_loss for epoch in run.result.history] for run in (resumed, whole)]
    assert len(losses[0]) == epochs
    assert losses[0] == losses[1]
    # Steps that were trained while the command was interrupted are told to nobody.
    numbers = [step["global_step"] for step in resumed.steps]
    assert numbers[-1] == epochs * STEPS - 1
    assert resumed.losses == [whole.losses[number] for number in numbers]
    assert resumed.summary["test_metric"] == whole.summary["test_metric"]
