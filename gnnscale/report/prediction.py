"""What the performance model predicted of a run, next to what was measured.

There are three names. ``by_rates`` is a prediction by the equations and the platform's rates, for
which nothing of the run's plan was run. ``rehearsed`` is the same after a rehearsal of this plan
has corrected it: it repeats some steps of the run. ``noise_floor`` is no prediction of the model,
but how well a window of the run's steps foretells the next one.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gnnscale.core import STAGES, BoolArray, Float64Array, StageTimes, mteps
from gnnscale.planner import Cpu, DevicePlan, DeviceShare
from gnnscale.planner.cost_model.equations import PlanPredictions, Prediction, pipeline_seconds
from gnnscale.planner.cuda_spec import Cuda
from gnnscale.planner.platform import ESTIMATED, NOMINAL
from gnnscale.report.formatting import MEASURED, PREDICTIONS, fine_percent, least_real, milliseconds
from gnnscale.report.steps import Steps
from gnnscale.run.records import TrainResult

#: Devices whose rates are measured on the machine; others state theirs.
_MEASURED_KINDS = (Cpu.kind, Cuda.kind)


def noise_floor(step_s: Float64Array, window_steps: int) -> dict[str, Any] | None:
    """Return how far the median of one window of steps is from that of the next window.

    Windows follow one another and do not overlap; an error is ``window / next window - 1``.

    Args:
        step_s: ``[n]`` seconds of steps, in their order.

    Returns:
        ``mean_absolute_error``, ``mean_error`` (with signs), ``window_steps`` and ``num_windows``;
        None if there are not two windows.
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
    """Return ``predicted`` of ``summary.json``, None if nothing was predicted.

    Predictions are for a full mini-batch under the plan that the run began with, so the measured
    figures are medians over ``num_steps`` steps of just that: until dynamic resource management
    changes the plan, and without the last, smaller mini-batch of each epoch. They are means if
    predictions are of an epoch whose first steps fill memory. If there was no such step they are
    None. Every ``error`` has a sign: it is ``predicted / measured - 1``.

    Returns:
        ``source`` of the rates; ``figures``, the kind of the measured figures; ``basis``, the name
        of the prediction that the run went by; ``num_steps`` and ``measured_step_s``;
        ``by_rates`` and ``rehearsed`` (None if this plan was not rehearsed), each with
        ``step_s``, ``error`` and ``mteps`` (HyScale-GNN eq. 5); ``noise_floor`` (see there);
        ``kinds``, if devices of several kinds train, their mean errors by kind and name; and
        ``devices``, each with ``name``, ``kind``, ``figures``, ``measured``, ``by_rates`` and
        ``rehearsed``. Of these each has ``step_s``, the device's own work without waiting for
        others, and ``stage_times_s``, both per step, and a prediction their errors: ``error`` and
        ``stage_errors``.
    """
    predicted = run.layout.predicted
    if predicted is None:
        return None
    chosen = _ran_under(run.plan, steps)
    times = _step_seconds(steps, chosen)
    usual = np.mean if predicted.by_rates.is_mean else np.median
    step_s = float(usual(times)) if len(times) else None
    devices = _devices(run.plan, predicted, steps.stages[chosen], usual)
    return {
        "source": predicted.by_rates.source,
        "figures": least_real(share.device.figures for share in run.plan.shares),
        "basis": predicted.basis,
        "num_steps": int(chosen.sum()),
        "measured_step_s": step_s,
        **{name: _step(getattr(predicted, name), step_s) for name in PREDICTIONS},
        "noise_floor": noise_floor(times, predicted.window_steps),
        "kinds": _by_kind(devices),
        "devices": devices,
    }


def _step(predicted: Prediction | None, measured_s: float | None) -> dict[str, Any] | None:
    """One prediction of a whole step."""
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
    usual: Callable[[Float64Array], Any],
) -> list[dict[str, Any]]:
    """Every device's stages; ``measured`` is ``[steps, devices, len(STAGES)]``."""
    devices = []
    for rank, share in enumerate(plan.shares):
        times = {name: _known(usual, measured[:, rank, i]) for i, name in enumerate(STAGES)}
        seen = {"step_s": _own_seconds(times, share), "stage_times_s": times}
        predicted = {
            name: found and _compared(found.devices[rank], share, seen)
            for name in PREDICTIONS
            for found in [getattr(predictions, name)]
        }
        devices.append(
            {
                "name": share.device.label,
                "kind": share.device.kind,
                "figures": share.device.figures,
                "measured": seen,
                **predicted,
            }
        )
    return devices


def _compared(predicted: StageTimes, share: DeviceShare, seen: dict[str, Any]) -> dict[str, Any]:
    """One prediction of a device beside what was ``seen`` of it."""
    expected = {name: getattr(predicted, name) or None for name in STAGES}
    own_s, times = _own_seconds(expected, share), seen["stage_times_s"]
    return {
        "step_s": own_s,
        "error": _error(own_s, seen["step_s"]),
        "stage_times_s": expected,
        "stage_errors": {name: _error(expected[name], times[name]) for name in STAGES},
    }


