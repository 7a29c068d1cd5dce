from __future__ import annotations

import numpy as np
import pytest

from gnnscale.report.noise_floor import noise_floor


def test_a_window_foretells_the_next() -> None:
    # Medians of three: 2, 4, 5; the last two steps are no window.
    steps = np.array([2.0, 1.0, 9.0, 4.0, 4.0, 1.0, 5.0, 5.0, 8.0, 7.0, 7.0])
    found = noise_floor(steps, 3)
    assert found == {
        "mean_absolute_error": pytest.approx((0.5 + 0.2) / 2),
        "mean_error": pytest.approx((-0.5 - 0.2) / 2),
        "window_steps": 3,
        "num_windows": 3,
    }


def test_errors_either_way_cancel_with_their_signs_only() -> None:
    found = noise_floor(np.array([2.0, 4.0, 2.0]), 1)
    assert found is not None
    assert found["mean_absolute_error"] == pytest.approx((0.5 + 1.0) / 2)
    assert found["mean_error"] == pytest.approx((-0.5 + 1.0) / 2)


def test_one_window_foretells_nothing() -> None:
    assert noise_floor(np.ones(7), 4) is None
    assert noise_floor(np.array([]), 1) is None
