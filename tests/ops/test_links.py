from __future__ import annotations

import numpy as np
import pytest

from gnnscale import ops


def test_negatives_depend_on_seed_step_edge_and_index_alone() -> None:
    edges = np.array([5, 900, 7])
    drawn = ops.draw_negatives(edges, 4, 1000, seed=3, step=9)
    assert drawn.shape == (3, 4)
    again = ops.draw_negatives(edges[::-1].copy(), 6, 1000, seed=3, step=9, num_threads=2)
    assert np.array_equal(again[::-1, :4], drawn)
    for other in ({"seed": 4, "step": 9}, {"seed": 3, "step": 10}):
        assert not np.array_equal(ops.draw_negatives(edges, 4, 1000, **other), drawn)


def test_negatives_are_uniform() -> None:
    drawn = ops.draw_negatives(np.arange(20_000), 5, 10, seed=1, step=0)
    counts = np.bincount(drawn.ravel(), minlength=10)
    # Chi-square with 9 degrees of freedom: above 33.7 once in 10,000 times.
    assert ((counts - 10_000) ** 2 / 10_000).sum() < 33.7


def test_draws_of_pairs_tell_directions_apart() -> None:
    first, second = np.array([1, 2, 1]), np.array([2, 1, 2])
    drawn = ops.draw_of_pairs(first, second, seed=0)
    assert drawn[0] == drawn[2] != drawn[1]
    assert not np.array_equal(ops.draw_of_pairs(first, second, seed=1), drawn)


def test_draws_of_pairs_are_uniform() -> None:
    first, second = (each.ravel() for each in np.mgrid[:300, :300])
    drawn = ops.draw_of_pairs(first, second, seed=7, num_threads=2)
    counts = np.bincount((drawn * 10).astype(int), minlength=10)
    assert ((counts - 9_000) ** 2 / 9_000).sum() < 33.7
    assert drawn.min() > 0
    assert drawn.max() < 1


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^num_vertices"):
        ops.draw_negatives(np.arange(3), 1, 0, seed=0, step=0)
    with pytest.raises(ValueError, match=r"^second"):
        ops.draw_of_pairs(np.arange(3), np.arange(2), seed=0)
