"""The processes of a run as a group: who belongs to it, and what they exchange."""

from __future__ import annotations

import json
import logging
import os
import re
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any
from weakref import ReferenceType, ref

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import FileStore, PrefixStore, Store, TCPStore, rendezvous

from gnnscale.core import ConfigError, restarting_run
from gnnscale.distributed import sockets as connections
from gnnscale.distributed.heartbeat import STATUS
from gnnscale.distributed.shm_allreduce import SharedSums
from gnnscale.distributed.sockets import check_address, connecting

log = logging.getLogger(__name__)

#: Nothing is waited for as long as this: a process that dies closes its connections, and its peers
#: learn of it at once; a validation over a large graph may take hours. Of a machine that vanishes
#: the system reports (``connecting``), and of a process that stalls its pulse.
_TIMEOUT = timedelta(days=7)
#: Sums of more bytes over gloo go round a ring, which shares the work. Smaller ones meet at rank 0:
#: two messages one after the other, in place of twice as many as there are processes.
_MAX_MEETING_BYTES = 1 << 18
#: How long to wait for all processes to appear.
_RENDEZVOUS = timedelta(minutes=5)
#: Seconds in which threads of gloo end that still send to a process, and in which they do so once
#: its connections are closed.
_LEAVE_S, _HANG_UP_S = 5.0, 1.0

#: What gloo adds to the reasons that it gives: the place in its source, and advice.
_GLOO_PLACE, _GLOO_ADVICE = re.compile(r"^\[[^\]]*:\d+\] *"), " This is typically caused"

#: Tensors of the last collectives, more than gloo has threads. A thread of gloo lets go of a tensor
#: after it is done, and if that was the last reference it waits for Python's lock, which
#: ``destroy_process_group`` of some releases of torch (2.6) holds while it waits for the thread.
_outliving: deque[Tensor] = deque(maxlen=32)
#: The sums of this process in shared memory, in which the others may wait for it.
_sums: list[SharedSums] = []


