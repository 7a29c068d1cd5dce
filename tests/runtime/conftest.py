from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import pytest
from composed import composed
from hydra import initialize_config_module
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from gnnscale.core.hardware import usable_cores
from gnnscale.options.config import typed
from gnnscale.report.run import write_outcome
from gnnscale.report.terminal import RunReport
from gnnscale.runtime.processes.launch import launch
from gnnscale.runtime.settings import TrainConfig
from gnnscale.runtime.telemetry.records import TrainResult

TINY = (
    *("dataset.num_vertices=600", "dataset.num_edges=3000", "dataset.num_classes=4"),
    *("dataset.num_features=8", "model.hidden=8", "sampler.fanouts=[5,3]"),
    *("dataset.train_fraction=0.6", "batch_size=64", "epochs=3", "num_threads=1"),
)


@pytest.fixture(scope="session")
def stores(
    tmp_path_factory: pytest.TempPathFactory,
    write_figures: Callable[[Path], Path],
    csim_home: Path,
) -> Path:
    """A ``GNNSCALE_HOME`` with figures of a machine, so that no run measures this one.

    What is compiled there for simulation is compiled for all tests.
    """
    home = write_figures(tmp_path_factory.mktemp("home"))
    (home / "csim").symlink_to(csim_home / "csim")
    return home


@pytest.fixture
def options(stores: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., DictConfig]]:
    """Compose ``train.yaml`` for a tiny graph, with overrides as on the command line."""
    monkeypatch.setenv("GNNSCALE_HOME", str(stores))
    OmegaConf.register_new_resolver("usable_cores", usable_cores, replace=True)
    with initialize_config_module("gnnscale.configs", version_base="1.3"):
        yield lambda *overrides: composed([*TINY, *overrides])


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
        starter = Path(__file__).parent / "programs" / "together.py"
        with (tmp_path / "output.txt").open("w+") as output:
            process = subprocess.Popen(
                [sys.executable, *map(str, (starter, program, size, meeting, *arguments))],
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                process.wait(timeout=120)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            output.seek(0)
            assert process.returncode == 0, output.read()

    return start


@dataclass(frozen=True, kw_only=True)
class Reported:
    """A run by worker processes, and what the command writes of it."""

    result: TrainResult
    summary: dict[str, Any]
    steps: list[dict[str, Any]]
    page: str

    @property
    def losses(self) -> list[float]:
        return [step["loss"] for step in self.steps]

    def of_device(self, rank: int) -> list[dict[str, Any]]:
        """What a device did in every step."""
        return [step["devices"][rank] for step in self.steps]


class Launch(Protocol):
    def __call__(
        self, directory: Path, *overrides: str, report: type[RunReport] = ..., **seams: Any
    ) -> Reported: ...


@pytest.fixture
def launched(options: Callable[..., DictConfig]) -> Launch:
    """Train as ``gnnscale train`` does, with ``seams`` in place of options that it does not have.

    ``report`` is the class of the observer.
    """

    def run(
        directory: Path, *overrides: str, report: type[RunReport] = RunReport, **seams: Any
    ) -> Reported:
        directory.mkdir(exist_ok=True)
        node = options(*overrides)
        config = replace(typed(node, TrainConfig), **seams)
        plain: Any = OmegaConf.to_container(node, resolve=True)
        console = Console(file=io.StringIO())
        values = plain | {"resume": None}
        observer = report(directory, epochs=config.epochs, options=values, console=console)
        try:
            result = launch(config, directory, observer, options=values)
        finally:
            observer.close()
        summary = write_outcome(observer, result, status="completed", console=console)
        lines = (directory / "steps.jsonl").read_text().splitlines()
        assert json.loads((directory / "summary.json").read_text()) == summary
        return Reported(
            result=result,
            summary=summary,
            steps=[json.loads(line) for line in lines],
            page=(directory / "report.html").read_text(),
        )

    return run
