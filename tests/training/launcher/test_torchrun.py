"""Processes that ``torchrun`` starts learn what those of ``launch`` do, on one node or on two."""

import json
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from devices import accelerator, plan_of
from fault_injection.processes import descendants, elapsed
from free_ports import free_port
from learnt import weights
from run_fixtures import TINY

pytestmark = pytest.mark.integration

PAGE = Path(__file__).parents[3] / "docs" / "distributed.md"


ON_CPUS = (*TINY, "num_threads=2", "epochs=1", "runtime.drm=false")
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path, stores: Path) -> Iterator[Start]:
    """Starts Python, and leaves none behind."""
    started: list[subprocess.Popen[str]] = []

    def begin(*command: str, **variables: str) -> subprocess.Popen[str]:
        variables |= {"GNNSCALE_HOME": str(stores), "GLOO_SOCKET_IFNAME": "lo"}
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        line = [sys.executable, *command]
        started.append(subprocess.Popen(line, cwd=tmp_path, env=os.environ | variables, **pipes))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def finished(process: subprocess.Popen[str]) -> str:
    output, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    return output


def losses(directory: Path) -> list[float]:
    lines = (directory / "steps.jsonl").read_text().splitlines()
    return [json.loads(line)["loss"] for line in lines]


def section(name: str) -> list[str]:
    """Return the lines of a section of docs/distributed.md."""
    return PAGE.read_text().split(f"\n## {name}\n")[1].split("\n## ")[0].splitlines()


def machines_of_the_page(
    start: Start, *options: str, name: str = "Start", workers: int = 1
) -> list[Any]:
    """Start the commands of docs/distributed.md, in place of machines on this one."""
    lines = [line for line in section(name) if line.startswith("torchrun --")]
    assert len(lines) == 2
    port = free_port()
    found = []
    for line in lines:
        words = shlex.split(line.replace("10.0.0.1", "127.0.0.1").replace("29500", str(port)))
        words = [each.replace("per-node=1", f"per-node={workers}") for each in words]
        words = [each.replace("cpu_x2", f"cpu_x{2 * workers}") for each in words]
        at = words.index("--no-python")
        assert words[at + 1 : at + 3] == ["gnnscale", "train"]
        command = ["-m", "torch.distributed.run", *words[1:at], "-m", *words[at + 1 :]]
        found.append(start(*command, *options, OMP_NUM_THREADS="1"))
    return found


