"""What a run measures: throughput, memory, and how good its predictions are."""

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gnnscale.core.types import Array, Float64Array


def mteps(num_edges: float, seconds: float) -> float:
    """Million traversed edges per second, HyScale-GNN eq. 5: sum over layers of |E^l| / T_exec."""
    return num_edges / seconds / 1e6


def nvtps(num_vertices: int, seconds: float) -> float:
    """Vertices traversed per second, HitGNN eq. 3: sum over layers of |V^l| / t_parallel."""
    return num_vertices / seconds


def peak_rss_bytes() -> int:
    """Largest resident set of this process so far, in bytes (file-backed pages included)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def accuracy(scores: Array, labels: Array) -> float:
    """Fraction of right decisions: one for each vertex, or one for each of its possible labels.

    Args:
        scores: ``[n, num_classes]`` logits. The first highest is the class; with several labels
            every positive logit is a label.
        labels: ``[n]`` classes, or ``[n, num_classes]`` of 0 and 1.
    """
    if labels.ndim == 2:
        return float(np.mean((scores > 0) == (labels > 0)))
    return float(np.mean(scores.argmax(axis=1) == labels))


def micro_f1(scores: Array, labels: Array) -> float:
    """F1 of all decisions pooled, 2 TP / (2 TP + FP + FN); 0 if nothing is or should be chosen.

    Arguments as for ``accuracy``, which equals micro-F1 if a vertex has one label.
    """
    if labels.ndim == 1:
        return accuracy(scores, labels)
    chosen, wanted = scores > 0, labels > 0
    true_positives = int(np.count_nonzero(chosen & wanted))
    decisions = int(np.count_nonzero(chosen)) + int(np.count_nonzero(wanted))
    return 2 * true_positives / decisions if decisions else 0.0


def roc_auc(scores: Array, labels: Array) -> float:
    """Area under the ROC curve: the chance that a positive outranks a negative, ties half.

    Args:
        scores: ``[n]`` of the positive class, or ``[n, 2]`` logits, or ``[n, num_classes]`` for
            several labels: the mean over the classes that have both positives and negatives counts
            (as OGB does for ogbn-proteins).
        labels: ``[n]`` of 0 and 1, or ``[n, num_classes]`` of 0 and 1.

    Returns:
        The area, or NaN if no class has both positives and negatives.
    """
    return _mean_over_labels(_rank_auc, scores, labels)


def _mean_over_labels(
    measure: Callable[[Array, Array], float], scores: Array, labels: Array
) -> float:
    """Return the measure of two classes, or its mean over the labels for which it is defined."""
    if labels.ndim == 2:
        found = [measure(scores[:, c], labels[:, c]) for c in range(labels.shape[1])]
        known = [each for each in found if not np.isnan(each)]
        return float(np.mean(known)) if known else float("nan")
    if scores.ndim == 2:
        scores = scores[:, 1].astype(np.float64) - scores[:, 0]
    return measure(scores, labels)


def _rank_auc(scores: Array, labels: Array) -> float:
    """The Mann-Whitney statistic; equal scores share the mean of their ranks."""
    positive = labels > 0
    num_positive = int(np.count_nonzero(positive))
    num_negative = len(labels) - num_positive
    if not num_positive or not num_negative:
        return float("nan")
    _, group, counts = np.unique(scores, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    mean_rank = last - (counts - 1) / 2
    rank_sum = float(mean_rank[group.reshape(-1)][positive].sum())
    smallest = num_positive * (num_positive + 1) / 2
    return (rank_sum - smallest) / (num_positive * num_negative)


def macro_f1(scores: Array, labels: Array) -> float:
    """Mean over classes of F1, 2 TP / (2 TP + FP + FN), each class with equal weight.

    Args:
        scores: ``[n, num_classes]`` logits, as for ``micro_f1``.
        labels: ``[n]`` classes, of which those count that a vertex has or is given; or
            ``[n, num_classes]`` of 0 and 1, of which all count, with 0 for one that no vertex has.
    """
    if labels.ndim == 1:
        classes = np.arange(scores.shape[1])
        chosen = scores.argmax(axis=1)
        right = np.bincount(labels[chosen == labels], minlength=len(classes))
        decisions = np.bincount(chosen, minlength=len(classes))
        decisions = decisions + np.bincount(labels, minlength=len(classes))
        counts = decisions > 0
        return float(np.mean(2 * right[counts] / decisions[counts]))
    chosen, wanted = scores > 0, labels > 0
    right = np.count_nonzero(chosen & wanted, axis=0)
    decisions = np.count_nonzero(chosen, axis=0) + np.count_nonzero(wanted, axis=0)
    return float(np.mean(2 * right / np.maximum(decisions, 1)))


#: More classes are too many for a table of which is taken for which.
MAX_CONFUSION = 20


@dataclass(frozen=True, kw_only=True)
class ClassCounts:
    """How predictions meet labels, class by class."""

    wanted: tuple[int, ...]  #: vertices that have the class
    chosen: tuple[int, ...]  #: vertices that are predicted to have it
    right: tuple[int, ...]  #: those of both
    #: ``[num_classes][num_classes]`` vertices of the row's class that are predicted to be of the
    #: column's; None for multilabel, and above ``MAX_CONFUSION`` classes
    confusion: tuple[tuple[int, ...], ...] | None = None

    def scores(self, number: int) -> dict[str, float | None]:
        """Return precision, recall and F1 of a class; None for one that divides by 0."""
        wanted, chosen, right = self.wanted[number], self.chosen[number], self.right[number]
        return {
            "precision": right / chosen if chosen else None,
            "recall": right / wanted if wanted else None,
            "f1": 2 * right / (wanted + chosen) if wanted + chosen else None,
        }


def count_classes(scores: Array, labels: Array) -> ClassCounts:
    """Count the decisions of each class.

    Args:
        scores: ``[n, num_classes]`` logits, as for ``accuracy``.
        labels: ``[n]`` classes, or ``[n, num_classes]`` of 0 and 1.
    """
    if labels.ndim == 2:
        chosen, wanted = scores > 0, labels > 0
        found = (wanted, chosen, wanted & chosen)
        counts = [np.count_nonzero(each, axis=0).tolist() for each in found]
        return ClassCounts(wanted=(*counts[0],), chosen=(*counts[1],), right=(*counts[2],))
    width = scores.shape[1]
    picked = scores.argmax(axis=1)
    found_of = (labels, picked, labels[picked == labels])
    counts = [np.bincount(each, minlength=width).tolist() for each in found_of]
    confusion = None
    if width <= MAX_CONFUSION:
        pairs = np.bincount(labels * width + picked, minlength=width * width)
        confusion = tuple((*row,) for row in pairs.reshape(width, width).tolist())
    return ClassCounts(
        wanted=(*counts[0],), chosen=(*counts[1],), right=(*counts[2],), confusion=confusion
    )


def average_precision(scores: Array, labels: Array) -> float:
    """Sum of precisions at each threshold times the growth of the recall; NaN without any label.

    Arguments as for ``roc_auc``. Of several labels, classes that some vertex has count.
    """
    return _mean_over_labels(_precision, scores, labels)


def _precision(scores: Array, labels: Array) -> float:
    """Average precision of one class; equal scores are one threshold."""
    order = np.argsort(-scores, kind="stable")
    right = np.cumsum(labels[order] > 0)
    if not len(right) or not right[-1]:
        return float("nan")
    last = np.append(np.diff(scores[order]) != 0, True)
    right, chosen = right[last], np.flatnonzero(last) + 1
    return float(np.sum(np.diff(right, prepend=0) * right / chosen) / right[-1])


def rmse(scores: Array, labels: Array) -> float:
    """Mean over columns of the root mean squared error; NaN if no label is known.

    Args:
        scores: ``[n, width]`` predicted numbers.
        labels: ``[n]`` or ``[n, width]`` numbers; unknown ones are NaN and do not count.
    """
    return _of_columns(lambda errors: float(np.sqrt(np.mean(errors**2))), scores, labels)


def mae(scores: Array, labels: Array) -> float:
    """Mean absolute error of each column, and their mean; arguments and result as of ``rmse``."""
    return _of_columns(lambda errors: float(np.mean(np.abs(errors))), scores, labels)


def _of_columns(measure: Callable[[Float64Array], float], scores: Array, labels: Array) -> float:
    """Measure the errors of each column whose labels are known, and return the mean."""
    labels = labels.reshape(len(labels), -1)
    errors = scores.reshape(labels.shape).astype(np.float64) - labels
    known = [column[~np.isnan(column)] for column in errors.T]
    found = [measure(column) for column in known if len(column)]
    return float(np.mean(found)) if found else float("nan")


@dataclass(frozen=True)
class Metric:
    """How good predictions are."""

    #: from ``[n, width]`` float32 outputs and labels
    function: Callable[[Array, Array], float]
    #: the labels that it is of: ``classes``, ``multilabel`` or ``regression``
    labels: tuple[str, ...]
    lower_is_better: bool = False  #: an error, and no score
    two_classes: bool = False  #: with one label a vertex, whether it is of two classes alone


_CLASSES = ("classes", "multilabel")
#: By the name that options, stores and reports have for it.
QUALITY = {
    "accuracy": Metric(accuracy, _CLASSES),
    "macro_f1": Metric(macro_f1, _CLASSES),
    "micro_f1": Metric(micro_f1, _CLASSES),
    "roc_auc": Metric(roc_auc, _CLASSES, two_classes=True),
    "average_precision": Metric(average_precision, _CLASSES, two_classes=True),
    "rmse": Metric(rmse, ("regression",), lower_is_better=True),
    "mae": Metric(mae, ("regression",), lower_is_better=True),
}


def score(metric: str, scores: Array, labels: Array) -> float:
    """Compute ``metric``, one of ``QUALITY``; NaN if it is not defined."""
    return QUALITY[metric].function(scores, labels)


def better(metric: str, value: float, than: float) -> bool:
    """Whether ``value`` of ``metric`` is better than another: of ``QUALITY``, or of ranks."""
    known = QUALITY.get(metric)
    return value < than if known is not None and known.lower_is_better else value > than


_PROC = Path("/proc/self")
#: Written to clear_refs, it makes the peak begin anew (proc(5)).
_RESET_PEAK = "5"


class PeakMemory:
    """The max memory of this process and a child of it since it was watched."""

    def __init__(self, proc: Path = _PROC) -> None:
        self._proc = proc
        self._with_child = 0
        #: bytes that the process held at first; None if the system does not tell
        self.before = _status_bytes(proc, "VmRSS")
        #: whether the peak could not be made to begin anew, so that it counts from the start of the
        #: process
        self.since_start = not _reset(proc)

    @property
    def bytes(self) -> int | None:
        """The peak; None if the system does not report it."""
        own = _status_bytes(self._proc, "VmHWM")
        return None if own is None else max(own, self._with_child)

    def add_child(self, num_bytes: int) -> None:
        """Count a child that held ``num_bytes`` while this process held what it holds now."""
        own = _status_bytes(self._proc, "VmRSS") or 0
        self._with_child = max(self._with_child, own + num_bytes)


_watched: list[PeakMemory] = []


@contextmanager
def watch_peak() -> Iterator[PeakMemory]:
    """Watch the memory of the ``with`` block."""
    peak = PeakMemory()
    _watched.append(peak)
    try:
        yield peak
    finally:
        _watched.remove(peak)


def note_child(num_bytes: int) -> None:
    """Record the max memory of a child process; for partitioners that start one."""
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
    found = next((line for line in lines if line.startswith(f"{name}:")), None)
    return None if found is None else int(found.split()[1]) * 1024
