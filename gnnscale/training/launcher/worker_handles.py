"""Worker processes as their run sees them: forked by a server that is started once.

Importing this is quick, so that a command can start the server before it does anything else.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gnnscale.core import python_command
from gnnscale.training.launcher.fork_server import NUMBER

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

_PROGRAM = (
    "from gnnscale.training.launcher.fork_server import serve; serve(int(sys.argv[1]), sys.argv[2])"
)
#: Seconds in which a process that was killed has to be gone. One that waits for a disk or a driver
#: which does not answer ends once that does, without being waited for.
_GONE_S = 5.0
_server: WorkerServer | None = None


class WorkerServer:
    """A process that has imported torch, or is about to, and forks workers."""

    def __init__(self, folder: Path) -> None:
        """Start the process, which takes ``folder`` over; returns at once."""
        #: for files of runs, removed with the server, however it and this process end
        self.folder = folder
        self.num_started = 0  #: workers that it was asked for; the first has to wait for torch
        self._owner = os.getpid()
        self._control, theirs = socket.socketpair()
        with theirs, _without_signals_of_a_terminal():
            self._process = subprocess.Popen(
                python_command(_PROGRAM, theirs.fileno(), self.folder),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )

    @property
    def usable(self) -> bool:
        """Whether it is this process's, and there."""
        return self.is_ours and self._process.poll() is None

    def start_worker(self) -> WorkerProcess:
        """Ask for a worker, which may take until torch is imported.

        If the server is gone, the worker's connection is closed.
        """
        # Imported late: what starts a server wants it to be under way first.
        from multiprocessing.connection import Pipe

        ours, theirs = Pipe()
        status, written = os.pipe()
        with suppress(BrokenPipeError, ConnectionResetError):
            socket.send_fds(self._control, [b"w"], [theirs.fileno(), written, 1, 2])
        theirs.close()
        os.close(written)
        self.num_started += 1
        return WorkerProcess(ours, status)

    @property
    def is_ours(self) -> bool:
        """Whether this process started it, and not the one that this one was forked from."""
        return os.getpid() == self._owner

    def stop(self) -> None:
        """End the server; its workers are ended by those that started them."""
        self._control.close()
        if self.is_ours:
            self._process.kill()
            self._process.wait()


class WorkerProcess:
    """A worker process."""

    def __init__(self, connection: Connection, status: int) -> None:
        """Take over what a server has made.

        Args:
            status: descriptor of a pipe with its process number and its exit code.
        """
        self.connection = connection  #: to the worker; it closes when the process ends
        self._status = status
        self._numbers: list[int] = []

    @property
    def pid(self) -> int | None:
        """Its process number, None while it is not started, or if the server died before."""
        self._read(1, timeout=0)
        return self._numbers[0] if self._numbers else None

    def exit_code(self, timeout: float | None = None) -> int | None:
        """Wait for its exit code, negative for a signal; None if no process is left to report it.

        Args:
            timeout: seconds to wait, None for no limit.
        """
        self._read(2, timeout=timeout)
        return self._numbers[1] if len(self._numbers) > 1 else None

    def end(self) -> None:
        """End the process, and return once it is gone, or does not go for all that is done."""
        if self.exit_code(timeout=0) is None:
            if (pid := self.pid) is not None:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.exit_code(timeout=_GONE_S)
            self._hang_up()
        self.connection.close()
        os.close(self._status)

    def _hang_up(self) -> None:
        """Close one direction, at which the process ends, and wait until it closes the other.

        Its number or exit code may be unknown: the server is gone.
        """
        with socket.socket(fileno=os.dup(self.connection.fileno())) as line, suppress(OSError):
            line.shutdown(socket.SHUT_WR)
        with suppress(EOFError, OSError):
            while self.connection.poll(_GONE_S):
                self.connection.recv_bytes()

    def _read(self, count: int, *, timeout: float | None) -> None:
        """Read the pipe until ``count`` numbers are known, or it is closed."""
        from multiprocessing.connection import wait

        while len(self._numbers) < count and wait([self._status], timeout):
            content = os.read(self._status, NUMBER.size)
            if not content:
                return
            self._numbers.append(NUMBER.unpack(content)[0])


def start_server() -> WorkerServer:
    """Return the server of this process, started if there is none."""
    global _server
    if _server is not None and _server.usable:
        return _server
    folder = None
    if _server is not None:
        _server.stop()
        # What commands keep there stays.
        folder = _server.folder if _server.is_ours else None
    atexit.unregister(stop_server)
    atexit.register(stop_server)
    _server = WorkerServer(folder or Path(tempfile.mkdtemp(prefix="gnnscale-")))
    return _server


def stop_server() -> None:
    """End the server of this process, if there is one, and remove its folder."""
    global _server
    if _server is not None:
        _server.stop()
        if _server.is_ours:
            shutil.rmtree(_server.folder, ignore_errors=True)
        _server = None
        atexit.unregister(stop_server)


#: What a terminal sends to every process in it: Ctrl-C, and that it is closed.
_OF_TERMINAL = (signal.SIGINT, signal.SIGHUP)


@contextmanager
def _without_signals_of_a_terminal() -> Iterator[None]:
    """Hold SIGINT and SIGHUP back, and from a process that is started in here for good.

    A terminal sends them to that one as well, which would complain or end before it can ignore
    them; the process that starts it decides what they mean.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _OF_TERMINAL)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
