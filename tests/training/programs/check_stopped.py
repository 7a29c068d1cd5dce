"""One of several processes that torchrun started, the last of which stops: the others say so."""

import os
import signal
from pathlib import Path

import torch
from surroundings import set_by_torchrun

from gnnscale.distributed.heartbeat import STATUS, TRAINS
from gnnscale.distributed.process_group import join_torchrun
from gnnscale.distributed.sockets import PeerLostError
from gnnscale.training.launcher import torchrun
from gnnscale.training.launcher.torchrun import monitoring_peers


def run(rank: int, size: int, meeting: Path, port: str) -> None:
    set_by_torchrun(rank, size, port)
    torchrun._HEARTBEAT_S = 0.2
    names = ("cpu:0", "cpu:1")
    lost = ""
    if rank == 1:
        torchrun._end_process = _leave  # type: ignore[assignment]
    with (
        join_torchrun(size, backend="gloo") as group,
        monitoring_peers(group, names, limit_s=10, job=0),
    ):
        numbers = [int(each) for each in group.gather(str(os.getpid()).encode())]
        STATUS.begin(TRAINS)
        if rank == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        try:
            group.sum(torch.zeros(1))
        except PeerLostError as error:
            lost = str(error)
    if rank == 1:
        assert lost.startswith("lost the other processes")
        return
    message = f"worker cpu:1 (process {numbers[1]}, stopped) has given no sign of life for 1"
    assert lost.startswith(message), lost
    os.kill(numbers[1], signal.SIGCONT)


def _leave(verdict: str) -> None:
    """Stand in for the end by a signal, which the test could not tell from a crash."""
    os._exit(0 if verdict.startswith("lost the other processes") else 1)
