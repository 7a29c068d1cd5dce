"""Agreement of torchrun's processes on which process is lost, by questions in torchrun's store."""

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
from gnnscale.distributed.process_group import (
    Group,
    PeerLostError,
    hang_up,
    torchrun_client,
    torchrun_keys,
)

#: The answer of a process that is there.
_HERE = "here"

#: Nobody is called as long as this.
_NEVER = timedelta(days=7)


class FailureConsensus:
    """Finds out which process is gone once the connections of some are closed.

    A process that loses another one closes its own connections, so that the next one may lose a
    process that is there. So it calls all of them. Each answers from a separate thread, or has left
    the reason for which it ended. The first one that knows decides for all.
    """

    def __init__(self, group: Group, names: Sequence[str], *, job: int) -> None:
        """Prepare to call; all processes do so at the same time.

        Args:
            names: of all processes, in the order of ranks.
            job: number of the run in its sweep.
        """
        self._rank, self._names = group.rank, names
        # The store is that of torchrun, or of the process of rank 0, with which it ends.
        self._torchruns = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        self._keeps_store = group.is_rank0 and not self._torchruns
        self._prefix = f"{torchrun_keys(job)}/roll-call"
        # A question that is not answered delays all that comes after it.
        self._called, self._calling = torchrun_client(), torchrun_client()

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Answer a call in the ``with`` block, and say there who is lost if some process is.

        Raises:
            PeerLostError: the block raises one, which gets the name of who is lost.
        """
        # It is never joined: it may wait for ever.
        threading.Thread(target=self._answer_once, name="roll-call", daemon=True).start()
        try:
            yield
        except PeerLostError as error:
            hang_up()  # or the others would wait for this process meanwhile
            if STATUS.verdict is None:
                raise PeerLostError(self._named(str(error))) from error
            self._leave(STATUS.verdict)
            raise
        except BaseException as error:
            self._leave(_reason(error))
            raise

    def _leave(self, reason: str) -> None:
        """Say why this process ends."""
        _in_time(lambda: self._calling.set(self._key(self._rank), reason))
        if self._keeps_store:
            hang_up()
            time.sleep(_STAY_S)

    def _answer_once(self) -> None:
        with suppress(RuntimeError):
            self._called.wait([f"{self._prefix}/call"], _NEVER)
            self._here(self._called)

    def _here(self, store: Store) -> None:
        """Say that this process is there, unless its end is explained by then."""
        store.compare_set(self._key(self._rank), "", _HERE)

    def _key(self, rank: int) -> str:
        return f"{self._prefix}/{rank}"

    def _named(self, line: str) -> str:
        """Return ``line``, which says that others are lost, with the name of who is."""
        reason = line.partition("(")[2].rpartition(")")[0] or line
        found: list[str] = []
        if not _in_time(lambda: found.append(self._decided(reason))):
            if self._torchruns or self._rank == 0:
                place = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
                return f"lost torchrun's store at {place}, and other processes ({reason})"
            return _lost([self._names[0]], reason)
        return found[0]

    def _decided(self, reason: str) -> str:
        """Return what the first process found which called all; the same in all."""
        place, store = f"{self._prefix}/decided", self._calling
        self._here(store)
        store.set(f"{self._prefix}/call", "")
        answers: dict[int, str] = {}
        deadline = time.monotonic() + _ANSWER_S
        while len(answers) < len(self._names) and _first_ended(answers) is None:
            if time.monotonic() > deadline:
                break
            if store.check([place]):
                return store.get(place).decode()
            for rank in range(len(self._names)):
                if rank not in answers and store.check([self._key(rank)]):
                    answers[rank] = store.get(self._key(rank)).decode()
            time.sleep(_LOOK_EVERY_S)
        decided = store.compare_set(place, "", self._conclusion(answers, reason)).decode()
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
    """Return the first process that gave a reason for its end."""
    return next((rank for rank in sorted(answers) if answers[rank] != _HERE), None)


def _reason(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    return explain(error) or one_line(f"{type(error).__name__}: {error}")


def _lost(names: Sequence[str], reason: str) -> str:
    return f"lost worker{'s' * (len(names) > 1)} {', '.join(names)} ({reason})"


def _in_time(work: Callable[[], object]) -> bool:
    """Do ``work`` with the store in a thread; False if it fails, or takes too long."""
    over, done = threading.Event(), threading.Event()

    def try_to() -> None:
        with suppress(RuntimeError):
            work()
            done.set()
        over.set()

    threading.Thread(target=try_to, name="roll-call", daemon=True).start()
    over.wait(_STORE_S)
    return done.is_set()


#: Seconds in which a process answers, and until the store counts as lost.
_ANSWER_S, _STORE_S = 3.0, 6.0

#: Seconds between two looks at the answers; and for which the others find what was decided.
_LOOK_EVERY_S, _STAY_S = 0.05, 0.5
