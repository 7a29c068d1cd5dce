from __future__ import annotations

import math
import re

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gnnscale.report.figures import count, gib, milliseconds, percent, signed_percent
from gnnscale.report.page.charts import Curve, line_chart, stacked_chart, upper
from gnnscale.report.page.svg import Axis, bins, path, ticks


@given(
    low=st.floats(-1e6, 1e6),
    span=st.floats(1e-3, 1e6),
    most=st.integers(2, 12),
    whole=st.booleans(),
)
def test_ticks_are_round_inside_and_not_too_many(
    low: float, span: float, most: int, whole: bool
) -> None:
    found = ticks(low, low + span, most, whole=whole)
    assert len(found) <= most + 1
    values = [value for value, _ in found]
    assert all(low - 1e-6 * span <= value <= low + span * (1 + 1e-6) for value in values)
    assert len({label for _, label in found}) == len(found)
    if whole:
        assert all(value == int(value) for value in values)


def test_ticks_by_hand() -> None:
    assert [label for _, label in ticks(0, 1, 5)] == ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]
    assert [label for _, label in ticks(0, 4000, 5)] == ["0", "1,000", "2,000", "3,000", "4,000"]
    assert [label for _, label in ticks(1, 3, 7, whole=True)] == ["1", "2", "3"]


@given(num_points=st.integers(0, 20_000))
def test_bins_cover_each_point_once(num_points: int) -> None:
    parts = bins(num_points)
    assert [i for part in parts for i in range(part.start, part.stop)] == list(range(num_points))
    figures = 1 if len(parts) == num_points else 3
    assert len(parts) * figures <= 1000


def test_a_value_that_is_missing_breaks_the_line() -> None:
    assert path([(0, 1), (1, 2.25), (2, math.nan), (3, 4)]) == "M0 1L1 2.2M3 4"


def test_an_axis_of_one_value_has_room_around_it() -> None:
    axis = Axis(title="epoch", low=3, high=3)
    assert axis.part(3) == 0.5


def curve(y: list[float] | np.ndarray, label: str = "a") -> Curve:
    values = np.asarray(y, dtype=np.float64)
    return Curve(label=label, css="d-0", x=np.arange(len(values), dtype=np.float64), y=values)


AXES = {"x": Axis(title="step", low=0, high=9), "y": Axis(title="ms", low=0, high=10)}


def test_a_line_goes_through_its_points() -> None:
    drawn = line_chart([curve([0, 10])], **AXES)
    # The picture is 560 by 230, with 58, 14, 12 and 40 around the axes.
    assert 'd="M58 190L112.2 12"' in drawn
    assert 'data-x="0 9 58 546"' in drawn
    assert 'data-y="0 10 190 12"' in drawn


def test_names_are_escaped() -> None:
    drawn = line_chart([curve([1.0, 2.0], label='<script>"x"')], **AXES)
    assert "<script>" not in drawn
    assert "&lt;script&gt;&quot;x&quot;" in drawn


def test_many_points_become_few_with_a_band_of_their_range() -> None:
    values = np.random.default_rng(0).random(50_000)
    values[1234] = np.nan
    drawn = line_chart(
        [curve(values)], x=Axis(title="step", low=0, high=50_000), y=Axis(title="s", low=0, high=1)
    )
    (band,) = re.findall(r'class="band d-0" d="([^"]*)"', drawn)
    (line,) = re.findall(r'class="line d-0"[^>]* d="([^"]*)"', drawn)
    assert len(re.findall("[ML]", line)) == 333
    assert len(re.findall("[ML]", band)) == 666
    assert len(drawn) < 30_000


def test_a_value_that_was_never_there_draws_nothing() -> None:
    drawn = line_chart([curve([math.nan] * 3), curve([math.nan, 2.0, math.nan])], **AXES)
    assert 'data-label="a" d=""' in drawn
    assert drawn.count("<circle") == 1


def test_stacked_areas_hold_their_value_until_the_next() -> None:
    drawn = stacked_chart(
        [("d-0", "a"), ("d-1", "b")],
        np.arange(9),
        np.array([[2.0, 8.0]] * 3 + [[6.0, 4.0]] * 6),
        **AXES,
    )
    lines = re.findall(r'class="line d-\d" data-label="\w" d="([^"]*)"', drawn)
    steps = "M58 154.4L220.7 154.4L220.7 83.2L491.8 83.2L546 83.2"
    assert lines == [steps, "M58 12L491.8 12L546 12"]
    assert "data-stacked" in drawn


def test_an_axis_cuts_off_a_few_peaks_only() -> None:
    steady = np.ones(100)
    assert upper(steady) == (1.05, False)
    steady[0] = 50.0
    high, cut = upper(steady)
    assert cut
    assert high == 1.6
    assert upper(np.full(3, np.nan)) == (1.0, False)


def test_figures_by_hand() -> None:
    assert [milliseconds(value) for value in (0.00123, 0.0123, 0.123, 1.23, None)] == [
        *("1.23", "12.3", "123", "1,230", "–")
    ]
    assert [count(value) for value in (None, 3, 12345.6, 18.178, 0.5)] == [
        *("–", "3", "12,346", "18.18", "0.500")
    ]
    assert [gib(value) for value in (None, 0, 3 << 29, 5 << 20)] == [
        *("–", "0.00 GiB", "1.50 GiB", "5.0 MiB")
    ]
    assert [percent(0.284), percent(None)] == ["28 %", "–"]
    assert [signed_percent(-0.121), signed_percent(0.05)] == ["-12 %", "+5 %"]
