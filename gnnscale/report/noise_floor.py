"""The noise floor: how well a run foretells itself.

No prediction from a few steps can be expected to be better than the run's own steps are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["noise_floor"]


def noise_floor(step_s: NDArray[np.float64], window_steps: int) -> dict[str, Any] | None:
    """Return how far the median of one window of steps is from that of the next window.

    Windows follow one another and do not overlap; an error is ``window / next window - 1``.

    Args:
        step_s: ``[n]`` seconds of steps, in their order.
        window_steps: of a window: as many as a rehearsal measures.

    Returns:
        ``mean_absolute_error``, ``mean_error`` (with signs), ``window_steps`` and ``num_windows``;
        None where there are not two windows.
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
