from itertools import starmap
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from late_source import ids

from gnnscale.cache import CachePlan, DeviceCache, LookAhead
from gnnscale.cache.belady import Belady
from gnnscale.core import ConfigError
from gnnscale.distributed.process_group import SINGLE_PROCESS
from gnnscale.features.tiered.policies import (
    DeviceCacheFilter,
    RemoteOnlyPolicy,
    TierPlanner,
    check_dynamic_caches,
    emulated_cache_bytes,
)


def plan(*rows, **fields):
    """Return a plan of one clique, whose devices keep ``rows``."""

    def device(at, kept):
        names: Any = {"device": at, "name": f"emulated:{at}", "budget_bytes": 100}
        sizes: Any = {"feature_bytes": 8 * len(kept), "topology_bytes": 0, **fields}
        return DeviceCache(**names, features=kept, topology=ids(), **sizes)

    devices, cliques = tuple(starmap(device, enumerate(rows))), (tuple(range(len(rows))),)
    rest: Any = {"planner": "any", "alphas": (None,), "predicted": None}
    return CachePlan(cliques=cliques, devices=devices, **rest)


BATCHES = [ids(0, 1, 4), ids(4, 2), ids(1, 3)]


def lacked(above):
    return [each.tolist() for each in above.lacks(BATCHES)]


def test_rows_that_a_clique_keeps_are_not_asked_for(tiny_graph):
    found = plan(ids(4, 1), ids(2))
    for device in (0, 1):
        above = DeviceCacheFilter.of(found, tiny_graph, device)
        assert lacked(above) == [[0], [], [3]]
        assert above.window == 0


@pytest.mark.parametrize(
    ("match", "expected"), [(False, [[0, 1, 4], [2], [1, 3]]), (True, [[0, 1, 4], [2], [3]])]
)
def test_rows_that_follow_are_none_at_first(tiny_graph, match, expected):
    # One row stays: 4, which is read first, unless it lies in the batch before anyway.
    policy = LookAhead(window=2, num_rows=1, match=match)
    above = DeviceCacheFilter.of(plan(ids(), look_ahead=policy), tiny_graph, 0)
    assert lacked(above) == expected
    assert above.window == 2


def test_memory_keeps_rows_of_the_device_last(tiny_graph):
    priority = ids(5, 1, 7, 7, 3)
    stays = DeviceCacheFilter.of(plan(ids(4, 1), ids(2)), tiny_graph, 0)
    policy = LookAhead(window=2, num_rows=2, match=False)
    follows = DeviceCacheFilter.of(plan(ids(), look_ahead=policy), tiny_graph, 0)
    assert stays.host_priority(priority).tolist() == [5, -1, -1, 7, -1]
    assert follows.host_priority(priority).tolist() == [5, 1, -1, -1, 3]
    assert priority.tolist() == [5, 1, 7, 7, 3]


def test_devices_that_get_rows_of_the_host_have_none_above(tiny_graph):
    assert DeviceCacheFilter.of(None, tiny_graph, 0) is None
    assert DeviceCacheFilter.of(plan(ids(1)), tiny_graph, 1) is None
    assert DeviceCacheFilter.of(plan(ids(), host_aggregates=True), tiny_graph, 0) is None


def test_emulated_devices_take_memory_of_the_host(tiny_graph):
    def emulated(caches):
        return emulated_cache_bytes(caches, tiny_graph, SINGLE_PROCESS)

    policies = 8 * tiny_graph.num_vertices
    assert emulated(None) == 0
    assert emulated(plan(ids(1, 2))) == 16 + policies
    assert emulated(plan(ids(), matched_bytes=24)) == 48 + policies
    # The second device's worker is on another machine.
    assert emulated(plan(ids(1, 2), ids(3))) == 16 + policies


def test_other_machines_fill_no_cache():
    check_dynamic_caches(None)
    check_dynamic_caches(plan(ids(), look_ahead=LookAhead(window=2, num_rows=1, match=False)))
    check_dynamic_caches(plan(ids(), host_aggregates=True))
    with pytest.raises(ConfigError, match=r"^features=shared: .* static cache of emulated:0"):
        check_dynamic_caches(plan(ids(1)))


def belady(num_vertices, capacity, window):
    priority = np.zeros(num_vertices, np.int32)
    return Belady(num_vertices, capacity, window=window, priority=priority, num_threads=1)


def halves(vertices):
    """Own rows are those of even vertices."""
    return np.where(vertices % 2, -1, vertices // 2)


def test_own_rows_take_no_place():
    policy = RemoteOnlyPolicy(belady(6, 2, 1), halves, num_kept=2)
    policy.expect(ids(0, 1, 2, 3))
    policy.expect(ids(3, 4, 1))
    assert policy.num_expected == 2
    assert policy.look_up().tolist() == [2, -1, 3, -1]  # after the two places of the policy
    replaced = policy.advance()
    assert (replaced.counts.num_hits, replaced.counts.num_misses) == (0, 2)
    assert sorted(replaced.positions.tolist()) == [1, 3]  # those of vertices 1 and 3
    places = policy.look_up()
    assert places[1] == 4  # vertex 4, the third of the own ones
    assert sorted(places[[0, 2]].tolist()) == [0, 1]
    assert policy.advance().counts.num_misses == 0
    assert policy.num_expected == 0


rows = st.lists(st.integers(0, 29), unique=True, max_size=12)


@settings(max_examples=20)
@given(
    batches=st.lists(rows, min_size=1, max_size=12),
    capacity=st.integers(0, 20),
    window=st.integers(1, 4),
    own=st.sets(st.integers(0, 29)),
)
def test_planner_finds_every_row_and_misses_as_the_policy_alone(batches, capacity, window, own):
    mine = np.isin(np.arange(30), list(own))
    number_of = np.where(mine, np.cumsum(mine) - 1, -1)
    policy = RemoteOnlyPolicy(
        belady(30, capacity, window), number_of.__getitem__, num_kept=capacity
    )
    sizes = {"num_kept": capacity, "num_staged": 24, "num_fixed": len(own)}
    planner = TierPlanner(policy, window=window, **sizes)
    pool = np.full(planner.num_slots, -1)
    pool[: len(own)] = sorted(own)
    alone = belady(30, capacity, len(batches))
    arrays = [ids(*batch) for batch in batches]
    for batch in arrays:
        planner.expect(batch)
        alone.expect(batch[~mine[batch]])
    bounded = belady(30, capacity, window)
    expected, missed = iter(arrays), 0
    for number, batch in enumerate(arrays):
        while bounded.num_expected <= window and (new := next(expected, None)) is not None:
            bounded.expect(new[~mine[new]])
        planned = planner.plan(batch)
        missing = batch[planned.missing]
        assert not mine[missing].any()
        missed += len(missing)
        assert bounded.advance().counts.num_misses == len(missing)
        pool[planned.slots[planned.missing]] = missing
        assert pool[planned.slots].tolist() == batch.tolist(), number
        planner.served(planned)
    assert missed >= sum(alone.advance().counts.num_misses for _ in arrays)