class PeerLostError(RuntimeError):
    """Another process of the group is gone; the cause is with that one."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """This process among those of the run; every method is called by all of them alike."""

    rank: int  #: this process's number, which is its device's position in the plan
    size: int  #: number of processes
    local_rank: int  #: its number among those of the same machine
    local_size: int  #: number of those
    restarts: bool = False  #: whether torchrun starts the processes again after a failure
    #: torch's process group, which torch keeps until it is left; None for the default one. The
    #: last reference waits for threads (``_destroy``)
    own_connections: ReferenceType[Any] | None = field(default=None, repr=False, compare=False)
    #: sums in shared memory; None if the processes are on several machines
    sums: SharedSums | None = field(default=None, repr=False, compare=False)

    @property
    def is_rank0(self) -> bool:
        """Whether this process plans, validates, writes checkpoints and reports for all."""
        return self.rank == 0

    @property
    def connections(self) -> Any:
        """Torch's process group; None for the default one.

        Raises:
            RuntimeError: this process has left it.
        """
        if self.own_connections is None:
            return None
        connections = self.own_connections()
        if connections is None:
            raise RuntimeError("this process has left the group")
        return connections

    def sum(self, values: Tensor) -> None:
        """Replace ``values`` by their sum over all processes; bit for bit the same in each.

        On one machine values of the host are summed in shared memory, in the order of ranks.
        """
        if self.size == 1:
            return
        if self.sums is not None and SharedSums.can_sum(values):
            with _peers():
                self.sums.sum(values)
            return
        meet = self.size > 2 and values.device.type == "cpu" and values.nbytes <= _MAX_MEETING_BYTES
        with _peers():
            if meet:
                self._sum_at_rank0(values)
            else:
                _outliving.append(values)
                dist.all_reduce(values, group=self.connections)

    def _sum_at_rank0(self, values: Tensor) -> None:
        """Sum at rank 0, in the order of ranks, and send everyone the result."""
        peers = range(1, self.size)
        if not self.is_rank0:
            dist.send(values, 0, group=self.connections)
            dist.recv(values, 0, group=self.connections)
            return
        parts = [torch.empty_like(values) for _ in peers]
        arriving = [self.start_receiving(*pair) for pair in zip(parts, peers, strict=True)]
        for part, work in zip(parts, arriving, strict=True):
            self.finish([work])
            values += part
        self.finish([self.start_sending(values, peer) for peer in peers])

    def broadcast(self, content: bytes | None) -> bytes:
        """Return what rank 0 passes; the others pass None."""
        if self.size == 1:
            assert content is not None
            return content
        with _peers():
            length = torch.tensor([len(content or b"")])
            _outliving.append(length)
            dist.broadcast(length, 0, group=self.connections)
            buffer = torch.zeros(int(length), dtype=torch.uint8)
            if content:
                buffer = torch.frombuffer(bytearray(content), dtype=torch.uint8)
            _outliving.append(buffer)
            dist.broadcast(buffer, 0, group=self.connections)
        return buffer.numpy().tobytes()

    def gather(self, content: bytes) -> list[bytes]:
        """Return what each process passes, in the order of ranks; empty but at rank 0."""
        if self.size == 1:
            return [content]
        lengths = torch.zeros(self.size, dtype=torch.int64)
        lengths[self.rank] = len(content)
        self.sum(lengths)
        with _peers():
            mine = torch.zeros(int(lengths.max()), dtype=torch.uint8)
            if content:
                mine[: len(content)] = torch.frombuffer(bytearray(content), dtype=torch.uint8)
            every = [torch.empty_like(mine) for _ in range(self.size)] if self.is_rank0 else None
            _outliving.extend((mine, *(every or ())))
            dist.gather(mine, every, 0, group=self.connections)
        pairs = zip(every or (), lengths.tolist(), strict=False)
        return [buffer[:length].numpy().tobytes() for buffer, length in pairs]

    def broadcast_json(self, content: Any) -> Any:
        """As ``broadcast``, of plain values."""
        return json.loads(self.broadcast(json.dumps(content).encode() if self.is_rank0 else None))

    def trade(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """Give ``parts[r]`` to rank r, and return what each rank gives to this one.

        Args:
            parts: one tensor for each rank, of one dtype and with the same columns everywhere; the
                number of rows may differ.

        Returns:
            The tensors for this rank, in the order of ranks.
        """
        if self.size == 1:
            return list(parts)
        rows = torch.zeros(self.size, self.size, dtype=torch.int64)
        rows[self.rank] = torch.tensor([len(part) for part in parts])
        self.sum(rows)
        with _peers():
            mine, counts = parts[self.rank], rows[:, self.rank].tolist()
            given = [mine.new_empty(count, *mine.shape[1:]) for count in counts]
            given[self.rank] = mine
            self._trade_with_peers(parts, given)
        return given

    def gather_into(self, into: Tensor, mine: Tensor) -> None:
        """Write what each process passes into ``into[rank]``; all are of one shape."""
        with _peers():
            _outliving.extend((into, mine))
            if mine.device.type == "cpu":
                dist.all_gather(list(into.unbind()), mine, group=self.connections)
            else:
                dist.all_gather_into_tensor(into, mine, group=self.connections)

    def swap_into(self, into: Tensor, parts: Tensor) -> None:
        """Give ``parts[r]`` to rank r, and write what each gives into ``into[rank]``."""
        with _peers():
            _outliving.extend((into, parts))
            dist.all_to_all_single(into, parts, group=self.connections)

    def start_swapping(
        self,
        into: Tensor,
        values: Tensor,
        rows: tuple[Sequence[int], Sequence[int]] | None = None,
    ) -> dist.Work:
        """Begin to give each rank its part of ``values``, and to write what it gives into ``into``.

        Both are contiguous, have their parts in the order of ranks, and are kept until the end.

        Args:
            rows: how many rows come from each rank, and how many go to each; None for as many with
                all.
        """
        arriving, leaving = (None, None) if rows is None else map(list, rows)
        work: dist.Work = dist.all_to_all_single(
            into, values, arriving, leaving, group=self.connections, async_op=True
        )
        return work

    def largest(self, counts: Sequence[int]) -> list[int]:
        """Return the largest of each number over all processes."""
        if self.size == 1:
            return list(counts)
        mine = torch.tensor(counts, dtype=torch.int64)
        every = torch.zeros(self.size, len(mine), dtype=torch.int64)
        self.gather_into(every, mine)
        largest: list[int] = every.amax(0).tolist()
        return largest

    def _trade_with_peers(self, parts: Sequence[Tensor], given: Sequence[Tensor]) -> None:
        """Send and receive what is not empty, all at once."""
        works = []
        sent = [part.contiguous() for part in parts]
        for peer in (rank for rank in range(self.size) if rank != self.rank):
            if given[peer].numel():
                works.append(self.start_receiving(given[peer], peer))
            if sent[peer].numel():
                works.append(self.start_sending(sent[peer], peer))
        self.finish(works)

    def start_sending(self, values: Tensor, peer: int, *, tag: int = 0) -> dist.Work:
        """Begin to send ``values``, contiguous and kept until ``finish``, to rank ``peer``.

        What is sent under one ``tag`` arrives in its order.
        """
        with _peers():
            work = dist.isend(values, peer, group=self.connections, tag=tag)
        assert work is not None  # this process is part of the group
        return work

    def start_receiving(self, into: Tensor, peer: int, *, tag: int = 0) -> dist.Work:
        """Begin to receive what rank ``peer`` sends, of the shape and dtype of ``into``."""
        with _peers():
            work = dist.irecv(into, peer, group=self.connections, tag=tag)
        assert work is not None  # this process is part of the group
        return work

    def finish(self, works: Sequence[dist.Work]) -> None:
        """Wait until all that was begun is done."""
        with _peers():
            for work in works:
                work.wait()

    def with_own_connections(self) -> Group:
        """Return the same processes over connections that nothing else uses."""
        if self.size == 1:
            return self
        with _peers(), connecting():
            own = dist.new_group(list(range(self.size)), backend="gloo", timeout=_TIMEOUT)
        return replace(self, own_connections=ref(own), sums=None)._with_sums()

    def _with_sums(self) -> Group:
        """Return the same processes, which sum in memory of their own if all are on one machine."""
        if self.size > self.local_size:
            return self
        with _peers():
            sums = SharedSums.open(
                self.rank, self.size, broadcast=self.broadcast_json, agree=self._all
            )
        if sums is None:
            if self.is_rank0:
                log.warning("not all processes may map the memory of process 0: gloo sums instead")
            return self
        _sums.append(sums)
        return replace(self, sums=sums)

    def _all(self, is_so: bool) -> bool:
        """Return whether all processes pass True."""
        others = torch.tensor([int(not is_so)])
        self.sum(others)
        return not others.item()

    def barrier(self) -> None:
        """Wait until every process has come here."""
        self.sum(torch.zeros(1))


def trade_values(mine: Any, group: Group) -> list[Any]:
    """Return the plain values of each worker, in the order of ranks."""
    gathered = group.gather(json.dumps(mine).encode())
    every = [json.loads(each) for each in gathered] if group.is_rank0 else None
    found: list[Any] = group.broadcast_json(every)
    return found


#: The group of a run in one process.
ALONE = Group(rank=0, size=1, local_rank=0, local_size=1)


@contextmanager
def join_torchrun(num_devices: int, *, backend: str, job: int = 0) -> Iterator[Group]:
    """Join the group that ``torchrun`` set up in the environment.

    Args:
        job: number of the run in its sweep, the same in every process.

    Raises:
        ConfigError: it started another number of processes than the plan has devices, or this
            machine would offer the others an address that they do not reach.
        PeerLostError: not all of them have come.
    """
    size = int(os.environ["WORLD_SIZE"])
    if size != num_devices:
        raise ConfigError(
            f"torchrun started {size} processes, but device_plan has {num_devices} devices; "
            "start one for each"
        )
    group = Group(
        rank=int(os.environ["RANK"]),
        size=size,
        local_rank=int(os.environ["LOCAL_RANK"]),
        local_size=int(os.environ["LOCAL_WORLD_SIZE"]),
        restarts=restarting_run() is not None,
    )
    if size == 1:
        yield group
        return
    if group.local_size < size:
        check_address()
        if group.restarts:
            _check_meeting_point()
    with _peers():
        store = PrefixStore(torchrun_keys(job), _torchrun_store())
        with connecting():
            dist.init_process_group(
                backend, store=store, rank=group.rank, world_size=size, timeout=_TIMEOUT
            )
    yield from _until_left(group)


def torchrun_keys(job: int) -> str:
    """Return what the keys of a run begin with in torchrun's store.

    What another run of the sweep has left there is of no use, nor is what processes have that
    torchrun started before. If the store is not torchrun's own, it is new, and machines may count
    starts differently.
    """
    own = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    start = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") if own else "0"
    return f"start-{start}/job-{job}"


def _check_meeting_point() -> None:
    """Refuse torchrun's own store for processes of several machines that are started again.

    With it, torchrun 2.13 keeps the address of the machine that was the first one at the start,
    and processes would look for each other there after that machine is lost.

    Raises:
        ConfigError: it is used.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        raise ConfigError(
            "torchrun --max-restarts: export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 on each machine "
            "before torchrun, which would keep the address of a first machine that is lost"
        )


