"""Process group of a run: collectives over gloo, NCCL or shared memory, and torchrun."""

import json
import logging
import os
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from weakref import ReferenceType, ref

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import FileStore, PrefixStore

from gnnscale.core import ConfigError, restarting_run
from gnnscale.distributed import sockets
from gnnscale.distributed.shm_allreduce import SharedSums

log = logging.getLogger(__name__)

#: Effectively none, since a validation may take hours. Dead processes close their connections;
#: keepalive detects lost machines (``connecting``), and heartbeats detect stalled processes.
_TIMEOUT = timedelta(days=7)
#: Up to this size gloo sums go through rank 0, in two sequential messages; a ring would take twice
#: the number of processes. Larger sums use the ring, which shares the work.
_MAX_RANK0_BYTES = 1 << 18
#: Seconds for gloo's sending threads to end, before and after their connections are closed.
_LEAVE_S, _HANG_UP_S = 5.0, 1.0


#: References to tensors of the last collectives, more than gloo has threads. Otherwise a gloo
#: thread may drop the last reference and wait for the GIL, which torch 2.6 holds while it joins it.
_outliving: deque[Tensor] = deque(maxlen=32)
#: Shared-memory sums of this process, on which other processes may wait.
_sums: list[SharedSums] = []


@dataclass(frozen=True, kw_only=True)
class Group:
    """Process group of a run, seen from one process; most methods are collective calls.

    Example:
        >>> group.sum(gradient)  # in place; all processes get equal bits
        >>> group.largest([3, group.rank])
        [3, 1]
    """

    rank: int  #: number of this process: the position of its device in the plan
    size: int  #: number of processes
    local_rank: int  #: number of this process on its machine
    local_size: int  #: number of processes on its machine
    restarts: bool = False  #: whether torchrun restarts failed processes
    #: torch's process group. None: the default group. A weak reference, since the last strong one
    #: waits for threads (``_destroy``)
    torch_group: ReferenceType[Any] | None = field(default=None, repr=False, compare=False)
    #: all-reduce in shared memory. None: there are several machines, or a process cannot map it
    sums: SharedSums | None = field(default=None, repr=False, compare=False)

    @property
    def is_rank0(self) -> bool:
        """Whether this process is rank 0, which plans, validates, checkpoints and reports."""
        return self.rank == 0

    @property
    def connections(self) -> Any:
        """Torch's process group, None for the default; RuntimeError after this process left."""
        if self.torch_group is None:
            return None
        torch_group = self.torch_group()
        if torch_group is None:
            raise RuntimeError("this process has left the group")
        return torch_group

    def sum(self, values: Tensor) -> None:
        """All-reduce ``values`` in place by sum, bitwise equal in all processes.

        Contiguous host tensors are summed in shared memory, in the order of ranks, if all processes
        are on one machine.
        """
        if self.size == 1:
            return
        if self.sums is not None and SharedSums.can_sum(values):
            with sockets.waiting_for_peers():
                self.sums.sum(values)
            return
        is_small = values.device.type == "cpu" and values.nbytes <= _MAX_RANK0_BYTES
        with sockets.waiting_for_peers():
            if self.size > 2 and is_small:
                _sum_at_rank0(self, values)
            else:
                _outliving.append(values)
                dist.all_reduce(values, group=self.connections)

    def broadcast(self, content: bytes | None) -> bytes:
        """Return the bytes that rank 0 passes; other ranks pass None."""
        if self.size == 1:
            assert content is not None
            return content
        with sockets.waiting_for_peers():
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
        """Return at rank 0 the bytes of all processes by rank; an empty list at other ranks."""
        if self.size == 1:
            return [content]
        lengths = torch.zeros(self.size, dtype=torch.int64)
        lengths[self.rank] = len(content)
        self.sum(lengths)
        with sockets.waiting_for_peers():
            padded = torch.zeros(int(lengths.max()), dtype=torch.uint8)
            if content:
                padded[: len(content)] = torch.frombuffer(bytearray(content), dtype=torch.uint8)
            buffers = (
                [torch.empty_like(padded) for _ in range(self.size)] if self.is_rank0 else None
            )
            _outliving.extend((padded, *(buffers or ())))
            dist.gather(padded, buffers, 0, group=self.connections)
        pairs = zip(buffers or (), lengths.tolist(), strict=False)
        return [buffer[:length].numpy().tobytes() for buffer, length in pairs]

    def broadcast_object(self, content: Any) -> Any:
        """Return the plain value that rank 0 passes; the values of other ranks are ignored."""
        return json.loads(self.broadcast(json.dumps(content).encode() if self.is_rank0 else None))

    def trade(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """Send ``parts[r]`` to each rank r, and return the tensors received, in the order of ranks.

        Data type and columns are equal everywhere; numbers of rows may differ.
        """
        if self.size == 1:
            return list(parts)
        rows = torch.zeros(self.size, self.size, dtype=torch.int64)
        rows[self.rank] = torch.tensor([len(part) for part in parts])
        self.sum(rows)
        with sockets.waiting_for_peers():
            local, counts = parts[self.rank], rows[:, self.rank].tolist()
            received = [local.new_empty(count, *local.shape[1:]) for count in counts]
            received[self.rank] = local
            _exchange_with_peers(self, parts, received)
        return received

    def all_gather_into(self, into: Tensor, values: Tensor) -> None:
        """All-gather: write the ``values`` of each rank r, of one shape, into ``into[r]``."""
        with sockets.waiting_for_peers():
            _outliving.extend((into, values))
            if values.device.type == "cpu":
                dist.all_gather(list(into.unbind()), values, group=self.connections)
            else:
                dist.all_gather_into_tensor(into, values, group=self.connections)

    def all_to_all_into(self, into: Tensor, parts: Tensor) -> None:
        """All-to-all exchange: send ``parts[r]`` to rank r, receive from rank r in ``into[r]``."""
        with sockets.waiting_for_peers():
            _outliving.extend((into, parts))
            dist.all_to_all_single(into, parts, group=self.connections)

    def start_all_to_all(
        self, into: Tensor, values: Tensor, rows: tuple[Sequence[int], Sequence[int]] | None = None
    ) -> dist.Work:
        """Start an all-to-all exchange of ``values`` into ``into``, and return its handle.

        Both are contiguous, in the order of ranks, and in use until ``finish``. ``rows`` are the
        numbers of rows from each rank and to each rank; None: equal for all ranks.
        """
        arriving, leaving = (None, None) if rows is None else map(list, rows)
        work: dist.Work = dist.all_to_all_single(
            into, values, arriving, leaving, group=self.connections, async_op=True
        )
        return work

    def largest(self, counts: Sequence[int]) -> list[int]:
        """Return the maximum over all processes of each of ``counts``, equally many everywhere."""
        if self.size == 1:
            return list(counts)
        local = torch.tensor(counts, dtype=torch.int64)
        gathered = torch.zeros(self.size, len(local), dtype=torch.int64)
        self.all_gather_into(gathered, local)
        largest: list[int] = gathered.amax(0).tolist()
        return largest

    def start_sending(self, values: Tensor, peer: int, *, tag: int = 0) -> dist.Work:
        """Start to send ``values`` to rank ``peer``, and return a handle for ``finish``.

        ``values`` are contiguous and unchanged until then. Messages with one ``tag`` arrive in
        order.
        """
        with sockets.waiting_for_peers():
            work = dist.isend(values, peer, group=self.connections, tag=tag)
        assert work is not None  # this process is part of the group
        return work

    def start_receiving(self, into: Tensor, peer: int, *, tag: int = 0) -> dist.Work:
        """Start to receive a message of ``tag`` from rank ``peer`` in ``into``.

        Return a handle for ``finish``.
        """
        with sockets.waiting_for_peers():
            work = dist.irecv(into, peer, group=self.connections, tag=tag)
        assert work is not None  # this process is part of the group
        return work

    def finish(self, works: Sequence[dist.Work]) -> None:
        """Wait until the operations of the handles ``works`` have ended."""
        with sockets.waiting_for_peers():
            for work in works:
                work.wait()

    def new_group(self) -> "Group":
        """Return a group of the same processes with its own connections; a single process: self."""
        if self.size == 1:
            return self
        with sockets.waiting_for_peers(), sockets.connecting():
            new_group = dist.new_group(list(range(self.size)), backend="gloo", timeout=_TIMEOUT)
        return _with_sums(replace(self, torch_group=ref(new_group), sums=None))

    def barrier(self) -> None:
        """Wait until every process calls this."""
        self.sum(torch.zeros(1))


def _sum_at_rank0(group: Group, values: Tensor) -> None:
    """Sum ``values`` in place: rank 0 adds in the order of ranks, then sends the sum to all."""
    peers = range(1, group.size)
    if not group.is_rank0:
        dist.send(values, 0, group=group.connections)
        dist.recv(values, 0, group=group.connections)
        return
    parts = [torch.empty_like(values) for _ in peers]
    arriving = [group.start_receiving(*pair) for pair in zip(parts, peers, strict=True)]
    for part, work in zip(parts, arriving, strict=True):
        group.finish([work])
        values += part
    group.finish([group.start_sending(values, peer) for peer in peers])


def _exchange_with_peers(group: Group, parts: Sequence[Tensor], received: Sequence[Tensor]) -> None:
    """Send ``parts[r]`` to each other rank r, and fill ``received[r]`` from it, concurrently."""
    works = []
    sent = [part.contiguous() for part in parts]
    for peer in (rank for rank in range(group.size) if rank != group.rank):
        if received[peer].numel():
            works.append(group.start_receiving(received[peer], peer))
        if sent[peer].numel():
            works.append(group.start_sending(sent[peer], peer))
    group.finish(works)


def _with_sums(group: Group) -> Group:
    """Return the group, with shared-memory sums if all processes can map memory of one machine."""
    if group.size > group.local_size:
        return group

    def agree(value: bool) -> bool:
        num_false = torch.tensor([int(not value)])
        group.sum(num_false)
        return not num_false.item()

    with sockets.waiting_for_peers():
        sums = SharedSums.open(
            group.rank, group.size, broadcast=group.broadcast_object, agree=agree
        )
    if sums is None:
        if group.is_rank0:
            log.warning("not all processes may map the memory of process 0: gloo sums instead")
        return group
    _sums.append(sums)
    return replace(group, sums=sums)


def all_gather_object(value: Any, group: Group) -> list[Any]:
    """Return in every process the plain values of all processes, in the order of ranks."""
    gathered = group.gather(json.dumps(value).encode())
    decoded = [json.loads(content) for content in gathered] if group.is_rank0 else None
    values: list[Any] = group.broadcast_object(decoded)
    return values


#: Group of a run in one process.
SINGLE_PROCESS = Group(rank=0, size=1, local_rank=0, local_size=1)


@contextmanager
def join_torchrun(num_devices: int, *, backend: str, job: int = 0) -> Iterator[Group]:
    """Yield torchrun's process group, described by environment variables; leave it after the block.

    ``job`` is the number of the run in its sweep, equal in every process.

    Raises:
        ConfigError: the number of processes is not ``num_devices``, or other machines cannot reach
            this machine.
        PeerLostError: not all processes have joined in time.
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
        sockets.check_address()
        if group.restarts:
            sockets.check_agent_store()
    with sockets.waiting_for_peers():
        store = PrefixStore(sockets.torchrun_keys(job), sockets.torchrun_store())
        with sockets.connecting():
            dist.init_process_group(
                backend, store=store, rank=group.rank, world_size=size, timeout=_TIMEOUT
            )
    yield from _until_left(group)


def _leave_sums() -> None:
    for sums in _sums:
        sums.leave()


def hang_up() -> None:
    """Shut down connections and shared-memory sums, so that calls waiting for processes fail."""
    _leave_sums()
    sockets.shut_down()


@contextmanager
def join(rank: int, size: int, meeting: Path | None, *, backend: str) -> Iterator[Group]:
    """Yield the group of ``size`` processes of this machine, which meet by file ``meeting``.

    ``meeting`` of None: one process, without connections. The process leaves after the block.
    """
    group = Group(rank=rank, size=size, local_rank=rank, local_size=size)
    if meeting is None:
        yield group
        return
    # Otherwise gloo resolves the host name, which fails on some machines.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with sockets.waiting_for_peers():
        store = FileStore(str(meeting), size)
        store.set_timeout(sockets.RENDEZVOUS)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=_TIMEOUT)
    yield from _until_left(group)


def _destroy() -> None:
    """Destroy the process group, or abandon it after a timeout.

    The destructor waits for sends: a stopped process never reads, and gloo loses a send whose
    connection closes during the handover (torch 2.13).
    """
    # A daemon thread with a timeout, since it may wait without end.
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
        yield _with_sums(group)
    finally:
        _leave_sums()
        _destroy()
        _outliving.clear()
        sockets.forget()
        _sums.clear()
