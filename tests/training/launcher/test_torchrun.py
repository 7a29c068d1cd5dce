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

from gnnscale.run.checkpoint.file import load_checkpoint

pytestmark = pytest.mark.integration

PAGE = Path(__file__).parents[3] / "docs" / "distributed.md"

TINY = (
    *("dataset.num_vertices=600", "dataset.num_edges=3000", "dataset.num_classes=4"),
    *("dataset.num_features=8", "model.hidden=8", "sampler.fanouts=[5,3]", "batch_size=64"),
    *("num_threads=2", "device_plan=hybrid_emulated", "device_plan.split=[40,24]", "epochs=3"),
    *("dataset.train_fraction=0.6", "runtime.drm=false"),
)


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


def weights(directory: Path) -> dict[str, torch.Tensor]:
    content = load_checkpoint(directory / "checkpoints" / "last.safetensors")
    return dict(content["model"])


def free_port() -> int:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        return int(other.getsockname()[1])


@pytest.mark.long
def test_torchrun_learns_what_launch_does(start: Start, launched: Any, tmp_path: Path) -> None:
    def train(name: str, *options: str) -> subprocess.Popen[str]:
        torchrun = ("-m", "torch.distributed.run", *options, "-m", "gnnscale", "train", *TINY)
        return start(*torchrun, f"hydra.run.dir={name}", OMP_NUM_THREADS="1")

    expected = launched(tmp_path / "launched", *TINY).losses
    one = train("one", "--standalone", "--nproc-per-node=2")
    assert finished(one).splitlines()[-1] == str(tmp_path / "one")
    two = ("--nnodes=2", "--nproc-per-node=1", "--master-addr=127.0.0.1")
    at = f"--master-port={free_port()}"
    nodes = [train("two", *two, at, f"--node-rank={rank}") for rank in range(2)]
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


def section(name: str) -> list[str]:
    """Return the lines of a section of docs/distributed.md."""
    return PAGE.read_text().split(f"\n## {name}\n")[1].split("\n## ")[0].splitlines()


def machines_of_the_page(
    start: Start, *options: str, second: str = "", name: str = "Start", workers: int = 1
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
        chosen = [*options, second] if found and second else options
        found.append(start(*command, *chosen, OMP_NUM_THREADS="1"))
    return found


ON_CPUS = (*(each for each in TINY if not each.startswith("device_plan")), "epochs=1")


@pytest.mark.timeout(240)
def test_the_commands_of_the_page(start: Start, tmp_path: Path) -> None:
    first, second = map(finished, machines_of_the_page(start, *ON_CPUS))
    assert first.splitlines()[-1] == str(tmp_path / "run")
    assert second == ""
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["status"], len(summary["devices"])) == ("completed", 2)


@pytest.mark.long
@pytest.mark.timeout(240)
def test_machines_with_other_options_are_refused(start: Start, tmp_path: Path) -> None:
    machine = socket.gethostname()
    line = (
        f"seed=4 in process 1 on {machine}: expected 0 as in process 0 on {machine}; start all "
        "processes of torchrun with the same values"
    )
    for node in machines_of_the_page(start, *ON_CPUS, second="seed=4"):
        _, errors = node.communicate(timeout=200)
        assert node.returncode == 1
        assert line in errors.splitlines()


GRAPH = tuple(each for each in ON_CPUS if each.startswith("dataset."))
OTHERS = tuple(each for each in ON_CPUS if not each.startswith("dataset."))
DIVIDED = "Rows divided among machines"


def divide(start: Start, *options: str) -> None:
    """Divide rows by the command of the page."""
    (line,) = (each for each in section(DIVIDED) if each.startswith("gnnscale partition"))
    finished(start("-m", *shlex.split(line), *GRAPH, *options))


