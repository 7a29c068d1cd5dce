import math
import re
from typing import Any

import numpy as np
import pytest

from gnnscale.core.stages import SPAN, STAGES
from gnnscale.report.page.charts import Curve, excerpt, line_chart, stacked_chart, timeline, upper
from gnnscale.report.page.svg import Axis


def curve(y: list[float] | np.ndarray, label: str = "a") -> Curve:
    values = np.asarray(y, dtype=np.float64)
    return Curve(label=label, css="d-0", x=np.arange(len(values), dtype=np.float64), y=values)


AXES = {"x": Axis(title="step", low=0, high=9), "y": Axis(title="ms", low=0, high=10)}


def test_a_line_goes_through_its_points_and_not_through_missing_ones() -> None:
    drawn = line_chart([curve([0, 10])], **AXES)
    # The picture is 560 by 230, with 58, 14, 12 and 40 around the axes.
    assert 'd="M58 190L112.2 12"' in drawn
    assert 'data-x="0 9 58 546"' in drawn
    assert 'data-y="0 10 190 12"' in drawn
    drawn = line_chart([curve([math.nan] * 3), curve([math.nan, 2.0, math.nan])], **AXES)
    assert 'data-label="a" d=""' in drawn
    assert drawn.count("<circle") == 1


def test_many_points_become_few_with_a_band_of_their_range() -> None:
    values = np.random.default_rng(0).random(50_000)
    values[1234] = np.nan
    axes = {"x": Axis(title="step", low=0, high=50_000), "y": Axis(title="s", low=0, high=1)}
    drawn = line_chart([curve(values)], **axes)
    (band,) = re.findall(r'class="band d-0" d="([^"]*)"', drawn)
    (line,) = re.findall(r'class="line d-0"[^>]* d="([^"]*)"', drawn)
    assert len(re.findall("[ML]", line)) == 333
    assert len(re.findall("[ML]", band)) == 666
    assert len(drawn) < 30_000


def test_stacked_areas_hold_their_value_until_the_next() -> None:
    values = np.array([[2.0, 8.0]] * 3 + [[6.0, 4.0]] * 6)
    drawn = stacked_chart([("d-0", "a"), ("d-1", "b")], np.arange(9), values, **AXES)
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


PROPAGATE = STAGES.index("propagate")


def epochs_of(run: Any) -> dict[int, int]:
    return {step.global_step: step.epoch for step in run.steps}


def test_the_excerpt_is_a_dozen_steps_of_one_epoch_with_a_row_for_each_stage(hybrid_run) -> None:
    shown = excerpt(hybrid_run.spans, epochs_of(hybrid_run))
    trained = np.unique(shown["step"][shown["stage"] == PROPAGATE])
    assert trained[:12].tolist() == list(range(39, 51))
    # Devices do not wait for each other to begin the next.
    assert len(trained) <= 13
    # Steps to come are prepared meanwhile.
    assert shown["step"].max() > 50
    drawn = timeline(hybrid_run.started.plan, shown)
    cpu, rest = ["sample", "load"], ["propagate", "sync"]
    rows = re.findall(r'text-anchor="end">(\w+)</text>', drawn)
    assert rows == [*cpu, *rest, *cpu, "transfer", *rest]
    assert drawn.count("<title>") == len(shown)
    assert "emulated:1" in drawn


def test_spans_are_cut_off_at_both_ends() -> None:
    sampled = [(0, 0, 0, 0.0, 3.0), (0, 0, 1, 2.5, 4.0)]
    trained = [(0, PROPAGATE, 0, 1.0, 2.0), (0, PROPAGATE, 1, 3.0, 3.5)]
    spans = np.array([*sampled, *trained], dtype=SPAN)
    shown = excerpt(spans, {0: 1, 1: 1})
    assert (shown["start"].min(), shown["end"].max()) == (1.0, 3.5)
    assert len(excerpt(spans[:0], {})) == 0


@pytest.mark.parametrize("seconds", [1e-7, 1e3])
def test_any_length_of_time_can_be_drawn(hybrid_run: Any, seconds: float) -> None:
    spans = np.array([(0, PROPAGATE, 0, 5.0, 5.0 + seconds)], dtype=SPAN)
    drawn = timeline(hybrid_run.started.plan, excerpt(spans, {0: 1}))
    assert "nan" not in drawn
