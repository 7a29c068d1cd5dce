"""Runs whose processes torchrun starts again, as a single process sees them."""

import json
from pathlib import Path
from typing import Any

import pytest
import tiny_runs

pytestmark = pytest.mark.integration

TINY = (*tiny_runs.TINY, "batch_size=64", "device_plan=cpu_each", "runtime.deterministic=true")


@pytest.fixture
def started_again() -> dict[str, str]:
    variables = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
    variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    return variables | {"TORCHELASTIC_MAX_RESTARTS": "3", "TORCHELASTIC_RUN_ID": "mine"}


def test_the_same_command_goes_on(gnnscale: Any, started_again: Any, tmp_path: Path) -> None:
    directory = tmp_path / "outputs" / "train" / "mine"
    done = gnnscale("train", *TINY, "epochs=2", **started_again)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, str(directory))
    assert "resuming" not in done.stderr
    again = gnnscale("train", *TINY, "epochs=3", **started_again).succeeded()
    assert "last.safetensors: resuming after epoch 2 of 3" in again.stderr
    summary = json.loads((directory / "summary.json").read_text())
    assert summary["epochs"] == 3
    assert summary["command"].startswith("gnnscale train ")
    gnnscale("train", *TINY, "epochs=3", "output=whole").succeeded()
    expected = json.loads((tmp_path / "whole" / "summary.json").read_text())
    assert summary["train_loss"] == expected["train_loss"]
    other = started_again | {"TORCHELASTIC_RUN_ID": "other"}
    refused = gnnscale("train", *TINY, "epochs=3", f"output={directory}", **other).refused()
    assert "--rdzv-id=mine, got --rdzv-id=other" in refused.stderr
    for name in ("last.safetensors", "best.safetensors"):
        assert (directory / "checkpoints" / name).exists()


def test_a_run_without_a_name_and_a_sweep_are_refused(gnnscale: Any, started_again: Any) -> None:
    nameless = started_again | {"TORCHELASTIC_RUN_ID": "none"}
    refused = gnnscale("train", *TINY, **nameless).refused()
    (line,) = refused.stderr.splitlines()
    assert line.startswith("torchrun --max-restarts: expected --rdzv-id=NAME")
    refused = gnnscale("train", "-m", "seed=0,1", *TINY, **started_again).refused()
    (line,) = refused.stderr.splitlines()
    assert line == "torchrun --max-restarts: a sweep is not started again; 0 goes with -m"
