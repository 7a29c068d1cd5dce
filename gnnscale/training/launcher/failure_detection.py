"""Who is lost of torchrun's processes: those that are left ask each other in torchrun's store."""

from __future__ import annotations

import errno
import logging
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnnscale.core.artifact.npy import explain_lost_page
from gnnscale.distributed.heartbeat import (
    HEARTBEAT_BYTES,
    Heartbeat,
    Stall,
    StallDetector,
    beating,
    is_gone,
)
from gnnscale.ops import end_on_bus_error
from gnnscale.planner.registry import DeviceKind
from gnnscale.run.artifacts import RunArtifact
from gnnscale.run.config import RunConfig

log = logging.getLogger(__name__)

#: Seconds between two pulses of a worker, and between two checks of them.
_EVERY_S = 1.0


@contextmanager
def beating_into(file: Path, rank: int) -> Iterator[None]:
    """Publish this worker's pulse in a file that ``WorkerWatch`` reads, within a ``with`` block."""
    descriptor = os.open(file, os.O_WRONLY)

    def publish(pulse: Heartbeat) -> None:
        os.pwrite(descriptor, pulse.packed(), rank * HEARTBEAT_BYTES)

    try:
        with beating(publish, _EVERY_S):
            yield
    finally:
        os.close(descriptor)


class WorkerWatch:
    """A thread that logs which worker the others wait for, and kills one that stalls."""

    def __init__(self, file: Path, names: Sequence[str], *, limit_s: float | None) -> None:
        """Make the file into which workers write."""
        self.verdict: str | None = None  #: why the run ends; None as long as no worker has stalled
        self.file = file  #: where workers write
        self._num_workers = len(names)
        self._num_bytes = len(names) * HEARTBEAT_BYTES
        self._watch = StallDetector(names, limit_s=limit_s)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def __enter__(self) -> WorkerWatch:
        # Of zeros, and not of a hole: no later write needs room on a disk.
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
        while self.verdict is None and not self._over.wait(_EVERY_S):
            now = time.monotonic()
            pulses = self._read()
            stall = self._watch.look(pulses, now - last)
            last = now
            if stall is not None:
                self._judge(stall, pulses)

    def _read(self) -> list[Heartbeat | None]:
        content = os.pread(self._descriptor, self._num_bytes, 0)
        starts = range(0, self._num_bytes, HEARTBEAT_BYTES)
        return [Heartbeat.unpacked(content[start : start + HEARTBEAT_BYTES]) for start in starts]

    def _judge(self, stall: Stall, pulses: Sequence[Heartbeat | None]) -> None:
        """Log who is waited for, and end the run once that takes too long."""
        if any(is_gone(pulses[rank]) for rank in stall.ranks):
            return  # its closed connection reports that
        if self._watch.is_over(stall):
            self.verdict = self._watch.ended_by(stall, pulses)
            for rank in stall.ranks:
                _kill(pulses[rank])
        elif self._watch.is_due(stall):
            log.warning(self._watch.waiting_line(stall, pulses))


def _kill(pulse: Heartbeat | None) -> None:
    """Kill a process of this machine, unless it is gone; a stopped one hears of nothing else."""
    if pulse is not None and not is_gone(pulse):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pulse.pid, signal.SIGKILL)


#: Exit status of a worker that has no memory left for a message.
OUT_OF_MEMORY = errno.ENOMEM

#: What the launching process answers to a finished epoch: whether training ends with it.
STOP, CONTINUE = b"stop", b"continue"

#: Exit status of a worker that has read a mapped file of which the system has no page any more.
LOST_PAGE = 128 + signal.SIGBUS


def _lost_page_file(pulses: Path, rank: int) -> Path:
    return pulses.with_name(f"{pulses.name}-lost-page-{rank}")


def leave_lost_page(pulses: Path, rank: int) -> None:
    """Let this worker leave the name of a mapped file that became shorter, and end with LOST_PAGE.

    Args:
        pulses: the file of ``beating_into``, beside which the name is left.
    """
    file = os.open(_lost_page_file(pulses, rank), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    end_on_bus_error(descriptor=file, after=b"", status=LOST_PAGE)


def lost_page(pulses: Path, rank: int) -> str | None:
    """Return the line about the file whose name a worker has left; None if it has left none."""
    try:
        name = os.fsdecode(_lost_page_file(pulses, rank).read_bytes())
    except OSError:
        return None
    return explain_lost_page(Path(name)) if name else None


@dataclass(frozen=True, kw_only=True)
class WorkerTask:
    """What a worker is started with."""

    config: RunConfig  #: the run's options
    directory: Path  #: the run directory
    options: dict[str, Any]  #: ``config`` as plain values
    rank: int  #: its device's position in the plan
    size: int  #: number of workers
    #: the file by which they find each other; None for a worker without others
    meeting: Path | None
    pulses: Path  #: the file in which each reports its progress
    backend: str  #: torch.distributed's
    artefacts: tuple[RunArtifact, ...]  #: what the launching process has made for the run
    #: devices that the launching process has registered beside the built-in ones
    kinds: tuple[DeviceKind, ...]
    #: whether a few steps show how much memory they take, and nothing is trained
    rehearses_memory: bool = False
    #: whether an observer may end training, so that each epoch waits for its answer
    may_stop: bool = False


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a worker ends before its time."""

    #: ``user`` for what the user can mend, ``peer`` if another worker is to blame, ``memory``
    #: for memory that ran out, ``error`` for everything else
    kind: str
    message: str  #: one line
    trace: str  #: the traceback
