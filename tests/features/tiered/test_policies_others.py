from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from late_source import ids

from gnnscale.cache.belady import Belady
from gnnscale.features.tiered.planner import TierPlanner
from gnnscale.features.tiered.policies import RemoteOnlyPolicy


def belady(num_vertices: int, capacity: int, window: int) -> Belady:
    priority = np.zeros(num_vertices, np.int32)
    return Belady(num_vertices, capacity, window=window, priority=priority, num_threads=1)


def halves(vertices: Any) -> Any:
    """Own rows are those of even vertices."""
    return np.where(vertices % 2, -1, vertices // 2)


def test_own_rows_take_no_place() -> None:
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


@settings(max_examples=60)
@given(
    batches=st.lists(rows, min_size=1, max_size=12),
    capacity=st.integers(0, 20),
    window=st.integers(1, 4),
    own=st.sets(st.integers(0, 29)),
)
def test_the_planner_finds_every_row_and_misses_what_the_policy_alone_misses(
    batches: list[list[int]], capacity: int, window: int, own: set[int]
) -> None:
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
