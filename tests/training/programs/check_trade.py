"""One of several processes that share rows and tell each other of them, and check it."""

import os
from pathlib import Path

import numpy as np

from gnnscale.distributed.process_group import Group, all_gather_object, join
from gnnscale.training.build.cache import shared_rows


def check_values(group: Group) -> None:
    told = all_gather_object({"rank": group.rank, "empty": None}, group)
    assert told == [{"rank": rank, "empty": None} for rank in range(group.size)]


def check_rows(group: Group) -> None:
    """Every worker but the last has one row more than its rank."""
    last = group.size - 1
    num_rows = None if group.rank == last else group.rank + 1
    with shared_rows(num_rows, 2, np.dtype(np.float32), group) as mapped:
        if num_rows is not None:
            mapped(group.rank)[:] = group.rank
        found = [mapped(rank) for rank in range(last)]
    # Nobody waits for the others here, and yet all rows are filled.
    for rank, rows in enumerate(found):
        assert rows.shape == (rank + 1, 2)
        assert (rows == rank).all()
        assert rows.flags.writeable == (rank == group.rank)


def run(rank: int, size: int, meeting: Path) -> None:
    with join(rank, size, meeting, backend="gloo") as group:
        check_values(group)
        check_rows(group)
        before = os.listdir("/proc/self/fd")
        for _ in range(3):
            check_rows(group)
        # Descriptors go with what was mapped.
        assert len(os.listdir("/proc/self/fd")) == len(before)
