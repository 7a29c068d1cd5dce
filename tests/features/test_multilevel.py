import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from late_source import (
    NUM_ROWS,
    PRIORITY,
    ROWS,
    WIDTH,
    LateSource,
    belady,
    gather_while_another_thread_expects,
    ids,
)

from gnnscale.cache.belady import count_hits
from gnnscale.core.stages import Access
from gnnscale.features.multilevel import DeviceCacheRows, MultiLevelStore
from gnnscale.features.tiered.policies import StaticPolicy, TierPlanner
from gnnscale.features.tiered.store import TieredStore, WorkerBuffer


def tier_of(*, num_kept=0, window=1, ahead=2):
    planner = TierPlanner(belady(num_kept, window), num_kept=num_kept, num_staged=6, window=window)
    source = LateSource()
    return TieredStore(WorkerBuffer(source, planner, window=window, ahead=ahead)), source


def staying(*members, own=0, names=("mine", "other")):
    kept = [np.array(each, np.int32) for each in members]
    return DeviceCacheRows(
        policy=StaticPolicy(NUM_ROWS, np.concatenate(kept)),
        members=[ROWS[each] for each in kept],
        own=own,
        names=names[: len(members)],
    )


def following(num_rows, *, window=1, match=False):
    policy = belady(num_rows, window, match=match)
    members = [np.full((num_rows, WIDTH), np.nan, np.float32)]
    rule = {"window": window, "match": match}
    return DeviceCacheRows(policy=policy, members=members, names=["mine"], **rule)


def gathered(store, vertices, dtype=torch.float32):
    return store.gather(vertices, dtype=dtype, num_threads=1)


def served(store, steps):
    """Expect steps, gather each as soon as may be, and yield what it found."""
    lead = store.lead
    for step, each in enumerate([*steps, *[None] * lead]):
        if step < len(steps):
            store.expect(each)
        if step >= lead and steps[step - lead] is not None:
            rows, traffic = gathered(store, steps[step - lead])
            assert np.array_equal(rows.numpy(), ROWS[steps[step - lead]])
            yield traffic


step_rows = st.lists(st.integers(0, NUM_ROWS - 1), min_size=1, unique=True)
steps_of_runs = st.lists(st.none() | step_rows, min_size=1, max_size=12)


@pytest.mark.long
@settings(max_examples=20)
@given(
    steps=steps_of_runs,
    num_rows=st.integers(0, 6),
    window=st.integers(0, 3),
    match=st.booleans(),
    num_kept=st.integers(0, 5),
    below=st.integers(0, 3),
    ahead=st.integers(1, 3),
)
@example([[0, 1], None, None, None, [1, 2]], 1, 0, True, 0, 0, 1)
def test_rows_that_follow_the_batches(steps, num_rows, window, match, num_kept, below, ahead):
    tier, source = tier_of(num_kept=num_kept, window=below, ahead=ahead)
    store = MultiLevelStore(tier, following(num_rows, window=window, match=match))
    assert store.lead == window + below + ahead
    arrays = [None if each is None else ids(*each) for each in steps]
    every = list(served(store, arrays))
    total = sum((each.rows for each in every), start=Access())
    reads = [each for each in arrays if each is not None]
    if len(reads) == len(arrays):  # steps that read nothing take a part of the window
        rule = {"num_vertices": NUM_ROWS, "capacity": num_rows, "window": window, "match": match}
        counts = count_hits(reads, **rule, priority=PRIORITY, num_threads=1)
        assert total.hits == counts.num_hits + counts.num_previous
    assert total.hits + total.misses == sum(map(len, reads))
    assert total.host_bytes == total.misses * 4 * WIDTH
    # Host memory is asked for what the device lacks, and the source for what both lack.
    asked = sum(each.tier.hits + each.tier.misses for each in every)
    assert asked == total.misses
    assert sum(map(len, source.asked)) == sum(each.tier.misses for each in every)


@pytest.mark.long
@settings(max_examples=20)
@given(steps=steps_of_runs, num_kept=st.integers(0, 5), own=st.integers(0, 1))
def test_rows_that_stay_are_never_asked_for(steps, num_kept, own):
    tier, source = tier_of(num_kept=num_kept)
    store = MultiLevelStore(tier, staying([0, 3, 5], [7, 9], own=own))
    arrays = [None if each is None else ids(*each) for each in steps]
    every = list(served(store, arrays))
    read = [row for each in arrays if each is not None for row in each.tolist()]
    found = [sum(row in kept for row in read) for kept in ((0, 3, 5), (7, 9))]
    assert sum(each.rows.hits for each in every) == found[own]
    assert sum(each.rows.peer_hits for each in every) == found[1 - own]
    assert {row for asked in source.asked for row in asked} <= {1, 2, 4, 6, 8, 10, 11}
    names = dict(zip(("rows from mine", "rows from other"), found, strict=True))
    assert store.take_counters() == {**names, "rows from the host": len(read) - sum(found)}


def test_by_hand():
    tier, source = tier_of(num_kept=1, window=1, ahead=1)
    store = MultiLevelStore(tier, following(1))
    every = list(served(store, [ids(0, 1), ids(0, 2), ids(1, 0), ids(2)]))
    # The device keeps 0 from the first to the third step. Memory keeps 1, which it is asked for in
    # the third, and not 2.
    counts = [(each.rows.hits, each.tier.hits, each.tier.misses) for each in every]
    assert counts == [(0, 0, 2), (1, 0, 1), (1, 1, 0), (0, 0, 1)]
    assert source.asked == [[0, 1], [2], [], [2]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_have_the_requested_type(dtype):
    store = MultiLevelStore(tier_of()[0], staying([2]))
    vertices = ids(2, 4)
    store.expect(vertices)
    rows, _ = gathered(store, vertices, dtype)
    assert torch.equal(rows, torch.from_numpy(ROWS[vertices]).to(dtype))


def test_unexpected_batches_are_read_below_and_change_nothing():
    tier, source = tier_of()
    store = MultiLevelStore(tier, following(2, window=2))
    first, second = ids(1, 2), ids(2, 3)
    store.expect(first)
    store.expect(second)
    rows, traffic = gathered(store, ids(1, 2))
    assert np.array_equal(rows.numpy(), ROWS[[1, 2]])
    assert (traffic.rows.hits, traffic.tier.misses) == (0, 2)
    assert [gathered(store, each)[1].rows.hits for each in (first, second)] == [0, 1]
    store.close()
    assert source.closed


def test_other_rows_count_from_the_next_step_that_is_decided():
    store = MultiLevelStore(tier_of()[0], staying([0, 1]))
    steps = [ids(0, 1, 2) for _ in range(3)]
    store.expect(steps[0])
    store.expect(steps[1])
    store.replace(staying([2, 4]))
    store.expect(steps[2])
    found = []
    for each in steps:
        rows, traffic = gathered(store, each)
        assert np.array_equal(rows.numpy(), ROWS[each])
        found.append(traffic.rows.hits)
    assert found == [2, 2, 1]


def test_a_thread_may_expect_while_another_gathers():
    store = MultiLevelStore(tier_of(num_kept=3, window=2)[0], following(3, window=2, match=True))
    gather_while_another_thread_expects(store, store, store.lead)
