"""Thresholds that a run chooses on its validation set."""

import logging
from collections.abc import Sequence

from gnnscale.core import Array, Float32Array, binary_metrics, count_classes

_LOG = logging.getLogger(__name__)
#: Largest number of classes that a warning names.
_MAX_NAMED = 10


def choose_thresholds(rule: str, outputs: Float32Array, labels: Array) -> binary_metrics.Thresholds:
    """Return the thresholds that ``rule`` chooses on the validation set, with scores at them.

    Warns of classes without positives, and of those without the precision in ``rule``. Arguments
    are as in ``binary_metrics.choose_thresholds``.
    """
    values = binary_metrics.choose_thresholds(rule, outputs, labels)
    counts = count_classes(binary_metrics.shifted(outputs, values), labels)
    classes = [1] if labels.ndim == 1 else range(len(values))
    least = binary_metrics.wanted_precision(rule) or 0.0
    absent = [c for c in classes if not counts.actual[c]]
    imprecise = [
        c for c in classes if counts.actual[c] and (counts.scores(c)["precision"] or 0.0) < least
    ]
    _warn(rule, "the validation set has no positives, and the threshold is 0.5", absent, classes)
    _warn(
        rule, "no threshold has this precision, and that of the best is taken", imprecise, classes
    )
    return binary_metrics.Thresholds(rule=rule, values=values, valid=counts.positive_scores())


def _warn(rule: str, problem: str, numbers: Sequence[int], classes: Sequence[int]) -> None:
    if not numbers:
        return
    names = ", ".join(map(str, numbers[:_MAX_NAMED])) + ", ..." * (len(numbers) > _MAX_NAMED)
    _LOG.warning(
        f"threshold={rule}: {problem}, for {len(numbers)} of {len(classes)} classes ({names})"
    )
