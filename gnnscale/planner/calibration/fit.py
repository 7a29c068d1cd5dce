"""Rates fitted to measured times and amounts of work, by non-negative least squares."""

from collections.abc import Sequence

import numpy as np

from gnnscale.core.types import BoolArray, Float64Array
from gnnscale.planner.calibration.probes import StepTimes


def fit_rates(
    names: Sequence[str],
    work: Sequence[Sequence[float]],
    seconds: Sequence[float],
    *,
    fixed_s: Sequence[float] | None = None,
) -> dict[str, float]:
    """Return the rates, by name, with the least squared relative errors of predicted times.

    ``work`` has amounts ``[measurements][rates]``; a predicted time is ``fixed_s`` plus all amounts
    over their rates. A rate is infinite for work that takes no time.
    """
    measured = np.asarray(seconds)
    fixed = np.zeros_like(measured) if fixed_s is None else np.asarray(fixed_s)
    target = np.maximum(1 - fixed / measured, 0.0)
    relative = np.asarray(work, dtype=np.float64) / measured[:, None]
    scale = np.maximum(relative.max(axis=0), 1e-300)
    per_unit = least_squares(relative / scale, target) / scale
    return {
        name: 1 / float(value) if value > 0 else float("inf")
        for name, value in zip(names, per_unit, strict=True)
    }


def least_squares(a: Float64Array, b: Float64Array) -> Float64Array:
    """Return ``x >= 0`` that minimizes ``|a x - b|``, for entries about 1 (NNLS)."""
    x = np.zeros(a.shape[1])
    passive = np.zeros(a.shape[1], np.bool_)  # entries that are not fixed at zero
    tolerance = 10 * max(a.shape) * np.finfo(np.float64).eps * float(np.abs(a).sum(axis=0).max())
    for _ in range(3 * len(x)):
        gradient = np.where(passive, -np.inf, a.T @ (b - a @ x))
        entering = int(gradient.argmax())
        if gradient[entering] <= tolerance:
            break
        passive[entering] = True
        solution = _solved(a, b, passive)
        while (solution[passive] <= 0).any():
            falling = passive & (solution <= 0)
            x += np.min(x[falling] / (x[falling] - solution[falling])) * (solution - x)
            passive &= x > tolerance
            x[~passive] = 0.0
            solution = _solved(a, b, passive)
        x = solution
    return x


def _solved(a: Float64Array, b: Float64Array, passive: BoolArray) -> Float64Array:
    """Return the least-squares solution, of any sign, with 0 outside the ``passive`` entries."""
    solution = np.zeros(a.shape[1])
    solution[passive] = np.linalg.lstsq(a[:, passive], b, rcond=None)[0]
    return solution


def sync_rates(steps: Sequence[StepTimes], s_per_byte: float) -> dict[str, float]:
    """Return ``sync_latency_s`` and ``straggler_wait``, fitted to the synchronization of ``steps``.

    Seconds = latency + bytes · ``s_per_byte`` + wait · seconds of loading and propagation.
    """
    rates = fit_rates(
        ("sums", "waits"),
        [(1.0, step.load_s + step.propagate_s) for step in steps],
        [step.sync_s for step in steps],
        fixed_s=[step.workload.weight_bytes * s_per_byte for step in steps],
    )
    return {"sync_latency_s": 1 / rates["sums"], "straggler_wait": 1 / rates["waits"]}
