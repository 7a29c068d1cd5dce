"""One of several processes of which the last is gone: the others, which sum, learn of it."""

import os
import time
from pathlib import Path

import pytest
import torch

from gnnscale.distributed.heartbeat import STATUS
from gnnscale.distributed.process_group import hang_up, join
from gnnscale.distributed.sockets import PeerLostError


def run(rank: int, size: int, meeting: Path) -> None:
    with join(rank, size, meeting, backend="gloo") as group:
        numbers = [int(each) for each in group.gather(str(os.getpid()).encode())]
        own = group.new_group()
        values = torch.ones(5)
        own.sum(values)
        assert values.tolist() == [size] * 5
        group.barrier()
        last = size - 1
        if rank == last:
            time.sleep(0.3)  # the others wait
            os._exit(0)
        reasons = rf"process \d+ of rank {last} has ended|rank \d has left"
        start = time.monotonic()
        with pytest.raises(
            PeerLostError, match=rf"^lost the other processes \(({reasons})\)$"
        ) as error:
            group.sum(torch.ones(5))
        assert time.monotonic() - start < 5
        assert STATUS.waiting == set()
        if rank == 0 and "has ended" in str(error.value):
            assert f"process {numbers[last]} " in str(error.value)
        # What this process finds out about another one is the reason, and all sums end.
        STATUS.verdict = "worker cpu:1 has made no progress"
        hang_up()
        with pytest.raises(PeerLostError, match=f"^{STATUS.verdict}$"):
            own.sum(torch.ones(5))
