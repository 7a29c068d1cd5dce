from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any, Protocol

import pytest
from hydra import compose, initialize_config_module
from omegaconf import DictConfig, OmegaConf

from gnnscale.config import typed
from gnnscale.hardware import usable_cores
from gnnscale.plan.platform import Platform
from gnnscale.runtime.settings import TrainConfig

TINY = (
    *("dataset.num_vertices=600", "dataset.num_edges=3000", "dataset.num_classes=4"),
    *("dataset.num_features=8", "model.hidden=8", "sampler.fanouts=[5,3]"),
    *("dataset.train_fraction=0.6", "batch_size=64", "epochs=3", "num_threads=1"),
)


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ``GNNSCALE_HOME`` with figures of a machine, so that no run measures this one."""
    home = tmp_path_factory.mktemp("home")
    published = resources.files("gnnscale.configs") / "platform" / "epyc7763_a5000_x4.yaml"
    options = OmegaConf.create(published.read_text())
    assert isinstance(options, DictConfig)
    typed(options, Platform).write(home / "platform.yaml")
    return home


@pytest.fixture
def options(stores: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., DictConfig]]:
    """Compose ``train.yaml`` for a tiny graph, with overrides as on the command line."""
    monkeypatch.setenv("GNNSCALE_HOME", str(stores))
    OmegaConf.register_new_resolver("usable_cores", usable_cores, replace=True)
    with initialize_config_module("gnnscale.configs", version_base="1.3"):
        yield lambda *overrides: compose("train", [*TINY, *overrides])


@pytest.fixture
def settings(options: Callable[..., DictConfig]) -> Callable[..., TrainConfig]:
    return lambda *overrides: typed(options(*overrides), TrainConfig)


class Silent:
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []

    def started(self, run: Any) -> None:
        self.events.append(("started", run))

    def stepped(self, record: Any) -> None:
        self.events.append(("stepped", record))

    def traced(self, spans: Any) -> None:
        self.events.append(("traced", spans))

    def trained(self) -> None:
        self.events.append(("trained", None))

    def finished_epoch(self, record: Any) -> None:
        self.events.append(("finished_epoch", record))


@pytest.fixture
def observer() -> Silent:
    return Silent()


class Together(Protocol):
    def __call__(self, program: str, size: int, *arguments: object) -> None: ...


@pytest.fixture
def together(stores: Path, tmp_path: Path) -> Together:
    """Run a program of ``programs/`` in several processes, which meet at a file, to a good end."""
    environment = os.environ | {"GNNSCALE_HOME": str(stores), "OMP_WAIT_POLICY": "PASSIVE"}

    def start(program: str, size: int, *arguments: object) -> None:
        meeting = tmp_path / "meeting"
        meeting.unlink(missing_ok=True)
        file = Path(__file__).parent / "programs" / program
        outputs = [(tmp_path / f"rank_{rank}.txt").open("w+") for rank in range(size)]
        processes = [
            subprocess.Popen(
                [sys.executable, file, *map(str, (rank, size, meeting, *arguments))],
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            for rank, output in enumerate(outputs)
        ]
        try:
            for process, output in zip(processes, outputs, strict=True):
                process.wait(timeout=120)
                output.seek(0)
                assert process.returncode == 0, output.read()
        finally:
            for process, output in zip(processes, outputs, strict=True):
                process.kill()
                process.wait()
                output.close()

    return start
