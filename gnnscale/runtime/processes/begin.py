"""What a worker process does first."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

__all__ = ["Surroundings", "begin"]


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What a worker takes over from the process that wants it, which may have changed since.

    Attributes:
        directory: the working directory.
        search_path: where Python finds modules.
        variables: the environment.
        program: what leads to the program, from which options may name something.
    """

    directory: Path
    search_path: list[str]
    variables: dict[str, str]
    program: dict[str, Any]

    @classmethod
    def of_this_process(cls) -> Surroundings:
        """Return those of this process."""
        from gnnscale.runtime.processes.by_name import program_of_this_process

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
        descriptor: of the connection to that process. It sends pickled ``Surroundings``, and then a
            ``WorkerTask`` as ``by_name.dump`` pickles it.
    """
    # Ctrl-C reaches every process of a terminal; the one that wants this one decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = Connection(descriptor)
    try:
        surroundings, task = connection.recv_bytes(), connection.recv_bytes()
    except (EOFError, OSError):
        return
    threading.Thread(target=_end_with_parent, args=(connection,), daemon=True).start()
    found: Surroundings = pickle.loads(surroundings)
    found.take_over()

    from gnnscale.runtime.processes.by_name import load
    from gnnscale.runtime.processes.worker import Messages, tell, work

    try:
        wanted = load(task, found.program)
    # A class that is defined where only the process that sent it finds it, or a module or program
    # that does not come to its end when it is imported.
    except BaseException as error:
        os._exit(tell(error, Messages(connection)))
    work(wanted, connection)


def _end_with_parent(connection: Connection) -> None:
    """Wait for the other end to close, which it does however its process ends."""
    try:
        connection.recv()
    except (EOFError, OSError):
        os._exit(1)
