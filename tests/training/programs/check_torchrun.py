"""One of several processes that torchrun started for a sweep whose first run fails."""

import os
import socket
from contextlib import suppress
from pathlib import Path

import torch
from surroundings import set_by_torchrun

from gnnscale.distributed.process_group import Group, join_torchrun


def connections() -> list[tuple[int, ...]]:
    """What the system is asked to do for each connection of this process to another one."""
    found = []
    settings = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
    for file in Path("/proc/self/fd").iterdir():
        if not file.is_socket():
            continue
        # It may listen, or be none of TCP.
        with suppress(OSError), socket.socket(fileno=os.dup(int(file.name))) as other:
            other.getpeername()
            values = [other.getsockopt(socket.IPPROTO_TCP, each) for each in settings]
            found.append((other.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE), *values))
    return found


def check_sum(group: Group) -> None:
    values = torch.tensor([group.rank + 1.0])
    group.sum(values)
    assert values.item() == 3.0


def run(rank: int, size: int, meeting: Path, port: str) -> None:
    set_by_torchrun(rank, size, port)
    failures = []
    try:
        with join_torchrun(size, backend="gloo", job=0) as group:
            check_sum(group)
            check_sum(group.new_group())
            # To the other process twice, and to where they meet.
            found = connections()
            assert len(found) >= 3
            assert set(found) == {(1, 20, 10, 4)}
            group.barrier()  # a process that is gone has no connections left
            raise ValueError("the run fails")
    except ValueError as error:
        failures.append(error)  # with all that its frames hold, as a sweep keeps it
    with join_torchrun(size, backend="gloo", job=1) as group:
        check_sum(group)
        group.barrier()
