import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnscale.training.drm.balance import balance_work, expected_seconds


@pytest.mark.parametrize(
    ("split", "seconds", "options", "expected"),
    [
        # 10 and 30 seeds a second.
        ([200, 200], [20.0, 20 / 3], {}, (100, 300)),
        # The CPU does 10 seeds a second, the accelerators 10 and 20.
        ([40, 40, 40], [4.0, 4.0, 2.0], {}, (30, 30, 60)),
        # 2 s + n / 10 and n / 30: equal after 12.5 s.
        ([200, 280], [22.0, 28 / 3], {"fixed": [2.0, 0.0]}, (105, 375)),
        # A device that needs longer for nothing gets none.
        ([10, 90], [11.0, 3.0], {"fixed": [10.0, 0.0]}, (0, 100)),
        # A part of the way.
        ([200, 200], [20.0, 20 / 3], {"gain": 0.5}, (150, 250)),
        # An idle device gets a few seeds, unless it was given up.
        ([160, 0], [1.0, 0.0], {}, (150, 10)),
        ([0, 0, 240], [0.0, 0.0, 1.0], {}, (10, 10, 220)),
        ([160, 0], [1.0, 0.0], {"excluded_devices": [1]}, (160, 0)),
        # Too few for everyone.
        ([1, 0], [1.0, 0.0], {}, (1, 0)),
    ],
)
def test_seeds_go_where_they_take_equally_long(split, seconds, options, expected) -> None:
    assert balance_work(split, seconds, **options) == expected


@given(st.data())
def test_the_mini_batch_stays_whole(data: st.DataObject) -> None:
    num = data.draw(st.integers(1, 6))
    split = data.draw(st.lists(st.integers(0, 2000), min_size=num, max_size=num).filter(any))
    times = st.floats(0, 10, allow_subnormal=False)
    seconds = data.draw(st.lists(times, min_size=num, max_size=num))
    parts = data.draw(st.lists(st.floats(0, 0.9), min_size=num, max_size=num))
    fixed = [part * each for part, each in zip(parts, seconds, strict=True)]
    gain = data.draw(st.floats(0.1, 1))
    excluded_devices = data.draw(st.sets(st.integers(0, num - 1)))
    result = balance_work(split, seconds, fixed=fixed, gain=gain, excluded_devices=excluded_devices)
    assert sum(result) == sum(split)
    assert min(result) >= 0
    assert all(result[i] == 0 for i in excluded_devices if split[i] == 0)


@given(st.lists(st.tuples(st.integers(1, 500), st.floats(1e-3, 10)), min_size=1, max_size=5))
def test_no_move_is_expected_to_make_it_slower(devices: list[tuple[int, float]]) -> None:
    split, seconds = zip(*devices, strict=True)
    result = balance_work(split, seconds)
    # A seed more than the exact share, from rounding.
    rounding = max(each / count for count, each in devices)
    assert expected_seconds(split, seconds, result) <= max(seconds) + rounding
