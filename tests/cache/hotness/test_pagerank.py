from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from gnnscale.cache.hotness import pagerank
from gnnscale.graph import Graph, GraphError


def dense_pagerank(graph: Graph, train: list[int], damping: float) -> NDArray[np.float64]:
    """Return the stationary ranks of the whole transition matrix."""
    n = graph.num_vertices
    restart = np.zeros(n)
    restart[train] = 1 / len(train)
    moves = np.tile(restart, (n, 1))
    for v in range(n):
        list_ = graph.indices[graph.indptr[v] : graph.indptr[v + 1]]
        if len(list_):
            moves[v] = np.bincount(list_, minlength=n) / len(list_)
    rank = restart
    for _ in range(2000):
        rank = damping * rank @ moves + (1 - damping) * restart
    return rank


@pytest.mark.parametrize("damping", [0.5, 0.85, 1.0])
def test_ranks_are_those_of_the_dense_iteration(
    random_graph: Callable[..., Graph], damping: float
) -> None:
    graph = random_graph()
    train = [3, 50, 200]
    expected = dense_pagerank(graph, train, damping)
    found = [
        pagerank(graph, np.array(train), damping=damping, num_iterations=2000, num_threads=threads)
        for threads in (1, 3)
    ]
    assert found[0].dtype == np.float32
    np.testing.assert_allclose(found[0], expected, rtol=1e-5, atol=1e-9)
    assert np.array_equal(*found)


def test_an_iteration_by_hand(graph_of: Callable[..., Graph]) -> None:
    # 0 reads 1 and 2, 1 reads 3 twice, 2 and 3 read none.
    graph = graph_of([[1, 2], [3, 3], [], []])
    train = np.array([0, 2])
    once = pagerank(graph, train, damping=0.5, num_iterations=1, num_threads=1)
    # Of 0, a quarter of 1/2 each way; 2 has nowhere to go, so that its half starts again.
    assert once.tolist() == [0.375, 0.125, 0.5, 0]
    twice = pagerank(graph, train, damping=0.5, num_iterations=2, num_threads=1)
    assert twice.tolist() == [0.375, 0.09375, 0.46875, 0.0625]


def test_a_damaged_graph_is_named(graph_of: Callable[..., Graph]) -> None:
    with pytest.raises(GraphError, match="tiny: damaged, indices: 4 is no vertex"):
        pagerank(graph_of([[1], [4], [], []]), np.array([0, 1]), num_threads=1)
