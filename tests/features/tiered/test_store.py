import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from late_source import (
    NUM_ROWS,
    ROWS,
    WIDTH,
    LateSource,
    belady,
    gather_while_another_thread_expects,
    ids,
)

from gnnscale.features import Aggregation, HostFeatures
from gnnscale.features.tiered.buffer import slots_of_file
from gnnscale.features.tiered.policies import RemoteOnlyPolicy, StaticPolicy, TierPlanner
from gnnscale.features.tiered.store import TieredStore, WorkerBuffer
from gnnscale.sampling import Block

HOST = HostFeatures(ROWS, "float32")


def store_of(*, num_kept=4, window=1, ahead=2, static=False):
    kept = ids(*range(num_kept))
    policy = StaticPolicy(NUM_ROWS, kept) if static else belady(num_kept, window)
    planner = TierPlanner(policy, num_kept=num_kept, num_staged=6, window=window)
    source = LateSource()
    store = TieredStore(WorkerBuffer(source, planner, window=window, ahead=ahead))
    if static:
        store.rows.fill(kept)
    return store, source


def gathered(store, vertices, dtype=torch.float32):
    return store.gather(vertices, dtype=dtype, num_threads=1)


step_rows = st.lists(st.integers(0, NUM_ROWS - 1), min_size=1, unique=True)


@pytest.mark.long
@settings(max_examples=20)
@given(
    steps=st.lists(step_rows, min_size=1, max_size=12),
    num_kept=st.integers(0, 8),
    window=st.integers(0, 3),
    ahead=st.integers(1, 4),
    static=st.booleans(),
    ends=st.booleans(),
)
def test_values_are_those_of_the_source(steps, num_kept, window, ahead, static, ends):
    store, _ = store_of(num_kept=num_kept, window=window, ahead=ahead, static=static)
    arrays = [ids(*each) for each in steps]
    hits = misses = 0
    for step, each in enumerate(arrays + [None] * store.rows.lead):
        if each is not None:
            store.rows.expect(each)
        elif step == len(arrays) and ends:
            store.rows.end()
        if 0 <= step - store.rows.lead < len(arrays):
            vertices = arrays[step - store.rows.lead]
            rows, traffic = gathered(store, vertices)
            assert np.array_equal(rows.numpy(), ROWS[vertices])
            assert traffic.rows.host_bytes == len(vertices) * 4 * WIDTH
            hits, misses = hits + traffic.tier.hits, misses + traffic.tier.misses
    assert hits + misses == sum(map(len, arrays))


def test_unexpected_batches_are_rehearsed_and_change_nothing():
    store, source = store_of()
    first, again = ids(1, 2), ids(1, 2)
    store.rows.expect(first)
    rows, traffic = gathered(store, again)
    assert np.array_equal(rows.numpy(), ROWS[again])
    assert (traffic.tier.hits, traffic.tier.misses, traffic.tier.link_requests) == (0, 2, 0)
    _, traffic = gathered(store, first)
    assert (traffic.tier.hits, traffic.tier.misses, traffic.tier.link_requests) == (0, 2, 2)
    assert traffic.tier.waited_us > 0
    store.rows.close()
    assert source.closed


def test_reads_begin_while_steps_before_are_trained():
    store, source = store_of(window=1, ahead=2)
    steps = [ids(each) for each in range(5)]
    for each in steps[: store.rows.lead]:
        store.rows.expect(each)
    assert len(source.begun) == 2  # and no third: two are on their way
    gathered(store, steps[0])
    store.rows.expect(steps[3])
    assert len(source.begun) == 3


def test_reads_of_the_last_steps_begin_as_early():
    store, source = store_of(window=3, ahead=2)
    for each in ([0], [1], [2]):
        store.rows.expect(ids(*each))
    assert not source.begun
    store.rows.end()
    assert len(source.begun) == 2


def test_the_source_sees_every_step_in_its_order():
    store, source = store_of(num_kept=0, window=1, ahead=2)
    steps = [None, [0], [1], None, None, [2], [3], None]
    arrays = [None if each is None else ids(*each) for each in steps]
    for each in arrays:
        store.rows.expect(each)
    store.rows.end()
    assert source.order == [None, [0], [1]]  # two are on their way
    for each in arrays:
        if each is not None:
            gathered(store, each)
    assert source.order == steps


def test_rows_of_a_file_are_not_read_from_the_source(tmp_path):
    """Even vertices have their rows in the file, and the source has the others."""
    np.save(tmp_path / "rows.npy", ROWS[::2])
    file = np.load(tmp_path / "rows.npy", mmap_mode="r")
    places = lambda rows: np.where(rows % 2, -1, rows // 2)  # noqa: E731
    policy = RemoteOnlyPolicy(belady(2, 1), places, num_kept=2)
    planner = TierPlanner(policy, num_kept=2, num_staged=6, window=1, num_fixed=slots_of_file(file))
    source = LateSource()
    store = TieredStore(WorkerBuffer(source, planner, window=1, ahead=1, file=file))
    assert np.array_equal(store.rows.slots[: len(file)], file)
    steps = [ids(0, 1, 2, 3), ids(3, 4), ids(10, 11, 8)]
    for each in steps:
        store.rows.expect(each)
    store.rows.end()
    for each in steps:
        rows, _ = gathered(store, each)
        assert np.array_equal(rows.numpy(), ROWS[each])
    assert source.order == [[1, 3], [], [11]]
    store.rows.close()


@pytest.mark.parametrize(
    ("self_term", "dtype"), [("add", torch.bfloat16), ("concat", torch.float32)]
)
def test_rows_are_aggregated_where_they_lie(self_term, dtype):
    vertices = ids(5, 0, 9, 2)
    block = Block(indptr=np.array([0, 2, 3]), indices=np.array([2, 3, 0], np.int32), num_src=4)
    ones = np.ones(2, np.float32)
    how = Aggregation(self_term=self_term, self_scale=ones if self_term == "add" else None)
    store, _ = store_of()
    store.rows.expect(vertices)
    found, traffic = store.aggregate(vertices, block, how, dtype=dtype, num_threads=1)
    wanted, _ = HOST.aggregate(vertices, block, how, dtype=dtype, num_threads=1)
    assert torch.equal(found, wanted)
    assert traffic.tier.misses == 4


def test_rows_are_read_at_once_and_counted_for_no_step():
    store, source = store_of()
    rows = np.empty((2, WIDTH), np.float32)
    store.rows.read(ids(7, 3), rows)
    assert np.array_equal(rows, ROWS[[7, 3]])
    step = ids(1)
    store.rows.expect(step)
    _, traffic = gathered(store, step)
    assert (traffic.tier.misses, traffic.tier.link_requests) == (1, 1)
    assert source.asked == [[7, 3], [1]]


def test_a_thread_may_expect_while_another_gathers():
    store, _ = store_of(num_kept=3, window=2, ahead=2)
    gather_while_another_thread_expects(store.rows, store, store.rows.lead)
