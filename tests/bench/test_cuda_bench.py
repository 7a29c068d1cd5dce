"""The benchmark of GPUs runs as a whole with the host in the GPU's place, and without a GPU not."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "bench_cuda.py"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=540, check=False)


def test_without_a_gpu_it_says_so_in_one_line() -> None:
    done = run("gather")
    if done.returncode == 0:
        pytest.skip("a CUDA device is here")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "no GPU here" in done.stderr


def test_a_section_that_nobody_knows() -> None:
    done = run("speed")
    assert done.returncode == 2
    assert "sections are check, gather" in done.stderr


@pytest.mark.integration
@pytest.mark.timeout(560)
def test_every_section_runs_and_is_marked_as_emulated(tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    done = run("--on-host", "--out", str(out))
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(out.read_text())
    assert found["figures"] == "emulated"
    values = found["values"]
    assert values["check.comparisons"]["value"] > 50
    assert values["epoch.loss_difference"]["value"] < 1e-4
    for name in ("gather.of_aligned", "sample.edges_per_s", "epoch.seconds", "profile.host_step"):
        assert values[name]["value"] > 0
    assert values["step.differing_losses"]["value"] == values["cache.hits_off"]["value"] == 0
    for name in ("together.loss_difference", "peers.loss_difference"):
        assert values[name]["value"] < 1e-5
    assert "emulated by the host" in done.stdout
    assert " yes " not in done.stdout
