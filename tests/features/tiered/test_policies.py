"""Which rows of a mini-batch a device's cache lacks, before the run begins."""

from itertools import starmap
from typing import Any

import pytest
from late_source import ids

from gnnscale.cache import CachePlan, DeviceCache, LookAhead
from gnnscale.core import ConfigError
from gnnscale.distributed.process_group import SINGLE_PROCESS
from gnnscale.features.tiered.policies import (
    DeviceCacheFilter,
    check_dynamic_caches,
    emulated_cache_bytes,
)
from gnnscale.graph import Graph


def plan(*rows: Any, **fields: Any) -> CachePlan:
    """Return a plan of one clique, whose devices keep ``rows``."""

    def device(at: int, kept: Any) -> DeviceCache:
        names: Any = {"device": at, "name": f"emulated:{at}", "budget_bytes": 100}
        sizes: Any = {"feature_bytes": 8 * len(kept), "topology_bytes": 0, **fields}
        return DeviceCache(**names, features=kept, topology=ids(), **sizes)

    devices, cliques = tuple(starmap(device, enumerate(rows))), (tuple(range(len(rows))),)
    rest: Any = {"planner": "any", "alphas": (None,), "predicted": None}
    return CachePlan(cliques=cliques, devices=devices, **rest)


BATCHES = [ids(0, 1, 4), ids(4, 2), ids(1, 3)]


def lacked(above: Any) -> list[list[int]]:
    return [each.tolist() for each in above.lacks(BATCHES)]


def test_rows_that_a_clique_keeps_are_not_asked_for(tiny_graph: Graph) -> None:
    found = plan(ids(4, 1), ids(2))
    for device in (0, 1):
        above = DeviceCacheFilter.of(found, tiny_graph, device)
        assert lacked(above) == [[0], [], [3]]
        assert above.window == 0


@pytest.mark.parametrize(
    ("match", "expected"), [(False, [[0, 1, 4], [2], [1, 3]]), (True, [[0, 1, 4], [2], [3]])]
)
def test_rows_that_follow_are_none_at_first(tiny_graph, match, expected) -> None:
    # One row stays: 4, which is read first, unless it lies in the batch before anyway.
    policy = LookAhead(window=2, num_rows=1, match=match)
    above = DeviceCacheFilter.of(plan(ids(), look_ahead=policy), tiny_graph, 0)
    assert lacked(above) == expected
    assert above.window == 2


def test_memory_keeps_rows_of_the_device_last(tiny_graph: Graph) -> None:
    priority = ids(5, 1, 7, 7, 3)
    stays = DeviceCacheFilter.of(plan(ids(4, 1), ids(2)), tiny_graph, 0)
    policy = LookAhead(window=2, num_rows=2, match=False)
    follows = DeviceCacheFilter.of(plan(ids(), look_ahead=policy), tiny_graph, 0)
    assert stays.host_priority(priority).tolist() == [5, -1, -1, 7, -1]
    assert follows.host_priority(priority).tolist() == [5, 1, -1, -1, 3]
    assert priority.tolist() == [5, 1, 7, 7, 3]


def test_devices_that_get_rows_of_the_host_have_none_above(tiny_graph: Graph) -> None:
    assert DeviceCacheFilter.of(None, tiny_graph, 0) is None
    assert DeviceCacheFilter.of(plan(ids(1)), tiny_graph, 1) is None
    assert DeviceCacheFilter.of(plan(ids(), host_aggregates=True), tiny_graph, 0) is None


def test_emulated_devices_take_memory_of_the_host(tiny_graph: Graph) -> None:
    def emulated(caches: CachePlan | None) -> int:
        return emulated_cache_bytes(caches, tiny_graph, SINGLE_PROCESS)

    policies = 8 * tiny_graph.num_vertices
    assert emulated(None) == 0
    assert emulated(plan(ids(1, 2))) == 16 + policies
    assert emulated(plan(ids(), matched_bytes=24)) == 48 + policies
    # The second device's worker is on another machine.
    assert emulated(plan(ids(1, 2), ids(3))) == 16 + policies


def test_other_machines_fill_no_cache() -> None:
    check_dynamic_caches(None)
    check_dynamic_caches(plan(ids(), look_ahead=LookAhead(window=2, num_rows=1, match=False)))
    check_dynamic_caches(plan(ids(), host_aggregates=True))
    with pytest.raises(ConfigError, match=r"^features=shared: .* static cache of emulated:0"):
        check_dynamic_caches(plan(ids(1)))
