import math
from itertools import pairwise, permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnscale.core import find_metric
from gnnscale.core.binary_metrics import (
    average_precision,
    base_rate,
    choose_thresholds,
    precision_at,
    recall_at_precision,
    roc_auc,
    shifted,
    wanted_precision,
)
from gnnscale.core.metrics import count_classes


def test_areas_under_curves_by_hand() -> None:
    for scores, labels, expected in (
        # The first is the example of scikit-learn's documentation.
        ([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1], 1 / 2 * 1 + 1 / 2 * 2 / 3),
        ([1, 1, 1, 1], [0, 1, 0, 1], 0.5),
        ([3, 2, 2, 1], [0, 1, 0, 1], 1 / 2 * 1 / 3 + 1 / 2 * 2 / 4),
    ):
        assert average_precision(np.array(scores), np.array(labels)) == pytest.approx(expected)
        logits = np.stack([np.zeros(4), scores], axis=1)
        assert average_precision(logits, np.array(labels)) == pytest.approx(expected)
        twice = np.stack([scores, scores, scores], axis=1)
        of_all = np.stack([labels, np.zeros(4), np.ones(4)], axis=1)
        assert average_precision(twice, of_all) == pytest.approx((expected + 1) / 2)
    # The example of scikit-learn's documentation, as scores and as logits.
    scores, labels = np.array([0.1, 0.4, 0.35, 0.8]), np.array([0, 0, 1, 1])
    assert roc_auc(scores, labels) == pytest.approx(0.75)
    assert roc_auc(np.stack([np.zeros(4), scores], axis=1), labels) == pytest.approx(0.75)
    scores = np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 2.0]])
    labels = np.array([[0, 0, 1], [1, 1, 1]])
    assert roc_auc(scores, labels) == pytest.approx((1.0 + 0.5) / 2)
    assert math.isnan(average_precision(np.array([1.0, 2.0]), np.array([0, 0])))
    assert math.isnan(average_precision(np.zeros((0, 2)), np.zeros(0, np.int64)))
    assert math.isnan(roc_auc(np.array([1.0, 2.0]), np.array([1, 1])))


@given(
    st.lists(st.tuples(st.integers(-4, 4), st.booleans()), min_size=2, max_size=40).filter(
        lambda rows: len({label for _, label in rows}) == 2
    )
)
def test_roc_auc_is_the_chance_to_outrank(rows: list[tuple[int, bool]]) -> None:
    positive = [value for value, label in rows if label]
    negative = [value for value, label in rows if not label]
    wins = sum((p > n) + (p == n) / 2 for p in positive for n in negative)
    scores, labels = np.array([v for v, _ in rows]), np.array([int(x) for _, x in rows])
    assert roc_auc(scores, labels) == pytest.approx(wins / (len(positive) * len(negative)))


#: Scores with many ties, some infinite, and whether each is positive; at least one is.
RANKED = st.lists(
    st.tuples(st.sampled_from([-math.inf, -2.0, -1.0, 0.0, 0.5, 3.0, math.inf]), st.booleans()),
    min_size=1,
    max_size=30,
).filter(lambda rows: any(positive for _, positive in rows))


def arrays_of(rows: list[tuple[float, bool]]) -> tuple[Any, Any]:
    return np.array([score for score, _ in rows]), np.array([int(label) for _, label in rows])


def recall_and_precision(cut: float, scores: Any, labels: Any) -> tuple[float, float]:
    chosen = scores >= cut
    right = np.count_nonzero(chosen & (labels > 0))
    return right / np.count_nonzero(labels), right / np.count_nonzero(chosen)


@given(RANKED, st.sampled_from([0.2, 0.5, 0.75, 1.0]))
def test_rankings_are_those_of_every_threshold_tried(rows, least) -> None:
    scores, labels = arrays_of(rows)
    points = [recall_and_precision(cut, scores, labels) for cut in sorted(set(scores))[::-1]]
    best = max((recall for recall, precision in points if precision >= least), default=0.0)
    assert recall_at_precision(least, scores, labels) == pytest.approx(best)
    before = [0.0, *(recall for recall, _ in points)]
    area = sum((r - b) * p for (r, p), b in zip(points, before, strict=False))
    assert average_precision(scores, labels) == pytest.approx(area)
    assert base_rate(labels) == pytest.approx(labels.mean())


@given(RANKED.filter(lambda rows: len(rows) <= 6), st.integers(1, 8))
def test_ties_at_the_last_place_count_by_the_mean_of_their_orders(rows, k) -> None:
    scores, labels = arrays_of(rows)
    shares = []
    for order in map(list, permutations(range(len(rows)))):
        if all(scores[a] >= scores[b] for a, b in pairwise(order)):
            first = order[:k]
            shares.append(labels[first].sum() / len(first))
    assert precision_at(k, scores, labels) == pytest.approx(np.mean(shares))


