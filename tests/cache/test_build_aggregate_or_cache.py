from dataclasses import replace
from pathlib import Path

from fixture_types import Make

from gnnscale.cache import CachePlan, CacheTask, LookAheadCache, StaticCache, make_plan, read_plan
from gnnscale.cache.build import choose_cheaper
from gnnscale.graph import Graph

#: Four vertices, each of which reads all others: rows of 8 bytes, lists of 3 neighbors.
LISTS = [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]]
#: Of a batch of two seeds with one hop of all neighbors: 4 rows, 2 of them seeds, and a block of
#: three offsets of 8 bytes and six local ids of 4.
BLOCK_BYTES = 3 * 8 + 6 * 4


def task_of(
    make: Make, graph: Graph, budgets: list[int], *, aggregated: int | None = 8, may: bool = True
) -> CacheTask:
    run = {"batch_size": 2 * len(budgets), "fanouts": (-1,), "num_epochs": 1}
    task = make(graph, budgets, **run, loads=False, samples=False, may_aggregate=may)
    return replace(task, aggregated_row_bytes=aggregated)


def planned(task: CacheTask, *, shared: bool = False) -> CachePlan:
    scope = "clique" if shared else "device"
    policy = StaticCache(name="mine", hotness="presampled", scope=scope, shared=shared)
    return choose_cheaper(task, policy.plan(task))


def test_cheaper_of_aggregates_and_cache_is_chosen(graph_of, make_task) -> None:
    for aggregated, num_rows, chosen in (
        # Two rows of 8 bytes against four without a cache, and the block.
        (8, 0, True),
        (40, 0, False),  # 80 and 4 x 8 + 48: as much as the rows
        (39, 0, True),
        # With all rows cached, the block alone is left: 48.
        (25, 4, False),
        (24, 4, False),
        (23, 4, True),
    ):
        plan = planned(task_of(make_task, graph_of(LISTS), [8 * num_rows], aggregated=aggregated))
        (cache,) = plan.devices
        assert cache.batch_bytes.aggregated == 2 * aggregated
        assert cache.batch_bytes.cached == 8 * (4 - num_rows) + BLOCK_BYTES
        assert (cache.host_aggregates, len(cache.features)) == (chosen, 0 if chosen else num_rows)
        assert cache.num_bytes == (0 if chosen else 8 * num_rows)
        (told,) = plan.predicted
        if chosen:
            # Two steps, each of two aggregated rows; no cache is asked.
            assert told.link_bytes == 2 * 2 * aggregated
            assert told.feature_hit_rate is None
        else:
            assert told.feature_hit_rate == num_rows / 4
    for options in ({"aggregated": 1, "may": False}, {"aggregated": None}):
        (cache,) = planned(task_of(make_task, graph_of(LISTS), [16], **options)).devices
        assert not cache.host_aggregates
        assert cache.batch_bytes is None
        assert len(cache.features) == 2


def test_cliques_and_plans_that_foretell_nothing(graph_of: Make, make_task: Make) -> None:
    alone = task_of(make_task, graph_of(LISTS), [0, 32], aggregated=30)
    # One has no memory, and 60 bytes aggregated are less than 80; the other has all rows: 48.
    assert [each.host_aggregates for each in planned(alone).devices] == [True, False]
    together = replace(alone, cliques=((0, 1),))
    # Both read the rows of the second one, so that 48 bytes are left of each batch.
    assert [each.host_aggregates for each in planned(together, shared=True).devices] == [False] * 2
    task = task_of(make_task, graph_of(LISTS), [16], aggregated=1)
    policy = StaticCache(name="mine", hotness="presampled", scope="device")
    plan = replace(policy.plan(task), predicted=None)
    assert choose_cheaper(task, plan) is plan
    # What the host moves is not counted.
    for aggregated, exact in ((40, True), (8, False)):
        task = task_of(make_task, graph_of(LISTS), [0], aggregated=aggregated)
        assert planned(task).exact == exact


def test_rows_of_the_batch_before_are_of_no_use_where_the_host_aggregates(
    graph_of: Make, make_task: Make, tmp_path: Path
) -> None:
    policy = LookAheadCache(name="match", window=1, match=True, store=str(tmp_path / "plan"))
    for aggregated, matched in ((1, 0), (1000, 4 * 8)):
        task = task_of(make_task, graph_of(LISTS), [0], aggregated=aggregated)
        path = make_plan(policy, task, partition=None, run={}, force=True)
        (cache,) = read_plan(path, task.graph).plan.devices
        assert cache.matched_bytes == cache.num_bytes == matched
