"""Metrics of a run: throughput, peak memory, and quality of predictions."""

import resource
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gnnscale.core import binary_metrics
from gnnscale.core.errors import ConfigError, brief
from gnnscale.core.types import Array, Float64Array


def mteps(num_edges: float, seconds: float) -> float:
    """Return million edges per second (HyScale-GNN eq. 5) of the sum over layers of |E^l|."""
    return num_edges / seconds / 1e6


def nvtps(num_vertices: int, seconds: float) -> float:
    """Return vertices per second (HitGNN eq. 3) of the sum over layers of |V^l|."""
    return num_vertices / seconds


def peak_rss_bytes() -> int:
    """Return the largest resident set of this process so far, file-backed pages included."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def accuracy(scores: Array, labels: Array) -> float:
    """Return the share of right predictions: of vertices or, for multilabel, of all 0/1 entries.

    ``scores`` are ``[n, num_classes]`` logits: the first maximum is the class; for multilabel every
    positive logit is a label. ``labels`` are ``[n]`` classes, or ``[n, num_classes]`` of 0 and 1.
    """
    if labels.ndim == 2:
        return float(np.mean((scores > 0) == (labels > 0)))
    return float(np.mean(scores.argmax(axis=1) == labels))


def micro_f1(scores: Array, labels: Array) -> float:
    """Return F1 with counts summed over classes, 2 TP / (2 TP + FP + FN).

    ``scores`` are ``[n, num_classes]`` logits, ``labels`` ``[n]`` classes (F1 is then accuracy), or
    ``[n, num_classes]`` of 0 and 1.
    """
    if labels.ndim == 1:
        return accuracy(scores, labels)
    predicted, actual = scores > 0, labels > 0
    true_positives = int(np.count_nonzero(predicted & actual))
    decisions = int(np.count_nonzero(predicted)) + int(np.count_nonzero(actual))
    return 2 * true_positives / decisions if decisions else 0.0


def macro_f1(scores: Array, labels: Array) -> float:
    """Return the unweighted mean over classes of F1, 2 TP / (2 TP + FP + FN).

    ``scores`` are logits, ``labels`` ``[n]`` classes, or ``[n, num_classes]`` of 0 and 1. A class
    that is neither a label nor predicted is left out; for multilabel its F1 is 0.
    """
    actual, predicted, right = _counts(scores, labels)
    decisions = actual + predicted
    counts = decisions > 0 if labels.ndim == 1 else slice(None)
    return float(np.mean(2 * right[counts] / np.maximum(decisions[counts], 1)))


def _counts(scores: Array, labels: Array) -> Array:
    """Return ``[3, num_classes]`` labels, predictions and true positives of each class."""
    if labels.ndim == 2:
        positive, actual = scores > 0, labels > 0
        matrices = (actual, positive, actual & positive)
        return np.stack([np.count_nonzero(matrix, axis=0) for matrix in matrices])
    predicted = scores.argmax(axis=1)
    class_lists = (labels, predicted, labels[predicted == labels])
    return np.stack([np.bincount(classes, minlength=scores.shape[1]) for classes in class_lists])


#: Largest number of classes for which a confusion matrix is reported.
MAX_CONFUSION = 20


@dataclass(frozen=True, kw_only=True)
class ClassCounts:
    """Result of ``count_classes``: each class's labels, predictions and true positives."""

    actual: tuple[int, ...]  #: vertices labeled with the class
    chosen: tuple[int, ...]  #: vertices predicted to have the class
    right: tuple[int, ...]  #: true positives
    #: ``[num_classes][num_classes]`` vertices by actual class (row) and predicted class (column).
    #: None: multilabel, or more than ``MAX_CONFUSION`` classes
    confusion: tuple[tuple[int, ...], ...] | None = None

    def scores(self, number: int) -> dict[str, float | None]:
        """Return ``precision``, ``recall`` and ``f1`` of class ``number``; None: division by 0."""
        actual, predicted, right = self.actual[number], self.chosen[number], self.right[number]
        return {
            "precision": right / predicted if predicted else None,
            "recall": right / actual if actual else None,
            "f1": 2 * right / (actual + predicted) if actual + predicted else None,
        }

    def positive_scores(self) -> dict[str, float | None]:
        """Return ``scores`` of class 1 of two; for multilabel, of counts summed over classes."""
        if self.confusion is not None:
            return self.scores(1)
        sums = {name: (sum(getattr(self, name)),) for name in ("actual", "chosen", "right")}
        return ClassCounts(**sums).scores(0)


def count_classes(scores: Array, labels: Array) -> ClassCounts:
    """Return each class's labels, predictions and true positives, and the confusion matrix.

    ``scores`` are ``[n, num_classes]`` logits, ``labels`` ``[n]`` classes, or 0/1 rows.
    """
    actual, chosen, right = map(tuple, _counts(scores, labels).tolist())
    confusion, width = None, scores.shape[1]
    if labels.ndim == 1 and width <= MAX_CONFUSION:
        pairs = np.bincount(labels * width + scores.argmax(axis=1), minlength=width * width)
        confusion = tuple((*row,) for row in pairs.reshape(width, width).tolist())
    return ClassCounts(actual=actual, chosen=chosen, right=right, confusion=confusion)


def rmse(scores: Array, labels: Array) -> float:
    """Return the root mean squared error, averaged over columns; NaN without known labels.

    ``scores`` are ``[n, width]`` predictions, ``labels`` ``[n]`` or ``[n, width]`` targets, of
    which NaN is unknown and does not count.
    """
    return _mean_over_columns(lambda errors: float(np.sqrt(np.mean(errors**2))), scores, labels)


