from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from gnnscale.report.page.timeline import excerpt, timeline
from gnnscale.stages import SPAN, STAGES

PROPAGATE = STAGES.index("propagate")


def epochs_of(run: Any) -> dict[int, int]:
    return {step.global_step: step.epoch for step in run.steps}


def test_the_excerpt_is_a_dozen_steps_of_one_epoch(hybrid_run: Any) -> None:
    shown = excerpt(hybrid_run.spans, epochs_of(hybrid_run))
    trained = np.unique(shown["step"][shown["stage"] == PROPAGATE])
    assert trained[:12].tolist() == list(range(39, 51))
    # Devices do not wait for each other to begin the next.
    assert len(trained) <= 13
    # Steps to come are prepared meanwhile.
    assert shown["step"].max() > 50


def test_an_epoch_of_few_steps_is_shown_whole(make_run: Any) -> None:
    run = make_run(steps_per_epoch=4)
    shown = excerpt(run.spans, epochs_of(run))
    assert np.unique(shown["step"][shown["stage"] == PROPAGATE]).tolist() == [4, 5, 6, 7]


def test_spans_are_cut_off_at_both_ends() -> None:
    spans = np.array(
        [
            (0, 0, 0, 0.0, 3.0),
            (0, PROPAGATE, 0, 1.0, 2.0),
            (0, 0, 1, 2.5, 4.0),
            (0, PROPAGATE, 1, 3.0, 3.5),
        ],
        dtype=SPAN,
    )
    shown = excerpt(spans, {0: 1, 1: 1})
    assert (shown["start"].min(), shown["end"].max()) == (1.0, 3.5)
    assert len(excerpt(spans[:0], {})) == 0


def test_a_row_for_each_device_and_stage_that_ran(hybrid_run: Any) -> None:
    shown = excerpt(hybrid_run.spans, epochs_of(hybrid_run))
    drawn = timeline(hybrid_run.started.plan, shown)
    rows = re.findall(r'text-anchor="end">(\w+)</text>', drawn)
    assert rows == [
        *("sample", "load", "propagate", "sync"),
        *("sample", "load", "transfer", "propagate", "sync"),
    ]
    assert drawn.count("<title>") == len(shown)
    assert "emulated:1" in drawn


@pytest.mark.parametrize("seconds", [1e-7, 1e3])
def test_any_length_of_time_can_be_drawn(hybrid_run: Any, seconds: float) -> None:
    spans = np.array([(0, PROPAGATE, 0, 5.0, 5.0 + seconds)], dtype=SPAN)
    drawn = timeline(hybrid_run.started.plan, excerpt(spans, {0: 1}))
    assert "nan" not in drawn
