import numpy as np
import pytest

from gnnscale.partition.edge_cut import multilevel
from gnnscale.partition.edge_cut.multilevel import (
    Level,
    balances,
    cut_multilevel,
    edge_budget,
    improve,
    make_undirected,
    max_weights,
    num_cycles,
)


def in_turn(level, weights=None):
    return (np.arange(level.num_vertices) % 4).astype(np.int32)


@pytest.fixture
def undirected(communities):
    return make_undirected(communities, "test", num_threads=1)


@pytest.fixture
def most(undirected):
    return max_weights(undirected.weights, np.ones(4))


def test_a_small_graph_is_cut_as_it_is_and_then_made_better(
    undirected, most, communities, cut_edges
):
    seen: list[tuple[int, int]] = []

    def cut(level, weights):
        seen.append(weights.shape)
        return in_turn(level)

    found = [cut_multilevel(undirected, most, cut, num_threads=threads) for threads in (1, 2)]
    assert seen == [(800, 3), (800, 1)] * 2
    assert np.array_equal(found[0].owner, found[1].owner)
    assert found[0].within
    assert max(balances(undirected.weights, found[0].owner, 4)) <= 1.051
    assert 2 * found[0].cut == cut_edges(communities, found[0].owner)
    assert found[0].cut < cut_edges(communities, np.arange(800) % 4) / 4


@pytest.mark.parametrize("budget", [10_000, 800])
def test_a_large_graph_is_cut_where_it_is_small(
    budget, undirected, most, communities, cut_edges, monkeypatch
):
    """With fewer edges allowed than there are, coarse graphs are sampled."""
    limits = {"SMALL_EDGES": 100, "_MAX_SPARSE_VERTICES": 100, "_LEAST_VERTICES": 80}
    for name, limit in (limits | {"_LEAST_VERTICES_OF_PARTS": 20}).items():
        monkeypatch.setattr(multilevel, name, limit)
    monkeypatch.setattr(multilevel, "edge_budget", lambda num_edges: budget)
    seen: list[Level] = []

    def cut(level, weights):
        assert np.array_equal(weights, level.vertex_weights)
        seen.append(level)
        return in_turn(level)

    found = cut_multilevel(undirected, most, cut, num_threads=2)
    (level,) = seen
    assert level.num_vertices < 200
    assert level.sampled == (budget < undirected.num_edges)
    assert level.vertex_weights.sum(axis=0).tolist() == undirected.weights.sum(axis=0).tolist()
    assert found.within
    assert 2 * found.cut == cut_edges(communities, found.owner) < communities.num_edges / 3


def test_large_graphs_get_one_cycle_and_a_fifth_of_their_edges():
    assert [num_cycles(each) for each in (0, 20_000_000, 10**9)] == [8, 2, 1]
    assert [edge_budget(each) for each in (100, 40_000_000)] == [multilevel.SMALL_EDGES, 8_000_000]


@pytest.mark.parametrize("seed", range(2))
def test_a_small_graph_is_cut_no_worse_than_a_start_that_is_made_better_at_once(
    seed, undirected, most
):
    start = np.random.default_rng(seed).integers(4, size=undirected.num_vertices, dtype=np.int32)
    at_once = improve(undirected, start, most, num_rounds=20, num_threads=1)
    found = cut_multilevel(undirected, most, lambda level, weights: start, num_threads=1)
    assert at_once.within
    assert found.within
    assert found.cut <= at_once.cut
