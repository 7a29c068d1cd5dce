"""The server that forks workers: what it is by then, what it tells, and how all of it ends."""

import importlib.util
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from forked import children, state

from gnnscale.training.launcher import fork_server
from gnnscale.training.launcher.fork_server import Environment
from gnnscale.training.launcher.worker_handles import WorkerProcess, start_server, stop_server

pytestmark = pytest.mark.timeout(120)

#: A process that starts a worker, which waits, tells of everybody, and waits to be killed.
LAUNCHER = """\
import pickle, time
from gnnscale.training.launcher.fork_server import Environment
from gnnscale.training.launcher.worker_handles import start_server

server = start_server()
worker = server.start_worker()
worker.connection.send_bytes(pickle.dumps(Environment.from_this_process()))
while worker.pid is None:
    time.sleep(0.01)
print(server._process.pid, worker.pid, server.folder, flush=True)
time.sleep(1000)
"""


class Doing:
    """A task that is done as soon as it arrives."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.what = (function, arguments)

    def __reduce__(self) -> Any:
        return self.what


def started(server: Any, task: Doing | None = None) -> WorkerProcess:
    worker = server.start_worker()
    worker.connection.send_bytes(pickle.dumps(Environment.from_this_process()))
    if task is not None:
        worker.connection.send_bytes(pickle.dumps(task))
    return worker


def until(condition: Callable[[], object]) -> None:
    while not condition():
        time.sleep(0.01)


def gone(pid: int) -> bool:
    return state(Path(f"/proc/{pid}/stat")) in "ZX"


@pytest.fixture(scope="module", autouse=True)
def no_server_is_left() -> Iterator[None]:
    yield
    stop_server()


@pytest.fixture
def server() -> Any:
    """The server that is there; of a killed one, the next."""
    return start_server()


@pytest.mark.long
def test_it_has_imported_torch_and_tells_how_workers_end(server) -> None:
    worker = started(server)
    until(lambda: worker.pid)
    task = Path(f"/proc/{server._process.pid}")
    assert len(list((task / "task").iterdir())) == 1
    assert "libtorch" in (task / "maps").read_text()
    worker.end()
    for task, code in (
        (Doing(os._exit, 3), 3),
        (Doing(signal.raise_signal, signal.SIGKILL), -signal.SIGKILL),
        (Doing(signal.raise_signal, signal.SIGSEGV), -signal.SIGSEGV),
        (Doing(int, "no number"), 1),
    ):
        worker = started(server, task)
        assert worker.exit_code() == code
        assert worker.pid is not None
        assert gone(worker.pid)
        worker.end()


@pytest.mark.long
def test_a_worker_takes_over_the_surroundings_of_its_run(server, tmp_path, monkeypatch) -> None:
    until(lambda: server.usable)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LATE", "so late")
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "late.py").write_text(
        "import os\n\ndef note(): open('note', 'w').write(os.environ['LATE'])\n"
    )
    import late  # type: ignore[import-not-found]

    worker = started(server, Doing(late.note))
    worker.exit_code()
    assert (tmp_path / "note").read_text() == "so late"
    worker.end()


@pytest.mark.long
def test_workers_are_ended_whether_or_not_they_have_begun(server) -> None:
    workers = [started(server) for _ in range(3)]
    until(lambda: workers[0].pid)
    for worker in workers:
        worker.end()
    assert children(server._process.pid) == []


@pytest.mark.long
def test_a_killed_server_leaves_nothing_and_is_replaced(server) -> None:
    worker = started(server)
    until(lambda: worker.pid)
    os.kill(server._process.pid, signal.SIGKILL)
    assert worker.exit_code() is None
    worker.end()
    pid = worker.pid
    assert pid is not None
    until(lambda: gone(pid))
    late = server.start_worker()
    assert (late.exit_code(), late.pid) == (None, None)
    late.end()
    again = start_server()
    assert again is not server
    assert again.folder == server.folder
    assert again.folder.is_dir()


@pytest.mark.long
def test_all_end_with_the_process_that_started_them() -> None:
    launcher = subprocess.Popen([sys.executable, "-c", LAUNCHER], stdout=subprocess.PIPE, text=True)
    assert launcher.stdout is not None
    server, worker, folder = launcher.stdout.readline().split()
    assert Path(folder).is_dir()
    launcher.kill()
    launcher.wait()
    until(lambda: gone(int(server)) and gone(int(worker)) and not Path(folder).exists())
    launcher.stdout.close()


@pytest.mark.parametrize("module", fork_server._PRELOADED)
def test_what_is_imported_for_all_workers_is_there(module) -> None:
    """The first that is missing would leave those after it to every worker."""
    assert importlib.util.find_spec(module) is not None
