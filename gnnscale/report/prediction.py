"""Comparison of predicted and measured step and stage times of a run.

``by_rates`` is predicted by equations and the platform's rates. ``rehearsed`` is this prediction
corrected by a profiling run of some steps of the plan.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gnnscale.core import STAGES, BoolArray, Float64Array, StageTimes, mteps
from gnnscale.planner import Cpu, Cuda, DevicePlan, DeviceShare
from gnnscale.planner.cost_model.equations import PlanPredictions, Prediction, pipeline_seconds
from gnnscale.planner.platform import ESTIMATED, NOMINAL
from gnnscale.report import formatting
from gnnscale.report.steps import Steps
from gnnscale.run.records import TrainResult

#: Kinds of devices whose rates are measured on this machine; other kinds state their rates.
_MEASURED_KINDS = (Cpu.kind, Cuda.kind)


def noise_floor(step_s: Float64Array, window_steps: int) -> dict[str, Any] | None:
    """Return errors if each window's median step time forecasts the next window's median.

    ``step_s`` are ``[n]`` seconds of consecutive steps. Windows of ``window_steps`` steps do not
    overlap; the result has mean and mean absolute value of ``window / next window - 1``. None:
    fewer than two windows.
    """
    num_windows = len(step_s) // window_steps
    if num_windows < 2:
        return None
    windows = step_s[: num_windows * window_steps].reshape(num_windows, window_steps)
    medians = np.median(windows, axis=1)
    errors = medians[:-1] / medians[1:] - 1
    return {
        "mean_absolute_error": float(np.abs(errors).mean()),
        "mean_error": float(errors.mean()),
        "window_steps": window_steps,
        "num_windows": num_windows,
    }


def compare(run: TrainResult, steps: Steps) -> dict[str, Any] | None:
    """Return predicted and measured times, ``predicted`` of ``summary.json``; None: no prediction.

    Predictions are for a full mini-batch under the run's first plan. Measured times are therefore
    medians over the steps with this plan and a full mini-batch, or means if the prediction includes
    first steps that fill memory; None without such steps. A device's ``step_s`` is its work without
    waiting for other devices. docs/run-directory.md describes the entries.
    """
    predicted = run.layout.predicted
    if predicted is None:
        return None
    selected = _steps_under(run.plan, steps)
    # Seconds between the ends of consecutive selected steps of the same epoch.
    follows = (np.diff(steps.number) == 1) & (np.diff(steps.epoch) == 0)
    times = np.diff(steps.seconds)[follows & selected[1:] & selected[:-1]]
    average = np.mean if predicted.by_rates.is_mean else np.median
    step_s = float(average(times)) if len(times) else None
    devices = _devices(run.plan, predicted, steps.stages[selected], average)
    return {
        "source": predicted.by_rates.source,
        "figures": formatting.least_real(share.device.figures for share in run.plan.shares),
        "basis": predicted.basis,
        "num_steps": int(selected.sum()),
        "measured_step_s": step_s,
        **{name: _step(getattr(predicted, name), step_s) for name in formatting.PREDICTIONS},
        "noise_floor": noise_floor(times, predicted.window_steps),
        "kinds": _by_kind(devices),
        "devices": devices,
    }


def _step(predicted: Prediction | None, measured_s: float | None) -> dict[str, Any] | None:
    """Return a step's predicted seconds, their relative error, and MTEPS; None: no prediction."""
    if predicted is None:
        return None
    return {
        "step_s": predicted.step_s,
        "error": _error(predicted.step_s, measured_s),
        "mteps": mteps(predicted.num_edges, predicted.step_s),
    }


def _devices(
    plan: DevicePlan,
    predictions: PlanPredictions,
    measured: Float64Array,
    average: Callable[[Float64Array], Any],
) -> list[dict[str, Any]]:
    """Return measured and predicted times and errors by device.

    ``measured`` are ``[steps, devices, len(STAGES)]`` seconds; ``average`` is mean or median.
    """
    devices = []
    for rank, share in enumerate(plan.shares):
        present = [column[~np.isnan(column)] for column in measured[:, rank].T]
        times = {
            name: float(average(seconds)) if len(seconds) else None
            for name, seconds in zip(STAGES, present, strict=True)
        }
        measured_device = {"step_s": _own_seconds(times, share), "stage_times_s": times}
        predicted = {
            name: prediction and _compared(prediction.devices[rank], share, measured_device)
            for name in formatting.PREDICTIONS
            for prediction in [getattr(predictions, name)]
        }
        devices.append(
            {
                "name": share.device.label,
                "kind": share.device.kind,
                "figures": share.device.figures,
                "measured": measured_device,
                **predicted,
            }
        )
    return devices


