"""Server process that forks workers: it imports torch once, for all workers and runs.

This module imports nothing slow before ``serve`` runs.
"""

import gc
import os
import pickle
import select
import shutil
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import NoReturn


@dataclass(frozen=True, kw_only=True)
class Environment:
    """Directory, import path and variables of the launching process, for its worker."""

    directory: Path  #: working directory
    search_path: list[str]  #: ``sys.path``
    variables: dict[str, str]  #: environment variables

    @classmethod
    def from_this_process(cls) -> "Environment":
        """Return directory, import path and variables of the running process."""
        return cls(directory=Path.cwd(), search_path=list(sys.path), variables=dict(os.environ))

    def apply(self) -> None:
        """Set working directory, search path and environment variables of this process."""
        os.chdir(self.directory)
        sys.path[:] = self.search_path
        os.environ.clear()
        os.environ.update(self.variables)


def begin(descriptor: int) -> None:
    """Run a worker's task in this process; end it as soon as the requesting process ends.

    That process sends over ``descriptor`` a pickled ``Environment`` and a ``WorkerTask`` pickled by
    ``serialization.dump``. Terminal signals are ignored.
    """
    # A terminal signals all its processes; the requesting process decides how to react.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    connection = Connection(descriptor)
    try:
        pickled_state, pickled_task = connection.recv_bytes(), connection.recv_bytes()
    except (EOFError, OSError):
        return
    replies: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_end_with_parent, args=(connection, replies), daemon=True).start()
    state: Environment = pickle.loads(pickled_state)
    state.apply()

    from gnnscale.training.launcher.serialization import load
    from gnnscale.training.launcher.worker import Messages, report_error, work

    try:
        worker_task = load(pickled_task)
    # A module cannot be imported here, or its import has failed or exited.
    except BaseException as error:
        os._exit(report_error(error, Messages(connection)))
    work(worker_task, connection, replies)


def _end_with_parent(connection: Connection, replies: SimpleQueue[bytes]) -> None:
    """Put received messages into ``replies``; end the process when the connection closes."""
    try:
        while True:
            replies.put(connection.recv_bytes())
    except (EOFError, OSError):
        os._exit(1)


#: Format of the process number and the exit code in a status pipe.
NUMBER = struct.Struct("=i")

#: Descriptors of a request: connection, status pipe, standard output, standard error.
NUM_DESCRIPTORS = 4

#: Modules that workers import at some time.
_PRELOADED = (
    "gnnscale.training.launcher.worker",
    "gnnscale.run.checkpoint.file",
    "gnnscale.nn.optim",
    *("gnnscale.nn.conv.gat", "gnnscale.nn.conv.linear"),
    *("numpy.random", "numpy.ctypeslib", "torch.profiler"),
)

#: Seconds for workers to end after the requesting process has ended.
_GRACE_S = 2.0


def serve(control: int, folder: str) -> None:
    """Fork a worker for every request, until the other end of ``control`` closes.

    A request is one byte with four descriptors: the worker's connection, its status pipe, its
    standard output, and its standard error. The server writes the worker's process number to the
    status pipe, and later its exit code. ``folder`` is removed at the end.
    """
    wake, wake_end = os.pipe()
    os.set_blocking(wake_end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
    _import_all()
    status_pipes: dict[int, int] = {}
    with socket.socket(fileno=control) as requests:
        while True:
            ready, _, _ = select.select([requests.fileno(), wake], [], [])
            if wake in ready:
                os.read(wake, 4096)
                _reap(status_pipes)
            if requests.fileno() in ready:
                request, descriptors, _, _ = socket.recv_fds(requests, 1, NUM_DESCRIPTORS)
                if not request:
                    break
                _fork(descriptors, status_pipes, [requests.fileno(), wake, wake_end])
    _end_all(status_pipes)
    shutil.rmtree(folder, ignore_errors=True)


def _import_all() -> None:
    """Import the workers' modules without starting threads, which would not survive a fork."""
    from gnnscale.core.hardware import let_idle_threads_sleep

    let_idle_threads_sleep()
    # NumPy's OpenBLAS starts threads when it is loaded, and workers multiply with torch.
    name, previous = "OPENBLAS_NUM_THREADS", os.environ.get("OPENBLAS_NUM_THREADS")
    os.environ.setdefault(name, "1")
    # Imports create little garbage; collecting it takes a tenth of the time.
    gc.disable()
    # Each worker reports import errors itself.
    with suppress(Exception):
        import numpy  # noqa: F401

        if previous is None:
            del os.environ[name]

        for module in _PRELOADED:
            import_module(module)
    # Frozen objects are never collected, so workers keep sharing their memory.
    gc.freeze()
    gc.enable()


def _fork(
    descriptors: list[int], status_pipes: dict[int, int], server_descriptors: list[int]
) -> None:
    """Fork a worker; add its status pipe by process number, and write that number into the pipe.

    ``descriptors`` are a request's (connection, status pipe, output, errors); the worker closes
    the ``server_descriptors``.
    """
    connection, status, *streams = descriptors
    pid = os.fork()
    if pid == 0:
        _become_worker(connection, streams, [status, *status_pipes.values(), *server_descriptors])
    for descriptor in (connection, *streams):
        os.close(descriptor)
    status_pipes[pid] = status
    _write(status, pid)


def _become_worker(connection: int, streams: list[int], inherited: list[int]) -> NoReturn:
    """Close ``inherited``, set standard streams, run a worker's task, and end this process."""
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for descriptor in inherited:
            os.close(descriptor)
        for number, stream in zip((1, 2), streams, strict=True):
            os.dup2(stream, number)
            os.close(stream)
        begin(connection)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def _reap(status_pipes: dict[int, int]) -> None:
    """Write the exit codes of ended workers to their pipes; a negative code is a signal."""
    for pid in list(status_pipes):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            pipe = status_pipes.pop(pid)
            _write(pipe, os.waitstatus_to_exitcode(status))
            os.close(pipe)


def _write(pipe: int, number: int) -> None:
    with suppress(BrokenPipeError):
        os.write(pipe, NUMBER.pack(number))


def _end_all(status_pipes: dict[int, int]) -> None:
    """Wait 2 seconds for the workers, whose connections are closed, and kill the rest."""
    deadline = time.monotonic() + _GRACE_S
    while status_pipes and time.monotonic() < deadline:
        _reap(status_pipes)
        time.sleep(0.01)
    for pid in status_pipes:
        os.kill(pid, signal.SIGKILL)
