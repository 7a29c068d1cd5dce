from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import permutations

import numpy as np
import pytest
from scipy import stats

from gnnscale import ConfigError, Graph
from gnnscale.dataset import from_arrays
from gnnscale.sampler import NeighborSampler, WeightedSampler, WeightedSampling


def star(weights: list[float] | np.ndarray, num_hubs: int = 1) -> Graph:
    """Vertices 0 .. num_hubs - 1, each with an in-edge of each weight from vertices behind them."""
    weights = np.asarray(weights, np.float32)
    src = np.tile(np.arange(len(weights)) + num_hubs, num_hubs)
    dst = np.repeat(np.arange(num_hubs), len(weights))
    features = np.zeros((num_hubs + len(weights), 1), np.float32)
    return from_arrays((src, dst), features, edge_weights=np.tile(weights, num_hubs))


def drawn(sampler: WeightedSampler, num_hubs: int, step: int) -> np.ndarray:
    """Return the neighbours of each hub, ``[num_hubs, fanout]``, numbered from 0."""
    batch = sampler.sample(np.arange(num_hubs), step)
    block = batch.blocks[0]
    found = batch.input_vertices[block.indices].reshape(num_hubs, -1)
    return np.asarray(found, np.int64) - num_hubs


WEIGHTS = [0.5, 3.0, 0.0, 1.0, 7.25, 1e-3, 2.0]


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("degree", [7, 700])
def test_one_neighbour_is_drawn_by_weight(degree: int, replace: bool) -> None:
    weights = np.resize(WEIGHTS, degree)
    num_hubs = 2000
    sampler = WeightedSampler(star(weights, num_hubs), fanouts=[1], replace=replace, seed=3)
    counts = sum(
        np.bincount(drawn(sampler, num_hubs, step).ravel(), minlength=degree) for step in range(20)
    )
    possible = weights > 0
    assert counts[~possible].sum() == 0
    expected = weights[possible] / weights.sum() * counts.sum()
    enough = expected > 5
    observed = np.append(counts[possible][enough], counts[possible][~enough].sum())
    wanted = np.append(expected[enough], expected[~enough].sum())
    assert 1e-4 < stats.chisquare(observed, wanted).pvalue < 1 - 1e-4


def pairs_in_turn(weights: list[float]) -> dict[frozenset[int], float]:
    """Probability of each pair where two are drawn one after the other."""
    found: Counter[frozenset[int]] = Counter()
    for first, second in permutations(range(len(weights)), 2):
        total = sum(weights)
        found[frozenset((first, second))] += (
            weights[first] / total * weights[second] / (total - weights[first])
        )
    return dict(found)


def test_two_neighbours_are_drawn_one_after_the_other() -> None:
    weights, num_hubs = [0.5, 3.0, 1.0, 7.25, 2.0], 2000
    sampler = WeightedSampler(star(weights, num_hubs), fanouts=[2], seed=1)
    counts: Counter[frozenset[int]] = Counter()
    for step in range(20):
        counts.update(frozenset(pair) for pair in drawn(sampler, num_hubs, step).tolist())
    expected = pairs_in_turn(weights)
    assert sum(expected.values()) == pytest.approx(1)
    total = counts.total()
    observed = [counts[pair] for pair in expected]
    assert sum(observed) == total
    p_value = stats.chisquare(observed, [p * total for p in expected.values()]).pvalue
    assert 1e-4 < p_value < 1 - 1e-4


def test_draws_with_replacement_are_independent() -> None:
    weights, num_hubs = np.array([1.0, 2.0, 5.0]), 2000
    sampler = WeightedSampler(star(weights, num_hubs), fanouts=[4], replace=True, seed=1)
    table = np.zeros((3, 3))
    for step in range(10):
        found = drawn(sampler, num_hubs, step)
        np.add.at(table, (found[:, 0], found[:, 3]), 1)
    p = weights / weights.sum()
    expected = np.outer(p, p) * table.sum()
    assert 1e-4 < stats.chisquare(table.ravel(), expected.ravel()).pvalue < 1 - 1e-4


