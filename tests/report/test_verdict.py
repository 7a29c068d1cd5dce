from __future__ import annotations

from typing import Any

from gnnscale.report.verdict import sentences

STEP = {"step_s": 0.0123, "error": -0.0561, "mteps": 1.0}
PREDICTED: dict[str, Any] = {
    "source": "this machine",
    "figures": "measured",
    "num_steps": 1200,
    "measured_step_s": 0.013,
    "by_rates": STEP,
    "rehearsed": STEP | {"step_s": 0.0131, "error": 0.004},
    "noise_floor": {
        "mean_absolute_error": 0.0123,
        "mean_error": -0.001,
        "window_steps": 32,
        "num_windows": 37,
    },
    "kinds": None,
    "devices": [{"kind": "cpu", "figures": "measured"}],
}


def test_each_name_has_its_sentence() -> None:
    assert sentences(PREDICTED) == [
        "step: 13.0 ms measured over 1,200 steps",
        "by rates (of this machine): 12.3 ms, error -5.6 %",
        "rehearsed: 13.1 ms, error +0.4 %",
        "noise floor: 1.2 %, by which a window of 32 steps errs about the next, over 37",
    ]


def test_what_is_not_known_is_said() -> None:
    unknown = {"measured_step_s": None, "rehearsed": None, "noise_floor": None}
    step = {"by_rates": STEP | {"error": None}}
    assert sentences(PREDICTED | unknown | step) == [
        "step: no two full mini-batches in a row ran under the first plan",
        "by rates (of this machine): 12.3 ms",
        "rehearsed: not, the plan goes by rates",
        "noise floor: unknown, the run has not two windows of steps as long as a rehearsal",
    ]


def test_what_is_not_known_can_be_left_out() -> None:
    unknown = {"measured_step_s": None, "rehearsed": None, "noise_floor": None}
    said = sentences(PREDICTED | unknown, absent=False)
    assert said == ["by rates (of this machine): 12.3 ms, error -5.6 %"]
    assert sentences(PREDICTED, absent=False) == sentences(PREDICTED)


def test_kinds_are_told_apart() -> None:
    errors = {
        "cpu": {"by_rates": 0.1, "rehearsed": None},
        "emulated": {"by_rates": -0.002, "rehearsed": 0.001},
        "other": {"by_rates": None, "rehearsed": None},
    }
    assert sentences(PREDICTED | {"kinds": errors})[4:] == [
        "error of cpu devices alone, without waiting: by rates +10.0 %",
        "error of emulated devices alone, without waiting: by rates -0.2 %, rehearsed +0.1 %",
    ]