@pytest.mark.timeout(240)
def test_machines_that_divide_rows(
    start: Start, launched: Any, settings: Any, tmp_path: Path
) -> None:
    divide(start)
    memory = "features.memory_bytes=60000"
    first, second = map(finished, machines_of_the_page(start, *OTHERS, memory, name=DIVIDED))
    assert first.splitlines()[-1] == str(tmp_path / "divided")
    assert first.splitlines()[-3].startswith("network: ")
    assert second == ""
    whole = launched(tmp_path / "launched", *ON_CPUS, "device_plan=cpu_x2")
    assert whole.losses
    assert losses(tmp_path / "divided") == pytest.approx(whole.losses, rel=1e-5)
    summary = json.loads((tmp_path / "divided" / "summary.json").read_text())
    alone = whole.summary
    assert summary["test_metric"] == alone["test_metric"]
    network = summary["network"]
    assert (network["machines"], network["row_bytes"], network["id_bytes"]) == (2, 32, 4)
    assert network["bytes"] == pytest.approx(network["expected"], rel=0.01)
    assert network["rows"] > 0
    # Afterwards, the store of the whole graph is needed.
    store = settings(*ON_CPUS).dataset.prepare()
    command = ("-m", "gnnscale", "evaluate", "run=divided", f"dataset.store={store}")
    assert f"test accuracy {alone['test_metric']:.4f}" in finished(start(*command)).splitlines()


WIDE = ("dataset.num_vertices=2000", "dataset.num_edges=6000", "dataset.num_features=512")


@pytest.mark.timeout(240)
def test_machines_whose_own_rows_exceed_memory(start: Start, tmp_path: Path) -> None:
    """Own rows are 2 MB: with 2 MB for all rows, each machine reads its own from the disk."""
    divide(start, *WIDE)
    learnt, runs, lines = [], [], []
    for memory in ("20e6", "2e6"):
        # Bits follow the number of threads, which a plan takes from what it measures.
        given = (f"features.memory_bytes={memory}", "epochs=2", "num_threads=1")
        nodes = machines_of_the_page(start, *OTHERS, *given, name=DIVIDED)
        outputs = [node.communicate(timeout=200) for node in nodes]
        assert [node.returncode for node in nodes] == [0, 0], outputs
        lines.append([each for each in outputs[0][1].splitlines() if "features=shared: " in each])
        run = (tmp_path / "divided").rename(tmp_path / f"run{len(runs)}")
        learnt.append(losses(run))
        runs.append(json.loads((run / "summary.json").read_text()))
    assert learnt[0] == learnt[1]
    assert len(set(learnt[0])) > 10
    memory, disk = runs
    assert memory["test_metric"] == disk["test_metric"]
    ((first,), (second,)) = lines
    assert "of memory hold 100% of other machines' " in first
    assert "of rows exceed its memory, and are read from the disk; " in second
    for each in memory["devices"]:
        assert set(each["traffic"]["disk"].values()) == {0}
    for each in disk["devices"]:
        tier, own = each["traffic"]["tier"], each["traffic"]["disk"]
        assert 0 < own["misses"] < tier["misses"]
        assert own["link_bytes"] >= 2048 * own["misses"]
        assert own["waited_us"] <= tier["waited_us"]
        assert 0 < each["memory_hit_rate"] < 1
    network = disk["network"]
    assert network["bytes"] == pytest.approx(network["expected"], rel=0.01)
    assert network["rows"] > memory["network"]["rows"]
    page = (tmp_path / "run1" / "report.html").read_text()
    assert "own rows on the disk" in page
    assert "own rows on the disk" not in (tmp_path / "run0" / "report.html").read_text()


