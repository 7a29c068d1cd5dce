"""What a worker process does first.

Nothing of weight is imported here: importing torch takes seconds, in which a signal may come, or
the process that started this one may end.
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
from multiprocessing.connection import Connection

__all__ = ["begin"]


def begin(task: bytes, connection: Connection) -> None:
    """Do a worker's task, but end as soon as the process that started this one does.

    Args:
        task: a pickled ``WorkerTask``.
        connection: to the process that started this one.
    """
    # Ctrl-C reaches every process of a terminal; the one that started this decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, args=(connection,), daemon=True).start()

    from gnnscale.runtime.processes.worker import work

    work(pickle.loads(task), connection)


def _end_with_parent(connection: Connection) -> None:
    """Wait for the other end to close, which it does however its process ends."""
    try:
        connection.recv()
    except (EOFError, OSError):
        os._exit(1)
