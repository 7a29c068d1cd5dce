"""Worker of a run in a process of ``torchrun``, on one machine or on several.

After a failure, the processes agree through torchrun's store on the process that has failed.
"""

import ctypes
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import timedelta
from importlib import metadata
from socket import gethostname
from typing import Any

from torch.distributed import Store

from gnnscale.core import brief, explain, one_line
from gnnscale.distributed.heartbeat import (
    MAX_CHECK_S,
    STATUS,
    Heartbeat,
    Stall,
    StallDetector,
    publish_heartbeats,
)
from gnnscale.distributed.process_group import Group, all_gather_object, hang_up, join_torchrun
from gnnscale.distributed.sockets import PeerLostError, torchrun_client, torchrun_keys
from gnnscale.planner import Device, process_group_backend
from gnnscale.run import Observer, RuntimeConfig, TrainResult
from gnnscale.training.determinism import check_equal_values, fix_instruction_set
from gnnscale.training.train import train
from gnnscale.training.worker.train_state import TrainState

log = logging.getLogger(__name__)

#: Seconds between a process's heartbeats, and between checks of them, over the network.
_HEARTBEAT_S = 2.0
#: Options that may differ between machines: paths, and options used by rank 0 only.
_MACHINE_OPTIONS = (
    *("num_threads", "dataset.store", "dataset.raw", "partitioner.store", "cache_planner.store"),
    *("cache_plan", "resume", "logger", "observers", "predictions"),
)
#: Option of prctl for the signal that a process gets when its parent ends.
_PR_SET_PDEATHSIG = 1
#: Seconds for a process to stop waiting for its peers after its connections are closed.
_EXIT_S = 10.0


def train_rank(
    open_run: Callable[[Group], AbstractContextManager[TrainState]],
    observer: Observer,
    *,
    devices: Sequence[Device],
    runtime: RuntimeConfig,
    options: dict[str, Any],
    job: int = 0,
) -> TrainResult:
    """Train the part of this process, whose rank is its device's position in the plan.

    ``torchrun`` starts the processes, and ends all of them when one fails. ``observer`` receives
    all events, on rank 0; ``options``, as plain values, must be equal in all processes; ``job`` is
    the number of the run in its sweep. ConfigError if the processes have different options,
    releases or graphs, or are more or fewer than the devices; PeerLostError if another has ended or
    stalled.
    """
    _exit_with_torchrun()
    if runtime.deterministic:
        fix_instruction_set()
    backend = process_group_backend(devices)
    names = [device.label for device in devices]
    with (
        join_torchrun(len(devices), backend=backend, job=job) as group,
        monitoring_peers(group, names, limit_s=runtime.stall_limit_s, job=job),
    ):
        check_equal_values(group, {**_releases(), **options}, ignore=_MACHINE_OPTIONS)
        return train(open_run(group), observer, group)


