"""Consensus of torchrun's processes on the process that has failed, through torchrun's store."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta

from torch.distributed import Store

from gnnscale.core import explain, one_line
from gnnscale.distributed.heartbeat import STATUS
from gnnscale.distributed.process_group import Group, hang_up
from gnnscale.distributed.sockets import PeerLostError, torchrun_client, torchrun_keys

#: Answer of a live process.
_ALIVE = "here"

#: Timeout of the wait for a call: longer than any run.
_NEVER = timedelta(days=7)


class FailureConsensus:
    """Consensus on the process that has ended, after some connections are closed.

    A process that loses a peer closes its own connections, so its neighbors lose a live process.
    Therefore it calls all others: each answers from a separate thread, or has left the reason of
    its end. The first process with a conclusion decides for all.
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
        """Answer calls within the ``with`` block, and name the failed process in a PeerLostError.

        Raises:
            PeerLostError: the block raised one; the new message names the process that has ended.
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
        """Store the reason why this process ends."""
        _in_time(lambda: self._calling.set(self._key(self._rank), reason))
        if self._keeps_store:
            hang_up()
            time.sleep(_STAY_S)

    def _answer_once(self) -> None:
        with suppress(RuntimeError):
            self._called.wait([f"{self._prefix}/call"], _NEVER)
            self._answer_alive(self._called)

    def _answer_alive(self, store: Store) -> None:
        """Answer that this process is alive, unless its end is stored already."""
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
        """Return the conclusion of the first process that has one; equal in all processes."""
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
    """Run ``work`` on the store in a thread; False: it failed, or took too long."""
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
