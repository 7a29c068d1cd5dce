"""Worker processes: what they share, which threads they run, and how a failing one ends them."""

import json
import re
import resource
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import copying_device  # noqa: F401
import pytest
from fault_injection.processes import shared_memory
from forked import state, workers
from one_line import one_line

from gnnscale import Observer
from gnnscale.core.hardware import usable_cores
from gnnscale.planner import registry
from gnnscale.run.config import RunConfig
from gnnscale.run.records import EpochRecord
from gnnscale.training.launcher import launch as launching
from gnnscale.training.launcher.failure_detection import LOST_PAGE, OUT_OF_MEMORY
from gnnscale.training.launcher.launch import WorkerError, launch
from gnnscale.training.launcher.serialization import Failure

pytestmark = pytest.mark.timeout(120)

#: See tests/fakes/copying_device.py.
ACCELERATOR = "macs_per_s:1e10,memory_bandwidth:5e9,memory_bytes:1073741824,link_bandwidth:1e9"
PROGRAMS = Path(__file__).parents[1] / "programs"
STATIC = ("device_plan=cpu_x2", "device_plan.split=[40,24]", "runtime.drm=false", "num_threads=2")
COPYING = f"device_plan.devices=[cpu,{{kind:copying,name:own,{ACCELERATOR}}}]"


def mapped(pid: int, file: str) -> tuple[int, int]:
    """Bytes of a file in a process's memory: all, and its part where others share them."""
    rss = pss = 0
    inside = False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if "-" in line.partition(" ")[0]:
            inside = line.endswith(file)
        elif inside and line.startswith("Rss:"):
            rss += int(line.split()[1]) * 1024
        elif inside and line.startswith("Pss:"):
            pss += int(line.split()[1]) * 1024
    return rss, pss


def running_threads(pids: list[int]) -> int:
    """Threads that run, or wait for a core."""
    files = [file for pid in pids for file in Path(f"/proc/{pid}/task").glob("*/stat")]
    return sum(state(file) == "R" for file in files)


class Onlooker(Observer):
    """An observer that looks at the worker processes while they train."""

    def __init__(self) -> None:
        self.epochs: list[EpochRecord] = []
        self.shared: list[tuple[int, int]] = []
        self.running: list[int] = []
        self._over = threading.Event()

    def started(self, run: Any) -> None:
        self.plan = run.plan
        threading.Thread(target=self._sample, args=(workers(),), daemon=True).start()

    def _sample(self, pids: list[int]) -> None:
        while not self._over.wait(0.003):
            self.running.append(running_threads(pids))

    def traced(self, spans: Any) -> None:
        # Validation is one worker's, with all threads.
        self._over.set()

    def finished_epoch(self, record: EpochRecord) -> None:
        if self.epochs:
            return  # workers may be gone by now
        self.epochs.append(record)
        self.shared = [mapped(pid, "features.npy") for pid in workers()]


@pytest.mark.integration
def test_workers_share_the_store_and_keep_to_their_threads(settings, tmp_path) -> None:
    overrides = (
        *("dataset.num_vertices=100000", "dataset.num_edges=100000", "dataset.num_features=256"),
        *("dataset.num_classes=4", "sampler.fanouts=[2,2]", "batch_size=2000", "epochs=2"),
        *("device_plan=cpu_x2", "num_threads=2", "model.hidden=64", "runtime.inference=sampled"),
    )
    onlooker = Onlooker()
    launch(settings(*overrides), tmp_path, onlooker, options={})
    assert not workers()

    size = 100_000 * 256 * 4
    assert len(onlooker.shared) == 2
    assert all(rss > size / 2 for rss, _ in onlooker.shared)
    assert sum(pss for _, pss in onlooker.shared) < 1.1 * size
    (record,) = onlooker.epochs
    pss = [device.pss_bytes or 0 for device in record.devices]
    assert all(pss)
    assert sum(pss) < 0.8 * sum(device.peak_rss_bytes for device in record.devices)

    planned = onlooker.plan.host_threads
    assert planned == 2 <= max(usable_cores(), 2)
    assert onlooker.running
    assert sum(onlooker.running) / len(onlooker.running) < planned + 1


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(PROGRAMS))
    # What it registers is gone behind the test.
    monkeypatch.setattr(registry, "_KINDS", dict(registry._KINDS))
    import faulty  # type: ignore[import-not-found]

    yield faulty
    sys.modules.pop("faulty")


