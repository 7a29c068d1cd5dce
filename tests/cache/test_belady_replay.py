import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnscale.cache.belady import Belady, LookAheadReplay
from gnnscale.cache.plan import LookAhead

VERTICES = 30
PRIORITY = np.arange(VERTICES, dtype=np.int32)
batches = st.lists(
    st.one_of(st.none(), st.sets(st.integers(0, VERTICES - 1), min_size=1, max_size=9)), max_size=12
)


def replay_of(window: int, num_rows: int = 3, *, match: bool = False) -> LookAheadReplay:
    policy = LookAhead(window=window, num_rows=num_rows, match=match)
    return LookAheadReplay(VERTICES, policy, priority=PRIORITY)


@pytest.mark.long
@settings(max_examples=60)
@given(
    steps=batches,
    rows=st.integers(0, 8),
    window=st.integers(0, 4),
    match=st.booleans(),
    lead=st.integers(0, 9),
)
def test_it_is_beladys_whatever_it_is_ahead(steps, rows, window, match, lead) -> None:
    replay = replay_of(window, rows, match=match)
    known = Belady(VERTICES, rows, window=window, priority=PRIORITY, match=match, num_threads=1)
    arrays = [None if each is None else np.array(sorted(each), np.int32) for each in steps]
    expected = iter(arrays)
    # Steps that read nothing count in the window, as for caches that the host has.
    ahead = iter(arrays)
    in_window = 0
    for number, vertices in enumerate(arrays):
        for _ in range(len(arrays) if number == 0 and lead > 4 else 1 + window):
            each = next(expected, "end")
            if not isinstance(each, str):
                replay.expect(each)
        while in_window <= window:
            each = next(ahead, "end")
            if isinstance(each, str):
                break
            in_window += 1
            if each is not None:
                known.expect(each)
        in_window -= 1
        found = replay.take()
        if vertices is None:
            assert found is None
            continue
        wanted = known.advance()
        assert found.counts == wanted.counts
        assert np.array_equal(found.positions, wanted.positions)
        assert np.array_equal(found.slots, wanted.slots)


def test_steps_without_reads_or_expectation() -> None:
    replay = replay_of(2)
    assert replay.window == 2
    assert replay.take() is None  # a step of a rehearsal changes nothing
    replay.expect(np.array([1, 2], np.int32))
    assert replay.take().counts.num_misses == 2
    replay.expect(np.array([VERTICES], np.int32))  # outside of the graph
    with pytest.raises(ValueError, match=str(VERTICES)):
        replay.take()
    replay = replay_of(1)
    assert replay.next_read() is None
    first, second = np.array([1, 2], np.int32), np.array([2, 3], np.int32)
    for each in (None, None, first, None, second):
        replay.expect(each)
    assert replay.next_read() is first
    assert replay.advance().counts.num_misses == 2
    assert replay.next_read() is second
    assert replay.take().counts.num_misses == 1
    assert replay.next_read() is None