def _compared(
    predicted: StageTimes, share: DeviceShare, measured: dict[str, Any]
) -> dict[str, Any]:
    """Return a device's predicted times, with relative errors against ``measured`` times."""
    expected = {name: getattr(predicted, name) or None for name in STAGES}
    own_s, times = _own_seconds(expected, share), measured["stage_times_s"]
    return {
        "step_s": own_s,
        "error": _error(own_s, measured["step_s"]),
        "stage_times_s": expected,
        "stage_errors": {name: _error(expected[name], times[name]) for name in STAGES},
    }


def _own_seconds(times: dict[str, float | None], share: DeviceShare) -> float | None:
    """Return a device's seconds per step without ``sync``; None: no stage has a time."""
    present = {name: seconds for name, seconds in times.items() if seconds and name != "sync"}
    return pipeline_seconds(StageTimes(**present), share.prefetch) if present else None


def _by_kind(devices: Sequence[dict[str, Any]]) -> dict[str, dict[str, float | None]] | None:
    """Return mean errors of step times by kind of device and of prediction; None: one kind only."""
    kinds = list(dict.fromkeys(device["kind"] for device in devices))
    if len(kinds) == 1:
        return None
    return {
        kind: {
            name: formatting.mean_present(
                device[name] and device[name]["error"]
                for device in devices
                if device["kind"] == kind
            )
            for name in formatting.PREDICTIONS
        }
        for kind in kinds
    }


def _steps_under(plan: DevicePlan, steps: Steps) -> BoolArray:
    """Return a mask of the steps with a full mini-batch and the split and threads of ``plan``."""
    threads = [
        (share.threads.sample, share.threads.load, share.threads.propagate) for share in plan.shares
    ]
    same_split = (steps.num_seeds == np.array(plan.split)).all(axis=1)
    same_threads = (steps.threads == np.array(threads)).all(axis=(1, 2))
    return np.asarray(same_split & same_threads)


def _error(predicted: float | None, measured: float | None) -> float | None:
    if predicted is None or not measured:
        return None
    error = predicted / measured - 1
    return error if math.isfinite(error) else None


def sentences(predicted: dict[str, Any], *, absent: bool = True) -> list[str]:
    """Return lines about predictions, errors and noise; ``absent``: about unknown values, too."""
    measured_s = predicted["measured_step_s"]
    lines = ["step: no two full mini-batches in a row ran under the first plan"] if absent else []
    if measured_s is not None:
        took = f"{formatting.milliseconds(measured_s)} ms {step_kind(predicted)}"
        lines = [f"step: {took} over {predicted['num_steps']:,} steps"]
    lines.append(f"by rates (of {predicted['source']}): {_predicted_step(predicted['by_rates'])}")
    rehearsed = predicted["rehearsed"]
    if absent or rehearsed is not None:
        lines.append(
            f"rehearsed: no, the plan was predicted from {_rates(predicted)}"
            if rehearsed is None
            else f"rehearsed: {_predicted_step(rehearsed)}"
        )
    if absent or predicted["noise_floor"] is not None:
        lines.append(f"noise floor: {_floor(predicted['noise_floor'])}")
    for kind, errors in (predicted["kinds"] or {}).items():
        line = ", ".join(
            f"{words} {formatting.fine_percent(errors[name])}"
            for name, words in formatting.PREDICTIONS.items()
            if errors[name] is not None
        )
        if line:
            lines.append(f"error of {kind} devices alone, without waiting: {line}")
    return lines


def _rates(predicted: dict[str, Any]) -> str:
    """Return the origin of a prediction's rates: nominal, estimated or calibrated."""
    states = any(
        device["kind"] not in _MEASURED_KINDS or device["figures"] != formatting.MEASURED
        for device in predicted["devices"]
    )
    stated = " of the host, and those that accelerators state" if states else ""
    if predicted["source"] == NOMINAL:
        return f"nominal rates{stated}, which no calibration measured"
    if predicted["source"] == ESTIMATED:
        remedy = "gnnscale doctor calibrate=true calibrates those of the host"
        return f"estimated rates{stated}; {remedy}"
    return f"calibrated rates{stated}"


def _predicted_step(step: dict[str, Any]) -> str:
    error = "" if step["error"] is None else f", error {formatting.fine_percent(step['error'])}"
    return f"{formatting.milliseconds(step['step_s'])} ms{error}"


def _floor(noise: dict[str, Any] | None) -> str:
    if noise is None:
        return "unknown, the run has not two windows of steps as long as a rehearsal"
    steps = noise["window_steps"]
    window = "a step" if steps == 1 else f"a window of {steps} steps"
    error = 100 * noise["mean_absolute_error"]
    return f"{error:.1f} %, by which {window} errs about the next, over {noise['num_windows']}"


def step_kind(predicted: dict[str, Any]) -> str:
    """Return a step's kind of times, such as ``emulated``, noting if they include simulation."""
    devices = predicted["devices"]
    simulates = any((device["kind"], device["figures"]) == ("fpga", "csim") for device in devices)
    kind: str = predicted["figures"]
    return kind + (" (simulating included)" if simulates else "")
