"""The native operations, which ``_native.pyi`` documents. This package alone imports them.

They work on NumPy arrays and on torch CPU tensors; who brings a tensor imports torch.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from gnnscale.ops._native import *  # noqa: F403 (this package is what exports them)
from gnnscale.ops._native import TopologyError, damaged, gather, read_ahead

if TYPE_CHECKING:
    import torch

    from gnnscale.ops._native import Array, Replacing, Rows, Sampled
else:
    Replacing = Rows = Sampled = Any  # types of annotations


@contextmanager
def naming_graph(graph: object) -> Iterator[None]:
    """Name the graph, by its path or its name, in the error of a damaged topology.

    Raises:
        GraphError: native code came across an offset or an id that is out of range.
    """
    try:
        yield
    except TopologyError as error:
        raise damaged(graph, str(error)) from None


#: Pages that are asked for together: more than a disk's queue takes, and no more than any memory
#: holds until they are copied; and threads that ask, which wait more than they work.
_PAGES_AHEAD = 512
_WAITING_THREADS = 8


def gather_from_disk(x: Rows, ids: Array, *, out: torch.Tensor, num_threads: int) -> torch.Tensor:
    """Do as ``gather`` does if most rows of ``x``, a mapped file, are not in memory.

    Rows are asked for some way ahead of those that are copied. A thread that touches a row waits
    for the disk, and so would have but one on its way.
    """
    if not isinstance(ids, np.ndarray) or ids.ndim != 1 or len(ids) <= _PAGES_AHEAD:
        read_ahead(x, ids, num_threads=_WAITING_THREADS)
        return gather(x, ids, out=out, num_threads=num_threads)
    ahead = _rows_ahead(x, ids)
    read_ahead(x, ids[:ahead], num_threads=_WAITING_THREADS)
    for first in range(0, len(ids), ahead):
        last = first + ahead
        read_ahead(x, ids[last : last + ahead], num_threads=_WAITING_THREADS)
        # The last part has all rows of out that are left, so that too many are refused.
        part = out[first:last] if last < len(ids) else out[first:]
        gather(x, ids[first:last], out=part, num_threads=num_threads)
    return out


def _rows_ahead(x: Rows, ids: Array) -> int:
    """Return how many rows ``_PAGES_AHEAD`` pages have: many of each if ``ids`` rise slowly."""
    if (ids[1:] < ids[:-1]).any():
        return _PAGES_AHEAD
    row_bytes = x[0].strides[0] if isinstance(x, tuple) else x.stride(0) * x.element_size()
    num_bytes = (int(ids[-1]) - int(ids[0]) + 1) * row_bytes
    return _PAGES_AHEAD * max(1, len(ids) * mmap.PAGESIZE // max(num_bytes, 1))
