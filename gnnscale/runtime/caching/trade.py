"""What the workers of a run tell each other of their caches, and the rows that they share."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnscale.cache.store.shared_rows import RowsAddress, map_rows, share_rows
from gnnscale.runtime.sync.group import Group

__all__ = ["trade_values", "traded_rows"]

#: Maps the rows of the worker of a rank.
MapRows = Callable[[int], NDArray[Any]]


def trade_values(mine: Any, group: Group) -> list[Any]:
    """Return the plain values that each worker tells of itself, in the order of ranks."""
    told = group.gather(json.dumps(mine).encode())
    every = [json.loads(each) for each in told] if group.is_rank0 else None
    found: list[Any] = group.broadcast_json(every)
    return found


@contextmanager
def traded_rows(
    num_rows: int | None, width: int, dtype: np.dtype[Any], group: Group
) -> Iterator[MapRows]:
    """Let workers of one machine map each other's rows in the ``with`` block.

    Each fills its own in the block, and reads those of others behind it: at its end all workers
    wait for each other. What is mapped stays mapped, and takes memory until nobody maps it.

    Args:
        num_rows: this worker's rows, all zeros at first; None for none.
        width: columns of all workers' rows.
        dtype: their type.
        group: the workers, who all do so at the same time.

    Yields:
        What returns the rows of the worker of a rank, this one's own among them.
    """
    address, mine = None, np.empty((0, width), dtype)
    if num_rows is not None:
        mine, address = share_rows(num_rows, width, dtype)
    told = None if address is None else [address.process, address.file, address.num_rows]
    every = trade_values(told, group)

    def mapped(rank: int) -> NDArray[Any]:
        if rank == group.rank:
            return mine
        process, file, rows = every[rank]
        return map_rows(RowsAddress(process=process, file=file, num_rows=rows), width, dtype)

    try:
        yield mapped
        group.barrier()
    finally:
        if address is not None:
            os.close(address.file)