def mae(scores: Array, labels: Array) -> float:
    """Return the mean absolute error as ``rmse`` does the root mean squared one."""
    return _mean_over_columns(lambda errors: float(np.mean(np.abs(errors))), scores, labels)


def _mean_over_columns(
    measure: Callable[[Float64Array], float], scores: Array, labels: Array
) -> float:
    """Return the mean of ``measure`` over columns, of the errors of known labels; NaN: none is."""
    labels = labels.reshape(len(labels), -1)
    errors = scores.reshape(labels.shape).astype(np.float64) - labels
    known_errors = [column[~np.isnan(column)] for column in errors.T]
    values = [measure(column) for column in known_errors if len(column)]
    return float(np.mean(values)) if values else float("nan")


@dataclass(frozen=True)
class Metric:
    """Quality metric: function of predictions and labels, kinds of labels, and direction."""

    #: takes ``[n, width]`` float32 outputs, and labels
    function: Callable[[Array, Array], float]
    #: kinds of labels: ``classes``, ``multilabel`` or ``regression``
    labels: tuple[str, ...]
    lower_is_better: bool = False
    two_classes: bool = False  #: whether single-label graphs must have two classes
    decides: bool = False  #: whether it depends on predicted classes, and so on thresholds
    finds_positives: bool = False  #: whether its value means little without the base rate


_CLASSES = ("classes", "multilabel")
#: Quality metrics by their name in options, stores and reports; ``find_metric`` knows more names.
QUALITY = {
    "accuracy": Metric(accuracy, _CLASSES, decides=True),
    "macro_f1": Metric(macro_f1, _CLASSES, decides=True),
    "micro_f1": Metric(micro_f1, _CLASSES, decides=True),
    "roc_auc": Metric(binary_metrics.roc_auc, _CLASSES, two_classes=True),
    "average_precision": Metric(
        binary_metrics.average_precision, _CLASSES, two_classes=True, finds_positives=True
    ),
    "rmse": Metric(rmse, ("regression",), lower_is_better=True),
    "mae": Metric(mae, ("regression",), lower_is_better=True),
}


def find_metric(name: str) -> Metric | None:
    """Return the metric of a key of ``QUALITY`` or a name like those of ``EXAMPLES``, else None."""
    function = binary_metrics.find_ranking(name)
    if function is None:
        return QUALITY.get(name)
    return Metric(function, _CLASSES, two_classes=True, finds_positives=True)


def check_metric(option: str, name: str) -> Metric:
    """Return the metric named ``name``, or raise ConfigError, naming ``option``."""
    metric = find_metric(name)
    if metric is None:
        names = (*QUALITY, *binary_metrics.EXAMPLES)
        raise ConfigError(f"{option}={brief(name)}: allowed are {', '.join(names)}")
    return metric


def score(
    metric: str, scores: Array, labels: Array, thresholds: Sequence[float] | None = None
) -> float:
    """Return the value of the metric named ``metric``; NaN if undefined.

    ``thresholds``, of ``binary_metrics.shifted``, decide about predicted classes; None: 0.5.
    """
    quality = check_metric("metrics", metric)
    if quality.decides and thresholds is not None:
        scores = binary_metrics.shifted(scores, thresholds)
    return quality.function(scores, labels)


def better(metric: str, value: float, than: float) -> bool:
    """Whether ``value`` is better than ``than``: lower for RMSE and MAE, higher for all others."""
    quality = find_metric(metric)
    return value < than if quality is not None and quality.lower_is_better else value > than


_PROC = Path("/proc/self")
#: Content for ``clear_refs`` that resets the peak of the resident set (proc(5)).
_RESET_PEAK = "5"


class PeakMemory:
    """Peak of this process's resident memory since construction, and of children on request."""

    def __init__(self, proc: Path = _PROC) -> None:
        self._proc = proc
        self._with_child = 0
        #: resident bytes at construction; None if unknown
        self.initial = _status_bytes(proc, "VmRSS")
        #: whether the peak counts from the start of the process: the system could not reset it
        self.since_start = not _reset(proc)

    @property
    def bytes(self) -> int | None:
        """Peak in bytes; None if unknown."""
        peak = _status_bytes(self._proc, "VmHWM")
        return None if peak is None else max(peak, self._with_child)

    def add_child(self, num_bytes: int) -> None:
        """Raise the peak, if lower, to this process's present memory plus a child's peak."""
        resident = _status_bytes(self._proc, "VmRSS") or 0
        self._with_child = max(self._with_child, resident + num_bytes)


_watched: list[PeakMemory] = []


@contextmanager
def watch_peak() -> Iterator[PeakMemory]:
    """Yield a ``PeakMemory`` of the block and of child processes reported by ``note_child``."""
    peak = PeakMemory()
    _watched.append(peak)
    try:
        yield peak
    finally:
        _watched.remove(peak)


def note_child(num_bytes: int) -> None:
    """Report a child process's peak to the ``PeakMemory`` of each open ``watch_peak`` block."""
    for peak in _watched:
        peak.add_child(num_bytes)


def _reset(proc: Path) -> bool:
    try:
        (proc / "clear_refs").write_text(_RESET_PEAK)
    except OSError:
        return False
    return True


def _status_bytes(proc: Path, name: str) -> int | None:
    try:
        lines = (proc / "status").read_text().splitlines()
    except OSError:
        return None
    entry = next((line for line in lines if line.startswith(f"{name}:")), None)
    return None if entry is None else int(entry.split()[1]) * 1024
