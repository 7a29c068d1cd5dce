import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from composed import composed
from few_bytes import read_few_bytes
from hydra import initialize_config_module
from interrupted import StopAfterAnEpoch
from learnt import lines, same, weights
from losses import Losses
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from gnnscale.core.config.typed import typed
from gnnscale.core.hardware import usable_cores
from gnnscale.distributed.process_group import SINGLE_PROCESS
from gnnscale.report.run_report import write_outcome
from gnnscale.report.terminal import RunReport
from gnnscale.run.checkpoint import LAST
from gnnscale.run.checkpoint.file import load_checkpoint
from gnnscale.run.config import RunConfig
from gnnscale.run.records import TrainResult
from gnnscale.training.launcher import worker_handles
from gnnscale.training.launcher.launch import launch
from gnnscale.training.setup import open_run
from gnnscale.training.train import train

TINY = (
    *("dataset.num_vertices=600", "dataset.num_edges=3000", "dataset.num_classes=4"),
    *("dataset.num_features=8", "model.hidden=8", "sampler.fanouts=[5,3]"),
    *("dataset.train_fraction=0.6", "batch_size=64", "epochs=3", "num_threads=1"),
)


def with_tiny(overrides: Sequence[str]) -> list[str]:
    """Put the options of a tiny run before others, but for those of a dataset and sampler given."""
    given = {each.partition("=")[0] for each in overrides} & {"dataset", "sampler"}
    return [*(each for each in TINY if each.partition(".")[0] not in given), *overrides]


@pytest.fixture(scope="session")
def stores(tmp_path_factory, write_figures, csim_home) -> Path:
    """A ``GNNSCALE_HOME`` with figures of a machine, so that no run measures this one.

    What is compiled there for the host is compiled for all tests.
    """
    home = write_figures(tmp_path_factory.mktemp("home"))
    for name in ("csim", "cuda"):
        (home / name).symlink_to(csim_home / name)
    return home


@pytest.fixture
def options(stores: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., DictConfig]]:
    """Compose ``train.yaml`` for a tiny graph, with overrides as on the command line."""
    monkeypatch.setenv("GNNSCALE_HOME", str(stores))
    OmegaConf.register_new_resolver("usable_cores", usable_cores, replace=True)
    with initialize_config_module("gnnscale.configs", version_base="1.3"):
        yield lambda *overrides: composed(with_tiny(overrides))


@pytest.fixture
def settings(options: Callable[..., DictConfig]) -> Callable[..., RunConfig]:
    return lambda *overrides: typed(options(*overrides), RunConfig)


class Silent:
    """An observer that keeps the events: their names, and what comes with them."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []

    def __getattr__(self, event: str) -> Callable[..., None]:
        return lambda record=None: self.events.append((event, record))


@pytest.fixture
def observer() -> Silent:
    return Silent()


@pytest.fixture
def run(options: Callable[..., DictConfig], observer: Silent) -> Callable[..., TrainResult]:
    """Train in this process, with ``fakes`` in place of options that the command does not have.

    ``observer`` watches, or ``watched``.
    """

    def trained(
        directory: Path, *overrides: str, watched: Any = observer, **fakes: Any
    ) -> TrainResult:
        node = options(*overrides)
        values: Any = OmegaConf.to_container(node, resolve=True)
        config = replace(typed(node, RunConfig), **fakes)
        threads = torch.get_num_threads()
        try:
            options_of_run = values | {"resume": None}
            return train(open_run(config, directory, options_of_run, SINGLE_PROCESS), watched)
        finally:
            torch.set_num_threads(threads)

    return trained


@pytest.fixture
def losses(run: Callable[..., TrainResult]) -> Callable[..., list[float]]:
    """Train in this process as ``run`` does, and return the losses of all steps."""

    def trained(directory: Path, *overrides: str, **fakes: Any) -> list[float]:
        seen = Losses()
        run(directory, *overrides, watched=seen, **fakes)
        return seen.steps

    return trained


@pytest.fixture
def together(stores: Path, tmp_path: Path) -> Callable[..., None]:
    """Run a program of ``programs/`` in several processes, which meet at a file, to a good end."""
    environment = os.environ | {"GNNSCALE_HOME": str(stores), "OMP_WAIT_POLICY": "PASSIVE"}

    def start(program: str, size: int, *arguments: object) -> None:
        meeting = tmp_path / "meeting"
        meeting.unlink(missing_ok=True)
        starter = Path(__file__).parent.parent / "training" / "programs" / "together.py"
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


@pytest.fixture
def trained_together(together: Any, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Train runs in several processes, in ``tmp_path``; return the record of each by its name.

    ``runs`` has the overrides of each, and what else ``programs/train_together.py`` understands.
    """

    def train_all(size: int, runs: dict[str, Sequence[str]]) -> dict[str, Any]:
        tiny = {name: with_tiny(overrides) for name, overrides in runs.items()}
        (tmp_path / "runs.json").write_text(json.dumps(tiny))
        together("train_together", size, tmp_path)
        return {name: json.loads((tmp_path / f"{name}.json").read_text()) for name in runs}

    return train_all


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

    @property
    def seeds(self) -> list[tuple[int, ...]]:
        """The seeds of all devices, step by step."""
        return [tuple(device["seeds"] for device in step["devices"]) for step in self.steps]

    def of_device(self, rank: int) -> list[dict[str, Any]]:
        """What a device did in every step."""
        return [step["devices"][rank] for step in self.steps]


