"""Process group of a run: collectives over gloo, NCCL or shared memory, and torchrun."""

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
from gnnscale.distributed import sockets
from gnnscale.distributed.heartbeat import STATUS
from gnnscale.distributed.shm_allreduce import SharedSums
from gnnscale.distributed.sockets import check_address, connecting

log = logging.getLogger(__name__)

#: Effectively none, since a validation may take hours. Dead processes close their connections;
#: keepalive detects lost machines (``connecting``), and heartbeats detect stalled processes.
_TIMEOUT = timedelta(days=7)
#: Up to this size gloo sums go through rank 0, in two sequential messages; a ring would take twice
#: the number of processes. Larger sums use the ring, which shares the work.
_MAX_RANK0_BYTES = 1 << 18
#: Timeout for all processes to join.
_RENDEZVOUS = timedelta(minutes=5)
#: Seconds for gloo's sending threads to end, before and after their connections are closed.
_LEAVE_S, _HANG_UP_S = 5.0, 1.0

#: Parts of gloo's messages to remove: the location in its source, and advice.
_GLOO_PLACE, _GLOO_ADVICE = re.compile(r"^\[[^\]]*:\d+\] *"), " This is typically caused"

#: References to tensors of the last collectives, more than gloo has threads. Otherwise a gloo
#: thread may drop the last reference and wait for the GIL, which torch 2.6 holds while it joins it.
_outliving: deque[Tensor] = deque(maxlen=32)
#: Shared-memory sums of this process, on which other processes may wait.
_sums: list[SharedSums] = []


