"""Rankings by scores: areas under curves, precision of the first rows, and thresholds."""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated

import numpy as np
from msgspec import Meta

from gnnscale.core.types import Array, BoolArray, Float64Array, Int64Array

#: Largest absolute logit of a threshold: float32 probabilities beyond are those of certainty.
_MAX_LOGIT = 16.0
#: Rule of the threshold with the best F1.
F1 = "f1"
_PRECISION_AT, _RECALL_AT_PRECISION = "precision_at_", "recall_at_precision_"
#: Names of metrics with a number, as examples in messages.
EXAMPLES = (f"{_PRECISION_AT}100", f"{_PRECISION_AT}0.01", f"{_RECALL_AT_PRECISION}0.9")
_COUNT = re.compile(r"[1-9]\d{0,8}", re.ASCII)
_SHARE = re.compile(r"0\.(?=\d*[1-9])\d{1,9}", re.ASCII)

#: Function from scores ``[n]`` and positives ``[n]`` to a value; at least one row is positive.
_Measure = Callable[[Array, BoolArray], float]


def _mean_over_labels(measure: _Measure, scores: Array, labels: Array) -> float:
    """Return ``measure`` of ``[n]`` labels of 0 and 1; its mean over columns if they have several.

    Columns without positives, and values of NaN, are left out; NaN: all are, or a score is NaN.
    """
    columns = [*_columns(scores, labels)]
    if any(np.isnan(column).any() for column, _ in columns):
        return float("nan")
    values = [measure(*column) for column in columns if column[1].any()]
    defined = [value for value in values if not np.isnan(value)]
    return float(np.mean(defined)) if defined else float("nan")


def _columns(scores: Array, labels: Array) -> Iterator[tuple[Array, BoolArray]]:
    """Yield scores ``[n]`` and positives ``[n]`` of each class; of two classes, of class 1."""
    if labels.ndim == 2:
        yield from zip(scores.T, labels.T > 0, strict=True)
        return
    if scores.ndim == 2:
        with np.errstate(invalid="ignore"):  # infinite logits of both classes: NaN
            scores = scores[:, 1].astype(np.float64) - scores[:, 0]
    yield scores, labels > 0


def roc_auc(scores: Array, labels: Array) -> float:
    """Return the area under the ROC curve; ties count half. NaN without positives or negatives.

    ``labels`` are ``[n]`` of 0 and 1, and ``scores`` ``[n]`` of the positive class or ``[n, 2]``
    logits. For multilabel both are ``[n, num_classes]``, and the result is the mean over classes
    with positives and negatives, as in OGB for ogbn-proteins.
    """
    return _mean_over_labels(_rank_auc, scores, labels)


