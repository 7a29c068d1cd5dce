"""What the performance model predicted of a run, next to what was measured."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from gnnscale.metrics import mteps
from gnnscale.plan import DevicePlan
from gnnscale.report.devices import device_label, least_real, present_stages
from gnnscale.report.figures import milliseconds, signed_percent
from gnnscale.report.files.steps import Steps
from gnnscale.report.terminal.tables import fits
from gnnscale.runtime.telemetry.records import TrainResult
from gnnscale.stages import STAGES, StageTimes

__all__ = ["compare", "prediction_basis", "print_prediction", "step_kind"]


def compare(run: TrainResult, steps: Steps) -> dict[str, Any] | None:
    """Return ``predicted`` of ``summary.json``, None where nothing was predicted.

    The prediction is for a full mini-batch under the plan that the run began with, so the measured
    figures are medians over ``num_steps`` steps of just that: until dynamic resource management
    changes the plan, and without the last, smaller mini-batch of each epoch. Where there was no
    such step they are None. Every ``error`` is ``predicted / measured - 1``.

    Returns:
        ``source``, ``figures`` (the kind of the measured ones), ``step_s``, ``measured_step_s``,
        ``error``, ``by_rates_step_s`` and ``by_rates_error`` (without the rehearsal, None where
        there was none), ``mteps`` (HyScale-GNN eq. 5), ``num_steps`` and ``devices``, each with
        ``name``, ``kind``, ``figures`` and, by stage and per step, ``stage_times_s``,
        ``measured_stage_times_s`` and ``error``.
    """
    if run.predicted is None:
        return None
    chosen = _ran_under(run.plan, steps)
    step_s = _step_seconds(steps, chosen)
    return {
        "source": run.predicted.source,
        "figures": least_real(share.device.figures for share in run.plan.shares),
        "step_s": run.predicted.step_s,
        "measured_step_s": step_s,
        "error": _error(run.predicted.step_s, step_s),
        "by_rates_step_s": run.predicted.by_rates_s,
        "by_rates_error": _error(run.predicted.by_rates_s, step_s),
        "mteps": mteps(run.predicted.num_edges, run.predicted.step_s),
        "num_steps": int(chosen.sum()),
        "devices": [
            {
                "name": share.device.label,
                "kind": share.device.kind,
                "figures": share.device.figures,
                **_stages(predicted, steps.stages[chosen, rank]),
            }
            for rank, (share, predicted) in enumerate(
                zip(run.plan.shares, run.predicted.devices, strict=True)
            )
        ],
    }


def print_prediction(predicted: dict[str, Any], console: Console) -> None:
    """Print the stage times that ``compare`` returned as a table, in milliseconds a step.

    A row of measured times is called by the kind of its figures. Stages that no device has are
    left out.
    """
    table = Table(title="Predicted and measured stage times, ms per step")
    table.add_column("device", no_wrap=True)
    table.add_column("", no_wrap=True)
    stages = present_stages(
        device[times]
        for device in predicted["devices"]
        for times in ("stage_times_s", "measured_stage_times_s")
    )
    for stage in stages:
        table.add_column(stage, justify="right", no_wrap=True)
    for device in predicted["devices"]:
        label = device_label(device["name"], device["kind"], device["figures"])
        rows = (
            (label, "predicted", device["stage_times_s"], milliseconds),
            ("", device["figures"], device["measured_stage_times_s"], milliseconds),
            ("", "error", device["error"], signed_percent),
        )
        for name, what, values, form in rows:
            cells = (form(values[stage]) for stage in stages)
            table.add_row(name, what, *cells, end_section=what == "error")
    if not fits(table, console):
        table.padding = (0, 0, 0, 1)
    console.print(table)
    console.print(_verdict(predicted), highlight=False, soft_wrap=True)


def prediction_basis(predicted: dict[str, Any]) -> str:
    """Return what a prediction rests on: rates, and perhaps a rehearsal that corrected them."""
    rates = f"the rates of {predicted['source']}"
    if predicted["by_rates_step_s"] is None:
        return f"with {rates}"
    return f"after a rehearsal ({milliseconds(predicted['by_rates_step_s'])} ms by {rates} alone)"


def _verdict(predicted: dict[str, Any]) -> str:
    """What is said of a whole step."""
    expected, seen = (milliseconds(predicted[key]) for key in ("step_s", "measured_step_s"))
    said = f"step: {expected} ms predicted {prediction_basis(predicted)}, "
    if predicted["measured_step_s"] is None:
        return said + "no two full mini-batches in a row ran under the first plan"
    error = signed_percent(predicted["error"])
    seen = f"{seen} ms {step_kind(predicted)} over {predicted['num_steps']} steps"
    return f"{said}{seen}, error {error}"


def step_kind(predicted: dict[str, Any]) -> str:
    """Return the kind of a step's seconds, which are this machine's where it simulates an FPGA."""
    devices = predicted["devices"]
    simulates = any((each["kind"], each["figures"]) == ("fpga", "csim") for each in devices)
    kind: str = predicted["figures"]
    return kind + (" (simulating included)" if simulates else "")


def _ran_under(plan: DevicePlan, steps: Steps) -> NDArray[np.bool_]:
    """Which steps ran a full mini-batch with the split and the threads of ``plan``."""
    threads = [
        (each.threads.sample, each.threads.load, each.threads.propagate) for each in plan.shares
    ]
    same_split = (steps.num_seeds == np.array(plan.split)).all(axis=1)
    same_threads = (steps.threads == np.array(threads)).all(axis=(1, 2))
    return np.asarray(same_split & same_threads)


def _step_seconds(steps: Steps, chosen: NDArray[np.bool_]) -> float | None:
    """Median time from the end of one chosen step to that of the next in the same epoch."""
    follows = (np.diff(steps.number) == 1) & (np.diff(steps.epoch) == 0)
    times = np.diff(steps.seconds)[follows & chosen[1:] & chosen[:-1]]
    return float(np.median(times)) if len(times) else None


def _stages(predicted: StageTimes, measured: NDArray[np.float64]) -> dict[str, Any]:
    """One device's stages; ``measured`` is ``[steps, len(STAGES)]``."""
    expected = {name: getattr(predicted, name) or None for name in STAGES}
    medians = {name: _median(measured[:, i]) for i, name in enumerate(STAGES)}
    return {
        "stage_times_s": expected,
        "measured_stage_times_s": medians,
        "error": {name: _error(expected[name], medians[name]) for name in STAGES},
    }


def _median(values: NDArray[np.float64]) -> float | None:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else None


def _error(predicted: float | None, measured: float | None) -> float | None:
    if predicted is None or not measured:
        return None
    error = predicted / measured - 1
    return error if math.isfinite(error) else None