def test_precision_of_the_first_by_hand() -> None:
    scores, labels = (
        np.array([5.0, 4, 3, 2, 1, 1, 1, 1, 0, 0]),
        np.array([1, 0, 1, 0, 1, 0, 0, 0, 0, 0]),
    )
    assert precision_at(1, scores, labels) == 1
    assert precision_at(3, scores, labels) == pytest.approx(2 / 3)
    assert precision_at(0.3, scores, labels) == pytest.approx(2 / 3)
    assert precision_at(0.21, scores, labels) == pytest.approx(2 / 3)  # rounded up
    assert precision_at(6, scores, labels) == pytest.approx(2.5 / 6)
    assert precision_at(1000, scores, labels) == base_rate(labels) == 0.3
    several = np.stack([labels, np.zeros(10, int), 1 - labels], axis=1)
    of_each = np.stack([scores, scores, scores], axis=1)
    assert precision_at(1, of_each, several) == 0.5  # the class that nobody has does not count
    assert base_rate(several) == pytest.approx(0.5)


@pytest.mark.parametrize("name", ["precision_at_2", "recall_at_precision_0.5", "average_precision"])
def test_what_cannot_be_ranked_is_not_defined(name: str) -> None:
    found = find_metric(name)
    assert found is not None
    measure = found.function
    assert math.isnan(measure(np.array([1.0, 2.0]), np.array([0, 0])))
    assert math.isnan(measure(np.zeros((0, 2)), np.zeros(0, np.int64)))
    assert math.isnan(measure(np.array([1.0, np.nan]), np.array([0, 1])))
    assert math.isnan(measure(np.full((2, 2), np.inf), np.array([0, 1])))
    constant = measure(np.zeros((4, 2)), np.array([0, 1, 0, 1]))
    assert constant == (1.0 if name.startswith("recall") else 0.5)


def test_names_with_numbers() -> None:
    scores, labels = np.array([3.0, 2, 1]), np.array([1, 0, 1])
    for name, expected in (
        ("precision_at_2", 0.5),
        ("precision_at_0.5", 0.5),
        ("recall_at_precision_0.6", 1.0),
        ("recall_at_precision_1", 0.5),
    ):
        metric = find_metric(name)
        assert metric is not None
        assert metric.function(scores, labels) == expected
        assert metric.two_classes
    for name in (
        *("precision_at_0", "precision_at_1.5", "precision_at_0.0", "precision_at_-1"),
        *("precision_at_", "precision_at_1e3", "precision_at_٣", "precision_at_1\n"),
        *("recall_at_precision_0", "recall_at_precision_2", "recall_at_precision_nan", "f1"),
    ):
        assert find_metric(name) is None
    assert wanted_precision("recall_at_precision_0.9") == 0.9
    assert wanted_precision("0.9") is None


def decided(rule: str, scores: Any, labels: Any) -> dict[str, float | None]:
    """Precision, recall and F1 of class 1 at the threshold that ``rule`` chooses."""
    logits = np.stack([np.zeros(len(scores)), scores], axis=1).astype(np.float32)
    values = choose_thresholds(rule, logits, labels)
    assert all(0 < value < 1 for value in values)
    return count_classes(shifted(logits, values), labels).positive_scores()


@given(RANKED, st.sampled_from([0.2, 0.5, 0.75, 1.0]))
def test_chosen_thresholds_are_the_best_of_all(rows, least) -> None:
    scores, labels = arrays_of(rows)
    # A probability of 0 is below every threshold.
    cuts = {*scores} - {-math.inf}
    points = [recall_and_precision(cut, scores, labels) for cut in cuts] or [(0.0, 0.0)]
    best = max(2 * r * p / (r + p) if r + p else 0.0 for r, p in points)
    assert decided("f1", scores, labels)["f1"] == pytest.approx(best)
    found = decided(f"recall_at_precision_{least:g}", scores, labels)
    reached = [recall for recall, precision in points if precision >= least]
    if reached:
        assert found["recall"] == pytest.approx(max(reached))
        assert found["precision"] >= least
    else:
        assert (found["precision"] or 0.0) == pytest.approx(
            max(precision for _, precision in points)
        )


def test_thresholds_of_several_classes_by_hand() -> None:
    """Class 0 is best between 1 and 3, class 1 has no positives, a score of class 2 is NaN."""
    scores = np.array([[3.0, 1, 0], [1, 2, np.nan], [0, 3, 1]], np.float32)
    labels = np.array([[1, 0, 1], [0, 0, 1], [0, 0, 0]])
    values = choose_thresholds("f1", scores, labels)
    assert values == (pytest.approx(1 / (1 + math.exp(-2))), 0.5, 0.5)
    assert (shifted(scores, values)[:, 0] > 0).tolist() == [True, False, False]
    # A given threshold of 0.5 is that of the highest logit.
    logits = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    assert np.array_equal(shifted(logits, [0.5]), logits)
    probability = 1 / (1 + np.exp(logits[:, 0] - logits[:, 1]))
    assert np.array_equal(shifted(logits, [0.8]).argmax(axis=1) == 1, probability > 0.8)
    # The highest of equally good thresholds, though all scores are certain in float32.
    assert choose_thresholds("f1", logits[:2] * 0 + [[0, 90]], np.array([1, 1]))[0] < 1
