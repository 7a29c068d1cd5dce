"""Steps whose input vertices repeat."""

import numpy as np

from gnnscale.features.repeats import RepeatedSteps


def test_steps_are_taken_in_order_by_their_arrays() -> None:
    steps = RepeatedSteps()
    first, second = np.array([7, 3, 7, 5]), np.array([2, 2])
    np.testing.assert_array_equal(steps.announce(first), [3, 5, 7])
    assert steps.announce(None) is None
    np.testing.assert_array_equal(steps.announce(second), [2])
    assert steps.take(second) is None
    assert steps.take(first.copy()) is None
    rows = steps.take(first)
    assert rows is not None
    np.testing.assert_array_equal(rows.vertices[rows.positions], first)
    rows = steps.take(second)
    assert rows is not None
    np.testing.assert_array_equal(rows.positions, [0, 0])
    assert steps.take(second) is None