@cache
def _torchrun_store() -> Store:
    """Return the meeting point of torchrun's processes: one port for all runs of a sweep."""
    store: Store = next(rendezvous("env://", timeout=_RENDEZVOUS))[0]
    return store


def torchrun_client() -> Store:
    """Return a separate connection to torchrun's meeting point, for another thread."""
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    with _peers():
        return TCPStore(address, port, timeout=_RENDEZVOUS, wait_for_workers=False)


def _leave_sums() -> None:
    for each in _sums:
        each.leave()


def hang_up() -> None:
    """Close the connections to torchrun's other processes: all that wait for them fail."""
    _leave_sums()
    connections.shut_down()
    _abort_on_devices()


def _abort_on_devices() -> None:
    """End what GPUs sum among them: a kernel of NCCL waits for a lost peer without end."""
    if not dist.is_initialized() or "nccl" not in dist.get_backend_config():
        return
    with suppress(RuntimeError):  # it was aborted before, or never began
        # Neither the process group nor its abort is public.
        device = torch.device("cuda")
        dist.group.WORLD._get_backend(device).abort()  # type: ignore[union-attr]


@contextmanager
def join(rank: int, size: int, meeting: Path | None, *, backend: str) -> Iterator[Group]:
    """Join the group of ``size`` processes of this machine as ``rank``.

    Args:
        meeting: a file, missing at first, by which the processes find each other; None for one
            process alone.
    """
    group = Group(rank=rank, size=size, local_rank=rank, local_size=size)
    if meeting is None:
        yield group
        return
    # gloo would resolve the machine's own name, which not every machine can.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with _peers():
        store = FileStore(str(meeting), size)
        store.set_timeout(_RENDEZVOUS)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=_TIMEOUT)
    yield from _until_left(group)