@pytest.mark.timeout(240)
def test_the_commands_of_the_page(start, launched, tmp_path) -> None:
    expected = launched(tmp_path / "launched", *ON_CPUS, "device_plan=cpu_x2").losses
    first, second = map(finished, machines_of_the_page(start, *ON_CPUS))
    assert first.splitlines()[-1] == str(tmp_path / "run")
    assert second == ""
    found, known = tmp_path / "run", tmp_path / "launched"
    assert expected
    assert losses(found) == pytest.approx(expected, rel=1e-6)
    torch.testing.assert_close(weights(found), weights(known), rtol=1e-5, atol=1e-6)
    summary = json.loads((found / "summary.json").read_text())
    assert (summary["status"], len(summary["devices"])) == ("completed", 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["launched", "run"]


@pytest.mark.long
def test_processes_with_other_options_are_refused(start) -> None:
    machine = socket.gethostname()
    line = (
        f"seed=1 in process 1 on {machine}: expected 0 as in process 0 on {machine}; start all "
        "processes of torchrun with the same values"
    )
    variables = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    command = ("-m", "gnnscale", "train", *ON_CPUS, "device_plan=cpu_x2")
    for process in [
        start(*command, f"seed={rank}", RANK=rank, LOCAL_RANK=rank, **variables) for rank in "01"
    ]:
        _, errors = process.communicate(timeout=100)
        assert process.returncode == 1
        assert line in errors.splitlines()


GRAPH = tuple(each for each in ON_CPUS if each.startswith("dataset."))
OTHERS = tuple(each for each in ON_CPUS if not each.startswith("dataset."))
DIVIDED = "Rows divided among machines"


WIDE = ("dataset.num_vertices=2000", "dataset.num_edges=6000", "dataset.num_features=512")


@pytest.fixture(scope="module")
def divided(tmp_path_factory: pytest.TempPathFactory, stores: Path) -> Path:
    """Where the command of the page has divided rows."""
    folder = tmp_path_factory.mktemp("divided")
    (line,) = (each for each in section(DIVIDED) if each.startswith("gnnscale partition"))
    command = [sys.executable, "-m", *shlex.split(line), *GRAPH, *WIDE]
    environment = os.environ | {"GNNSCALE_HOME": str(stores)}
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    return folder / "parts"


@pytest.fixture
def on_machines(together: Any, divided: Path, tmp_path: Path) -> Callable[..., str]:
    """Train on two machines that divide rows; return what they printed."""
    (tmp_path / "parts").symlink_to(divided)

    def train(*options: str, workers: int = 1) -> str:
        given = ("features=shared", "dataset=store", "dataset.store=parts/rows/N", "output=divided")
        where = (free_port(), workers, tmp_path)
        together("train_on_machines", 2 * workers, *where, *given, *OTHERS, *options)
        return (tmp_path / "output.txt").read_text()

    return train


@pytest.mark.timeout(240)
def test_machines_that_divide_rows(start, launched, settings, on_machines, tmp_path) -> None:
    """Own rows are 2 MB: with 2 MB for all rows, each machine reads its own from the disk.

    A machine has two workers, and with 20 MB each row crosses the network once at most.
    """
    # Bits follow the number of threads, which a plan takes from what it measures.
    common = ("epochs=2", "num_threads=1")
    given = (*OTHERS, "features.memory_bytes=20e6", *common)
    nodes = machines_of_the_page(start, *given, name=DIVIDED, workers=2)
    outputs = [node.communicate(timeout=200) for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], outputs
    (printed, told), (nothing, _) = outputs
    assert printed.splitlines()[-1] == str(tmp_path / "divided")
    assert printed.splitlines()[-3].startswith("network: ")
    assert nothing == ""
    learnt, runs = [], []
    for name in ("run0", "run1"):
        if name == "run1":
            options = ("features.memory_bytes=2e6", "device_plan=cpu_x4", *common)
            told += on_machines(*options, workers=2)
        run = (tmp_path / "divided").rename(tmp_path / name)
        learnt.append(losses(run))
        runs.append(json.loads((run / "summary.json").read_text()))
    assert learnt[0] == learnt[1]
    assert len(set(learnt[0])) > 10
    memory, disk = runs
    graph = (*ON_CPUS, *WIDE)
    whole = launched(tmp_path / "launched", *graph, *common, "device_plan=cpu_x4")
    assert learnt[0] == pytest.approx(whole.losses, rel=1e-5)
    assert memory["test_metric"] == disk["test_metric"] == whole.summary["test_metric"]
    assert len(disk["devices"]) == 4
    assert 0 < memory["network"]["rows"] * len(learnt[0]) <= 2000
    first, second = (each for each in told.splitlines() if "features=shared: " in each)
    assert "of memory hold 100% of other machines' " in first
    assert "of rows exceed its memory, and are read from the disk; " in second
    for each in memory["devices"]:
        assert set(each["traffic"]["disk"].values()) == {0}
    for each in disk["devices"]:
        tier, own = each["traffic"]["tier"], each["traffic"]["disk"]
        assert 0 < own["misses"] < tier["misses"]
        assert own["link_bytes"] >= 2048 * own["misses"]
        assert 0 < each["memory_hit_rate"] < 1
    for network in (memory["network"], disk["network"]):
        assert (network["machines"], network["row_bytes"], network["id_bytes"]) == (2, 2048, 4)
        assert network["bytes"] == pytest.approx(network["expected"], rel=0.01)
    assert network["rows"] > memory["network"]["rows"]
    page = (tmp_path / "run1" / "report.html").read_text()
    assert "own rows on the disk" in page
    assert "own rows on the disk" not in (tmp_path / "run0" / "report.html").read_text()
    # Afterwards, the store of the whole graph is needed.
    store = settings(*graph).dataset.prepare()
    command = ("-m", "gnnscale", "evaluate", "run=run0", f"dataset.store={store}")
    expected = f"test accuracy {memory['test_metric']:.4f}"
    assert expected in finished(start(*command)).splitlines()


def test_machines_whose_devices_have_caches(launched, on_machines, tmp_path) -> None:
    """Their own rows are on the disk."""
    devices = plan_of(*[accelerator(host_aggregates=False)] * 2)
    caches = ("cache_planner=belady", "cache_planner.ratio=0.2")
    on_machines("features.memory_bytes=2e6", devices, *caches)
    whole = launched(tmp_path / "launched", *ON_CPUS, *WIDE, devices)
    assert losses(tmp_path / "divided") == pytest.approx(whole.losses, rel=1e-5)
    summary = json.loads((tmp_path / "divided" / "summary.json").read_text())
    assert summary["network"]["rows"] > 0
    for each in summary["devices"]:
        rows, tier, disk = (each["traffic"][name] for name in ("rows", "tier", "disk"))
        assert rows["hits"] > 0
        assert disk["misses"] > 0
        assert disk["waited_us"] <= tier["waited_us"]
        assert tier["hits"] + tier["misses"] == pytest.approx(rows["misses"])


@pytest.mark.long
def test_a_process_of_torchrun_that_is_stopped(together) -> None:
    together("check_stopped", 2, free_port())


def test_a_process_ends_with_its_torchrun(start) -> None:
    ending = "from gnnscale.training.launcher import torchrun; torchrun._exit_with_torchrun()"
    child = f"import os, time; {ending}; print(os.getpid(), flush=True); time.sleep(100)"
    parent = start(
        "-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    (process,) = descendants(parent.pid)
    assert process.pid == pid
    parent.kill()
    for seconds in elapsed():
        if not process.alive:
            return
        assert seconds < 10


@pytest.mark.long
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("lost", "how"),
    [("0", "gone"), ("1", "error")],  # the first one keeps the store
)
def test_a_process_that_is_lost_is_named(together, lost, how) -> None:
    together("check_roll_call", 3, free_port(), lost, how)
