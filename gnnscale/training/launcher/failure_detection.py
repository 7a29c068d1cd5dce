"""Detection of stalled and failed workers on one machine."""

import errno
import logging
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from gnnscale.core.artifact.npy import explain_lost_page
from gnnscale.distributed.heartbeat import (
    HEARTBEAT_BYTES,
    Heartbeat,
    Stall,
    StallDetector,
    has_process_ended,
    publish_heartbeats,
)
from gnnscale.ops import end_on_bus_error

log = logging.getLogger(__name__)

#: Seconds between a worker's heartbeats, and between checks of them.
_HEARTBEAT_S = 1.0


@contextmanager
def writing_heartbeats(file: Path, rank: int) -> Iterator[None]:
    """Write worker ``rank``'s heartbeat to ``file`` each second within the ``with`` block."""
    descriptor = os.open(file, os.O_WRONLY)

    def publish(heartbeat: Heartbeat) -> None:
        os.pwrite(descriptor, heartbeat.packed(), rank * HEARTBEAT_BYTES)

    try:
        with publish_heartbeats(publish, _HEARTBEAT_S):
            yield
    finally:
        os.close(descriptor)


class WorkerWatch:
    """Thread that logs the worker that the others wait for, and kills a stalled worker."""

    def __init__(self, file: Path, names: Sequence[str], *, limit_s: float | None) -> None:
        """Prepare to watch the workers, by their ``names`` in the order of ranks.

        Workers write heartbeats to ``file``. One without progress for ``limit_s`` is killed (None:
        never).
        """
        self.verdict: str | None = None  #: why the run ends; None: no worker has stalled
        self.file = file  #: heartbeats of all workers
        self._num_workers = len(names)
        self._num_bytes = len(names) * HEARTBEAT_BYTES
        self._watch = StallDetector(names, limit_s=limit_s)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def __enter__(self) -> "WorkerWatch":
        # Written zeros instead of a hole, so that later writes need no disk space.
        self.file.write_bytes(bytes(self._num_bytes))
        self._descriptor = os.open(self.file, os.O_RDONLY)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        os.close(self._descriptor)
        self.file.unlink(missing_ok=True)
        for rank in range(self._num_workers):
            _lost_page_file(self.file, rank).unlink(missing_ok=True)

    def _run(self) -> None:
        last = time.monotonic()
        while self.verdict is None and not self._over.wait(_HEARTBEAT_S):
            now = time.monotonic()
            heartbeats = self._read()
            stall = self._watch.look(heartbeats, now - last)
            last = now
            if stall is not None:
                self._judge(stall, heartbeats)

    def _read(self) -> list[Heartbeat | None]:
        content = os.pread(self._descriptor, self._num_bytes, 0)
        starts = range(0, self._num_bytes, HEARTBEAT_BYTES)
        return [Heartbeat.unpacked(content[start : start + HEARTBEAT_BYTES]) for start in starts]

    def _judge(self, stall: Stall, heartbeats: Sequence[Heartbeat | None]) -> None:
        """Log the stalled workers, or kill them after the limit and set ``verdict``.

        Do nothing if one of them has ended.
        """
        if any(has_process_ended(heartbeats[rank]) for rank in stall.ranks):
            return  # its closed connection reports the end
        if self._watch.is_over(stall):
            self.verdict = self._watch.ended_by(stall, heartbeats)
            for rank in stall.ranks:
                _kill_process(heartbeats[rank])
        elif self._watch.is_due(stall):
            log.warning(self._watch.waiting_line(stall, heartbeats))


def _kill_process(heartbeat: Heartbeat | None) -> None:
    """Kill the process of ``heartbeat``, also if it is stopped, unless it has ended."""
    if heartbeat is not None and not has_process_ended(heartbeat):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(heartbeat.pid, signal.SIGKILL)


#: Exit status of a worker that has too little memory to send a message.
OUT_OF_MEMORY = errno.ENOMEM

#: Exit status of a worker that read beyond the end of a shortened mapped file.
LOST_PAGE = 128 + signal.SIGBUS


def _lost_page_file(heartbeat_file: Path, rank: int) -> Path:
    return heartbeat_file.with_name(f"{heartbeat_file.name}-lost-page-{rank}")


def report_lost_page(heartbeat_file: Path, rank: int) -> None:
    """Let a bus error end this process, after writing the name of the shortened mapped file.

    The name goes to a file next to ``heartbeat_file``, for ``lost_page`` to read.
    """
    file = os.open(
        _lost_page_file(heartbeat_file, rank), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600
    )
    end_on_bus_error(descriptor=file, after=b"", status=LOST_PAGE)


def lost_page(heartbeat_file: Path, rank: int) -> str | None:
    """Return a line about the shortened file that worker ``rank`` has named; None: no name."""
    try:
        name = os.fsdecode(_lost_page_file(heartbeat_file, rank).read_bytes())
    except OSError:
        return None
    return explain_lost_page(Path(name)) if name else None
