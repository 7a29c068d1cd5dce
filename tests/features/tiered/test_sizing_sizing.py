"""How a tier divides its memory."""

import numpy as np
import pytest

from gnnscale.core import ConfigError
from gnnscale.features.tiered.sizing import MAX_WINDOW, Horizon, SampledBatches, size_tier

NUM_ROWS, ROW_BYTES = 10_000, 4096


def sample(batch_rows=500, count=16, num_bytes=1000):
    generator = np.random.default_rng(0)
    rows = [generator.choice(NUM_ROWS, batch_rows, replace=False) for _ in range(count)]
    return SampledBatches(vertices=[each.astype(np.int32) for each in rows], num_bytes=num_bytes)


def sizes(memory_bytes, *, given=None, window=None):
    priority = np.zeros(NUM_ROWS, np.int32)
    horizon = Horizon(window=window, priority=priority, num_steps=20, num_threads=1)
    rest = {"num_rows": NUM_ROWS, "row_bytes": ROW_BYTES, "memory_bytes": memory_bytes}
    return size_tier(given or sample(), horizon, **rest)


def test_rows_on_their_way_take_memory_of_those_that_stay():
    found = sizes(10 << 20)
    held = found.num_kept + found.num_staged
    assert 0.8 * (10 << 20) < held * ROW_BYTES <= 10 << 20
    # What two steps miss: without knowing the future, 400 of 500 random rows miss 2,000 of 10,000.
    assert 2 * 100 <= found.num_staged <= 2 * 400


def test_all_rows_stay_if_they_fit():
    assert sizes(100 << 20).num_kept == NUM_ROWS


@pytest.mark.parametrize(("num_bytes", "expected"), [(1000, 26), (1 << 19, 2)])
def test_the_window_is_as_long_as_it_helps_or_fits(num_bytes, expected):
    """Five times 2,500 rows are 25 steps of 500; or a tenth of the memory is two mini-batches."""
    found = sizes(10 << 20, given=sample(num_bytes=num_bytes))
    assert found.window == pytest.approx(expected, abs=1)
    assert sizes(10 << 20, window=3).window == 3
    assert sizes(1 << 30).window <= MAX_WINDOW


def test_steps_before_a_cache_above_is_full_say_nothing_of_the_window():
    """Later steps ask for 200 rows of 500, so that more of them are known."""
    usual = sample()
    rest = [each[: 500 if at < 4 else 200] for at, each in enumerate(usual.vertices)]
    later = SampledBatches(vertices=rest, num_bytes=0)
    assert (usual.usual_rows, later.max_rows, later.usual_rows) == (500, 500, 200)
    assert sizes(5 << 20, given=later).window > sizes(5 << 20).window


def test_rows_of_a_step_that_do_not_fit_are_refused():
    with pytest.raises(ConfigError, match=r"features\.memory_bytes: the rows of a step do not fit"):
        sizes(1 << 20)
