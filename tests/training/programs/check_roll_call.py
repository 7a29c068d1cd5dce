"""One of three processes of torchrun, one of which is lost: the others name it."""

import errno
import os
import re
import time
from contextlib import suppress
from pathlib import Path

import torch
from surroundings import set_by_torchrun

from gnnscale.distributed.heartbeat import STATUS, TRAINS
from gnnscale.distributed.process_group import Group, join_torchrun
from gnnscale.training.launcher import torchrun
from gnnscale.training.launcher.torchrun import monitoring_peers

NAMES = ("cpu:0", "cpu:1", "cpu:2")
FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "rows")


def sum_until_lost(group: Group) -> str:
    """Sum until another process is lost, and return the error."""
    try:
        with monitoring_peers(group, NAMES, limit_s=60, job=0):
            STATUS.begin(TRAINS)
            while True:
                group.sum(torch.zeros(1))
    except RuntimeError as error:
        return str(error)


def end(group: Group, how: str) -> None:
    """Sum ten times, and end."""
    with suppress(OSError):
        with monitoring_peers(group, NAMES, limit_s=60, job=0):
            for _ in range(10):
                group.sum(torch.zeros(1))
            time.sleep(0.2)  # the others wait
            if how == "gone":
                os._exit(0)
            raise FULL
        raise AssertionError("the error is gone")


def run(rank: int, size: int, meeting: Path, port: str, lost: str, how: str) -> None:
    # Each is alone on its machine, whose name its own has.
    set_by_torchrun(rank, size, port, alone=True)
    torchrun._ANSWER_S = 2.0
    with join_torchrun(size, backend="gloo") as group:
        if rank == int(lost):
            end(group, how)
            return
        line = sum_until_lost(group)
        who = f"worker {re.escape(NAMES[int(lost)])} on [^ ]+"
        if how == "gone":
            assert re.fullmatch(rf"lost {who} \(.*[Cc]onnection .*\[127.*\)", line), line
        else:
            assert re.fullmatch(rf"{who} has ended \(rows: No space left on device\)", line), line