#: Without these, libraries start threads when they are imported, which no fork survives.
WITHOUT_THREADS = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}


@pytest.fixture(scope="session", autouse=True)
def worker_imports() -> Iterator[None]:
    """Let the server of workers import once what workers of many tests import, and time less."""
    program = (
        f"import os; os.environ.update({WITHOUT_THREADS}); "
        "from gnnscale.training.launcher import fork_server as server; "
        "server._PRELOADED += ('worker_imports',); server.serve(int(sys.argv[1]), sys.argv[2])"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker_handles, "_PROGRAM", program)
        read_few_bytes()
        yield


@pytest.fixture
def launched(options: Callable[..., DictConfig]) -> Callable[..., Reported]:
    """Train as ``gnnscale train`` does, with ``fakes`` in place of options that it does not have.

    ``report`` is the class of the observer.
    """

    def run(
        directory: Path, *overrides: str, report: type[RunReport] = RunReport, **fakes: Any
    ) -> Reported:
        directory.mkdir(exist_ok=True)
        node = options(*overrides)
        config = replace(typed(node, RunConfig), **fakes)
        plain: Any = OmegaConf.to_container(node, resolve=True)
        console = Console(file=io.StringIO())
        values = plain | {"resume": None}
        observer = report(directory, epochs=config.epochs, options=values, console=console)
        try:
            result = launch(config, directory, observer, options=values)
        finally:
            observer.close()
        summary = write_outcome(observer, result, status="completed", console=console)
        assert json.loads((directory / "summary.json").read_text()) == summary
        steps, page = lines(directory / "steps.jsonl"), (directory / "report.html").read_text()
        return Reported(result=result, summary=summary, steps=steps, page=page)

    return run


@pytest.fixture
def resumed_and_whole(launched, tmp_path) -> Callable[..., tuple[Reported, Reported]]:
    """Resume a run that was interrupted, and do it without a stop: they learn the same bits.

    The run goes on for two epochs, however far it came.
    """

    def compare(*overrides: str, **fakes: Any) -> tuple[Reported, Reported]:
        part, whole = tmp_path / "part", tmp_path / "whole"
        common = (*overrides, "runtime.checkpoint_every_s=0")
        with pytest.raises(KeyboardInterrupt):
            launched(part, *common, "epochs=100000", report=StopAfterAnEpoch, **fakes)
        common = (*common, f"epochs={load_checkpoint(part / LAST)['epoch'] + 2}")
        runs = (
            launched(part, *common, f"resume={part}", **fakes),
            launched(whole, *common, **fakes),
        )
        assert same(weights(part), weights(whole))
        left, right = ([each.train_loss for each in run.result.history] for run in runs)
        assert left == right
        assert runs[0].result.test_metric == runs[1].result.test_metric
        return runs

    return compare
