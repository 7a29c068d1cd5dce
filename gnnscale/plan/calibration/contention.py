"""What only two processes at once can measure: contention, and synchronisation."""

from __future__ import annotations

import multiprocessing
import os
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection

import torch
import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from gnnscale import ops
from gnnscale.plan.calibration.probes import (
    StepProbe,
    StepTimes,
    median_seconds,
    probe_graph,
    time_steps,
)

__all__ = ["PairTask", "PairTimes", "time_pair"]

_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, kw_only=True)
class PairTimes:
    """What two processes of this machine measured at the same time.

    Attributes:
        reduce_s: seconds of an all-reduce of each size asked for, one straight after another.
        alone: training steps of each probe asked for, of the first process while the other waits.
        steps: the same of both in step with each other, straight after: a machine that is slower
            for a while is so for both.
    """

    reduce_s: tuple[float, ...]
    alone: tuple[StepTimes, ...]
    steps: tuple[StepTimes, ...]


@dataclass(frozen=True, kw_only=True)
class PairTask:
    """What two processes are to measure.

    Attributes:
        num_values: float32 values of each all-reduce.
        probes: what to train.
        graph_sizes: vertices and edges of ``probe_graph``.
        threads: of each process.
        repeats: of everything.
    """

    num_values: tuple[int, ...]
    probes: tuple[StepProbe, ...]
    graph_sizes: tuple[int, int]
    threads: int
    repeats: int


def time_pair(task: PairTask) -> PairTimes:
    """Let two processes train together, as workers do."""
    store = TCPStore(_LOOPBACK, 0, is_master=True, wait_for_workers=False)
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    processes = [
        context.Process(target=_work_in_pair, args=(task, rank, store.port, theirs), daemon=True)
        for rank in range(2)
    ]
    for process in processes:
        process.start()
    theirs.close()
    try:
        result: PairTimes = ours.recv()
    except EOFError:
        raise RuntimeError("a process that calibrates ended early") from None
    finally:
        for process in processes:
            process.join()
    return result


def _work_in_pair(task: PairTask, rank: int, port: int, answer: Connection) -> None:
    """One of the two processes; the first one answers."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(task.threads)
    ops.keep_freed_memory()
    store = TCPStore(_LOOPBACK, port, is_master=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    reduce_s = tuple(
        median_seconds(partial(_sum, torch.zeros(count)), task.repeats) for count in task.num_values
    )
    graph = probe_graph(*task.graph_sizes)
    alone, steps = [], []
    for probe in task.probes:
        if rank == 0:
            alone.append(time_steps(probe, graph, threads=task.threads, repeats=task.repeats))
        dist.barrier()
        steps.append(
            time_steps(probe, graph, threads=task.threads, repeats=task.repeats, together=True)
        )
    dist.destroy_process_group()
    if rank == 0:
        answer.send(PairTimes(reduce_s=reduce_s, alone=tuple(alone), steps=tuple(steps)))


def _sum(values: torch.Tensor, _: int) -> None:
    dist.all_reduce(values)
