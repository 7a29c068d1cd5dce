"""Server of worker processes as the launching process uses it; quick to import, to start early."""

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
#: Seconds to wait for a killed process. A process that waits for a disk or a driver without answer
#: ends later, unobserved.
_KILL_WAIT_S = 5.0
_server: WorkerServer | None = None


class WorkerServer:
    """Server process that imports torch and forks workers."""

    def __init__(self, folder: Path) -> None:
        """Start the process, which removes ``folder`` at its end, and return immediately."""
        self.folder = folder  #: files of runs; removed with the server, however it ends
        self.num_started = 0  #: number of requested workers; the first waits for torch
        self._owner = os.getpid()
        self._control, server_end = socket.socketpair()
        with server_end, _blocking_terminal_signals():
            self._process = subprocess.Popen(
                python_command(_PROGRAM, server_end.fileno(), self.folder),
                pass_fds=[server_end.fileno()],
                stdin=subprocess.DEVNULL,
            )

    @property
    def usable(self) -> bool:
        """Whether this process started the server, which still runs."""
        return self.is_ours and self._process.poll() is None

    def start_worker(self) -> WorkerProcess:
        """Request a worker, which starts once the server has imported torch; return its handle.

        If the server has ended, the worker's connection is closed.
        """
        # Imported late, so that the server starts first.
        from multiprocessing.connection import Pipe

        connection, worker_end = Pipe()
        status, status_end = os.pipe()
        with suppress(BrokenPipeError, ConnectionResetError):
            socket.send_fds(self._control, [b"w"], [worker_end.fileno(), status_end, 1, 2])
        worker_end.close()
        os.close(status_end)
        self.num_started += 1
        return WorkerProcess(connection, status)

    @property
    def is_ours(self) -> bool:
        """Whether this process started the server, and is no fork of the process that did."""
        return os.getpid() == self._owner

    def stop(self) -> None:
        """Disconnect from the server, and kill it if this process started it; workers run on."""
        self._control.close()
        if self.is_ours:
            self._process.kill()
            self._process.wait()


class WorkerProcess:
    """Handle of a worker process."""

    def __init__(self, connection: Connection, status: int) -> None:
        """Wrap a worker; pipe ``status`` delivers its process number and later its exit code."""
        self.connection = connection  #: connection to the worker, closed when the process ends
        self._status = status
        self._numbers: list[int] = []

    @property
    def pid(self) -> int | None:
        """Process number; None: the worker has not started, or the server died before that."""
        self._read(1, timeout=0)
        return self._numbers[0] if self._numbers else None

    def exit_code(self, timeout: float | None = None) -> int | None:
        """Wait for the exit code, negative for a signal; None: timeout, or the server is gone."""
        self._read(2, timeout=timeout)
        return self._numbers[1] if len(self._numbers) > 1 else None

    def end(self) -> None:
        """Kill the process, wait for its end (at most 5 s), and close connection and pipe."""
        if self.exit_code(timeout=0) is None:
            if (pid := self.pid) is not None:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.exit_code(timeout=_KILL_WAIT_S)
            self._hang_up()
        self.connection.close()
        os.close(self._status)

    def _hang_up(self) -> None:
        """Stop sending, upon which the worker ends, and drain its messages until it has ended."""
        with socket.socket(fileno=os.dup(self.connection.fileno())) as line, suppress(OSError):
            line.shutdown(socket.SHUT_WR)
        with suppress(EOFError, OSError):
            while self.connection.poll(_KILL_WAIT_S):
                self.connection.recv_bytes()

    def _read(self, count: int, *, timeout: float | None) -> None:
        """Read the process number, and for a ``count`` of 2 the exit code, from the status pipe.

        Return as well if there is nothing to read for ``timeout`` seconds, or the pipe is closed.
        """
        from multiprocessing.connection import wait

        while len(self._numbers) < count and wait([self._status], timeout):
            content = os.read(self._status, NUMBER.size)
            if not content:
                return
            self._numbers.append(NUMBER.unpack(content)[0])


def start_server() -> WorkerServer:
    """Return the running server of this process, or start one."""
    global _server
    if _server is not None and _server.usable:
        return _server
    folder = None
    if _server is not None:
        _server.stop()
        # The files of commands in the folder are kept.
        folder = _server.folder if _server.is_ours else None
    atexit.unregister(stop_server)
    atexit.register(stop_server)
    _server = WorkerServer(folder or Path(tempfile.mkdtemp(prefix="gnnscale-")))
    return _server


def stop_server() -> None:
    """End the server of this process, if any, and remove its folder."""
    global _server
    if _server is not None:
        _server.stop()
        if _server.is_ours:
            shutil.rmtree(_server.folder, ignore_errors=True)
        _server = None
        atexit.unregister(stop_server)


#: Signals of a terminal to its processes: Ctrl-C, and closing.
_TERMINAL_SIGNALS = (signal.SIGINT, signal.SIGHUP)


@contextmanager
def _blocking_terminal_signals() -> Iterator[None]:
    """Block SIGINT and SIGHUP within the ``with`` block.

    Processes started there keep the signals blocked.
    """
    previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, _TERMINAL_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)
