from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from step_files import written_steps

from gnnscale.core.stages import StageTimes
from gnnscale.planner.cost_model.equations import Prediction
from gnnscale.report.prediction import compare, noise_floor, sentences


def test_medians_of_full_mini_batches_of_the_first_plan(tmp_path: Path, hybrid_run: Any) -> None:
    compared = compare(hybrid_run.result, written_steps(tmp_path, hybrid_run.steps))
    # Work is moved after step 8.
    before = hybrid_run.steps[:9]
    assert compared["num_steps"] == 9
    cpu, emulated = compared["devices"]
    median = float(np.median([step.devices[0].stages.propagate for step in before]))
    assert cpu["measured"]["stage_times_s"]["propagate"] == pytest.approx(median, abs=1e-6)
    by_rates = cpu["by_rates"]
    assert by_rates["stage_times_s"]["propagate"] == 0.0265
    assert by_rates["stage_errors"]["propagate"] == pytest.approx(0.0265 / median - 1, rel=1e-3)
    assert by_rates["stage_times_s"]["transfer"] is None
    assert by_rates["stage_errors"]["transfer"] is None
    assert (emulated["name"], emulated["kind"]) == ("emulated:1", "emulated")
    assert (cpu["figures"], emulated["figures"]) == ("measured", "emulated")
    assert compared["figures"] == "emulated"
    times = np.diff([step.seconds for step in before])
    assert compared["measured_step_s"] == pytest.approx(float(np.median(times)), abs=2e-6)
    step = compared["by_rates"]
    assert step["error"] == pytest.approx(0.0268 / float(np.median(times)) - 1, rel=1e-3)
    assert step["mteps"] == pytest.approx(0.2 / 0.0268)
    assert compared["rehearsed"] is cpu["rehearsed"] is None
    assert compared["basis"] == "by_rates"
    # Eight times between these nine steps are four windows of two.
    assert compared["noise_floor"]["num_windows"] == 4


def test_a_rehearsed_plan_is_scored_by_both_names(tmp_path: Path, hybrid_run: Any) -> None:
    by_rates = hybrid_run.started.layout.predicted.by_rates
    slower = tuple(replace(each, propagate=2 * each.propagate) for each in by_rates.devices)
    rehearsed = replace(by_rates, devices=slower, step_s=0.05)
    predicted = replace(hybrid_run.started.layout.predicted, rehearsed=rehearsed)
    steps = written_steps(tmp_path, hybrid_run.steps)
    compared = compare(hybrid_run.predicting(predicted), steps)
    assert compared["basis"] == "rehearsed"
    measured = compared["measured_step_s"]
    assert compared["by_rates"]["error"] == pytest.approx(by_rates.step_s / measured - 1)
    assert compared["rehearsed"]["error"] == pytest.approx(0.05 / measured - 1)
    cpu = compared["devices"][0]
    assert cpu["rehearsed"]["stage_times_s"]["propagate"] == 0.053
    assert cpu["rehearsed"]["stage_errors"]["propagate"] > 1 / 2
    # One that is too short has the other sign.
    short = replace(predicted, by_rates=replace(by_rates, step_s=0.1 * measured))
    compared = compare(hybrid_run.predicting(short), steps)
    assert compared["by_rates"]["error"] == pytest.approx(-0.9)


def test_an_epoch_that_fills_memory_is_compared_by_its_mean(tmp_path: Path, cpu_run: Any) -> None:
    """Its first steps read more rows than the usual one."""
    seconds = [1.0, 5.0, 6.0, 7.0, 8.0]
    steps = [replace(each, seconds=s) for each, s in zip(cpu_run.steps[:5], seconds, strict=True)]
    written = written_steps(tmp_path, steps, num_devices=1)
    predicted = cpu_run.result.layout.predicted
    for is_mean, expected in ((False, 1.0), (True, 7 / 4)):
        by_rates = replace(predicted.by_rates, is_mean=is_mean)
        changed = replace(predicted, by_rates=by_rates)
        compared = compare(cpu_run.predicting(changed), written)
        assert compared["measured_step_s"] == expected