@pytest.mark.parametrize(("fanout", "count"), [(2, 2), (3, 3), (5, 3), (-1, 3)])
def test_weights_of_zero_are_never_drawn(fanout: int, count: int) -> None:
    graph = star([0, 1, 0, 2, 0, 1e-30, 0])
    for step in range(50):
        found = drawn(WeightedSampler(graph, fanouts=[fanout]), 1, step)[0]
        assert len(set(found.tolist())) == len(found) == count
        assert set(found.tolist()) <= {1, 3, 5}
    replaced = drawn(WeightedSampler(graph, fanouts=[5], replace=True), 1, 0)[0]
    assert len(replaced) == 5
    assert set(replaced.tolist()) <= {1, 3, 5}


def test_a_vertex_whose_edges_all_weigh_nothing_has_no_neighbours() -> None:
    for replace in (False, True):
        batch = WeightedSampler(star([0, 0]), fanouts=[2], replace=replace).sample(np.arange(3), 0)
        assert batch.num_edges == 0


@pytest.mark.parametrize("replace", [False, True])
def test_threads_and_splits_make_no_difference(
    random_graph: Callable[..., Graph], replace: bool
) -> None:
    weights = np.random.default_rng(0).random(30000)
    graph = random_graph(2000, 30000, edge_weights=weights)
    sampler = WeightedSampler(graph, fanouts=[20, 5], replace=replace, seed=4)
    seeds = np.arange(0, 2000, 3)
    expected = sampler.sample(seeds, 5)
    for num_threads in (2, 8):
        sampler.num_threads = num_threads
        found = sampler.sample(seeds, 5)
        assert np.array_equal(found.input_vertices, expected.input_vertices)
        for one, other in zip(found.blocks, expected.blocks, strict=True):
            assert np.array_equal(one.indices, other.indices)
            assert np.array_equal(one.indptr, other.indptr)
    block, whole = sampler.sample(seeds[:7], 5).blocks[-1], expected.blocks[-1]
    assert np.array_equal(block.indptr, whole.indptr[:8])
    again = WeightedSampler(graph, fanouts=[20, 5], replace=replace, seed=4).sample(seeds, 6)
    assert not np.array_equal(again.input_vertices, expected.input_vertices)


def test_what_is_drawn_differs_from_uniform_neighbours_even_of_equal_weights() -> None:
    graph = star(np.ones(100), 10)
    weighted = drawn(WeightedSampler(graph, fanouts=[5]), 10, 0)
    uniform = NeighborSampler(graph, fanouts=[5]).sample(np.arange(10), 0)
    assert weighted.tolist() != (uniform.input_vertices[uniform.blocks[0].indices] - 10).tolist()


def test_blocks_tell_sums_of_weights_and_no_weights() -> None:
    batch = WeightedSampler(star([1, 2, 4], 2), fanouts=[2]).sample(np.arange(2), 0)
    block = batch.blocks[0]
    assert block.edge_weights is None
    assert block.weight_sums is not None
    assert block.weight_sums[:2].tolist() == [7, 7]
    assert block.weight_sums[2:].tolist() == [0] * (block.num_src - 2)


def test_a_graph_without_weights_is_refused(tiny_graph: Graph) -> None:
    with pytest.raises(ConfigError, match=r"^sampler=weighted: edges of tiny have no weights"):
        WeightedSampler(tiny_graph, fanouts=[2])


def test_configuration_builds_the_sampler() -> None:
    config = WeightedSampling(fanouts=[3, -1], replace=True)
    assert config.num_layers == 2
    sampler = config.sampler(star([1, 2]), seed=8, num_threads=2)
    assert (sampler.fanouts, sampler.replace, sampler.seed) == ([3, -1], True, 8)
    with pytest.raises(ConfigError, match=r"^sampler.fanouts=\[0\]: 0 is not a fan-out"):
        WeightedSampling(fanouts=[0])