@pytest.fixture
def line_of(observer: Any, tmp_path: Path) -> Callable[[RunConfig], str]:
    """Launch a run that a worker ends, and return what is told of that."""

    def run(config: RunConfig) -> str:
        with one_line(error=WorkerError) as caught:
            launch(config, tmp_path, observer, options={})
        assert not workers()
        return str(caught.value)

    return run


BROKEN = "RuntimeError: the sampler is broken; traceback in "


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "plan", "failure", "prefetch", "message"),
    [
        ("cpu:1", "device_plan=cpu_x2", "RuntimeError", "none", BROKEN),
        ("own", COPYING, "MemoryError", "two_stage", "out of memory (MemoryError);"),
    ],
)
def test_a_stage_that_raises_ends_the_run(
    settings, line_of, tmp_path, faulty, name, plan, failure, prefetch, message
) -> None:
    config = settings(*STATIC, plan, f"runtime.prefetch={prefetch}", "epochs=20")
    note = tmp_path / "raised"
    sampler = faulty.FaultySampling(fanouts=[5, 3], note=note, failure=failure)
    before = shared_memory()
    assert f"worker {name}: {message}" in line_of(replace(config, sampler=sampler))
    assert note.exists()
    trace = (tmp_path / f"worker-{name.replace(':', '-')}.log").read_text()
    assert "faulty.py" in trace
    assert failure in trace
    assert shared_memory() == before
    # Epochs of six steps are done, and so are their checkpoints.
    files = sorted(file.name for file in (tmp_path / "checkpoints").iterdir())
    assert files == ["best.safetensors", "last.safetensors", "signature.json"]


@pytest.mark.long
def test_a_stage_that_does_not_come_to_its_end(settings, line_of, tmp_path, faulty) -> None:
    """The other worker waits for it, and is not to blame."""
    limit = "runtime.stall_limit_s=10"
    config = settings(*STATIC, "runtime.prefetch=two_stage", "epochs=20", limit)
    note = tmp_path / "hangs"
    sampler = faulty.FaultySampling(fanouts=[5, 3], note=note, failure="hang")
    line = line_of(replace(config, sampler=sampler))
    assert re.match(r"worker cpu:1 \(process \d+, training\) has made no ", line)
    assert note.exists()


def test_a_device_that_fails_in_its_own_thread_ends_the_run(
    settings, line_of, tmp_path, faulty
) -> None:
    note = tmp_path / "raised"
    device = f"{{kind:failing,name:own,note:'{note}',{ACCELERATOR}}}"
    line = line_of(settings(*STATIC, f"device_plan.devices=[cpu,{device}]", "epochs=20"))
    assert "worker own: RuntimeError: the board is gone; traceback in" in line
    assert note.exists()
    assert "faulty.py" in (tmp_path / "worker-own.log").read_text()


#: A module that a second process cannot import.
ONLY_ONCE = """
from pathlib import Path
from held_rows import HoldEvenVertices

if Path(__file__).with_suffix(".imported").exists():
    raise ImportError("only once")
Path(__file__).with_suffix(".imported").touch()

class Rows(HoldEvenVertices): ...
"""


def test_a_module_that_workers_cannot_import_is_named(
    settings, line_of, observer, monkeypatch, tmp_path
) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / ".signature.json.tmp").touch()  # as a killed worker leaves it
    (tmp_path / "only_once.py").write_text(ONLY_ONCE)
    monkeypatch.syspath_prepend(tmp_path)
    from only_once import Rows  # type: ignore[import-not-found]

    line = line_of(replace(settings("epochs=1", "device_plan=cpu"), features=Rows()))
    assert line.startswith("worker cpu:0: ImportError: only once; traceback in ")
    assert observer.events == []
    assert not any((tmp_path / "checkpoints").iterdir())