def _destroy() -> None:
    """End the process group, but leave it once that takes too long.

    Its destructor waits for threads that send to another process. A process that is stopped never
    reads, and gloo loses a send whose connection closes while it is handed over (torch 2.13).
    """
    # Never joined for good: it may wait without end.
    ending = threading.Thread(target=dist.destroy_process_group, name="destroy", daemon=True)
    ending.start()
    ending.join(_LEAVE_S)
    if ending.is_alive():
        hang_up()
        ending.join(_HANG_UP_S)
        log.warning(
            f"left the other processes after {_LEAVE_S:g} s, in which one of them did not take "
            "what was sent to it"
        )


def _until_left(group: Group) -> Iterator[Group]:
    try:
        yield group._with_sums()
    finally:
        _leave_sums()
        _destroy()
        _outliving.clear()
        connections.forget()
        _sums.clear()


@contextmanager
def _peers() -> Iterator[None]:
    """Say that this process waits for others, and what a lost connection means."""
    try:
        with STATUS.waits():
            yield
    except RuntimeError as error:
        raise peer_lost(error) from error


def blame(error: BaseException) -> None:
    """Let this process end with ``error`` as its reason, even if others leave for it before.

    The loss of another process is no reason of this one.
    """
    if isinstance(error, PeerLostError):
        return
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    if isinstance(error, OSError) and error.filename and error.strerror:
        reason = f"{error.filename}: {error.strerror}"
    STATUS.verdict = STATUS.verdict or reason


def peer_lost(error: RuntimeError) -> PeerLostError:
    """Return what an error means that ends the work of several processes."""
    if isinstance(error, PeerLostError):
        return error
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    reason = _GLOO_PLACE.sub("", reason).partition(_GLOO_ADVICE)[0].rstrip(".")
    return PeerLostError(STATUS.verdict or f"lost the other processes ({reason})")
