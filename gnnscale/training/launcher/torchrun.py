"""A process that ``torchrun`` started, on one machine or on several, as a worker of the run."""

import ctypes
import logging
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from socket import gethostname
from typing import Any

from gnnscale.core import shown
from gnnscale.distributed.heartbeat import (
    MAX_LOOK_S,
    STATUS,
    Heartbeat,
    Stall,
    StallDetector,
    beating,
)
from gnnscale.distributed.process_group import (
    Group,
    hang_up,
    join_torchrun,
    torchrun_client,
    torchrun_keys,
    trade_values,
)
from gnnscale.planner.device_spec import process_group_backend
from gnnscale.run import config as settings
from gnnscale.run.records import Observer, TrainResult
from gnnscale.training import setup as opening
from gnnscale.training.launcher.failure_consensus import FailureConsensus
from gnnscale.training.train import train

log = logging.getLogger(__name__)

#: Seconds between two pulses of a process, and between two checks of them; a network carries them.
_EVERY_PEER_S = 2.0
#: Options that may differ between machines: places, and what rank 0 does alone.
_OF_A_MACHINE = (
    *("num_threads", "dataset.store", "dataset.raw", "partitioner.store", "cache_planner.store"),
    *("cache_plan", "resume", "logger", "observers", "predictions"),
)
#: Of prctl: the signal that this process gets when its parent ends.
_PR_SET_PDEATHSIG = 1
#: Seconds in which a process stops waiting for the others, once its connections are closed.
_LEAVE_S = 10.0


def train_other_rank(
    config: settings.RunConfig, directory: Path, *, options: dict[str, Any], job: int = 0
) -> None:
    """Train the part of a process other than the first, whose observer is never called."""
    train_rank0(config, directory, Observer(), options=options, job=job)


def train_rank0(
    config: settings.RunConfig,
    directory: Path,
    observer: Observer,
    *,
    options: dict[str, Any],
    job: int = 0,
) -> TrainResult:
    """Train the part of the device whose position in the plan is this process's rank.

    ``torchrun`` starts the processes and ends them all when one fails. ``num_threads`` counts the
    threads of one machine. The observer receives all events on rank 0. ``job`` is the
    number of the run in its sweep.

    Raises:
        ConfigError: what ``train`` raises, or another number of processes than devices; or the
            processes have other options, releases or graphs.
        PeerLostError: another process is gone, or has stalled.
    """
    _end_with_torchrun()
    if config.runtime.deterministic:
        opening.fix_instruction_set()
    devices = config.device_plan.parsed()
    backend = process_group_backend(devices)
    names = [device.label for device in devices]
    limit_s = config.runtime.stall_limit_s
    with (
        join_torchrun(len(devices), backend=backend, job=job) as group,
        watching_peers(group, names, limit_s=limit_s, job=job),
    ):
        opening.check_alike(group, {**_releases(), **options}, ignore=_OF_A_MACHINE)
        return train(config, directory, observer, options=options, group=group)


