"""Native operations, documented in ``_native.pyi``; only this package imports them.

They accept NumPy arrays and torch CPU tensors, and do not import torch.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from gnnscale.ops._native import *  # noqa: F403 (re-exported)
from gnnscale.ops._native import TopologyError, damaged, gather, read_ahead

if TYPE_CHECKING:
    import torch

    from gnnscale.ops._native import Array, Replacing, Rows, Sampled
else:
    Replacing = Rows = Sampled = Any  # types of annotations


@contextmanager
def naming_graph(graph: object) -> Iterator[None]:
    """Turn a TopologyError of native code in the ``with`` block into a GraphError.

    Args:
        graph: path or name of the graph, for the error.

    Raises:
        GraphError: an offset or an id of the topology is out of range.
    """
    try:
        yield
    except TopologyError as error:
        raise damaged(graph, str(error)) from None


#: Pages to prefetch at a time: more than a disk's queue depth, but few enough to stay in memory.
_PREFETCH_PAGES = 512
#: Threads that prefetch; they mostly wait for the disk.
_PREFETCH_THREADS = 8


def gather_from_disk(x: Rows, ids: Array, *, out: torch.Tensor, num_threads: int) -> torch.Tensor:
    """Copy rows ``ids`` of ``x``, a mapped file mostly not in memory, to ``out``, and return it.

    The result equals that of ``gather``. Rows are prefetched in blocks ahead of the copy; otherwise
    a copying thread would wait for each row, with one request in flight.
    """
    if not isinstance(ids, np.ndarray) or ids.ndim != 1 or len(ids) <= _PREFETCH_PAGES:
        read_ahead(x, ids, num_threads=_PREFETCH_THREADS)
        return gather(x, ids, out=out, num_threads=num_threads)
    block = _prefetch_rows(x, ids)
    read_ahead(x, ids[:block], num_threads=_PREFETCH_THREADS)
    for first in range(0, len(ids), block):
        last = first + block
        read_ahead(x, ids[last : last + block], num_threads=_PREFETCH_THREADS)
        # The last part gets all remaining rows of out, so that gather refuses surplus rows.
        part = out[first:last] if last < len(ids) else out[first:]
        gather(x, ids[first:last], out=part, num_threads=num_threads)
    return out


def _prefetch_rows(x: Rows, ids: Array) -> int:
    """Return how many of ``ids`` to prefetch at a time: ids of about ``_PREFETCH_PAGES`` pages.

    The ids per page are estimated if ``ids`` ascend, and otherwise 1.
    """
    if (ids[1:] < ids[:-1]).any():
        return _PREFETCH_PAGES
    row_bytes = x[0].strides[0] if isinstance(x, tuple) else x.stride(0) * x.element_size()
    num_bytes = (int(ids[-1]) - int(ids[0]) + 1) * row_bytes
    return _PREFETCH_PAGES * max(1, len(ids) * mmap.PAGESIZE // max(num_bytes, 1))
