import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnscale import ops
from gnnscale.sampling.edge_batches import Candidates, draw_candidates


def test_vertices_are_grouped_by_kind() -> None:
    found = Candidates.from_kinds(np.array([0, 1, 1, -1, 0], np.int32))
    assert found.vertices.tolist() == [0, 4, 1, 2]
    assert found.offsets.tolist() == [0, 2, 4]


@given(
    kinds=st.lists(st.integers(-1, 3), min_size=1, max_size=30).filter(lambda all_: max(all_) >= 0),
    seed=st.integers(0, 99),
)
def test_candidates_are_of_the_destinations_kind(kinds: list[int], seed: int) -> None:
    array = np.array(kinds, np.int32)
    candidates = Candidates.from_kinds(array)
    destinations = np.flatnonzero(array >= 0)
    drawn = candidates.draw(np.arange(len(destinations)), destinations, 7, seed=seed, step=2)
    assert (array[drawn] == array[destinations][:, None]).all()
    # A draw depends on its edge alone, not on those beside it.
    again = candidates.draw(np.array([0]), destinations[:1], 7, seed=seed, step=2)
    assert np.array_equal(again[0], drawn[0])


def test_every_candidate_is_as_likely() -> None:
    candidates = Candidates.from_kinds(np.array([0] * 5 + [1] * 4 + [-1] * 3, np.int32))
    drawn = candidates.draw(np.arange(4000), np.full(4000, 6), 5, seed=3, step=0)
    counts = np.bincount(drawn.ravel(), minlength=12)
    assert counts[[*range(5), 9, 10, 11]].sum() == 0
    # Chi-square of three degrees of freedom: above 16.3 once in a thousand.
    assert ((counts[5:9] - 5000) ** 2 / 5000).sum() < 16.3


@pytest.mark.parametrize("kinds", [None, np.zeros(9, np.int32)])
def test_without_kinds_the_draws_are_those_among_all_vertices(kinds: np.ndarray | None) -> None:
    candidates = None if kinds is None else Candidates.from_kinds(kinds)
    edges, destinations = np.arange(20), np.zeros(20, np.int64)
    drawn = draw_candidates(candidates, edges, destinations, 3, num_vertices=9, seed=5, step=1)
    assert np.array_equal(drawn, ops.draw_negatives(edges, 3, 9, seed=5, step=1))