def _end_with_torchrun() -> None:
    """Let the system send SIGTERM once torchrun's process ends, which may be killed.

    Other machines would continue with this process, and torchrun could not start it again.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _releases() -> dict[str, str]:
    """Return what has to be installed alike: both draw random numbers, and exchange them."""
    return {name: metadata.version(name).partition("+")[0] for name in ("gnnscale", "torch")}


@contextmanager
def watching_peers(
    group: Group, names: Sequence[str], *, limit_s: float | None, job: int
) -> Iterator[None]:
    """Follow the other processes of torchrun, and let them follow this one, in a ``with`` block.

    Once one of them stalls, every other one hangs up, so that what waits for it raises a
    ``PeerLostError`` with that reason. If one is gone, the error of the others names it. torchrun
    then ends them all.
    """
    STATUS.verdict = None
    if group.size == 1:
        yield
        return
    names = _with_machines(group, names)
    board, roll_call = _Board(group, job=job), FailureConsensus(group, names, job=job)
    watch, over = _PeerWatch(group.rank, names, limit_s=limit_s), threading.Event()

    def follow() -> None:
        last, answers = time.monotonic(), 0
        while STATUS.verdict is None and not over.wait(_EVERY_PEER_S):
            now = time.monotonic()
            if board.answers == answers:
                watch.look_in_vain(now - last)
            else:
                watch.look(board.pulses, now - last)
            last, answers = now, board.answers
        if STATUS.verdict is not None and not over.wait(_LEAVE_S):
            _end_process(STATUS.verdict)

    with beating(board.publish, _EVERY_PEER_S), board.read():
        thread = threading.Thread(target=follow, name="watch", daemon=True)
        thread.start()
        try:
            with roll_call.answering():
                yield
        finally:
            over.set()
            thread.join(_LEAVE_S)


def _with_machines(group: Group, names: Sequence[str]) -> list[str]:
    """Return the names of all processes, with those of their machines if these are several."""
    every = trade_values(gethostname(), group)
    if group.local_size == group.size:
        return list(names)
    return [f"{name} on {shown(host)}" for name, host in zip(names, every, strict=True)]


def _end_process(verdict: str) -> None:
    """End this process, which is stuck: in its own work, or in a send that gloo never gives up.

    gloo loses a send whose connection closes while it is handed over (seen with torch 2.13).
    """
    log.error(verdict)
    os.kill(os.getpid(), signal.SIGKILL)


class _Board:
    """torchrun's store, to which each process writes its pulse, and from which it reads all."""

    def __init__(self, group: Group, *, job: int) -> None:
        self.answers = 0  #: how often it has been read
        self.pulses: list[Heartbeat | None] = []  #: what was read last
        self._group = group
        self._keys = [f"{torchrun_keys(job)}/pulse-{rank}" for rank in range(group.size)]
        # A question that is not answered delays all that comes after it.
        self._written, self._read = torchrun_client(), torchrun_client()
        self._over = threading.Event()

    def publish(self, pulse: Heartbeat) -> None:
        self._written.set(self._keys[self._group.rank], pulse.packed().hex())

    @contextmanager
    def read(self) -> Iterator[None]:
        """Read from a separate thread, which is never joined: it may never get an answer."""
        self._group.barrier()  # there is something of everybody
        threading.Thread(target=self._ask, name="pulses", daemon=True).start()
        try:
            yield
        finally:
            self._over.set()

    def _ask(self) -> None:
        while not self._over.is_set():
            with suppress(RuntimeError):
                answers = self._read.multi_get(self._keys)
                self.pulses = [Heartbeat.unpacked(bytes.fromhex(each.decode())) for each in answers]
                self.answers += 1
            self._over.wait(_EVERY_PEER_S)


class _PeerWatch:
    """What a process of torchrun makes of the pulses of all."""

    def __init__(self, rank: int, names: Sequence[str], *, limit_s: float | None) -> None:
        self._rank = rank
        self._size = len(names)
        self._limit_s = limit_s
        self._watch = StallDetector(names, limit_s=limit_s)
        self._in_vain_s = 0.0

    def look_in_vain(self, seconds: float) -> None:
        """Do what is due when torchrun's store does not answer: it, or the network, is gone."""
        self._in_vain_s += min(seconds, MAX_LOOK_S)
        if self._limit_s is not None and self._in_vain_s >= self._limit_s:
            STATUS.verdict = (
                "lost the other processes (torchrun's store has not answered for "
                f"{self._in_vain_s:.0f} s, runtime.stall_limit_s={self._limit_s:g})"
            )
            hang_up()

    def look(self, pulses: Sequence[Heartbeat | None], seconds: float) -> None:
        """Do what is due: log who is waited for, or end this process's part of the run."""
        self._in_vain_s = 0.0
        stall = self._watch.look(pulses, seconds)
        if stall is None:
            return
        if self._watch.is_over(stall):
            STATUS.verdict = self._watch.ended_by(stall, pulses)
            hang_up()
        elif self._watch.is_due(stall) and self._speaks(stall):
            log.warning(self._watch.waiting_line(stall, pulses))

    def _speaks(self, stall: Stall) -> bool:
        """Whether this is the first process that is not to blame; one logs it for all."""
        others = (rank for rank in range(self._size) if rank not in stall.ranks)
        return next(others, 0) == self._rank
