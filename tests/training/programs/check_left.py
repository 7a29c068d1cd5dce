"""One of two processes that torchrun started, the other of which stops and takes nothing more.

A signal ends this process while it sends. It leaves the group in time, and says so.
"""

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import torch
from surroundings import logged, set_by_torchrun

from gnnscale.distributed.process_group import join_torchrun

#: More than the buffers of two sockets take.
VALUES = 1 << 24


def run(rank: int, size: int, meeting: Path, port: str) -> None:
    set_by_torchrun(rank, size, port)
    lines = logged()
    signal.signal(signal.SIGTERM, _interrupt)
    kept: list[Any] = []  # as objects of a run do, which a traceback keeps
    numbers: list[int] = []
    try:
        with join_torchrun(size, backend="gloo") as group:
            numbers += [int(each) for each in group.gather(str(os.getpid()).encode())]
            own = group.new_group()
            own.barrier()
            if rank == 1:
                os.kill(os.getpid(), signal.SIGSTOP)
                os._exit(0)
            for sender in (group, own):
                values = torch.ones(size, VALUES)
                kept += [sender, sender.start_all_to_all(torch.empty_like(values), values)]
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
            time.sleep(60)
    except KeyboardInterrupt:
        left = time.monotonic()
    kept.clear()
    del group, own, sender
    assert time.monotonic() - _interrupted < 20
    assert time.monotonic() - left < 5
    assert lines == [
        "left the other processes after 5 s, in which one of them did not take what was sent to it"
    ]
    os.kill(numbers[1], signal.SIGCONT)


_interrupted = 0.0


def _interrupt(*_: object) -> None:
    global _interrupted
    _interrupted = time.monotonic()
    raise KeyboardInterrupt
