"""Workers of a machine that share a pool, within one process."""

from typing import Any

from late_source import LateSource, belady

from gnnscale.distributed.channel import pair
from gnnscale.features.tiered.buffer import BatchReader, RowBuffer
from gnnscale.features.tiered.client import BufferClient
from gnnscale.features.tiered.policies import TierPlanner
from gnnscale.features.tiered.server import BufferServer, WorkerReadSource


def open_workers(
    size: int,
    *,
    num_kept: int = 4,
    num_staged: int = 6,
    window: int = 1,
    ahead: int = 2,
    source: Any = None,
    delegates: bool = False,
) -> tuple[list[BufferClient], list[Any]]:
    """Return the workers' views, the first one's last to be closed, and the sources they read.

    Args:
        source: what the pool reads; of the first worker, if workers read by themselves.
        delegates: whether they do.
    """
    source = source or LateSource()
    policy = belady(num_kept, window * size)
    planner = TierPlanner(policy, num_kept=num_kept, num_staged=num_staged, window=window * size)
    pool = RowBuffer(planner.num_slots, source.width, source.dtype)
    near, far = zip(*(pair() for _ in range(size)), strict=True)
    delegated = WorkerReadSource(far) if delegates else None
    reader = BatchReader(delegated or source, planner, pool, ahead=ahead * size)
    server = BufferServer(reader, far, delegated=delegated)
    sources = [source, *(LateSource() for _ in range(size - 1))] if delegates else [source]
    workers = [
        BufferClient(
            each,
            pool.rows,
            sources[number] if delegates else LateSource(),
            lead=window + ahead,
            reads=delegates,
            server=None if number else server,
        )
        for number, each in enumerate(near)
    ]
    return workers, sources