def test_kinds_of_devices_are_scored_apart(tmp_path: Path, hybrid_run: Any, cpu_run: Any) -> None:
    seen = StageTimes(sample=0.002, load=0.004, propagate=0.008, transfer=0.001, sync=0.5)
    steps = [
        replace(step, devices=tuple(replace(each, stages=seen) for each in step.devices))
        for step in hybrid_run.steps[:8]
    ]
    # The processor prefetches as one stage, the accelerator as two: the longest lane counts, and
    # waiting for each other does not.
    cpu = StageTimes(sample=0.004, load=0.005, propagate=0.006, sync=0.9)
    accelerator = StageTimes(sample=0.001, load=0.001, propagate=0.016, sync=0.1)
    step = Prediction(devices=(cpu, accelerator), step_s=0.02, num_edges=1, source="here")
    predicted = replace(hybrid_run.started.layout.predicted, by_rates=step)
    compared = compare(hybrid_run.predicting(predicted), written_steps(tmp_path, steps))
    assert [each["measured"]["step_s"] for each in compared["devices"]] == [0.008, 0.008]
    own = [each["by_rates"]["step_s"] for each in compared["devices"]]
    assert own == pytest.approx([0.009, 0.016])
    assert compared["kinds"] == {
        "cpu": {"by_rates": pytest.approx(0.125), "rehearsed": None},
        "emulated": {"by_rates": pytest.approx(1.0), "rehearsed": None},
    }
    (tmp_path / "cpu").mkdir()
    found = written_steps(tmp_path / "cpu", cpu_run.steps, num_devices=1)
    assert compare(cpu_run.result, found)["kinds"] is None


def test_what_was_not_measured_is_none(tmp_path: Path, hybrid_run: Any) -> None:
    compared = compare(hybrid_run.result, written_steps(tmp_path, []))
    assert compared["num_steps"] == 0
    assert compared["measured_step_s"] is None
    assert compared["by_rates"]["error"] is None
    assert compared["noise_floor"] is None
    assert compared["devices"][0]["measured"]["stage_times_s"]["load"] is None
    assert compare(hybrid_run.predicting(None), written_steps(tmp_path, [])) is None


def test_a_window_foretells_the_next() -> None:
    # Medians of three: 2, 4, 2; the last two steps are no window.
    steps = np.array([2.0, 1.0, 9.0, 4.0, 4.0, 1.0, 2.0, 2.0, 8.0, 7.0, 7.0])
    errors = {"mean_absolute_error": (0.5 + 1.0) / 2, "mean_error": (-0.5 + 1.0) / 2}
    found = noise_floor(steps, 3)
    assert found == {**errors, "window_steps": 3, "num_windows": 3}
    # One window foretells nothing.
    assert noise_floor(np.ones(7), 4) is None


STEP = {"step_s": 0.0123, "error": -0.0561, "mteps": 1.0}

PREDICTED: dict[str, Any] = {
    "source": "this machine",
    "figures": "measured",
    "num_steps": 1200,
    "measured_step_s": 0.013,
    "by_rates": STEP,
    "rehearsed": STEP | {"step_s": 0.0131, "error": 0.004},
    "noise_floor": {"mean_absolute_error": 0.0123, "window_steps": 32, "num_windows": 37},
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
    errors = {
        "cpu": {"by_rates": 0.1, "rehearsed": None},
        "emulated": {"by_rates": -0.002, "rehearsed": 0.001},
        "other": {"by_rates": None, "rehearsed": None},
    }
    assert sentences(PREDICTED | {"kinds": errors})[4:] == [
        "error of cpu devices alone, without waiting: by rates +10.0 %",
        "error of emulated devices alone, without waiting: by rates -0.2 %, rehearsed +0.1 %",
    ]
    unknown = {"measured_step_s": None, "rehearsed": None, "noise_floor": None}
    step = {"by_rates": STEP | {"error": None}}
    assert sentences(PREDICTED | unknown | step) == [
        "step: no two full mini-batches in a row ran under the first plan",
        "by rates (of this machine): 12.3 ms",
        "rehearsed: no, the plan was predicted from calibrated rates",
        "noise floor: unknown, the run has not two windows of steps as long as a rehearsal",
    ]
    left_out = sentences(PREDICTED | unknown, absent=False)
    assert left_out == ["by rates (of this machine): 12.3 ms, error -5.6 %"]


@pytest.mark.parametrize(
    ("source", "rates"),
    [
        ("this machine", "calibrated rates"),
        ("this machine, estimated", "estimated rates; gnnscale doctor calibrate=true calibrates "),
        ("a nominal machine", "nominal rates, which no calibration measured"),
    ],
)
def test_rates_are_called_calibrated_if_they_are(source: str, rates: str) -> None:
    text = "\n".join(sentences(PREDICTED | {"source": source, "rehearsed": None}))
    assert f"rehearsed: no, the plan was predicted from {rates}" in text
    assert ("calibrated rates" in text) == (source == "this machine")