class PeerLostError(RuntimeError):
    """Loss of another process of the group, which reports the cause itself."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Process group of a run, seen from one process; methods are collective calls.

    Example:
        >>> group.rank, group.size
        (1, 2)
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
    #: all-reduce in shared memory. None: the processes are on several machines
    sums: SharedSums | None = field(default=None, repr=False, compare=False)

    @property
    def is_rank0(self) -> bool:
        """Whether this process is rank 0, which plans, validates, checkpoints and reports."""
        return self.rank == 0

    @property
    def connections(self) -> Any:
        """Process group of torch. None: the default group.

        Raises:
            RuntimeError: this process has left it.
        """
        if self.torch_group is None:
            return None
        torch_group = self.torch_group()
        if torch_group is None:
            raise RuntimeError("this process has left the group")
        return torch_group

    def sum(self, values: Tensor) -> None:
        """All-reduce ``values`` in place by sum; bitwise equal in all processes.

        Host tensors on one machine are summed in shared memory, in the order of ranks.
        """
        if self.size == 1:
            return
        if self.sums is not None and SharedSums.can_sum(values):
            with _peers():
                self.sums.sum(values)
            return
        is_small = values.device.type == "cpu" and values.nbytes <= _MAX_RANK0_BYTES
        with _peers():
            if self.size > 2 and is_small:
                self._sum_at_rank0(values)
            else:
                _outliving.append(values)
                dist.all_reduce(values, group=self.connections)

    def _sum_at_rank0(self, values: Tensor) -> None:
        """Sum at rank 0, in the order of ranks, and send the result to all ranks."""
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
        """Return the bytes that rank 0 passes; other ranks pass None."""
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
        """Return at rank 0 the bytes of all processes by rank; an empty list at other ranks."""
        if self.size == 1:
            return [content]
        lengths = torch.zeros(self.size, dtype=torch.int64)
        lengths[self.rank] = len(content)
        self.sum(lengths)
        with _peers():
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
        """Return the plain value that rank 0 passes."""
        return json.loads(self.broadcast(json.dumps(content).encode() if self.is_rank0 else None))

    def trade(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """All-to-all exchange of tensors: send ``parts[r]`` to rank r.

        Args:
            parts: one tensor for each rank. Data type and columns are equal everywhere, numbers of
                rows may differ.

        Returns:
            The tensors received from each rank, in the order of ranks.
        """
        if self.size == 1:
            return list(parts)
        rows = torch.zeros(self.size, self.size, dtype=torch.int64)
        rows[self.rank] = torch.tensor([len(part) for part in parts])
        self.sum(rows)
        with _peers():
            local, counts = parts[self.rank], rows[:, self.rank].tolist()
            received = [local.new_empty(count, *local.shape[1:]) for count in counts]
            received[self.rank] = local
            self._exchange_with_peers(parts, received)
        return received

    def all_gather_into(self, into: Tensor, values: Tensor) -> None:
        """All-gather ``values``, of one shape everywhere, into ``into[rank]``."""
        with _peers():
            _outliving.extend((into, values))
            if values.device.type == "cpu":
                dist.all_gather(list(into.unbind()), values, group=self.connections)
            else:
                dist.all_gather_into_tensor(into, values, group=self.connections)

    def all_to_all_into(self, into: Tensor, parts: Tensor) -> None:
        """All-to-all exchange: send ``parts[r]`` to rank r, receive from rank r in ``into[r]``."""
        with _peers():
            _outliving.extend((into, parts))
            dist.all_to_all_single(into, parts, group=self.connections)

    def start_all_to_all(
        self,
        into: Tensor,
        values: Tensor,
        rows: tuple[Sequence[int], Sequence[int]] | None = None,
    ) -> dist.Work:
        """Start an all-to-all exchange of ``values`` into ``into``.

        Args:
            into: contiguous, in the order of ranks; not read or freed before the end.
            values: contiguous, in the order of ranks; not changed or freed before the end.
            rows: numbers of rows from each rank and to each rank. None: equal for all ranks.

        Returns:
            The operation, for ``finish``.
        """
        arriving, leaving = (None, None) if rows is None else map(list, rows)
        work: dist.Work = dist.all_to_all_single(
            into, values, arriving, leaving, group=self.connections, async_op=True
        )
        return work

    def largest(self, counts: Sequence[int]) -> list[int]:
        """All-reduce ``counts`` by maximum."""
        if self.size == 1:
            return list(counts)
        local = torch.tensor(counts, dtype=torch.int64)
        gathered = torch.zeros(self.size, len(local), dtype=torch.int64)
        self.all_gather_into(gathered, local)
        largest: list[int] = gathered.amax(0).tolist()
        return largest

    def _exchange_with_peers(self, parts: Sequence[Tensor], received: Sequence[Tensor]) -> None:
        """Send and receive all non-empty tensors concurrently."""
        works = []
        sent = [part.contiguous() for part in parts]
        for peer in (rank for rank in range(self.size) if rank != self.rank):
            if received[peer].numel():
                works.append(self.start_receiving(received[peer], peer))
            if sent[peer].numel():
                works.append(self.start_sending(sent[peer], peer))
        self.finish(works)

    def start_sending(self, values: Tensor, peer: int, *, tag: int = 0) -> dist.Work:
        """Start to send ``values``, contiguous and unchanged until ``finish``, to rank ``peer``.

        Messages with one ``tag`` arrive in order.
        """
        with _peers():
            work = dist.isend(values, peer, group=self.connections, tag=tag)
        assert work is not None  # this process is part of the group
        return work

    def start_receiving(self, into: Tensor, peer: int, *, tag: int = 0) -> dist.Work:
        """Start to receive a tensor from rank ``peer``, of the shape and dtype of ``into``."""
        with _peers():
            work = dist.irecv(into, peer, group=self.connections, tag=tag)
        assert work is not None  # this process is part of the group
        return work

    def finish(self, works: Sequence[dist.Work]) -> None:
        """Wait for the end of started operations."""
        with _peers():
            for work in works:
                work.wait()

    def new_group(self) -> Group:
        """Return a new group of these processes with connections of its own."""
        if self.size == 1:
            return self
        with _peers(), connecting():
            new_group = dist.new_group(list(range(self.size)), backend="gloo", timeout=_TIMEOUT)
        return replace(self, torch_group=ref(new_group), sums=None)._with_sums()

    def _with_sums(self) -> Group:
        """Return the group with shared-memory sums if all processes are on one machine."""
        if self.size > self.local_size:
            return self
        with _peers():
            sums = SharedSums.open(
                self.rank, self.size, broadcast=self.broadcast_object, agree=self._all
            )
        if sums is None:
            if self.is_rank0:
                log.warning("not all processes may map the memory of process 0: gloo sums instead")
            return self
        _sums.append(sums)
        return replace(self, sums=sums)

    def _all(self, value: bool) -> bool:
        """Return whether all processes pass True."""
        num_false = torch.tensor([int(not value)])
        self.sum(num_false)
        return not num_false.item()

    def barrier(self) -> None:
        """Wait until every process calls this."""
        self.sum(torch.zeros(1))


def all_gather_object(value: Any, group: Group) -> list[Any]:
    """All-gather a plain value of each process, in the order of ranks."""
    gathered = group.gather(json.dumps(value).encode())
    decoded = [json.loads(content) for content in gathered] if group.is_rank0 else None
    values: list[Any] = group.broadcast_object(decoded)
    return values


#: Group of a run in one process.
SINGLE_PROCESS = Group(rank=0, size=1, local_rank=0, local_size=1)


@contextmanager
def join_torchrun(num_devices: int, *, backend: str, job: int = 0) -> Iterator[Group]:
    """Join the group of torchrun's processes, described by environment variables.

    Args:
        num_devices: number of devices in the plan.
        backend: ``gloo`` or another backend of torch.
        job: number of the run in its sweep, equal in every process.

    Raises:
        ConfigError: the number of processes differs from ``num_devices``, or other machines cannot
            reach this machine's address.
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
        check_address()
        if group.restarts:
            _check_agent_store()
    with _peers():
        store = PrefixStore(torchrun_keys(job), _torchrun_store())
        with connecting():
            dist.init_process_group(
                backend, store=store, rank=group.rank, world_size=size, timeout=_TIMEOUT
            )
    yield from _until_left(group)


