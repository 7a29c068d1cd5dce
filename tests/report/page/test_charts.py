from __future__ import annotations

import math
import re

import numpy as np

from gnnscale.report.page.charts import Curve, line_chart, stacked_chart, upper
from gnnscale.report.page.svg import Axis


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
    assert upper(steady) == 1.05
    steady[0] = 50.0
    assert upper(steady) == 1.6
    assert upper(np.full(3, np.nan)) == 1.0
