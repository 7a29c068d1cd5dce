import math

import numpy as np
import pytest

from gnnscale.core import metrics
from gnnscale.core.metrics import (
    accuracy,
    count_classes,
    macro_f1,
    micro_f1,
)


def test_accuracy_and_f1_by_hand() -> None:
    scores = np.array([[1.0, 2.0], [3.0, 0.0], [0.0, 1.0], [5.0, 4.0]])
    assert accuracy(scores, np.array([1, 0, 0, 1])) == 0.5
    # With more than one label for a vertex, each is a decision.
    scores = np.array([[1.0, -1.0, -2.0], [-1.0, 1.0, 1.0]])
    assert accuracy(scores, np.array([[1, 0, 0], [0, 1, 0]])) == pytest.approx(5 / 6)
    scores = np.array([[1.0, -1.0, 1.0], [-1.0, -1.0, 1.0]])
    labels = np.array([[1, 1, 0], [0, 0, 1]], np.uint8)
    # TP 2, FP 1, FN 1
    assert micro_f1(scores, labels) == pytest.approx(2 / 3)
    assert micro_f1(-np.ones((2, 3)), np.zeros((2, 3))) == 0.0
    assert micro_f1(np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([1, 1])) == 0.5
    # Classes that nobody has and nobody is given do not count, as in scikit-learn.
    scores = np.eye(4)[[0, 2, 1, 0, 0, 1]]
    labels = np.array([0, 1, 2, 0, 1, 2])
    # Class 0: TP 2, FP 1, so 4/5; classes 1 and 2: no TP.
    assert macro_f1(scores, labels) == pytest.approx(0.8 / 3)
    several = np.array([[1.0, -1.0, -1.0], [1.0, 1.0, -1.0]])
    wanted = np.array([[1, 0, 0], [0, 1, 0]], np.uint8)
    assert macro_f1(several, wanted) == pytest.approx((2 / 3 + 1 + 0) / 3)


def test_errors_by_hand() -> None:
    """Of two columns, the mean of both: scikit-learn's uniform average."""
    scores = np.array([[1.0, 0.0], [3.0, 2.0], [9.0, 9.0]], np.float32)
    labels = np.array([[2.0, 4.0], [3.0, np.nan], [np.nan, np.nan]], np.float32)
    assert metrics.rmse(scores, labels) == pytest.approx((0.5**0.5 + 4) / 2)
    assert metrics.mae(scores, labels) == pytest.approx((0.5 + 4) / 2)
    assert metrics.rmse(scores[:, :1], labels[:, 0]) == pytest.approx(0.5**0.5)
    assert math.isnan(metrics.mae(scores, np.full((3, 2), np.nan)))
    assert {name for name in metrics.QUALITY if metrics.better(name, 0.1, 0.2)} == {"rmse", "mae"}
    assert not any(metrics.better(name, 0.1, 0.1) for name in metrics.QUALITY)


def test_throughput_by_hand() -> None:
    assert metrics.mteps(3_000_000, 2.0) == 1.5
    assert metrics.nvtps(500, 2.0) == 250.0


def test_classes_by_hand() -> None:
    """Of 5 vertices a, a, a, b, b the classes a, b, b, b, b are chosen; nobody has c."""
    counts = count_classes(np.eye(3)[[0, 1, 1, 1, 1]], np.array([0, 0, 0, 1, 1]))
    assert (counts.actual, counts.chosen, counts.right) == ((3, 2, 0), (1, 4, 0), (1, 2, 0))
    assert counts.confusion == ((1, 2, 0), (0, 2, 0), (0, 0, 0))
    assert counts.scores(1) == {"precision": 0.5, "recall": 1.0, "f1": pytest.approx(2 / 3)}
    assert counts.scores(2) == {"precision": None, "recall": None, "f1": None}
    scores = np.array([[1.0, -1.0], [1.0, 1.0], [-1.0, -1.0]])
    several = count_classes(scores, np.array([[1, 0], [0, 1], [1, 0]], np.uint8))
    assert (several.actual, several.chosen, several.right) == ((2, 1), (2, 1), (1, 1))
    assert several.confusion is None
    assert count_classes(np.eye(21), np.arange(21)).confusion is None
