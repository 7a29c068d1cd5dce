"""The process that workers are forked from: it imports torch once, for all workers and all runs.

Nothing of weight is imported here before ``serve`` does so.
"""

from __future__ import annotations

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
from typing import Any, NoReturn


@dataclass(frozen=True, kw_only=True)
class Environment:
    """What a worker takes over from the process that wants it, which may have changed since."""

    directory: Path  #: the working directory
    search_path: list[str]  #: where Python finds modules
    variables: dict[str, str]  #: the environment
    program: dict[str, Any]  #: what leads to the program, from which options may name something

    @classmethod
    def of_this_process(cls) -> Environment:
        """Return those of this process."""
        from gnnscale.training.launcher.serialization import program_of_this_process

        return cls(
            directory=Path.cwd(),
            search_path=list(sys.path),
            variables=dict(os.environ),
            program=program_of_this_process(),
        )

    def take_over(self) -> None:
        """Make them those of this process."""
        os.chdir(self.directory)
        sys.path[:] = self.search_path
        os.environ.clear()
        os.environ.update(self.variables)


def begin(descriptor: int) -> None:
    """Do a worker's task, but end as soon as the process that wants it does.

    Args:
        descriptor: of the connection to that process. It sends pickled ``Environment``, and then a
            ``WorkerTask`` as ``serialization.dump`` pickles it.
    """
    # Ctrl-C and a closed terminal reach every process of it; the one that wants this one decides
    # what they mean.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    connection = Connection(descriptor)
    try:
        environment, task = connection.recv_bytes(), connection.recv_bytes()
    except (EOFError, OSError):
        return
    replies: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_end_with_parent, args=(connection, replies), daemon=True).start()
    found: Environment = pickle.loads(environment)
    found.take_over()

    from gnnscale.training.launcher.serialization import load
    from gnnscale.training.launcher.worker import Messages, report_error, work

    try:
        wanted = load(task, found.program)
    # A class that only the process that sent it can import, or a module or program
    # that does not come to its end when it is imported.
    except BaseException as error:
        os._exit(report_error(error, Messages(connection)))
    work(wanted, connection, replies)


def _end_with_parent(connection: Connection, replies: SimpleQueue[bytes]) -> None:
    """Take what the other end sends until it closes, which it does however its process ends."""
    try:
        while True:
            replies.put(connection.recv_bytes())
    except (EOFError, OSError):
        os._exit(1)


#: How a process number, and later the exit code, goes through a status pipe.
NUMBER = struct.Struct("=i")

#: Descriptors of a request: connection, status pipe, standard output, standard error.
NUM_DESCRIPTORS = 4

#: What a worker imports, at once or when it comes to it.
_PRELOADED = (
    "gnnscale.training.launcher.worker",
    "gnnscale.run.checkpoint.file",
    "gnnscale.nn.optim",
    *("gnnscale.nn.conv.gat", "gnnscale.nn.conv.linear"),
    *("numpy.random", "numpy.ctypeslib", "torch.profiler"),
)

#: Seconds that workers get to end by themselves once the process that wanted them is gone.
_GRACE_S = 2.0


def serve(control: int, folder: str) -> None:
    """Fork a worker for every request, until the other end of ``control`` closes.

    A request is one byte with four descriptors: the worker's connection, the pipe into which its
    process number and, once it has ended, its exit code are written, its standard output, and its
    standard error.
    """
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    _import_all()
    status_pipes: dict[int, int] = {}
    with socket.socket(fileno=control) as requests:
        while True:
            ready, _, _ = select.select([requests.fileno(), wake], [], [])
            if wake in ready:
                os.read(wake, 4096)
                _reap(status_pipes)
            if requests.fileno() in ready:
                request, found, _, _ = socket.recv_fds(requests, 1, NUM_DESCRIPTORS)
                if not request:
                    break
                _fork(found, status_pipes, [requests.fileno(), wake, woken])
    _end_all(status_pipes)
    shutil.rmtree(folder, ignore_errors=True)


def _import_all() -> None:
    """Import what a worker needs, without starting a thread: those do not survive a fork."""
    from gnnscale.core.hardware import let_idle_threads_sleep

    let_idle_threads_sleep()
    # NumPy's own library of products starts threads when it is loaded; products are torch's.
    name, given = "OPENBLAS_NUM_THREADS", os.environ.get("OPENBLAS_NUM_THREADS")
    os.environ.setdefault(name, "1")
    # Hardly anything of an import is garbage; looking for it takes a tenth of the time.
    gc.disable()
    # What is missing or does not fit into memory is for the worker to report.
    with suppress(Exception):
        import numpy  # noqa: F401

        if given is None:
            del os.environ[name]

        for module in _PRELOADED:
            import_module(module)
    # Nor is it later: workers share the memory of what is imported by now as it is.
    gc.freeze()
    gc.enable()


def _fork(found: list[int], status_pipes: dict[int, int], own: list[int]) -> None:
    """Fork a worker, and write its process number into its status pipe."""
    connection, status, *streams = found
    pid = os.fork()
    if pid == 0:
        _become_worker(connection, streams, [status, *status_pipes.values(), *own])
    for each in (connection, *streams):
        os.close(each)
    status_pipes[pid] = status
    _write(status, pid)


def _become_worker(connection: int, streams: list[int], inherited: list[int]) -> NoReturn:
    """Do a worker's task in the process just forked, and end it."""
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for each in inherited:
            os.close(each)
        for number, stream in zip((1, 2), streams, strict=True):
            os.dup2(stream, number)
            os.close(stream)
        begin(connection)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def _reap(status_pipes: dict[int, int]) -> None:
    """Pass on the exit codes of the workers that have ended; negative ones are signals."""
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
    """Wait for the workers, which end with their connections, and kill those that do not."""
    deadline = time.monotonic() + _GRACE_S
    while status_pipes and time.monotonic() < deadline:
        _reap(status_pipes)
        time.sleep(0.01)
    for pid in status_pipes:
        os.kill(pid, signal.SIGKILL)
