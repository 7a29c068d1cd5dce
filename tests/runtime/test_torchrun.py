from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent
OPTIONS = (
    *("dataset.num_vertices=600", "dataset.num_edges=3000", "dataset.num_features=8"),
    *("dataset.train_fraction=0.6", "model.hidden=8", "model.dropout=0", "sampler.fanouts=[5,3]"),
    *("batch_size=64", "epochs=2", "num_threads=1", "runtime.drm=false"),
    *("device_plan=cpu_x2", "device_plan.split=[40,24]"),
)

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def environment(stores: Path) -> dict[str, str]:
    return {**os.environ, "GNNSCALE_HOME": str(stores)}


@pytest.fixture
def losses_of_workers(tmp_path: Path, environment: dict[str, str]) -> list[float]:
    """Losses of the same run with worker processes of one command."""
    folder = tmp_path / "workers"
    command = [BIN / "gnnscale", "train", *OPTIONS, f"hydra.run.dir={folder}"]
    subprocess.run(command, check=True, env=environment, capture_output=True)
    return _losses(folder)


def _losses(folder: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (folder / "steps.jsonl").read_text().splitlines()]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _torchrun(folder: Path, *flags: str, options: tuple[str, ...] = OPTIONS) -> list[str]:
    program = [str(BIN / "gnnscale"), "train", *options, f"hydra.run.dir={folder}"]
    return [str(BIN / "torchrun"), *flags, "--no-python", *program]


def test_two_nodes_train_as_two_workers_do(
    tmp_path: Path, environment: dict[str, str], losses_of_workers: list[float]
) -> None:
    rendezvous = ("--master-addr", "127.0.0.1", "--master-port", str(_free_port()))
    nodes = [
        subprocess.Popen(
            _torchrun(
                tmp_path / f"node{rank}",
                *("--nnodes", "2", "--node-rank", str(rank), "--nproc-per-node", "1"),
                *rendezvous,
            ),
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    told = [node.communicate()[0] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], told
    assert _losses(tmp_path / "node0") == pytest.approx(losses_of_workers, rel=1e-5)
    # Only the first of torchrun's processes writes and reports.
    assert not (tmp_path / "node1").exists()
    assert "test accuracy" in told[0]
    assert "test accuracy" not in told[1]


def test_another_number_of_processes_than_devices_is_refused(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    run = subprocess.run(
        _torchrun(tmp_path / "run", "--standalone", "--nproc-per-node", "1"),
        env=environment,
        capture_output=True,
        text=True,
    )
    assert run.returncode != 0
    assert "torchrun started 1 processes, but device_plan has 2 devices" in run.stderr
