"""Degrees by hand, projections beside a dense reference."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnscale.data import from_arrays
from gnnscale.features.structural import degree_rows, projected_rows


def graph_of(edges, num_vertices, weights=None):
    ends = np.array(edges, np.int64).reshape(-1, 2).T
    rows = np.zeros((num_vertices, 0), np.float32)
    return from_arrays((ends[0], ends[1]), rows, edge_weights=weights)


def test_degrees_by_hand():
    graph = graph_of([(0, 1), (0, 2), (1, 2), (2, 2)], 4)
    expected = np.log1p([[0, 2], [1, 1], [3, 1], [0, 0]])
    np.testing.assert_allclose(degree_rows(graph), expected, rtol=1e-6)
    assert degree_rows(graph).dtype == np.float32


def reference(graph, dim, hops, first):
    """Sum up the normalised rows after each hop, with a dense matrix."""
    n = graph.num_vertices
    matrix = np.zeros((n, n))
    dst = np.repeat(np.arange(n), np.diff(graph.indptr))
    weights = np.ones(len(dst)) if graph.edge_weights is None else graph.edge_weights
    np.add.at(matrix, (dst, graph.indices), weights)
    matrix /= np.maximum(matrix.sum(axis=1, keepdims=True), 1e-30)
    rows, total = np.float64(first), np.zeros((n, dim))
    for _ in range(hops):
        rows = matrix @ rows
        sizes = np.sqrt((rows**2).mean(axis=1, keepdims=True))
        rows = np.divide(rows, sizes, out=np.zeros_like(rows), where=sizes > 1e-12)
        total += rows
    return total


@pytest.mark.long
@settings(max_examples=30, deadline=None)
@given(
    edges=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=30),
    hops=st.integers(1, 4),
    weighted=st.booleans(),
)
def test_projections_are_those_of_dense_matrices(edges, hops, weighted):
    weights = np.arange(1, len(edges) + 1) / 4 if weighted else None
    graph = graph_of(edges, 8, weights)
    # Of loops alone, each vertex keeps its random row, normalised.
    loops = graph_of([(v, v) for v in range(8)], 8)
    first = projected_rows(loops, dim=64, hops=1, seed=3, num_threads=1)
    found = projected_rows(graph, dim=64, hops=hops, seed=3, num_threads=2)
    scales = np.sqrt((drawn(8, 64, 3) ** 2).mean(axis=1, keepdims=True))
    np.testing.assert_allclose(found, reference(graph, 64, hops, first * scales), atol=2e-4)


def drawn(num_vertices, dim, seed):
    from gnnscale.features.structural import _random_rows

    return _random_rows(num_vertices, dim, seed)


def test_random_rows_are_sparse_signs():
    rows = drawn(2000, 50, 1)
    values, counts = np.unique(rows, return_counts=True)
    assert values.tolist() == [-1, 0, 1]
    np.testing.assert_allclose(counts / rows.size, [1 / 6, 2 / 3, 1 / 6], atol=0.01)
    # A vertex's row depends on its id: a graph that grows keeps those of its first vertices.
    assert np.array_equal(rows[:100], drawn(100, 50, 1))
    assert not np.array_equal(rows, drawn(2000, 50, 2))


def test_threads_change_nothing(random_graph):
    options, graph = {"dim": 24, "hops": 3, "seed": 0}, random_graph()
    one, *others = (projected_rows(graph, **options, num_threads=count) for count in (1, 2, 5))
    assert all(np.array_equal(one, each) for each in others)
