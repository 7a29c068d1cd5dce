import numpy as np
import pytest

from gnnscale.inference.thresholds import choose_thresholds


def test_scores_at_a_threshold_by_hand(caplog: pytest.LogCaptureFixture) -> None:
    """The best F1 is that of the first two: both positives, and nothing else."""
    scores = np.array([3.0, 2, 1, 0], np.float32)
    outputs = np.stack([np.zeros(4, np.float32), scores], axis=1)
    thresholds = choose_thresholds("f1", outputs, np.array([1, 1, 0, 0]))
    assert thresholds.values == (pytest.approx(1 / (1 + np.exp(-1.5))),)
    assert thresholds.valid == {"precision": 1.0, "recall": 1.0, "f1": 1.0}
    assert not caplog.messages


def test_classes_without_a_good_threshold_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """Of 13 classes the first has a perfect threshold, and the second one of precision a half."""
    scores = np.tile(np.array([3.0, 2, 1, 0], np.float32)[:, None], 13)
    labels = np.zeros((4, 13), np.int64)
    labels[0, 0] = labels[1, 1] = 1
    thresholds = choose_thresholds("recall_at_precision_0.9", scores, labels)
    assert thresholds.values[2:] == (0.5,) * 11
    # Class 0: 1 of 1; class 1: 1 of 2; the others: 3 of 4 scores are above 0.
    assert thresholds.valid["precision"] == pytest.approx(2 / (1 + 2 + 11 * 3))
    assert caplog.messages == [
        "threshold=recall_at_precision_0.9: the validation set has no positives, and the threshold "
        "is 0.5, for 11 of 13 classes (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, ...)",
        "threshold=recall_at_precision_0.9: no threshold has this precision, and that of the best "
        "is taken, for 1 of 13 classes (1)",
    ]
    caplog.clear()
    choose_thresholds("f1", np.zeros((0, 2), np.float32), np.zeros(0, np.int64))
    assert "the validation set has no positives" in caplog.text
