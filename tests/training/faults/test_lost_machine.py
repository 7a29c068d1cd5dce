"""A machine of a run under torchrun is lost, and the run resumes without it."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from fault_injection.processes import descendants
from learnt import weights
from run_fixtures import TINY
from torch.distributed import TCPStore
from torch.testing import assert_close

from gnnscale.run.checkpoint import LAST

pytestmark = pytest.mark.integration

PAGE = Path(__file__).parents[3] / "docs" / "distributed.md"
LONG = (
    *(*TINY, "model.dropout=0", "epochs=100", "runtime.drm=false", "runtime.eval_every=50"),
    *("optimizer=sgd", "optimizer.lr=0.001"),
)
ADDRESSES = {"first": "127.0.0.1", "second": "127.0.0.2"}
#: A machine counts as lost after five seconds.
SOON = "last_call_timeout=3,keep_alive_interval=1,keep_alive_max_attempt=5"


@pytest.fixture
def store() -> TCPStore:
    """What keeps what torchruns agree on."""
    return TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


@pytest.fixture
def machine(store: TCPStore, tmp_path: Path, stores: Path) -> Iterator[Callable[..., Any]]:
    """Start the command of the page, on what takes itself for a machine with its own disk."""
    started: list[subprocess.Popen[str]] = []
    begins = "torchrun --nnodes=2:3"
    (line,) = [each for each in PAGE.read_text().splitlines() if each.startswith(begins)]
    line = (
        line.replace("10.0.0.9:29400", f"127.0.0.1:{store.port}")
        .replace("--nnodes=2:3", "--nnodes=1:2")
        .replace("is_host=false", f"is_host=false,{SOON}")
    )
    words = shlex.split(line.replace("every_s=60", "every_s=0.2"))
    at = words.index("--no-python")
    variables = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "GLOO_SOCKET_IFNAME": "lo"}
    variables |= {"GNNSCALE_HOME": str(stores), "OMP_NUM_THREADS": "1"}

    def begin(name: str) -> subprocess.Popen[str]:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        # Ranks follow addresses; equal addresses would leave them to process numbers.
        own = [word.replace("10.0.0.1", ADDRESSES[name]) for word in words]
        train = [*own[1:at], "-m", *own[at + 1 :], *LONG]
        with (folder / "errors.txt").open("a") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "torch.distributed.run", *train],
                cwd=folder,
                env=os.environ | variables,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        started.append(process)
        return process

    yield begin
    for process in started:
        lose(process)
        process.communicate()


def lose(process: subprocess.Popen[str]) -> None:
    """Kill torchrun and what it has started, as a failing power supply would."""
    for each in [process.pid, *(each.pid for each in descendants(process.pid))]:
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)


def wait_for(condition: Callable[[], object], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_asked_to_end(pid: int) -> bool:
    """Whether SIGTERM waits for a process that is stopped."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    status = dict(line.split(":", 1) for line in lines)
    return bool(int(status["ShdPnd"], 16) >> (signal.SIGTERM - 1) & 1)


def join(machine: Callable[..., Any], first: subprocess.Popen[str]) -> subprocess.Popen[str]:
    """Start the second machine; the first one trains no further until both begin again."""
    worker = descendants(first.pid)[0].pid
    os.kill(worker, signal.SIGSTOP)
    second = machine("second")
    try:
        wait_for(lambda: is_asked_to_end(worker), second)
    finally:
        os.kill(worker, signal.SIGCONT)
    return second


def num_devices(directory: Path) -> int:
    """Return how many devices trained in the last step that rank 0 wrote here, 0 before."""
    file = directory / "steps.jsonl"
    whole = file.read_text().rpartition("\n")[0].splitlines() if file.exists() else []
    return len(json.loads(whole[-1])["devices"]) if whole else 0


def check_weights(run: Any, directory: Path, whole: Path) -> None:
    """Compare a run's weights with those of one that nothing disturbs, in this process."""
    run(whole, *LONG)
    for name, expected in weights(whole).items():
        assert_close(weights(directory)[name], expected, rtol=0, atol=1e-5)


def test_the_machine_of_rank_0_is_lost(machine, tmp_path, run) -> None:
    first = machine("first")
    wait_for((tmp_path / "first" / "run" / LAST).exists, first)
    second = join(machine, first)
    directory = tmp_path / "second" / "run"
    wait_for(lambda: num_devices(tmp_path / "first" / "run") == 2, second)
    wait_for(lambda: (directory / LAST).exists(), second)
    lose(first)
    output, _ = second.communicate(timeout=200)
    errors = (tmp_path / "second" / "errors.txt").read_text()
    assert second.returncode == 0, errors
    assert output.splitlines()[-1] == str(directory)
    assert "\nlost worker cpu:0 on " in errors
    assert f"{LAST}: resuming after " in errors
    summary = json.loads((directory / "summary.json").read_text())
    assert (summary["status"], len(summary["devices"]), summary["epochs"]) == ("completed", 1, 100)
    assert len((directory / "metrics.jsonl").read_text().splitlines()) == 100
    check_weights(run, directory, tmp_path / "whole")
    assert not list((directory / "checkpoints").glob(".*"))