def _exit_with_torchrun() -> None:
    """Let the system send SIGTERM to this process when torchrun's process ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _releases() -> dict[str, str]:
    """Return the package versions that must be equal in all processes."""
    return {name: metadata.version(name).partition("+")[0] for name in ("gnnscale", "torch")}


@contextmanager
def monitoring_peers(
    group: Group, names: Sequence[str], *, limit_s: float | None, job: int
) -> Iterator[None]:
    """Publish this process's heartbeats and monitor the others', in a ``with`` block.

    When a process stalls for ``limit_s``, every other process closes its connections, so that its
    waiting calls raise a ``PeerLostError`` with the reason, and torchrun ends all. When a process
    ends, the error of its peers names it.
    """
    STATUS.verdict = None
    if group.size == 1:
        yield
        return
    names = _with_machines(group, names)
    board, consensus = _HeartbeatBoard(group, job=job), FailureConsensus(group, names, job=job)
    watch, over = _PeerWatch(group.rank, names, limit_s=limit_s), threading.Event()

    def monitor() -> None:
        last, num_reads = time.monotonic(), 0
        while STATUS.verdict is None and not over.wait(_HEARTBEAT_S):
            now = time.monotonic()
            if board.num_reads == num_reads:
                watch.check_without_answer(now - last)
            else:
                watch.check(board.heartbeats, now - last)
            last, num_reads = now, board.num_reads
        if STATUS.verdict is not None and not over.wait(_EXIT_S):
            _end_process(STATUS.verdict)

    with publish_heartbeats(board.publish, _HEARTBEAT_S), board.read():
        thread = threading.Thread(target=monitor, name="watch", daemon=True)
        thread.start()
        try:
            with consensus.answering():
                yield
        finally:
            over.set()
            thread.join(_EXIT_S)


def _with_machines(group: Group, names: Sequence[str]) -> list[str]:
    """Return the names of all processes, with host names if there are several machines."""
    hosts = all_gather_object(gethostname(), group)
    if group.local_size == group.size:
        return list(names)
    return [f"{name} on {brief(host)}" for name, host in zip(names, hosts, strict=True)]


def _end_process(verdict: str) -> None:
    """Log ``verdict``, and kill this process, which still hangs without its connections."""
    log.error(verdict)
    os.kill(os.getpid(), signal.SIGKILL)


class _HeartbeatBoard:
    """Heartbeats in torchrun's store, of which this process writes one and reads all."""

    def __init__(self, group: Group, *, job: int) -> None:
        self.num_reads = 0  #: number of completed reads
        self.heartbeats: list[Heartbeat | None] = []  #: heartbeats by rank, as read last
        self._group = group
        self._keys = [f"{torchrun_keys(job)}/pulse-{rank}" for rank in range(group.size)]
        # Two clients, because an unanswered request blocks all later ones.
        self._written, self._read = torchrun_client(), torchrun_client()
        self._over = threading.Event()

    def publish(self, heartbeat: Heartbeat) -> None:
        self._written.set(self._keys[self._group.rank], heartbeat.packed().hex())

    @contextmanager
    def read(self) -> Iterator[None]:
        """Read all heartbeats again and again in a daemon thread, within the ``with`` block."""
        self._group.barrier()  # all heartbeats are written
        threading.Thread(target=self._read_all, name="heartbeats", daemon=True).start()
        try:
            yield
        finally:
            self._over.set()

    def _read_all(self) -> None:
        while not self._over.is_set():
            with suppress(RuntimeError):
                values = self._read.multi_get(self._keys)
                self.heartbeats = [Heartbeat.unpacked(bytes.fromhex(v.decode())) for v in values]
                self.num_reads += 1
            self._over.wait(_HEARTBEAT_S)


class _PeerWatch:
    """Check of all processes' heartbeats: logs who is waited for, and ends a stalled run."""

    def __init__(self, rank: int, names: Sequence[str], *, limit_s: float | None) -> None:
        self._rank = rank
        self._size = len(names)
        self._limit_s = limit_s
        self._watch = StallDetector(names, limit_s=limit_s)
        self._unanswered_s = 0.0

    def check_without_answer(self, seconds: float) -> None:
        """Add ``seconds`` without an answer of torchrun's store.

        After the limit set the verdict, and close this process's connections.
        """
        self._unanswered_s += min(seconds, MAX_CHECK_S)
        if self._limit_s is not None and self._unanswered_s >= self._limit_s:
            STATUS.verdict = (
                "lost the other processes (torchrun's store has not answered for "
                f"{self._unanswered_s:.0f} s, runtime.stall_limit_s={self._limit_s:g})"
            )
            hang_up()

    def check(self, heartbeats: Sequence[Heartbeat | None], seconds: float) -> None:
        """Log the process that live processes wait for.

        After the limit set the verdict, and close this process's connections.
        """
        self._unanswered_s = 0.0
        stall = self._watch.look(heartbeats, seconds)
        if stall is None:
            return
        if self._watch.is_over(stall):
            STATUS.verdict = self._watch.ended_by(stall, heartbeats)
            hang_up()
        elif self._watch.is_due(stall) and self._is_reporter(stall):
            log.warning(self._watch.waiting_line(stall, heartbeats))

    def _is_reporter(self, stall: Stall) -> bool:
        """Whether this process has the lowest rank that has not stalled, and hence logs."""
        live_ranks = (rank for rank in range(self._size) if rank not in stall.ranks)
        return next(live_ranks, 0) == self._rank


#: Answer of a live process.
_ALIVE = "here"

#: Timeout of the wait for a call: longer than any run.
_NEVER = timedelta(days=7)