def torchrun_keys(job: int) -> str:
    """Return the prefix of a run's keys in torchrun's store.

    The prefix separates runs of a sweep and restarts. A store other than the agent's is new after
    each restart, and machines may count restarts differently; it has no restart in the prefix.
    """
    is_agent_store = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    start = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") if is_agent_store else "0"
    return f"start-{start}/job-{job}"


def _check_agent_store() -> None:
    """Refuse the agent's store for restarts on several machines.

    torchrun 2.13 keeps the address of the initial first machine for it, so restarted processes
    could not join after that machine is lost.

    Raises:
        ConfigError: the agent's store is used.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        raise ConfigError(
            "torchrun --max-restarts: export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 on each machine "
            "before torchrun, which would keep the address of a first machine that is lost"
        )


@cache
def _torchrun_store() -> Store:
    """Return torchrun's store, at one port for all runs of a sweep."""
    store: Store = next(rendezvous("env://", timeout=_RENDEZVOUS))[0]
    return store


def torchrun_client() -> Store:
    """Return a separate connection to torchrun's store, for another thread."""
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    with _peers():
        return TCPStore(address, port, timeout=_RENDEZVOUS, wait_for_workers=False)


def _leave_sums() -> None:
    for sums in _sums:
        sums.leave()


def hang_up() -> None:
    """Close the connections to torchrun's other processes, so that all waiting calls fail."""
    _leave_sums()
    sockets.shut_down()
    _abort_on_devices()


def _abort_on_devices() -> None:
    """Abort NCCL: its kernels would wait for a lost peer without end."""
    if not dist.is_initialized() or "nccl" not in dist.get_backend_config():
        return
    with suppress(RuntimeError):  # already aborted, or not yet started
        # Neither the process group nor its abort is a public API.
        device = torch.device("cuda")
        dist.group.WORLD._get_backend(device).abort()  # type: ignore[union-attr]


@contextmanager
def join(rank: int, size: int, meeting: Path | None, *, backend: str) -> Iterator[Group]:
    """Join the group of ``size`` processes of this machine as ``rank``.

    Args:
        rank: number of this process.
        size: number of processes.
        meeting: file for the rendezvous, initially missing. None: the group has one process.
        backend: backend of torch.
    """
    group = Group(rank=rank, size=size, local_rank=rank, local_size=size)
    if meeting is None:
        yield group
        return
    # Otherwise gloo resolves the host name, which fails on some machines.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with _peers():
        store = FileStore(str(meeting), size)
        store.set_timeout(_RENDEZVOUS)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=_TIMEOUT)
    yield from _until_left(group)


def _destroy() -> None:
    """Destroy the process group, or abandon it after a timeout.

    The destructor waits for threads that send to another process. A stopped process never reads,
    and gloo loses a send whose connection closes during the handover (torch 2.13).
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
        yield group._with_sums()
    finally:
        _leave_sums()
        _destroy()
        _outliving.clear()
        sockets.forget()
        _sums.clear()


@contextmanager
def _peers() -> Iterator[None]:
    """Mark this thread as waiting, and turn a lost connection into PeerLostError."""
    try:
        with STATUS.waits():
            yield
    except RuntimeError as error:
        raise peer_lost_error(error) from error


def record_failure(error: BaseException) -> None:
    """Record ``error`` as the reason for which this process ends the run.

    A PeerLostError is ignored, since its cause is in another process.
    """
    if isinstance(error, PeerLostError):
        return
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    if isinstance(error, OSError) and error.filename and error.strerror:
        reason = f"{error.filename}: {error.strerror}"
    STATUS.verdict = STATUS.verdict or reason


def peer_lost_error(error: RuntimeError) -> PeerLostError:
    """Return the PeerLostError for an error of a collective, with the recorded reason if any."""
    if isinstance(error, PeerLostError):
        return error
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    reason = _GLOO_PLACE.sub("", reason).partition(_GLOO_ADVICE)[0].rstrip(".")
    return PeerLostError(STATUS.verdict or f"lost the other processes ({reason})")
