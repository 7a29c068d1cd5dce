from __future__ import annotations

from collections.abc import Callable

from gnnscale.cache import CachePlan, CacheTask, NoCache
from gnnscale.graph import Graph


def test_no_device_has_a_cache(
    random_graph: Callable[..., Graph], make_task: Callable[..., CacheTask]
) -> None:
    planner = NoCache()
    assert not planner.caches
    assert not planner.shares
    task = make_task(random_graph(), [1000, 1000])
    assert planner.plan(task) == CachePlan(
        planner="none", cliques=(), devices=(), alphas=(), predicted=None
    )
    # Nothing was drawn for it.
    assert not {"presampled", "counted_run", "first_batches"} & set(task.__dict__)