class FailureConsensus:
    """Agreement of all processes on the name of the process that has ended.

    A process that loses a peer closes its connections, so its neighbors lose a live process. To
    find the real cause, it calls all processes through torchrun's store: each answers from a
    separate thread, or has stored the reason of its end. The first process with a conclusion
    decides for all.
    """

    def __init__(self, group: Group, names: Sequence[str], *, job: int) -> None:
        """Connect to the store, all processes at the same time, as ``job`` of a sweep."""
        self._rank, self._names = group.rank, names
        # The store is in torchrun, or in the process of rank 0, and ends with it.
        self._torchruns = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        self._keeps_store = group.is_rank0 and not self._torchruns
        self._prefix = f"{torchrun_keys(job)}/roll-call"
        # Two clients, because an unanswered request blocks all later ones.
        self._called, self._calling = torchrun_client(), torchrun_client()

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Answer one call of a peer in the background; handle an error of the ``with`` block.

        After the loss of a peer close the connections, and raise a PeerLostError that names the
        failed process. After another error, or a stall, store the reason of this process's end.
        """
        # Daemon thread without join, since it may wait forever.
        threading.Thread(target=self._answer_once, name="roll-call", daemon=True).start()
        try:
            yield
        except PeerLostError as error:
            hang_up()  # unblocks peers that wait for this process
            if STATUS.verdict is None:
                raise PeerLostError(self._name_lost(str(error))) from error
            self._report_end(STATUS.verdict)
            raise
        except BaseException as error:
            self._report_end(_reason(error))
            raise

    def _report_end(self, reason: str) -> None:
        """Store why this process ends.

        If this process holds the store, close its connections and let peers read for half a second.
        """
        _in_time(lambda: self._calling.set(self._key(self._rank), reason))
        if self._keeps_store:
            hang_up()
            time.sleep(_STAY_S)

    def _answer_once(self) -> None:
        with suppress(RuntimeError):
            self._called.wait([f"{self._prefix}/call"], _NEVER)
            self._answer_alive(self._called)

    def _answer_alive(self, store: Store) -> None:
        """Store that this process is alive, unless the reason of its end is stored."""
        store.compare_set(self._key(self._rank), "", _ALIVE)

    def _key(self, rank: int) -> str:
        return f"{self._prefix}/{rank}"

    def _name_lost(self, line: str) -> str:
        """Return ``line``, a message about lost peers, with the name of the failed process."""
        reason = line.partition("(")[2].rpartition(")")[0] or line
        verdicts: list[str] = []
        if not _in_time(lambda: verdicts.append(self._decide(reason))):
            if self._torchruns or self._rank == 0:
                address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
                return f"lost torchrun's store at {address}, and other processes ({reason})"
            return _lost([self._names[0]], reason)
        return verdicts[0]

    def _decide(self, reason: str) -> str:
        """Ask all processes whether they live; return the stored conclusion, equal for all.

        ``reason`` tells how this process lost its peers.
        """
        key, store = f"{self._prefix}/decided", self._calling
        self._answer_alive(store)
        store.set(f"{self._prefix}/call", "")
        answers: dict[int, str] = {}
        deadline = time.monotonic() + _ANSWER_S
        while len(answers) < len(self._names) and _first_ended(answers) is None:
            if time.monotonic() > deadline:
                break
            if store.check([key]):
                return store.get(key).decode()
            for rank in range(len(self._names)):
                if rank not in answers and store.check([self._key(rank)]):
                    answers[rank] = store.get(self._key(rank)).decode()
            time.sleep(_LOOK_EVERY_S)
        decided = store.compare_set(key, "", self._conclusion(answers, reason)).decode()
        if self._keeps_store:
            time.sleep(_STAY_S)
        return decided

    def _conclusion(self, answers: Mapping[int, str], reason: str) -> str:
        ended = _first_ended(answers)
        if ended is not None:
            return f"worker {self._names[ended]} has ended ({answers[ended]})"
        missing = [name for rank, name in enumerate(self._names) if rank not in answers]
        return _lost(missing, reason) if missing else f"lost the other processes ({reason})"


def _first_ended(answers: Mapping[int, str]) -> int | None:
    """Return the lowest rank that stored a reason for its end; None: there is none."""
    return next((rank for rank in sorted(answers) if answers[rank] != _ALIVE), None)


def _reason(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    return explain(error) or one_line(f"{type(error).__name__}: {error}")


def _lost(names: Sequence[str], reason: str) -> str:
    return f"lost worker{'s' * (len(names) > 1)} {', '.join(names)} ({reason})"


def _in_time(work: Callable[[], object]) -> bool:
    """Run ``work``, a request to the store, in a thread; False: it failed or took too long."""
    over, done = threading.Event(), threading.Event()

    def try_to() -> None:
        with suppress(RuntimeError):
            work()
            done.set()
        over.set()

    threading.Thread(target=try_to, name="roll-call", daemon=True).start()
    over.wait(_STORE_S)
    return done.is_set()


#: Seconds to wait for an answer, and for the store.
_ANSWER_S, _STORE_S = 3.0, 6.0

#: Seconds between checks of the answers, and for which the store stays up for peers.
_LOOK_EVERY_S, _STAY_S = 0.05, 0.5
