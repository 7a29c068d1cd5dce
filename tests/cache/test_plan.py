from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gnnscale.cache import CachePlan, CacheTraffic, DeviceCache
from gnnscale.cache.plan import BatchBytes, LookAhead, hit_rate


def cache_at(device: int, budget_bytes: int, **fields: Any) -> DeviceCache:
    return DeviceCache(
        **{"device": device, "name": f"gpu{device}", "budget_bytes": budget_bytes}
        | {"features": np.array([3, 1]), "topology": np.array([2])}
        | {"feature_bytes": 16, "topology_bytes": 12}
        | fields
    )


@pytest.fixture
def plan() -> CachePlan:
    """Devices 1 and 2 read each other's caches, 4 is alone, 0 and 3 have none."""
    traffic = [
        ((0, 5, 2, 0, 0, 3), (0, 0, 0, 0, 0, 8), 10, 40),
        ((0, 1, 6, 0, 0, 3), (0, 2, 0, 0, 0, 6), 5, 20),
        ((0, 0, 0, 0, 0, 0), (0, 0, 0, 0, 9, 1), 0, 0),
    ]
    return CachePlan(
        planner="some",
        cliques=((1, 2), (4,)),
        devices=(cache_at(1, 100), cache_at(2, 300), cache_at(4, 100)),
        alphas=(0.5, 0.25),
        predicted=tuple(
            CacheTraffic(rows=rows, lists=lists, transactions=transactions, link_bytes=link)
            for rows, lists, transactions, link in traffic
        ),
    )


def test_epochs_that_are_told_and_hits(plan: CachePlan) -> None:
    found = [hit_rate(reads) for reads in ([1, 2, 1], [0, 5], [5, 0], [0, 0])]
    assert found == [0.75, 0, 1, None]
    assert [each.feature_hit_rate for each in plan.predicted] == [0.7, 0.7, None]
    assert [each.topology_hit_rate for each in plan.predicted] == [0, 0.25, 0.9]
    assert plan.predicted_total == CacheTraffic(
        rows=(0, 6, 8, 0, 0, 6), lists=(0, 2, 0, 0, 9, 15), transactions=15, link_bytes=60
    )
    for predicted in (None, ()):
        none = CachePlan(planner="none", cliques=(), devices=(), alphas=(), predicted=predicted)
        assert none.predicted_total is None
    assert plan.of(4) is plan.devices[2]
    assert [each for each in range(6) if plan.has(each)] == [1, 2, 4]
    assert [plan.clique_of(each) for each in (2, 4)] == [(1, 2), (4,)]
    assert plan.figures.first_epochs is None
    exact = replace(plan, exact=True, num_epochs=3)
    assert (exact.figures.first_epochs, exact.figures.exact) == (3, True)
    policy = LookAhead(window=2, num_rows=2, match=False)
    ahead = replace(plan, devices=(cache_at(1, 100, look_ahead=policy), *plan.devices[1:]))
    assert (ahead.figures.first_epochs, ahead.figures.exact) == (1, False)


@pytest.mark.parametrize(
    ("alphas", "budgets", "expected"),
    [
        ((0.5, 0.25), (400, 100), (0.5 * 400 + 0.25 * 100) / 500),
        ((None, None), (10, 10), None),
        ((0.5, None), (10, 30), 0.5),  # what keeps no lists by design does not count
        ((0.0, 0.0), (0, 0), 0.0),
        ((), (), None),
    ],
)
def test_alpha_is_the_part_of_all_memory(plan, alphas, budgets, expected) -> None:
    cliques = tuple((each,) for each in range(len(alphas)))
    devices = tuple(cache_at(at, budget) for at, budget in enumerate(budgets))
    assert replace(plan, cliques=cliques, devices=devices, alphas=alphas).alpha == expected


def test_devices_that_cache_nothing_have_a_reason(plan: CachePlan) -> None:
    assert plan.uncached is None
    caches = (
        cache_at(1, 100, host_aggregates=True, batch_bytes=BatchBytes(cached=900, aggregated=400)),
        cache_at(2, 300, host_aggregates=True, batch_bytes=BatchBytes(cached=1100, aggregated=600)),
        cache_at(4, 100),
    )
    found = replace(plan, devices=caches).uncached
    assert (found.num_devices, found.of_devices) == (2, 3)
    assert found.line == (
        "2 of 3 devices cache nothing: the host aggregates the first layer for them, since a "
        "mini-batch then moves 500 bytes over the link, and 1,000 with a cache of this size; "
        "host_aggregates: false of a device keeps its cache"
    )
    empty = cache_at(1, 3, feature_bytes=0, topology_bytes=0)
    found = replace(plan, devices=(empty, cache_at(2, 300), cache_at(4, 100))).uncached
    assert found.line == (
        "1 of 3 devices cache nothing: no feature row and no adjacency list fits into their caches"
    )
    no_budget = cache_at(1, 0, feature_bytes=0, topology_bytes=0, host_aggregates=True)
    found = replace(plan, devices=(no_budget, caches[0])).uncached
    assert found.line.startswith(
        "2 of 2 devices cache nothing: the budget of their caches is 0 bytes; or the host aggreg"
    )
    found = replace(plan, devices=(), cliques=(), alphas=()).uncached
    assert found.line == (
        "nothing is cached: no device of device_plan has memory that a link connects; cpu devices "
        "read host memory"
    )
