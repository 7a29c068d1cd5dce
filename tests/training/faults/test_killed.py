"""Workers of ``gnnscale train`` are killed, and the run is resumed."""

import json
from pathlib import Path
from typing import Any

import copying_device  # noqa: F401
import pytest
import torch
from learnt import lines, same, weights

from gnnscale.run.checkpoint import LAST
from gnnscale.run.checkpoint.file import load_checkpoint

pytestmark = pytest.mark.integration

ENDLESS = "epochs=1000000"


def kill_a_worker(
    runs: Any, directory: Path, *options: str, plan: str, rank: int, stage: str
) -> None:
    """Let a worker die in a stage of a run that has a checkpoint, and see what it leaves."""
    run = runs.until_trained(directory, *options, plan=plan)
    worker = run.workers()[rank]
    runs.watched.kill_in(worker.pid, stage)
    run.wait_for(lambda: not worker.alive)
    line = runs.ended(run, 1)
    summary = json.loads((directory / "summary.json").read_text())
    assert (summary["status"], summary["error"]) == ("failed", line)
    name = runs.devices(plan)[rank]
    assert line.startswith(f"worker {name}: process {worker.pid} killed by SIGKILL")


def test_a_run_goes_on_without_the_device_of_a_killed_worker(runs, launched, tmp_path) -> None:
    whole, part = tmp_path / "whole", tmp_path / "run"
    kill_a_worker(runs, part, plan="own", rank=1, stage="propagate")
    assert 1 <= len(lines(part / "metrics.jsonl")) < 20
    without = ("device_plan.devices=[cpu]", "device_plan.split=null", f"resume={part}")
    launched(part, *runs.options("own"), *without)
    launched(whole, *runs.options("own"), "device_plan.devices=[cpu]", "device_plan.split=null")
    torch.testing.assert_close(weights(part), weights(whole), rtol=1e-3, atol=1e-4)
    left, right = (lines(path / "metrics.jsonl") for path in (whole, part))
    assert [each["epoch"] for each in right] == list(range(1, 21))
    losses = [[each["train_loss"] for each in epochs] for epochs in (left, right)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_a_killed_worker_of_a_gpu_and_resumption(runs, launched, tmp_path) -> None:
    whole, part = tmp_path / "whole", tmp_path / "run"
    options = ("model.dropout=0.5", "runtime.checkpoint_every_s=0")
    kill_a_worker(runs, part, *options, ENDLESS, plan="cuda_x2", rank=1, stage="propagate")
    # It resumes for two epochs, however far it came.
    epochs = f"epochs={load_checkpoint(part / LAST)['epoch'] + 2}"
    options = (*runs.options("cuda_x2"), *options, epochs)
    launched(part, *options, f"resume={part}")
    launched(whole, *options)
    assert same(weights(whole), weights(part))


@pytest.mark.long
@pytest.mark.parametrize(
    ("plan", "rank", "stage"), [("hybrid", 0, "checkpoint"), ("p3", 1, "exchange")]
)
def test_a_killed_worker_and_resumption_inside_an_epoch(
    runs, launched, tmp_path, plan, rank, stage
) -> None:
    """Checkpoints follow each other as fast as the disk allows, and one may be half written."""
    whole, part = tmp_path / "whole", tmp_path / "run"
    options = (
        *("batch_size=8", "device_plan.split=[5,3]", "epochs=4", "model.norm=batch"),
        *("model.dropout=0.5", "runtime.checkpoint_every_s=0"),
    )
    kill_a_worker(runs, part, *options, plan=plan, rank=rank, stage=stage)
    assert load_checkpoint(part / LAST)["step"] < 4 * 45
    runs.finish(part, "resume")
    launched(whole, *runs.options(plan), *options)
    assert same(weights(whole), weights(part))
    left, right = (lines(path / "metrics.jsonl") for path in (whole, part))
    for name in ("epoch", "train_loss", "valid_metric", "num_edges", "num_vertices"):
        assert [each[name] for each in left] == [each[name] for each in right]
    numbers = [each["global_step"] for each in lines(part / "steps.jsonl")]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] == 4 * 45 - 1
