"""Processes that ``torchrun`` starts learn what those of ``launch`` do, on one node or on two."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from gnnscale.runtime.checkpoint.file import load_checkpoint

pytestmark = pytest.mark.integration

TINY = (
    *("dataset.num_vertices=600", "dataset.num_edges=3000", "dataset.num_classes=4"),
    *("dataset.num_features=8", "model.hidden=8", "sampler.fanouts=[5,3]", "batch_size=64"),
    *("num_threads=2", "device_plan=hybrid_emulated", "device_plan.split=[40,24]", "epochs=3"),
    *("dataset.train_fraction=0.6", "runtime.drm=false"),
)


class Commands:
    """Starts commands, and leaves none behind."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        self._directory = directory
        self._environment = environment
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *command: object, **variables: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, *map(str, command)],
            cwd=self._directory,
            env=self._environment | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def torchrun(self, *options: object, nodes: object = "--standalone") -> subprocess.Popen[str]:
        launcher = ("-m", "torch.distributed.run", nodes)
        return self.start(*launcher, *options, OMP_NUM_THREADS="1")


@pytest.fixture
def commands(tmp_path: Path, stores: Path) -> Iterator[Commands]:
    environment = os.environ | {"GNNSCALE_HOME": str(stores), "GLOO_SOCKET_IFNAME": "lo"}
    found = Commands(tmp_path, environment)
    yield found
    for process in found.started:
        process.kill()
        process.communicate()


def finished(process: subprocess.Popen[str]) -> str:
    output, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    return output


def losses(directory: Path) -> list[float]:
    lines = (directory / "steps.jsonl").read_text().splitlines()
    return [json.loads(line)["loss"] for line in lines]


def weights(directory: Path) -> dict[str, torch.Tensor]:
    content = load_checkpoint(directory / "checkpoints" / "last.safetensors")
    return dict(content["model"])


def free_port() -> int:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        return int(other.getsockname()[1])


@pytest.mark.long
def test_torchrun_learns_what_launch_does(
    commands: Commands, launched: Any, tmp_path: Path
) -> None:
    expected = launched(tmp_path / "launched", *TINY).losses
    train = ("-m", "gnnscale", "train", *TINY)
    one = commands.torchrun("--nproc-per-node=2", *train, "hydra.run.dir=one")
    assert finished(one).splitlines()[-1] == str(tmp_path / "one")
    port = free_port()
    nodes = [
        commands.torchrun(
            *("--nproc-per-node=1", f"--node-rank={rank}", f"--master-port={port}"),
            *("--master-addr=127.0.0.1", *train, "hydra.run.dir=two"),
            nodes="--nnodes=2",
        )
        for rank in range(2)
    ]
    outputs = [finished(node) for node in nodes]
    assert outputs[0].splitlines()[-1] == str(tmp_path / "two")
    assert outputs[1] == ""

    assert expected
    for name in ("one", "two"):
        assert losses(tmp_path / name) == pytest.approx(expected, rel=1e-6)
        left, right = weights(tmp_path / "launched"), weights(tmp_path / name)
        for key in left:
            torch.testing.assert_close(left[key], right[key], rtol=1e-5, atol=1e-6)
        assert json.loads((tmp_path / name / "summary.json").read_text())["status"] == "completed"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["launched", "one", "two"]


def test_another_number_of_processes_than_devices(commands: Commands, tmp_path: Path) -> None:
    world = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "3"}
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    run = commands.start("-m", "gnnscale", "train", *TINY, **world, **address)
    _, errors = run.communicate(timeout=200)
    assert run.returncode == 1
    # A busy machine says that it is starting.
    *before, line = errors.splitlines()
    assert before in ([], ["starting"])
    assert line == (
        "torchrun started 3 processes, but device_plan has 2 devices; start one for each"
    )


@pytest.mark.long
def test_a_process_of_torchrun_that_is_stopped(together: Callable[..., None]) -> None:
    together("check_stopped", 2, free_port())
