from collections import deque

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from late_source import NUM_ROWS, PRIORITY, belady, ids

from gnnscale.cache.belady import count_hits
from gnnscale.features.tiered.policies import StaticPolicy, TierPlanner


def test_rows_that_stay_keep_their_slot():
    planner = TierPlanner(belady(2, 1), num_kept=2, num_staged=2, window=1)
    batches = [ids(0, 1, 2), ids(2, 0), ids(3)]
    for batch in batches:
        planner.expect(batch)
    first = planner.plan()
    assert first.slots.tolist() == [0, 1, 2]
    assert first.missing.tolist() == [0, 1, 2]
    assert first.freed.tolist() == [1]  # 1 is not read again, and does not stay
    second = planner.plan()
    assert second.slots.tolist() == [2, 0]
    assert (second.num_hits, second.missing.tolist()) == (2, [])
    assert planner.plan() is None  # its window is not known
    assert planner.plan(ids(3)) is None  # another array is another batch
    third = planner.plan(batches[2])
    assert third.slots.tolist() == [3]  # slot 1 is yet to be given back


def test_fixed_slots_come_before_all_others():
    planner = TierPlanner(StaticPolicy(4, ids(3)), num_kept=1, num_staged=2, window=0, num_fixed=5)
    planner.fill(1)
    planner.expect(ids(3, 0))
    batch = planner.plan()
    assert batch.slots.tolist() == [5, 6]
    assert batch.missing.tolist() == [1]
    assert (planner.num_slots, planner.num_usual_slots) == (5 + 1 + 8, 5 + 1 + 2)


def test_overflow_has_as_many_slots_as_it_is_said_to_need():
    planner = TierPlanner(belady(1, 0), num_kept=1, num_staged=1, window=0, num_overflow=7)
    assert (planner.num_slots, planner.num_usual_slots) == (1 + 1 + 7, 2)
    planner.expect(np.arange(9, dtype=np.int32))
    assert sorted(planner.plan().slots.tolist()) == [*range(9)]


def test_slots_are_given_back_when_their_batch_was_served():
    planner = TierPlanner(belady(0, 0), num_kept=0, num_staged=2, window=0)
    for batch in (ids(0, 1), ids(2), ids(3, 4)):
        planner.expect(batch)
    first = planner.plan()
    assert first.slots.tolist() == [0, 1]
    assert planner.plan() is None  # no slots, until the first batch was served
    planner.served(first)
    second = planner.plan()
    assert second.slots.tolist() in ([0], [1])
    assert planner.plan() is None
    planner.served(second)
    assert sorted(planner.plan().slots.tolist()) == [0, 1]


def test_a_batch_that_is_too_large_for_the_staging_area_waits_until_it_is_alone():
    planner = TierPlanner(belady(0, 0), num_kept=0, num_staged=2, window=0)
    assert planner.num_slots == 8
    for batch in (ids(0), ids(1, 2, 3, 4, 5), np.arange(9, dtype=np.int32)):
        planner.expect(batch)
    first = planner.plan()
    assert planner.plan() is None
    planner.served(first)
    second = planner.plan()
    assert len(set(second.slots.tolist())) == 5
    planner.served(second)
    with pytest.raises(MemoryError, match=r"expected memory for the 9 rows .* got memory for 8; "):
        planner.plan()


_batches = st.lists(
    st.none() | st.lists(st.integers(0, NUM_ROWS - 1), min_size=1, unique=True), max_size=20
)


@pytest.mark.long
@settings(max_examples=20)
@given(
    batches=_batches,
    num_kept=st.integers(0, NUM_ROWS),
    num_staged=st.integers(3, NUM_ROWS),
    window=st.integers(0, 4),
    in_flight=st.integers(1, 3),
    static=st.booleans(),
)
def test_rows_lie_where_plans_say(batches, num_kept, num_staged, window, in_flight, static):
    """Whatever is served late finds its rows, and hits are those of the policy alone."""
    kept = ids(*range(num_kept))
    policy = StaticPolicy(NUM_ROWS, kept) if static else belady(num_kept, window)
    planner = TierPlanner(policy, num_kept=num_kept, num_staged=num_staged, window=window)
    pool = np.full(planner.num_slots, -1)
    if static:
        pool[:num_kept] = kept
        planner.fill(num_kept)
    begun, hits = deque(), 0

    def begin(batch):
        # What is read may be written at any time from now on; nothing in flight may need it.
        pool[batch.slots[batch.missing]] = batch.vertices[batch.missing]
        begun.append(batch)

    def serve():
        batch = begun.popleft()
        assert pool[batch.slots].tolist() == batch.vertices.tolist()
        planner.served(batch)

    arrays = [None if each is None else ids(*each) for each in batches]
    for each in arrays:
        planner.expect(each)
        while (batch := planner.plan()) is not None:
            begin(batch)
            hits += batch.num_hits
            if len(begun) >= in_flight:
                serve()
    for each in (each for each in arrays if each is not None):
        if any(batch.vertices is each for batch in begun):
            continue
        batch = planner.plan(each)
        while batch is None and begun:
            serve()
            batch = planner.plan(each)
        if batch is not None:
            begin(batch)
            hits += batch.num_hits
    while begun:
        serve()
    read = [each for each in arrays if each is not None]
    if static:
        assert hits == sum((each < num_kept).sum() for each in read)
    elif len(read) == len(arrays):
        rule = {"num_vertices": NUM_ROWS, "capacity": num_kept, "window": window}
        counts = count_hits(read, **rule, priority=PRIORITY, num_threads=1)
        assert hits == counts.num_hits
