"""Workers of a machine that share a pool, within one process."""

from typing import Any

from late_source import NUM_ROWS, PRIORITY, LateSource

from gnnscale.cache.belady import Belady
from gnnscale.cache.tier.planner import TierPlanner
from gnnscale.cache.tier.pool import RowPool
from gnnscale.cache.tier.reader import BatchReader
from gnnscale.runtime.pool.channel import pair
from gnnscale.runtime.pool.client import PoolClient
from gnnscale.runtime.pool.server import PoolServer


def open_workers(
    size: int, *, num_kept: int = 4, window: int = 1, ahead: int = 2, source: Any = None
) -> tuple[list[PoolClient], Any]:
    """Return the workers' views, the first one's last to be closed, and what the pool reads."""
    source = source or LateSource()
    policy = Belady(NUM_ROWS, num_kept, window=window * size, priority=PRIORITY, num_threads=1)
    planner = TierPlanner(policy, num_kept=num_kept, num_staged=6, window=window * size)
    pool = RowPool(planner.num_slots, source.width, source.dtype)
    reader = BatchReader(source, planner, pool, ahead=ahead * size)
    near, far = zip(*(pair() for _ in range(size)), strict=True)
    server = PoolServer(reader, far)
    workers = [
        PoolClient(
            each,
            pool.rows,
            LateSource(),
            lead=window + ahead,
            server=None if number else server,
        )
        for number, each in enumerate(near)
    ]
    return workers, source
