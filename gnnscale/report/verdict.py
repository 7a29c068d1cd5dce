"""What is said of a run's predictions in words, on the terminal and on the page."""

from __future__ import annotations

from typing import Any

from gnnscale.report.figures import PREDICTIONS, fine_percent, milliseconds

__all__ = ["sentences", "step_kind"]


def sentences(predicted: dict[str, Any], *, absent: bool = True) -> list[str]:
    """Return what is said of a whole step: measured, by rates, rehearsed, and the noise floor.

    Args:
        predicted: what ``compare`` returned.
        absent: also say what is not known, and why.
    """
    seen = predicted["measured_step_s"]
    said = ["step: no two full mini-batches in a row ran under the first plan"] if absent else []
    if seen is not None:
        kind = step_kind(predicted)
        said = [f"step: {milliseconds(seen)} ms {kind} over {predicted['num_steps']:,} steps"]
    said.append(f"by rates (of {predicted['source']}): {_foretold(predicted['by_rates'])}")
    rehearsed = predicted["rehearsed"]
    if absent or rehearsed is not None:
        said.append(
            "rehearsed: not, the plan goes by rates"
            if rehearsed is None
            else f"rehearsed: {_foretold(rehearsed)}"
        )
    if absent or predicted["noise_floor"] is not None:
        said.append(f"noise floor: {_floor(predicted['noise_floor'])}")
    for kind, errors in (predicted["kinds"] or {}).items():
        told = ", ".join(
            f"{words} {fine_percent(errors[name])}"
            for name, words in PREDICTIONS.items()
            if errors[name] is not None
        )
        if told:
            said.append(f"error of {kind} devices alone, without waiting: {told}")
    return said


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
    """Return the kind of a step's seconds, which are this machine's where it simulates an FPGA."""
    devices = predicted["devices"]
    simulates = any((each["kind"], each["figures"]) == ("fpga", "csim") for each in devices)
    kind: str = predicted["figures"]
    return kind + (" (simulating included)" if simulates else "")
