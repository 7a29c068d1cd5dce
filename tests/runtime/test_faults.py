"""``gnnscale train`` on several devices, broken in the ways that a machine can break it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from faults.cases import take_memory, take_memory_as_it_begins
from faults.plan import PLANS
from faults.training import Training, start
from faults.watched import Watched

from gnnscale.runtime.checkpoint.file import load_checkpoint

pytestmark = pytest.mark.timeout(300)

EPOCHS = 20
TINY = (
    *("dataset.num_vertices=600", "dataset.num_edges=3000", "dataset.num_classes=4"),
    *("dataset.num_features=8", "model.hidden=8", "model.dropout=0", "sampler.fanouts=[5,3]"),
    *("batch_size=64", "num_threads=2", "device_plan.split=[40,24]", "runtime.drm=false"),
    *("runtime.prefetch=two_stage", f"epochs={EPOCHS}"),
)
ENDLESS = "epochs=1000000"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Two devices."""

    option: str
    devices: Sequence[str]
    program: Sequence[str] = ("-m", "gnnscale")
    more: Sequence[str] = ()


OPTION, DEVICES = PLANS["hybrid_emulated"]
HYBRID = Plan(option=OPTION, devices=DEVICES)
#: The same with a kind of device from outside the package, which computes in a thread of its own.
OWN = Plan(
    option=(
        "device_plan.devices=[cpu,{kind:copying,macs_per_s:1e10,memory_bandwidth:5e9,"
        "memory_bytes:1073741824,link_bandwidth:1e9,busy_s:4e-3}]"
    ),
    devices=("cpu:0", "copying:1"),
    program=(str(Path(__file__).parent / "programs" / "with_copying_device.py"),),
)


@pytest.fixture(scope="module")
def watched(stores: Path, tmp_path_factory: pytest.TempPathFactory) -> Watched:
    folder = tmp_path_factory.mktemp("watched")
    return Watched(folder, os.environ | {"GNNSCALE_HOME": str(stores)})


class Runs:
    """Starts runs, and leaves none behind."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._all: list[Training] = []

    def start(self, directory: Path, *options: str, plan: Plan = HYBRID) -> Training:
        if "resume" not in options:
            options = (*TINY, plan.option, *plan.more, *options)
        run = start(
            directory,
            *options,
            devices=plan.devices,
            watched=self._watched,
            program=plan.program,
        )
        self._all.append(run)
        return run

    def until_trained(self, directory: Path, *options: str, plan: Plan = HYBRID) -> Training:
        """A run that has written its first checkpoint, and goes on."""
        run = self.start(directory, *options, plan=plan)
        run.wait_for((directory / "checkpoints" / "last.safetensors").exists)
        run.watch()
        assert run.has_all_workers()
        assert run.sockets
        return run

    def finish(self, directory: Path, *options: str, plan: Plan = HYBRID) -> None:
        run = self.start(directory, *options, plan=plan)
        run.wait_until_gone()
        assert run.process.returncode == 0, run.errors.read_text()

    def end(self) -> None:
        for run in self._all:
            run.watch()
            run.end()


@pytest.fixture
def runs(watched: Watched) -> Iterator[Runs]:
    found = Runs(watched)
    yield found
    found.end()


def ended(run: Training, status: int) -> str:
    """Assert that a run ends and leaves nothing, and return its last line."""
    run.wait_until_gone()
    assert run.process.returncode == status
    assert run.left_behind() == []
    assert "Traceback" not in run.errors.read_text()
    return str(run.last_line())


def weights(directory: Path) -> dict[str, torch.Tensor]:
    content = load_checkpoint(directory / "checkpoints" / "last.safetensors")
    return dict(content["model"])


@pytest.fixture(scope="module")
def whole(watched: Watched, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run that nobody disturbs."""
    directory = tmp_path_factory.mktemp("whole") / "run"
    Runs(watched).finish(directory)
    return directory


