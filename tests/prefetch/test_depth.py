from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gnnscale.prefetch import PrefetchDepth

lengths = st.lists(st.integers(0, 12), max_size=300)


def observe(depth: PrefetchDepth, length: int) -> int:
    return depth.observe(length, length == 0)


def shallow(limit: int, depth: int) -> PrefetchDepth:
    """One whose queue was found full until it was ``depth`` deep."""
    result = PrefetchDepth(limit=limit)
    while result.depth > depth:
        observe(result, limit)
    return result


def test_begins_at_the_limit_and_stays_while_the_consumer_waits() -> None:
    depth = PrefetchDepth(limit=4)
    assert depth.depth == 4
    assert {observe(depth, 0) for _ in range(100)} == {4}


def test_a_queue_that_is_always_full_ends_at_one() -> None:
    depth = PrefetchDepth(limit=4)
    seen = [observe(depth, depth.depth) for _ in range(200)]
    assert seen[:31] == [4] * 31
    assert seen[31] == 3
    assert sorted(seen, reverse=True) == seen
    assert seen[-1] == 1


def test_a_queue_that_is_sometimes_short_keeps_its_depth() -> None:
    depth = PrefetchDepth(limit=4)
    for _ in range(20):
        for length in [*[4] * 30, 3]:
            assert observe(depth, length) == 4


def test_two_waits_make_it_deeper_and_one_does_not() -> None:
    depth = shallow(4, 1)
    assert observe(depth, 0) == 1
    assert observe(depth, 0) == 2
    assert [observe(depth, 0) for _ in range(4)] == [2, 3, 3, 4]


def test_waits_count_together_unless_the_queue_was_full_between() -> None:
    depth = shallow(4, 2)
    assert [observe(depth, length) for length in (0, 1, 0)] == [2, 2, 3]
    depth = shallow(4, 2)
    assert [observe(depth, length) for length in (0, 2, 0)] == [2, 2, 2]


def test_a_step_down_that_was_too_early_is_not_soon_repeated() -> None:
    depth = shallow(4, 3)
    observe(depth, 0)
    assert observe(depth, 0) == 4
    assert {observe(depth, 4) for _ in range(63)} == {4}
    assert observe(depth, 4) == 3


def test_it_does_not_swing_where_one_depth_is_too_shallow() -> None:
    depth = PrefetchDepth(limit=4)
    changes, before = 0, 4
    for _ in range(5000):
        # Full at 4 and at 3; at 2 the consumer waits.
        after = observe(depth, depth.depth if depth.depth > 2 else 0)
        changes += after != before
        before = after
    assert changes <= 20
    assert depth.depth in (3, 4)


@given(st.integers(1, 10), lengths)
def test_stays_between_one_and_the_limit(limit: int, observed: list[int]) -> None:
    depth, twin = PrefetchDepth(limit=limit), PrefetchDepth(limit=limit)
    before = depth.depth
    for length in observed:
        after = observe(depth, length)
        assert 1 <= after <= limit
        assert abs(after - before) <= 1
        assert after == depth.depth == observe(twin, length)
        before = after


@given(st.integers(1, 6), lengths)
def test_waiting_always_leads_to_the_limit(limit: int, observed: list[int]) -> None:
    depth = PrefetchDepth(limit=limit)
    for length in observed:
        observe(depth, length)
    for _ in range(2 * limit):
        observe(depth, 0)
    assert depth.depth == limit
