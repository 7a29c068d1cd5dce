import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torchmetrics.retrieval import RetrievalNormalizedDCG, RetrievalRecall

from gnnscale.core.ranking import (
    hits_at,
    mean_reciprocal_rank,
    metrics_at,
    ranks,
    ranks_in_rows,
)


def test_ranks_by_hand() -> None:
    scores = np.array([[3.0, 1, 2, 0], [1, 3, 2, 0], [2, 2, 2, 5], [np.nan, 1, 2, 3]])
    found = ranks(scores)
    # The third is behind 5 and shares three places with two others: the second to the fourth.
    assert found.tolist() == [1, 3, 3, 4]
    assert mean_reciprocal_rank(found) == pytest.approx((1 + 1 / 3 + 1 / 3 + 1 / 4) / 4)
    assert hits_at(found, 1) == 0.25
    assert hits_at(found, 3) == 0.75


def test_metrics_of_sources_by_hand() -> None:
    """One source has its two edges at places 1 and 3, another its only edge at place 4."""
    found, sources = np.array([3.0, 4, 1]), np.array([0, 1, 0])
    ideal = 1 + 1 / np.log2(3)
    assert metrics_at(found, sources, 3) == pytest.approx(
        (1 / 2, (1 / 1 + 2 / 3) / 2 / 2, (1 + 1 / np.log2(4)) / ideal / 2)
    )
    # A list of one place: the best that a source of two edges can reach is one of them.
    assert metrics_at(found, sources, 1) == pytest.approx((1 / 4, 1 / 2, 1 / 2))


@given(st.data())
def test_ranks_are_those_of_shuffled_lists(data: st.DataObject) -> None:
    """The rank of the i-th edge of a tie is its mean place over all orders of equal scores."""
    width = data.draw(st.integers(1, 5))
    row = st.lists(st.sampled_from([0.0, 1.0, 2.0, np.nan]), min_size=width, max_size=width)
    scores = np.array(data.draw(st.lists(row, min_size=1, max_size=3)))
    entries = [tuple(each) for each in np.argwhere(~np.isnan(scores))]
    chosen = data.draw(st.lists(st.sampled_from(entries), unique=True)) if entries else []
    rows, columns = np.array(chosen, np.int64).reshape(-1, 2).T
    found = ranks_in_rows(scores, rows, columns)
    for number, of_row in enumerate(scores):
        mine = columns[rows == number]
        kept = [place for place in range(width) if not np.isnan(of_row[place])]
        orders = [
            order
            for order in itertools.permutations(kept)
            if all(of_row[a] >= of_row[b] for a, b in itertools.pairwise(order))
        ]
        places = [[place + 1 for place, at in enumerate(order) if at in mine] for order in orders]
        expected = np.mean(places, axis=0) if orders else []
        assert np.sort(found[rows == number]) == pytest.approx(np.array(expected))


def test_what_has_no_score_ranks_last() -> None:
    scores = np.array([[-np.inf, -np.inf, 0, np.nan]])
    rows, columns = np.array([0, 0]), np.array([0, 2])
    assert ranks_in_rows(scores, rows, columns).tolist() == [3, 1]


@given(st.lists(st.lists(st.integers(1, 12), min_size=1, unique=True), min_size=1), st.data())
def test_metrics_are_those_of_lists(places: list[list[int]], data: st.DataObject) -> None:
    """Brute force over lists of 12 candidates, without ties."""
    k = data.draw(st.integers(1, 14))
    expected = []
    for of_source in places:
        relevant = [place in of_source for place in range(1, 13)][:k]
        best = min(len(of_source), k)
        precision = [sum(relevant[: i + 1]) / (i + 1) for i in range(len(relevant))]
        gain = sum(hit / np.log2(i + 2) for i, hit in enumerate(relevant))
        expected.append(
            (
                sum(relevant) / len(of_source),
                sum(p for p, hit in zip(precision, relevant, strict=True) if hit) / best,
                gain / sum(1 / np.log2(i + 2) for i in range(best)),
            )
        )
    found = np.array([place for of_source in places for place in of_source], np.float64)
    sources = np.repeat(np.arange(len(places)), [len(each) for each in places])
    assert metrics_at(found, sources, k) == pytest.approx(tuple(np.mean(expected, axis=0)))
    order = data.draw(st.permutations(range(len(found))))
    assert metrics_at(found[order], sources[order], k) == pytest.approx(
        metrics_at(found, sources, k)
    )


def test_recall_and_ndcg_are_those_of_torchmetrics() -> None:
    generator = np.random.default_rng(0)
    scores = generator.permuted(np.tile(np.arange(30, dtype=np.float32), (8, 1)), axis=1)
    relevant = generator.random((8, 30)) < 0.3
    relevant[:, 0] = True
    rows, columns = np.nonzero(relevant)
    recall, _, gain = metrics_at(ranks_in_rows(scores, rows, columns), rows, 10)
    given = (scores.ravel(), relevant.ravel(), np.repeat(np.arange(8), 30))
    predicted, target, indexes = map(torch.from_numpy, given)
    for metric, found in ((RetrievalRecall, recall), (RetrievalNormalizedDCG, gain)):
        expected = metric(top_k=10)(predicted, target, indexes=indexes)
        assert found == pytest.approx(float(expected), abs=1e-6)