@pytest.mark.parametrize(
    ("plan", "rank", "stage", "resume"),
    [
        (HYBRID, 0, "checkpoint", ()),
        (HYBRID, 1, "propagate", ("device_plan.devices=[cpu]", "device_plan.split=null")),
        (OWN, 1, "propagate", ()),
    ],
)
def test_a_killed_worker_and_resumption(
    runs: Runs,
    whole: Path,
    watched: Watched,
    tmp_path: Path,
    plan: Plan,
    rank: int,
    stage: str,
    resume: tuple[str, ...],
) -> None:
    directory = tmp_path / "run"
    run = runs.until_trained(directory, plan=plan)
    worker = run.workers()[rank]
    watched.kill_in(worker.pid, stage)
    run.wait_for(lambda: not worker.alive)
    line = ended(run, 1)
    assert line.startswith(f"worker {plan.devices[rank]}: process {worker.pid} killed by SIGKILL")
    summary = json.loads((directory / "summary.json").read_text())
    assert (summary["status"], summary["error"]) == ("failed", line)
    done = len((directory / "metrics.jsonl").read_text().splitlines())
    assert 1 <= done < EPOCHS

    runs.finish(directory, "resume", *resume, plan=plan)
    left, right = weights(whole), weights(directory)
    assert left.keys() == right.keys()
    for key in left:
        if resume or plan is not HYBRID:  # on other devices, to rounding
            torch.testing.assert_close(left[key], right[key], rtol=1e-3, atol=1e-4)
        else:
            assert torch.equal(left[key], right[key])
    epochs = [
        [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
        for path in (whole, directory)
    ]
    assert [each["epoch"] for each in epochs[1]] == list(range(1, EPOCHS + 1))
    for left_epoch, right_epoch in zip(*epochs, strict=True):
        assert left_epoch["train_loss"] == pytest.approx(right_epoch["train_loss"], rel=1e-4)
    summaries = [json.loads((path / "summary.json").read_text()) for path in (whole, directory)]
    assert [each["status"] for each in summaries] == ["completed"] * 2
    assert summaries[0]["epochs"] == summaries[1]["epochs"]


def over_parts(algorithm: str) -> Plan:
    """Two processors, each with a part of the graph or some of its columns."""
    return Plan(
        option=f"algorithm={algorithm}",
        devices=("cpu:0", "cpu:1"),
        # An epoch takes no time to speak of, and a fault has to come before the last one.
        more=("device_plan=cpu_x2", "device_plan.split=[32,32]", "epochs=60"),
    )


@pytest.mark.parametrize(
    ("algorithm", "stage"),
    [("pagraph", "sample"), ("p3", "exchange"), ("legion", "propagate")],
)
def test_a_killed_worker_and_resumption_over_parts(
    runs: Runs, watched: Watched, tmp_path: Path, algorithm: str, stage: str
) -> None:
    plan = over_parts(algorithm)
    runs.finish(tmp_path / "whole", plan=plan)
    run = runs.until_trained(tmp_path / "run", plan=plan)
    worker = run.workers()[1]
    watched.kill_in(worker.pid, stage)
    run.wait_for(lambda: not worker.alive)
    line = ended(run, 1)
    assert line.startswith(f"worker cpu:1: process {worker.pid} killed by SIGKILL")
    runs.finish(tmp_path / "run", "resume", plan=plan)
    left, right = weights(tmp_path / "whole"), weights(tmp_path / "run")
    assert left.keys() == right.keys()
    assert all(torch.equal(left[key], right[key]) for key in left)


@pytest.mark.parametrize("algorithm", ["distdgl", "pagraph", "p3", "legion"])
def test_an_interruption_over_parts(runs: Runs, tmp_path: Path, algorithm: str) -> None:
    run = runs.until_trained(tmp_path / "run", ENDLESS, plan=over_parts(algorithm))
    os.kill(run.process.pid, signal.SIGINT)
    assert ended(run, 130) == "interrupted"


@pytest.mark.parametrize(("plan", "number"), [(HYBRID, signal.SIGINT), (OWN, signal.SIGTERM)])
def test_signals_to_the_command(
    runs: Runs, tmp_path: Path, plan: Plan, number: signal.Signals
) -> None:
    run = runs.until_trained(tmp_path / "run", ENDLESS, plan=plan)
    os.kill(run.process.pid, number)
    assert ended(run, 130) == "interrupted"
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "interrupted"


def test_ctrl_c_while_workers_start(runs: Runs, tmp_path: Path) -> None:
    run = runs.start(tmp_path / "run")
    run.wait_for(run.has_all_workers)
    run.watch()
    os.killpg(run.process.pid, signal.SIGINT)
    assert ended(run, 130) == "interrupted"


@pytest.mark.parametrize(("plan", "starting"), [(HYBRID, True), (OWN, False)])
def test_workers_end_with_the_command(
    runs: Runs, tmp_path: Path, plan: Plan, starting: bool
) -> None:
    if starting:
        run = runs.start(tmp_path / "run", plan=plan)
        run.wait_for(run.has_all_workers)
        run.watch()
    else:
        run = runs.until_trained(tmp_path / "run", ENDLESS, plan=plan)
    run.process.kill()
    ended(run, -signal.SIGKILL)


def test_a_run_outlives_the_server_that_forked_its_workers(runs: Runs, tmp_path: Path) -> None:
    run = runs.until_trained(tmp_path / "run")
    os.kill(run.server().pid, signal.SIGKILL)
    run.wait_until_gone()
    assert run.process.returncode == 0
    assert run.left_behind() == []


def test_a_worker_killed_after_the_server(runs: Runs, tmp_path: Path) -> None:
    run = runs.until_trained(tmp_path / "run", ENDLESS)
    worker = run.workers()[1]
    os.kill(run.server().pid, signal.SIGKILL)
    os.kill(worker.pid, signal.SIGKILL)
    line = ended(run, 1)
    assert line.startswith(f"worker emulated:1: process {worker.pid} ended without a word")


def test_a_worker_whose_memory_runs_out(runs: Runs, tmp_path: Path) -> None:
    # Where it validates next, it needs a thread, which cannot begin.
    run = runs.until_trained(tmp_path / "run", ENDLESS)
    take_memory(run.workers()[0])
    assert ended(run, 1).startswith("worker cpu:0: out of memory")


def test_a_device_of_ones_own_whose_memory_runs_out(runs: Runs, tmp_path: Path) -> None:
    for number in range(3):
        run = runs.start(tmp_path / f"run-{number}", plan=OWN)
        take_memory_as_it_begins(run, 1)
        run.wait_until_gone()
        if run.process.returncode:  # else it had all that it needs by then
            break
    assert ended(run, 1).startswith("worker copying:1: out of memory")


def test_options_that_no_run_can_start_with(runs: Runs, tmp_path: Path) -> None:
    wrong = {
        "device": ("device_plan.devices=[gpu]", "device_plan.devices.0.kind=gpu"),
        "split": ("device_plan.split=[40,40]", "[40, 40]: sums to 80, not to batch_size=64"),
    }
    started = {name: runs.start(tmp_path / name, option) for name, (option, _) in wrong.items()}
    for name, run in started.items():
        run.wait_until_gone()
        assert run.process.returncode == 1
        assert wrong[name][1] in run.last_line()
        assert "Traceback" not in run.errors.read_text()
        assert run.left_behind() == []