def _own_seconds(times: dict[str, float | None], share: DeviceShare) -> float | None:
    """Seconds of a device's stages without synchronisation, in which it waits for the others."""
    known = {name: seconds for name, seconds in times.items() if seconds and name != "sync"}
    return pipeline_seconds(StageTimes(**known), share.prefetch) if known else None


def _by_kind(devices: Sequence[dict[str, Any]]) -> dict[str, dict[str, float | None]] | None:
    """Return the mean error of each kind's devices by the name of the prediction.

    An emulated device takes the time that the model predicts, so that its errors are no scores of a
    processor's. None if all devices are of one kind.
    """
    kinds = list(dict.fromkeys(each["kind"] for each in devices))
    if len(kinds) == 1:
        return None
    return {
        kind: {
            name: _mean(
                each[name] and each[name]["error"] for each in devices if each["kind"] == kind
            )
            for name in PREDICTIONS
        }
        for kind in kinds
    }


def _mean(errors: Any) -> float | None:
    known = [each for each in errors if each is not None]
    return statistics.fmean(known) if known else None


def _ran_under(plan: DevicePlan, steps: Steps) -> BoolArray:
    """Which steps ran a full mini-batch with the split and the threads of ``plan``."""
    threads = [
        (each.threads.sample, each.threads.load, each.threads.propagate) for each in plan.shares
    ]
    same_split = (steps.num_seeds == np.array(plan.split)).all(axis=1)
    same_threads = (steps.threads == np.array(threads)).all(axis=(1, 2))
    return np.asarray(same_split & same_threads)


def _step_seconds(steps: Steps, chosen: BoolArray) -> Float64Array:
    """Times from the end of one chosen step to that of the next in the same epoch."""
    follows = (np.diff(steps.number) == 1) & (np.diff(steps.epoch) == 0)
    times: Float64Array = np.diff(steps.seconds)[follows & chosen[1:] & chosen[:-1]]
    return times


def _known(usual: Callable[[Float64Array], Any], values: Float64Array) -> float | None:
    known = values[~np.isnan(values)]
    return float(usual(known)) if len(known) else None


def _error(predicted: float | None, measured: float | None) -> float | None:
    if predicted is None or not measured:
        return None
    error = predicted / measured - 1
    return error if math.isfinite(error) else None


def sentences(predicted: dict[str, Any], *, absent: bool = True) -> list[str]:
    """Return what is said of a whole step: measured, by rates, rehearsed, and the noise floor."""
    seen = predicted["measured_step_s"]
    said = ["step: no two full mini-batches in a row ran under the first plan"] if absent else []
    if seen is not None:
        kind = step_kind(predicted)
        said = [f"step: {milliseconds(seen)} ms {kind} over {predicted['num_steps']:,} steps"]
    said.append(f"by rates (of {predicted['source']}): {_foretold(predicted['by_rates'])}")
    rehearsed = predicted["rehearsed"]
    if absent or rehearsed is not None:
        said.append(
            f"rehearsed: no, the plan was predicted from {_rates(predicted)}"
            if rehearsed is None
            else f"rehearsed: {_foretold(rehearsed)}"
        )
    if absent or predicted["noise_floor"] is not None:
        said.append(f"noise floor: {_floor(predicted['noise_floor'])}")
    for kind, errors in (predicted["kinds"] or {}).items():
        line = ", ".join(
            f"{words} {fine_percent(errors[name])}"
            for name, words in PREDICTIONS.items()
            if errors[name] is not None
        )
        if line:
            said.append(f"error of {kind} devices alone, without waiting: {line}")
    return said


def _rates(predicted: dict[str, Any]) -> str:
    """Return the origin of a prediction's rates in words: nominal, estimated or calibrated."""
    states = any(
        each["kind"] not in _MEASURED_KINDS or each["figures"] != MEASURED
        for each in predicted["devices"]
    )
    stated = " of the host, and those that accelerators state" if states else ""
    if predicted["source"] == NOMINAL:
        return f"nominal rates{stated}, which no calibration measured"
    if predicted["source"] == ESTIMATED:
        remedy = "gnnscale doctor calibrate=true calibrates those of the host"
        return f"estimated rates{stated}; {remedy}"
    return f"calibrated rates{stated}"


def _foretold(step: dict[str, Any]) -> str:
    error = "" if step["error"] is None else f", error {fine_percent(step['error'])}"
    return f"{milliseconds(step['step_s'])} ms{error}"


def _floor(found: dict[str, Any] | None) -> str:
    if found is None:
        return "unknown, the run has not two windows of steps as long as a rehearsal"
    steps = found["window_steps"]
    window = "a step" if steps == 1 else f"a window of {steps} steps"
    error = 100 * found["mean_absolute_error"]
    return f"{error:.1f} %, by which {window} errs about the next, over {found['num_windows']}"


def step_kind(predicted: dict[str, Any]) -> str:
    """Return the kind of a step's seconds, which are this machine's if it simulates an FPGA."""
    devices = predicted["devices"]
    simulates = any((each["kind"], each["figures"]) == ("fpga", "csim") for each in devices)
    kind: str = predicted["figures"]
    return kind + (" (simulating included)" if simulates else "")
