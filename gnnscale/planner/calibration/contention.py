"""Contention and synchronization, measured by two concurrent processes."""

import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import TCPStore

from gnnscale import ops
from gnnscale.core import python_command
from gnnscale.distributed.shm_allreduce import SharedSums
from gnnscale.planner.calibration import probes

_PROGRAM = "from gnnscale.planner.calibration.contention import begin; begin(int(sys.argv[1]))"
_LOOPBACK = "127.0.0.1"
#: Seconds that a finished process may take to exit; gloo and Python may wait for each other.
_END_S = 5.0


@dataclass(frozen=True, kw_only=True)
class PairTimes:
    """Measurements of two concurrent processes on this machine."""

    reduce_s: tuple[float, ...]  #: seconds of an all-reduce by gloo, for each size, back to back
    sum_s: tuple[float, ...]  #: seconds of an all-reduce in shared memory, for each size
    #: a training step of each probe, in the first process while the second waits
    solo_steps: tuple[probes.StepTimes, ...]
    #: a training step of each probe in both processes, measured right after the solo step so that a
    #: slow phase of the machine affects both
    steps: tuple[probes.StepTimes, ...]


@dataclass(frozen=True, kw_only=True)
class PairTask:
    """Measurements that two processes are to make."""

    num_values: tuple[int, ...]  #: float32 values of each all-reduce size
    reduces: int  #: all-reduces of each size
    probes: tuple[probes.StepProbe, ...]  #: probes to train
    graph_sizes: tuple[int, int]  #: vertices and edges of ``probe_graphs``
    threads: int  #: threads of each process
    repeats: int  #: training steps of each probe


def time_pair(task: PairTask) -> PairTimes:
    """Measure ``task`` in two concurrent processes, as workers run; return the first's results."""
    store = TCPStore(_LOOPBACK, 0, is_master=True, wait_for_workers=False)
    with _started() as first, _started() as second:
        try:
            for rank, line in enumerate((first, second)):
                line.send((task, rank, store.port))
            result: PairTimes = first.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            raise RuntimeError("calibration: a process ended early") from None
    return result


@contextmanager
def _started() -> Iterator[Connection]:
    """Start a process that runs ``begin``, and yield a connection to it; then await or kill it."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            python_command(_PROGRAM, theirs.fileno()),
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
        )
    try:
        with Connection(ours.detach()) as line:
            yield line
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
    finally:
        process.kill()
        process.wait()


def begin(line: int) -> None:
    """Run in a subprocess: get a task from ``time_pair`` over socket ``line``, and measure it."""
    with Connection(line) as connection:
        task, rank, port = connection.recv()
        _work_in_pair(task, rank, port, connection)


def _work_in_pair(task: PairTask, rank: int, port: int, answer: Connection) -> None:
    """Measure ``task`` as process ``rank`` of two, which meet at the store on ``port``.

    Rank 0 sends the results over ``answer``.
    """
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(task.threads)
    ops.keep_freed_memory()
    store = TCPStore(_LOOPBACK, port, is_master=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    sums = _open_sums(rank, store)
    in_memory = dist.all_reduce if sums is None else sums.sum
    reduce_s, sum_s = (
        tuple(
            probes.median_seconds(partial(_sum, summing, torch.zeros(count)), task.reduces)
            for count in task.num_values
        )
        for summing in (dist.all_reduce, in_memory)
    )
    graphs = probes.probe_graphs(*task.graph_sizes)
    table = probes.probe_table(graphs[0], task.probes)
    timed = partial(probes.time_steps, threads=task.threads, repeats=task.repeats, table=table)
    solo_steps, steps = [], []
    for probe in task.probes:
        if rank == 0:
            solo_steps.append(timed(probe, graphs[probe.dense]))
        dist.barrier()
        step = timed(probe, graphs[probe.dense], summing=in_memory)
        sync_s = torch.tensor([step.sync_s])
        dist.all_reduce(sync_s)  # the mean of both processes
        steps.append(replace(step, sync_s=float(sync_s) / 2))
    if rank == 0:
        trained = {"solo_steps": tuple(solo_steps), "steps": tuple(steps)}
        answer.send(PairTimes(reduce_s=reduce_s, sum_s=sum_s, **trained))
    dist.destroy_process_group()


def _open_sums(rank: int, store: TCPStore) -> SharedSums | None:
    """Return the shared memory in which both processes sum values. None: it is not available."""

    def broadcast(path: Any) -> str:
        if path is not None:
            store.set("memory", path)
        return store.get("memory").decode()

    def agree(condition: bool) -> bool:
        minimum = torch.tensor([int(condition)])
        dist.all_reduce(minimum, op=dist.ReduceOp.MIN)
        return bool(minimum)

    return SharedSums.open(rank, 2, broadcast=broadcast, agree=agree)


def _sum(summing: Callable[[torch.Tensor], object], values: torch.Tensor, _: int) -> None:
    summing(values)