SHORTER = (
    "process 7 killed by SIGBUS; the system does this when a mapped file, such as the graph store, "
    "became shorter, or its disk fails"
)
KILLED = "process 7 killed by SIGKILL; the system does this when memory runs out"


GROUP = "the cgroup's memory limit of 1,500 MiB (/sys/fs/cgroup/a)"
GONE = "the process that starts workers is gone"
NO_WORD = "process 7 ended without a word"


def died(
    code: int | None, pid: int | None = 7, reason: str | None = None, file: str | None = None
) -> Failure:
    found: Any = SimpleNamespace(pid=pid, exit_code=lambda timeout: code)
    counts: Any = SimpleNamespace(reason=lambda: reason)
    return launching._failure_of_ended(found, counts, file)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ((OUT_OF_MEMORY,), "out of memory"),
        ((127,), "out of memory"),
        ((1,), f"{NO_WORD}, exit status 1"),
        ((-signal.SIGBUS,), SHORTER),
        ((-signal.SIGKILL,), KILLED),
        ((-signal.SIGKILL, 7, GROUP), f"process 7 killed by {GROUP}"),
        ((None, None, GROUP), f"{GONE}, killed by {GROUP}"),
        ((None, 7, GROUP), f"{NO_WORD}, and {GONE} as well, killed by {GROUP}"),
        ((-signal.SIGSEGV, 7, GROUP), "process 7 killed by SIGSEGV"),
    ],
)
def test_what_a_worker_died_of(found, message) -> None:
    kind = "memory" if message == "out of memory" else "killed"
    assert died(*found) == Failure(kind=kind, message=message, trace="")


def test_what_a_worker_lacked_is_named(monkeypatch) -> None:
    line = "/a/features.npy: became shorter while it was in use: 3 bytes, not 9"
    lost = died(LOST_PAGE, file=line)
    assert lost.message == f"process 7 has lost a page of a mapped file: {line}"
    monkeypatch.setattr(resource, "getrlimit", lambda _: (4_096_000, resource.RLIM_INFINITY))
    reason = "; the limit on address space (ulimit -v 4000) is the reason"
    for code, message in (
        (OUT_OF_MEMORY, "out of memory"),
        (-signal.SIGABRT, "process 7 killed by SIGABRT"),
        (1, f"{NO_WORD}, exit status 1"),
    ):
        assert died(code).message == message + reason


def test_epochs_of_one_step_are_all_in_the_trace(launched, tmp_path) -> None:
    options = ("device_plan=cpu_x2", "num_threads=2", "batch_size=100000", "epochs=40")
    run = launched(tmp_path, *options, "runtime.eval_every=20")
    assert len(run.steps) == 40
    assert all(each.pss_bytes for epoch in run.result.history for each in epoch.devices)
    trace = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    traced = {(each["pid"], each["args"]["step"]) for each in trace if each.get("ph") == "X"}
    assert len(traced) == 2 * 40


@pytest.mark.long
@pytest.mark.parametrize(
    "overrides",
    [
        ["optimizer.schedule=plateau", "optimizer.schedule_epochs=1"],
        ["runtime.patience=1", "optimizer.lr=1e-9"],
    ],
)
def test_what_follows_validation_is_the_same_on_all_workers(launched, tmp_path, overrides) -> None:
    options = (*overrides, "num_threads=2", "epochs=8", "runtime.drm=false")
    alone = launched(tmp_path / "alone", *options, "device_plan=cpu")
    three = launched(tmp_path / "three", *options, "device_plan.devices=[cpu,cpu,cpu]")
    rates = [[epoch.lr for epoch in each.result.history] for each in (alone, three)]
    assert rates[0] == rates[1]
    assert len(rates[0]) < 8 or len(set(rates[0])) > 1
    assert three.losses == pytest.approx(alone.losses, rel=1e-5)
