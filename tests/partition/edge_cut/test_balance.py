from __future__ import annotations

import numpy as np
import pytest

from gnnscale.graph import Graph
from gnnscale.partition.edge_cut.balance import balances, improve, max_weights
from gnnscale.partition.edge_cut.undirected import make_undirected

WEIGHTS = np.array([[1, 4, 1]] * 10)


def test_parts_may_weigh_their_share_and_a_little_more() -> None:
    most = max_weights(WEIGHTS, np.ones(2), (1.25, 1.05, 1.05))
    assert most.tolist() == [[6, 21, 5], [6, 21, 5]]


def test_no_part_is_held_below_its_share() -> None:
    assert max_weights(WEIGHTS, np.ones(3), (1.0, 1.0, 1.0)).tolist() == [[4, 14, 4]] * 3
    assert max_weights(WEIGHTS, np.array([4.0, 1.0]), (1.0,) * 3).tolist() == [
        [8, 32, 8],
        [2, 8, 2],
    ]


def test_a_balance_is_the_largest_over_the_mean() -> None:
    owner = np.array([0] * 6 + [1] * 4)
    weights = np.stack([np.ones(10, np.int64), np.arange(10), np.zeros(10, np.int64)], 1)
    assert balances(weights, owner, 2) == pytest.approx((1.2, 30 / 22.5, 1.0))


def test_parts_get_balanced_with_the_lowest_cut(bridge: Graph) -> None:
    graph = make_undirected(bridge, "test", num_threads=1)
    owner = np.array([0, 0, 0, 0, 0, 0, 0, 1, 1, 1], np.int32)
    most = max_weights(graph.weights, np.ones(2))
    found = improve(graph, owner, most, num_rounds=10, num_threads=1)
    assert found.within
    assert found.cut == 1
    assert found.owner.tolist() == [0] * 5 + [1] * 5
    assert owner.tolist() == [0] * 7 + [1] * 3
