"""What only two processes at once can measure: contention, and synchronisation."""

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
from gnnscale.planner.calibration.probes import (
    StepProbe,
    StepTimes,
    median_seconds,
    probe_graphs,
    probe_table,
    time_steps,
)

_PROGRAM = "from gnnscale.planner.calibration.contention import begin; begin(int(sys.argv[1]))"
_LOOPBACK = "127.0.0.1"
#: Seconds in which a process that has answered ends; gloo may wait for Python, and Python for gloo.
_END_S = 5.0


@dataclass(frozen=True, kw_only=True)
class PairTimes:
    """What two processes of this machine measured at the same time."""

    #: seconds of an all-reduce by gloo of each size asked for, one straight after another
    reduce_s: tuple[float, ...]
    #: the same in memory that both share
    sum_s: tuple[float, ...]
    #: training steps of each probe asked for, of the first process while the other waits
    alone: tuple[StepTimes, ...]
    #: the same of both in step with each other, straight after: a machine that is slower for a
    #: while is so for both
    steps: tuple[StepTimes, ...]


@dataclass(frozen=True, kw_only=True)
class PairTask:
    """What two processes are to measure."""

    num_values: tuple[int, ...]  #: float32 values of each all-reduce
    reduces: int  #: how often each
    probes: tuple[StepProbe, ...]  #: what to train
    graph_sizes: tuple[int, int]  #: vertices and edges of ``probe_graphs``
    threads: int  #: of each process
    repeats: int  #: training steps of each probe


def time_pair(task: PairTask) -> PairTimes:
    """Let two processes train together, as workers do.

    Raises:
        RuntimeError: one of them ended early.
    """
    store = TCPStore(_LOOPBACK, 0, is_master=True, wait_for_workers=False)
    with _started() as first, _started() as second:
        try:
            for rank, line in enumerate((first, second)):
                line.send((task, rank, store.port))
            result: PairTimes = first.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            raise RuntimeError("a process that calibrates ended early") from None
    return result


@contextmanager
def _started() -> Iterator[Connection]:
    """Start a process and yield the line to it; wait for its end, and end it if it does not."""
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
    """Do what a process that ``time_pair`` has started does.

    Args:
        line: descriptor of the connection to the process that has started this one.
    """
    with Connection(line) as connection:
        task, rank, port = connection.recv()
        _work_in_pair(task, rank, port, connection)


def _work_in_pair(task: PairTask, rank: int, port: int, answer: Connection) -> None:
    """One of the two processes; the first one answers."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(task.threads)
    ops.keep_freed_memory()
    store = TCPStore(_LOOPBACK, port, is_master=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    sums = _open_sums(rank, store)
    in_memory = dist.all_reduce if sums is None else sums.sum
    reduce_s, sum_s = (
        tuple(
            median_seconds(partial(_sum, summing, torch.zeros(count)), task.reduces)
            for count in task.num_values
        )
        for summing in (dist.all_reduce, in_memory)
    )
    graphs = probe_graphs(*task.graph_sizes)
    table = probe_table(graphs[0], task.probes)
    timed = partial(time_steps, threads=task.threads, repeats=task.repeats, table=table)
    alone, steps = [], []
    for probe in task.probes:
        if rank == 0:
            alone.append(timed(probe, graphs[probe.dense]))
        dist.barrier()
        steps.append(_mean_sync(timed(probe, graphs[probe.dense], summing=in_memory)))
    if rank == 0:
        trained = {"alone": tuple(alone), "steps": tuple(steps)}
        answer.send(PairTimes(reduce_s=reduce_s, sum_s=sum_s, **trained))
    dist.destroy_process_group()


def _mean_sync(step: StepTimes) -> StepTimes:
    """Return ``step`` with what synchronisation takes both: the slower one waits less."""
    seconds = torch.tensor([step.sync_s])
    dist.all_reduce(seconds)
    return replace(step, sync_s=float(seconds) / 2)


def _open_sums(rank: int, store: TCPStore) -> SharedSums | None:
    """Let both processes share memory, as workers of a run do."""

    def broadcast(path: Any) -> str:
        if path is not None:
            store.set("memory", path)
        return store.get("memory").decode()

    def agree(is_so: bool) -> bool:
        every = torch.tensor([int(is_so)])
        dist.all_reduce(every, op=dist.ReduceOp.MIN)
        return bool(every)

    return SharedSums.open(rank, 2, broadcast=broadcast, agree=agree)


def _sum(summing: Callable[[torch.Tensor], object], values: torch.Tensor, _: int) -> None:
    summing(values)