@pytest.mark.integration
@pytest.mark.timeout(300)
@pytest.mark.parametrize("memory", ["20e6", pytest.param("2e6", marks=pytest.mark.long)])
def test_workers_of_a_machine_share_what_it_reads(
    start: Start, launched: Any, tmp_path: Path, memory: str
) -> None:
    """Two workers a machine; with 20 MB for rows each row crosses the network once at most."""
    divide(start, *WIDE)
    given = (f"features.memory_bytes={memory}", "epochs=2", "num_threads=1")
    outputs = [
        node.communicate(timeout=250)
        for node in machines_of_the_page(start, *OTHERS, *given, name=DIVIDED, workers=2)
    ]
    assert [errors for _, errors in outputs if "torchrun" in errors] == []
    given = (*ON_CPUS, *WIDE, "epochs=2", "num_threads=1", "device_plan=cpu_x4")
    whole = launched(tmp_path / "launched", *given)
    found = losses(tmp_path / "divided")
    assert found == pytest.approx(whole.losses, rel=1e-5)
    summary = json.loads((tmp_path / "divided" / "summary.json").read_text())
    assert summary["test_metric"] == whole.summary["test_metric"]
    assert len(summary["devices"]) == 4
    network = summary["network"]
    assert network["bytes"] == pytest.approx(network["expected"], rel=0.01)
    if memory == "20e6":
        assert 0 < network["rows"] * len(found) <= 2000
    else:
        assert all(each["traffic"]["disk"]["misses"] for each in summary["devices"])


@pytest.mark.timeout(240)
def test_machines_without_memory_for_a_step_of_rows(start: Start) -> None:
    divide(start, *WIDE)
    for node in machines_of_the_page(start, *OTHERS, "features.memory_bytes=1e6", name=DIVIDED):
        _, errors = node.communicate(timeout=200)
        assert node.returncode == 1
        assert "features.memory_bytes: the rows of a step do not fit into the " in errors


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("policy", "graph", "memory"),
    [
        ("belady", (), "90000"),
        pytest.param("match", (), "90000", marks=pytest.mark.long),
        # Own rows are on the disk.
        pytest.param("belady", WIDE, "2e6", marks=pytest.mark.long),
    ],
)
def test_machines_whose_devices_have_caches(
    start: Start, tmp_path: Path, policy: str, graph: tuple[str, ...], memory: str
) -> None:
    divide(start, *graph)
    devices = plan_of(*[accelerator(host_aggregates=False)] * 2)
    options = (f"features.memory_bytes={memory}", devices)
    ratio = ("cache_planner.ratio=0.2",) if policy == "belady" else ()
    cached = (f"cache_planner={policy}", *ratio)
    learnt, runs = [], []
    for caches in ((), cached):
        for node in machines_of_the_page(start, *OTHERS, *options, *caches, name=DIVIDED):
            finished(node)
        run = (tmp_path / "divided").rename(tmp_path / f"run{len(runs)}")
        learnt.append(losses(run))
        runs.append(json.loads((run / "summary.json").read_text()))
    assert learnt[0] == learnt[1]
    assert 0 < runs[1]["network"]["rows"] <= runs[0]["network"]["rows"]
    for each in runs[1]["devices"]:
        rows, tier, disk = (each["traffic"][name] for name in ("rows", "tier", "disk"))
        assert rows["hits"] > 0
        assert (disk["misses"] > 0) == bool(graph)
        assert tier["hits"] + tier["misses"] == pytest.approx(rows["misses"])


@pytest.mark.long
@pytest.mark.timeout(240)
def test_machines_with_the_same_rows_are_refused(start: Start) -> None:
    divide(start)
    machine = socket.gethostname()
    line = (
        f"features=shared: expected another part on each machine, got part 0 in process 0 on "
        f"{machine} and in process 1 on {machine}; set dataset.store on each machine"
    )
    store = "dataset.store=parts/rows/0"
    for node in machines_of_the_page(start, *OTHERS, second=store, name=DIVIDED):
        _, errors = node.communicate(timeout=200)
        assert node.returncode == 1
        assert line in errors.splitlines()


@pytest.mark.long
def test_a_process_of_torchrun_that_is_stopped(together: Callable[..., None]) -> None:
    together("check_stopped", 2, free_port())


def test_a_process_ends_with_its_torchrun(start: Start) -> None:
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
