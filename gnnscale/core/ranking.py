"""Ranks of edges among candidates, as expected if equal scores are shuffled, and their metrics."""

import numpy as np
from numpy.typing import NDArray

from gnnscale.core.types import Float64Array, Int64Array, IntArray

#: Metrics of ``metrics_at``.
TOP_METRICS = ("recall", "map", "ndcg")
#: Scores that are compared at a time.
_SLICE_SCORES = 1 << 24


def ranks(scores: NDArray[np.floating]) -> Float64Array:
    """Return the rank of each edge among its candidates, ``[n]``, from 1; ties get their mean rank.

    ``scores`` are ``[n, 1 + k]``: the edges' in column 0, then the scores of k candidates. An edge
    of score NaN ranks last.
    """
    edge, candidates = scores[:, :1], scores[:, 1:]
    num_greater = np.count_nonzero(candidates > edge, axis=1)
    num_equal = np.count_nonzero(candidates == edge, axis=1)
    # NaN ranks last.
    num_before_nan = np.isnan(edge[:, 0]) * candidates.shape[1]
    result: Float64Array = 1 + np.maximum(num_greater + num_equal / 2, num_before_nan)
    return result


def ranks_in_rows(scores: NDArray[np.floating], rows: IntArray, columns: IntArray) -> Float64Array:
    """Return the rank of each entry in its row of ``scores`` ``[s, m]``, ``[n]``, from 1.

    ``rows`` and ``columns`` ``[n]`` give the entries, each once. NaN stands for an entry that is
    left out of the ranking; -inf ranks last. Of ``r`` given entries with one score, which ``e``
    entries of the row have, the ``i``-th ranks ``i * (e + 1) / (r + 1)`` after all greater scores,
    as is expected in random order.
    """
    entries = scores[rows, columns]
    num_greater, num_equal = np.empty(len(entries), np.int64), np.empty(len(entries), np.int64)
    step = max(1, _SLICE_SCORES // max(1, scores.shape[1]))
    for first in range(0, len(entries), step):
        part = slice(first, first + step)
        compared = scores[rows[part]]
        num_greater[part] = np.count_nonzero(compared > entries[part, None], axis=1)
        num_equal[part] = np.count_nonzero(compared == entries[part, None], axis=1)
    order = np.lexsort((entries, rows))
    group = np.empty(len(entries), np.int64)
    begins = np.ones(len(entries), np.bool_)
    begins[1:] = (np.diff(rows[order]) != 0) | (entries[order][1:] != entries[order][:-1])
    group[order] = np.cumsum(begins) - 1
    sizes, starts = np.bincount(group), np.flatnonzero(begins)
    number = np.empty(len(entries), np.int64)
    number[order] = np.arange(len(entries)) - starts[group[order]] + 1
    shared = number * (num_equal + 1) / (sizes[group] + 1)
    result: Float64Array = np.where(entries == -np.inf, num_equal, shared)
    return num_greater + result


def mean_reciprocal_rank(edge_ranks: Float64Array) -> float:
    """Return the mean of 1 / rank over ranks ``[n]``."""
    return float(np.mean(1 / edge_ranks))


def hits_at(edge_ranks: Float64Array, k: int) -> float:
    """Return the share of ranks ``[n]`` that are at most ``k``."""
    return float(np.mean(edge_ranks <= k))


def metrics_at(edge_ranks: Float64Array, sources: Int64Array, k: int) -> tuple[float, float, float]:
    """Return recall@k, MAP@k and NDCG@k of ranks ``[n]``, means over sources.

    ``sources`` ``[n]`` number the edges' sources from 0, each with an edge; all edges of a source
    are ranked in one list. For a source with ``m`` edges, of ranks ``r_1 <= r_2 <= ...``, sums run
    over the ranks up to k: recall is the sum of ``1 / m``, average precision the sum of ``i / r_i``
    over ``min(m, k)``, and NDCG the sum of ``1 / log2(r_i + 1)`` over its maximum, that of the
    ranks 1 to ``min(m, k)``.
    """
    order = np.lexsort((edge_ranks, sources))
    ordered, group = edge_ranks[order], sources[order]
    sizes = np.bincount(group)
    number = np.arange(len(group)) - (np.cumsum(sizes) - sizes)[group] + 1
    is_hit = ordered <= k
    best = np.minimum(sizes, k)
    ideal = np.cumsum(1 / np.log2(np.arange(2, best.max() + 2)))[best - 1]
    gains = (is_hit, is_hit * number / ordered, is_hit / np.log2(ordered + 1))
    recall, precision, gain = (
        float(np.mean(np.bincount(group, gains_of_edges) / highest))
        for gains_of_edges, highest in zip(gains, (sizes, best, ideal), strict=True)
    )
    return recall, precision, gain
