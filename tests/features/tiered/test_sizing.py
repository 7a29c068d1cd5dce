import numpy as np
import pytest
from late_source import ids

from gnnscale.cache.belady import belady_bytes
from gnnscale.core import ConfigError
from gnnscale.features.tiered.sizing import (
    MAX_WINDOW,
    Horizon,
    Misses,
    ReadChances,
    SampledBatches,
    TypeDemand,
    divide_memory,
    expect_misses,
    size_tier,
)


def test_rows_with_small_gaps_are_one_request():
    misses = Misses(num_rows=9, mean=3.0, when_full=4, vertices=ids(0, 2, 3, 9))
    assert misses.requests(row_bytes=10, max_gap_bytes=10) == (2, 50)
    assert misses.requests(row_bytes=10, max_gap_bytes=9) == (3, 40)
    assert misses.rate == pytest.approx(1 / 3)
    nothing = Misses(num_rows=0, mean=0.0, when_full=0, vertices=ids())
    assert nothing.requests(row_bytes=10, max_gap_bytes=0) == (0, 0)
    assert nothing.rate == 0


def test_a_sample_that_fills_memory_or_is_the_whole_epoch_is_counted():
    rest = {"priority": np.zeros(6, np.int32), "num_threads": 1}
    batches = [ids(0, 1), ids(2, 3), ids(4, 5), ids(0, 1)]
    found = expect_misses(batches, 2, 1, num_steps=10, **rest)
    assert (found.num_rows, found.when_full) == (2, 2)
    # Six are missed until 0 and 1 are read again, which stayed; then two a step.
    assert found.mean == pytest.approx((6 + 6 * 2) / 10)
    assert found.vertices.tolist() in ([0, 1], [2, 3], [4, 5])
    batches = [ids(0, 1), ids(1, 2), ids(3), ids(4, 5, 0)]
    assert expect_misses(batches, 6, 4, num_steps=3, **rest).mean == pytest.approx(4 / 3)


def test_chances_are_those_of_classes_of_degrees():
    degrees = ids(0, 0, 0, 0, 7, 7, -1)
    chances = ReadChances.of([ids(4, 0), ids(4, 5)], degrees)
    present = np.flatnonzero(chances.num_vertices)
    assert chances.num_vertices[present].tolist() == [1, 4, 2]
    assert chances.chance[present].tolist() == [0, 1 / 8, 3 / 4]
    assert chances.distinct(1) == pytest.approx(2)
    assert chances.distinct(2) == pytest.approx(4 * (1 - (7 / 8) ** 2) + 2 * (1 - 1 / 16))


def test_misses_until_memory_is_full_and_after():
    chances = ReadChances(num_vertices=np.array([10, 2]), chance=np.array([0.1, 1.0]))
    # All twelve fit: the distinct vertices of five steps, and what the fifth reads first.
    mean, last = chances.misses(12, 5)
    assert mean == pytest.approx((2 + 10 * (1 - 0.9**5)) / 5)
    assert last == round(10 * 0.1 * 0.9**4)
    # Two fit: the others are read whenever they are needed.
    mean, last = chances.misses(2, 100)
    assert mean == pytest.approx(1, abs=0.05)
    assert last == 3  # those of the first step, which fills it


@pytest.mark.parametrize("num_kept", [2_000, 8_000, 20_000])
def test_estimates_are_near_what_later_batches_miss(num_kept):
    generator = np.random.default_rng(0)
    degrees = np.minimum(generator.pareto(0.8, 20_000) + 1, 2_000).astype(np.int32)
    chance = np.minimum(degrees * 0.004, 1)
    batches = [ids(*np.flatnonzero(generator.random(20_000) < chance)) for _ in range(200)]
    rest = {"priority": degrees, "num_threads": 1}
    found = expect_misses(batches[:16], num_kept, 16, num_steps=200, **rest)
    counted = expect_misses(batches, num_kept, 16, num_steps=200, **rest)
    assert found.mean == pytest.approx(counted.mean, rel=0.2)


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
    assert sizes(100 << 20).num_kept == NUM_ROWS
    with pytest.raises(ConfigError, match=r"features\.memory_bytes: the rows of a step do not fit"):
        sizes(1 << 20)


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


def demand(num_rows, slot_bytes, batches, num_bytes=0):
    priority = np.zeros(num_rows, np.int32)
    horizon = Horizon(window=3, priority=priority, num_steps=20, num_threads=1)
    sampled = SampledBatches(vertices=batches, num_bytes=num_bytes, num_workers=2)
    return TypeDemand(sample=sampled, horizon=horizon, row_bytes=slot_bytes - 32)


def test_memory_goes_to_the_types_whose_rows_are_read_most_often():
    # A step reads half of 4 rows of 100 bytes, a tenth of 10 rows of 50 bytes, and none of 5.
    often = demand(4, 100, [ids(0, 1), ids(2, 3)], num_bytes=7)
    seldom, never = demand(10, 50, [ids(9), ids(4)]), demand(5, 40, [ids(), ids()])
    demands = [never, seldom, often]
    # Six batches of three steps, and their rows; the least slots of a type are 2.
    needs = [
        belady_bytes(5, 0, window=6, batch_rows=0) + 2 * 40,
        belady_bytes(10, 0, window=6, batch_rows=1) + 2 * 50,
        belady_bytes(4, 0, window=6, batch_rows=2) + 6 * 7 + 2 * 100,
    ]
    least = sum(needs)
    for rest, expected in (
        *((0, [0, 0, 0]), (300, [0, 0, 300]), (500, [0, 100, 400])),
        *((900, [0, 500, 400]), (1000, [100, 500, 400])),
    ):
        parts = divide_memory(least + rest, demands)
        assert parts == [need + more for need, more in zip(needs, expected, strict=True)]
    # All rows have memory: the rest lets each look further ahead.
    parts = divide_memory(2 * least + 1100, demands)
    assert parts == [2 * need + rows for need, rows in zip(needs, (200, 500, 400), strict=True)]
    with pytest.raises(ConfigError, match=r"the rows of a step do not fit .*window \(now 3\)"):
        divide_memory(least - 1, demands)


def test_each_part_holds_the_rows_of_a_step():
    for part in (demand(1, 40, [ids()]), demand(50, 60, [ids(*range(20)), ids(3)])):
        (memory,) = divide_memory(part.step_bytes, [part])
        rest = {"num_rows": part.num_rows, "row_bytes": part.row_bytes, "memory_bytes": memory}
        found = size_tier(part.sample, part.horizon, **rest)
        assert min(found.num_kept, found.num_staged) >= 0
        assert found.num_kept + found.num_staged >= part.sample.max_rows
