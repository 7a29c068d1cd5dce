import math

from hypothesis import given
from hypothesis import strategies as st

from gnnscale.report.page.svg import Axis, bins, path, ticks


@given(
    low=st.floats(-1e6, 1e6),
    span=st.floats(1e-3, 1e6),
    most=st.integers(2, 12),
    integer=st.booleans(),
)
def test_ticks_are_round_inside_and_few(low: float, span: float, most: int, integer: bool) -> None:
    found = ticks(low, low + span, most, integer=integer)
    assert len(found) <= most + 1
    values = [value for value, _ in found]
    assert all(low - 1e-6 * span <= value <= low + span * (1 + 1e-6) for value in values)
    assert len({label for _, label in found}) == len(found)
    if integer:
        assert all(value == int(value) for value in values)


def test_ticks_by_hand() -> None:
    assert [label for _, label in ticks(0, 1, 5)] == ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]
    assert [label for _, label in ticks(0, 4000, 5)] == ["0", "1,000", "2,000", "3,000", "4,000"]
    assert [label for _, label in ticks(1, 3, 7, integer=True)] == ["1", "2", "3"]


@given(num_points=st.integers(0, 20_000))
def test_bins_cover_each_point_once(num_points: int) -> None:
    parts = bins(num_points)
    assert [i for part in parts for i in range(part.start, part.stop)] == list(range(num_points))
    figures = 1 if len(parts) == num_points else 3
    assert len(parts) * figures <= 1000


def test_a_missing_value_and_a_single_one() -> None:
    assert path([(0, 1), (1, 2.25), (2, math.nan), (3, 4)]) == "M0 1L1 2.2M3 4"
    axis = Axis(title="epoch", low=3, high=3)
    assert axis.fraction(3) == 0.5