def _rank_auc(scores: Array, positive: BoolArray) -> float:
    """Return the area under the ROC curve; equal scores share a mean rank. NaN: no negatives."""
    num_positive = int(np.count_nonzero(positive))
    num_negative = len(positive) - num_positive
    if not num_negative:
        return float("nan")
    _, group, counts = np.unique(scores, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    mean_rank = last - (counts - 1) / 2
    rank_sum = float(mean_rank[group.reshape(-1)][positive].sum())
    smallest = num_positive * (num_positive + 1) / 2
    return (rank_sum - smallest) / (num_positive * num_negative)


def _cutoffs(scores: Array, positive: BoolArray) -> tuple[Int64Array, Int64Array, Array]:
    """Return true positives, chosen rows and score of each distinct score as threshold, ``[k]``."""
    order = np.argsort(-scores, kind="stable")
    ranked = scores[order]
    last = np.append(ranked[1:] != ranked[:-1], True)
    return np.cumsum(positive[order])[last], np.flatnonzero(last) + 1, ranked[last]


def average_precision(scores: Array, labels: Array) -> float:
    """Return the sum over thresholds of precision times increase in recall; NaN without positives.

    ``labels`` are ``[n]`` of 0 and 1, ``scores`` ``[n]``, or ``[n, 2]`` logits; for multilabel
    both are ``[n, num_classes]``, and the result is the mean over classes with positives.
    """
    return _mean_over_labels(_precision, scores, labels)


def _precision(scores: Array, positive: BoolArray) -> float:
    """Return the average precision of ``[n]`` scores; equal scores are one threshold."""
    right, chosen, _ = _cutoffs(scores, positive)
    return float(np.sum(np.diff(right, prepend=0) * right / chosen) / right[-1])


def precision_at(first: float, scores: Array, labels: Array) -> float:
    """Return the share of positives among the rows of highest scores; NaN without positives.

    Rows whose scores equal the last one's count by their share of positives, which is the mean over
    their orders. Labels and scores are as in ``average_precision``.

    Args:
        first: number of rows, at most all; below 1 their share, rounded up.
    """
    return _mean_over_labels(partial(_precision_at, first), scores, labels)


def _precision_at(first: float, scores: Array, positive: BoolArray) -> float:
    right, chosen, _ = _cutoffs(scores, positive)
    count = first if first >= 1 else math.ceil(round(first * len(scores), 9))
    count = min(count, len(scores))
    return float(np.interp(count, [0, *chosen], [0, *right]) / count)


def recall_at_precision(least: float, scores: Array, labels: Array) -> float:
    """Return the best recall of the thresholds with a precision of at least ``least``, or 0.

    NaN without positives. Labels and scores are as in ``average_precision``.
    """
    return _mean_over_labels(partial(_recall_at_precision, least), scores, labels)


def _recall_at_precision(least: float, scores: Array, positive: BoolArray) -> float:
    right, chosen, _ = _cutoffs(scores, positive)
    return float(np.max(right, where=right / chosen >= least, initial=0) / right[-1])


def base_rate(labels: Array) -> float:
    """Return the share of positives, which random scores reach as average precision.

    ``labels`` are as in ``average_precision``. NaN without positives.
    """
    return _mean_over_labels(
        lambda _, positive: float(positive.mean()), np.zeros(labels.shape), labels
    )


def find_ranking(name: str) -> Callable[[Array, Array], float] | None:
    """Return the metric of a name with a number, one like ``EXAMPLES``; None: another name."""
    first = name.removeprefix(_PRECISION_AT)
    if first != name and (_COUNT.fullmatch(first) or _SHARE.fullmatch(first)):
        return partial(precision_at, float(first))
    least = wanted_precision(name)
    return None if least is None else partial(recall_at_precision, least)


def is_rule(rule: str) -> bool:
    """Whether ``choose_thresholds`` takes ``rule``."""
    return rule == F1 or wanted_precision(rule) is not None


def wanted_precision(rule: str) -> float | None:
    """Return the precision in ``recall_at_precision_P``; None: another name."""
    least = rule.removeprefix(_RECALL_AT_PRECISION)
    is_share = least == "1" or _SHARE.fullmatch(least) is not None
    return float(least) if least != rule and is_share else None


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Probabilities from which on classes are predicted, chosen on the validation set."""

    rule: str  #: ``F1``, or ``recall_at_precision_P``
    #: of class 1 for two classes; for multilabel of each class
    values: tuple[Annotated[float, Meta(gt=0, lt=1)], ...]
    #: ``precision``, ``recall`` and ``f1`` of validation, see ``ClassCounts.positive_scores``
    valid: dict[str, float | None] = field(default_factory=dict)


def choose_thresholds(rule: str, scores: Array, labels: Array) -> tuple[float, ...]:
    """Return the threshold of class 1 of two, or of each class of multilabel.

    A threshold is between two scores. Of equally good ones the highest is taken. A class without
    positives, or with a NaN score, keeps 0.5.

    Args:
        rule: ``F1``, for the best F1; or ``recall_at_precision_P``, for the best recall at this
            precision, and the best precision if no threshold has it.
        scores: ``[n, 2]`` logits, or for multilabel ``[n, num_classes]``.
        labels: ``[n]`` of 0 and 1, or ``[n, num_classes]``.
    """
    return tuple(
        _best_threshold(rule, column, positive)
        if positive.any() and not np.isnan(column).any()
        else 0.5
        for column, positive in _columns(scores, labels)
    )


def _best_threshold(rule: str, scores: Array, positive: BoolArray) -> float:
    """Return the probability halfway, in logits, to the next score; 0.5 if all are 0."""
    right, chosen, cuts = _cutoffs(np.minimum(scores.astype(np.float64), _MAX_LOGIT), positive)
    num_cuts = int(np.count_nonzero(cuts >= -_MAX_LOGIT))
    if not num_cuts:
        return 0.5
    total, right, chosen = right[-1], right[:num_cuts], chosen[:num_cuts]
    precision, least = right / chosen, wanted_precision(rule)
    if least is None:
        best = int(np.argmax(2 * right / (chosen + total)))
    else:
        allowed = precision >= min(least, precision.max())
        best = int(np.argmax(np.where(allowed, right, -1)))
    following = cuts[best + 1] if best + 1 < len(cuts) else cuts[best] - 1
    following = max(following, -_MAX_LOGIT - 1)
    return 1 / (1 + math.exp(-(cuts[best] + following) / 2))


def shifted(scores: Array, thresholds: Sequence[float]) -> Float64Array:
    """Return logits that decide at 0.5 as ``scores`` ``[n, width]`` do at ``thresholds``.

    There is one threshold, of class 1 of two, or one for each of ``width`` classes.
    """
    values = np.array(thresholds)
    shift = np.zeros(scores.shape[1])
    shift[-len(values) :] = np.log(values) - np.log1p(-values)
    return np.asarray(scores.astype(np.float64) - shift)
