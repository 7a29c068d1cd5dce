"""Rows in memory that other processes of this machine can map, and that nobody can leave behind."""

from __future__ import annotations

import math
import mmap
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["RowsAddress", "map_rows", "share_rows"]


@dataclass(frozen=True, kw_only=True)
class RowsAddress:
    """Where another process finds rows.

    Attributes:
        process: the process that holds them.
        file: its descriptor of them.
        num_rows: number of rows.
    """

    process: int
    file: int
    num_rows: int


def share_rows(num_rows: int, width: int, dtype: np.dtype[Any]) -> tuple[NDArray[Any], RowsAddress]:
    """Return new rows ``[num_rows, width]`` of zeros, and where other processes find them.

    The memory has no name. It is gone with the last process that maps it, however that ends.

    Raises:
        OSError: there is not so much memory.
    """
    file = os.memfd_create("gnnscale-cache", os.MFD_CLOEXEC)
    os.ftruncate(file, max(1, num_rows * width * dtype.itemsize))
    rows = _mapped(file, num_rows, width, dtype, writable=True)
    return rows, RowsAddress(process=os.getpid(), file=file, num_rows=num_rows)


def map_rows(address: RowsAddress, width: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Map the rows of another process of this machine, read-only.

    Raises:
        OSError: it is gone, or is another user's.
    """
    file = os.open(f"/proc/{address.process}/fd/{address.file}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _mapped(file, address.num_rows, width, dtype, writable=False)
    finally:
        os.close(file)


def _mapped(
    file: int, num_rows: int, width: int, dtype: np.dtype[Any], *, writable: bool
) -> NDArray[Any]:
    num_bytes = max(1, math.prod((num_rows, width)) * dtype.itemsize)
    access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
    memory = mmap.mmap(file, num_bytes, access=access)
    rows: NDArray[Any] = np.frombuffer(memory, dtype, count=num_rows * width)
    return rows.reshape(num_rows, width)
