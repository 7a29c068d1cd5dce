"""What a run measures: throughput, memory, and how good its predictions are."""

from __future__ import annotations

import resource
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "accuracy",
    "micro_f1",
    "mteps",
    "nvtps",
    "peak_rss_bytes",
    "rmse",
    "roc_auc",
    "score",
]


def mteps(num_edges: int, seconds: float) -> float:
    """Million traversed edges per second, HyScale-GNN eq. 5: sum over layers of |E^l| / T_exec."""
    return num_edges / seconds / 1e6


def nvtps(num_vertices: int, seconds: float) -> float:
    """Vertices traversed per second, HitGNN eq. 3: sum over layers of |V^l| / t_parallel."""
    return num_vertices / seconds


def peak_rss_bytes() -> int:
    """Largest resident set of this process so far, in bytes (file-backed pages included)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def accuracy(scores: NDArray[Any], labels: NDArray[Any]) -> float:
    """Fraction of right decisions: one for each vertex, or one for each of its possible labels.

    Args:
        scores: ``[n, num_classes]`` logits. The highest is the class, the first of equal ones; with
            several labels every positive logit is a label.
        labels: ``[n]`` classes, or ``[n, num_classes]`` of 0 and 1.
    """
    if labels.ndim == 2:
        return float(np.mean((scores > 0) == (labels > 0)))
    return float(np.mean(scores.argmax(axis=1) == labels))


def micro_f1(scores: NDArray[Any], labels: NDArray[Any]) -> float:
    """F1 of all decisions pooled, 2 TP / (2 TP + FP + FN); 0 where nothing is or should be chosen.

    Args:
        scores: ``[n, num_classes]`` logits. With several labels a class is chosen where its logit
            is positive; with one, micro-F1 equals accuracy.
        labels: ``[n]`` classes, or ``[n, num_classes]`` of 0 and 1.
    """
    if labels.ndim == 1:
        return accuracy(scores, labels)
    chosen, wanted = scores > 0, labels > 0
    true_positives = int(np.count_nonzero(chosen & wanted))
    decisions = int(np.count_nonzero(chosen)) + int(np.count_nonzero(wanted))
    return 2 * true_positives / decisions if decisions else 0.0


def roc_auc(scores: NDArray[Any], labels: NDArray[Any]) -> float:
    """Area under the ROC curve: the chance that a positive outranks a negative, ties half.

    Args:
        scores: ``[n]`` of the positive class, or ``[n, 2]`` logits, or ``[n, num_classes]`` for
            several labels, whose mean over the classes that have both positives and negatives
            counts (as OGB does for ogbn-proteins).
        labels: ``[n]`` of 0 and 1, or ``[n, num_classes]`` of 0 and 1.

    Returns:
        The area, or NaN where no class has both positives and negatives.
    """
    if labels.ndim == 2:
        areas = [_rank_auc(scores[:, c], labels[:, c]) for c in range(labels.shape[1])]
        known = [area for area in areas if not np.isnan(area)]
        return float(np.mean(known)) if known else float("nan")
    if scores.ndim == 2:
        scores = scores[:, 1].astype(np.float64) - scores[:, 0]
    return _rank_auc(scores, labels)


def _rank_auc(scores: NDArray[Any], labels: NDArray[Any]) -> float:
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


def rmse(scores: NDArray[Any], labels: NDArray[Any]) -> float:
    """Root of the mean squared error of all targets; lower is better.

    Args:
        scores: ``[n, num_targets]`` predictions.
        labels: ``[n, num_targets]`` targets, or ``[n]`` where there is one, all of them known.
    """
    errors = scores.astype(np.float64) - labels.reshape(scores.shape)
    return float(np.sqrt(np.mean(errors**2)))


_SCORES = {"accuracy": accuracy, "micro_f1": micro_f1, "roc_auc": roc_auc, "rmse": rmse}


def score(metric: str, scores: NDArray[Any], labels: NDArray[Any]) -> float:
    """Compute a graph's metric.

    Args:
        metric: ``accuracy``, ``micro_f1`` or ``roc_auc``, of which higher is better; or ``rmse``,
            of which lower is better.
        scores: as the metric takes them.
        labels: likewise.
    """
    return _SCORES[metric](scores, labels)
