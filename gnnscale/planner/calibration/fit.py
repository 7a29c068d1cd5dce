"""Rates fitted to measured times and amounts of work, by non-negative least squares."""

from collections.abc import Sequence

import numpy as np

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
    # Imported late: an uncalibrated machine's first run alone needs it.
    from scipy.optimize import nnls

    per_unit = nnls(relative / scale, target)[0] / scale
    return {
        name: 1 / float(value) if value > 0 else float("inf")
        for name, value in zip(names, per_unit, strict=True)
    }


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
