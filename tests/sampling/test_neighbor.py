from collections import Counter
from dataclasses import replace
from itertools import permutations, product, starmap
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sampled import assert_slices_are_of_the_whole, neighbours, picked
from scipy import stats

from gnnscale import ConfigError, ops
from gnnscale.data import from_arrays
from gnnscale.graph import GraphTimes
from gnnscale.sampling import (
    LaborSampling,
    LayerSampling,
    NeighborSampler,
    NeighborSampling,
    TimeRule,
    WeightedSampler,
    WeightedSampling,
    without_last_hop,
)


def same_block(a, b):
    lists = np.array_equal(a.indptr, b.indptr) and np.array_equal(a.indices, b.indices)
    return lists and a.num_src == b.num_src


def same(a, b):
    blocks = zip(a.blocks, b.blocks, strict=True)
    return np.array_equal(a.input_vertices, b.input_vertices) and all(starmap(same_block, blocks))


@pytest.mark.parametrize("num_threads", [1, 2])
def test_full_neighbourhoods_by_hand(tiny_graph, num_threads):
    sampler = NeighborSampler(tiny_graph, fanouts=[-1, -1], num_threads=num_threads)
    batch = sampler.sample(np.array([4, 0]), 0)
    assert batch.input_vertices.tolist() == [4, 0, 1, 2, 3]
    assert batch.seeds.tolist() == [4, 0]
    inner, outer = batch.blocks
    assert (outer.num_dst, outer.num_src, outer.num_edges) == (2, 4, 3)
    assert (outer.indptr.tolist(), outer.indices.tolist()) == ([0, 1, 3], [0, 2, 3])
    assert (inner.num_dst, inner.num_src, inner.num_edges) == (4, 5, 6)
    assert inner.indptr.tolist() == [0, 1, 3, 4, 6]
    assert inner.indices.tolist() == [0, 2, 3, 4, 1, 4]
    assert (batch.num_edges, batch.num_vertices) == (9, 2 + 4 + 5)


def test_no_seeds(tiny_graph):
    batch = NeighborSampler(tiny_graph, fanouts=[2, 2]).sample(np.array([], np.int64), 0)
    assert batch.num_seeds == len(batch.input_vertices) == batch.num_edges == 0


@pytest.mark.parametrize(
    ("seeds", "message"),
    [([5], "5 is not a vertex"), ([-1], "-1 is not a vertex"), ([0, 3, 0], "0 appears twice")],
)
def test_seeds_that_are_refused(tiny_graph, seeds, message):
    sampler = NeighborSampler(tiny_graph, fanouts=[2])
    with pytest.raises(ValueError, match=f"seeds: {message}"):
        sampler.sample(np.array(seeds), 0)
    assert sampler.sample(np.array([3]), 0).input_vertices.tolist() == [3]


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.sampled_from([-1, 1, 2, 5, 17, 40]), min_size=1, max_size=3),
    st.booleans(),
    st.data(),
)
def test_samples_keep_to_fanouts_and_lists(random_graph, fanouts, with_replacement, data):
    num_vertices = data.draw(st.integers(1, 40))
    graph = random_graph(num_vertices, data.draw(st.integers(0, 400)), num_features=1)
    dtype = data.draw(st.sampled_from([np.int32, np.int64]))
    graph = replace(graph, indices=graph.indices.astype(dtype))
    vertex = st.integers(0, num_vertices - 1)
    seeds = data.draw(st.lists(vertex, min_size=1, max_size=20, unique=True))
    options = {"seed": 5, "num_threads": data.draw(st.sampled_from([1, 2, 4, 8, 16]))}
    sampler = NeighborSampler(graph, fanouts=fanouts, replace=with_replacement, **options)
    batch = sampler.sample(np.array(seeds), 3)
    reach = sampler.reach(np.array(seeds), 3)
    assert reach.input_vertices.tolist() == batch.input_vertices.tolist()
    assert reach.input_vertices.dtype == batch.input_vertices.dtype
    for indptr, block in zip(reach.indptrs, reversed(batch.blocks), strict=True):
        assert indptr.tolist() == block.indptr.tolist()
    ids = batch.input_vertices
    assert ids.dtype == graph.indices.dtype
    assert batch.seeds.tolist() == seeds
    assert len(set(ids.tolist())) == len(ids) == batch.blocks[0].num_src
    for lower, upper in zip(batch.blocks[:-1], batch.blocks[1:], strict=True):
        assert lower.num_dst == upper.num_src
    assert batch.blocks[-1].num_dst == len(seeds)
    for fanout, block in zip(fanouts, reversed(batch.blocks), strict=True):
        # Local ids are given in order of first appearance, after the destinations.
        new = [int(local) for local in block.indices if local >= block.num_dst]
        assert list(dict.fromkeys(new)) == list(range(block.num_dst, block.num_src))
        for v, sampled in picked(batch, block).items():
            available = Counter(neighbours(graph, v))
            degree = available.total()
            if with_replacement and fanout >= 0:
                assert len(sampled) == (fanout if degree else 0)
                assert set(sampled) <= set(available)
            else:
                # No position of the neighbour list is taken twice; a neighbour may be in it twice.
                assert len(sampled) == (degree if fanout < 0 else min(degree, fanout))
                assert Counter(sampled) <= available


def star(degree, num_hubs=1, **fields):
    """The hubs, vertices 0 to num_hubs - 1, all have the same ``degree`` neighbours."""
    src = np.tile(np.arange(num_hubs, num_hubs + degree), num_hubs)
    dst = np.repeat(np.arange(num_hubs), degree)
    return from_arrays((src, dst), np.zeros((num_hubs + degree, 1), np.float32), **fields)


@pytest.mark.parametrize("vary", ["seed", "step", "hop", "vertex"])
def test_draws_are_independent(vary):
    """Pairs of picks that differ in one input alone fill the table of pairs evenly."""
    table = np.zeros((10, 10), np.int64)
    graph, hubs = star(10, 3000), np.arange(3000)
    # Every vertex of the star's first layer leads to one hub, which hop 2 expands again.
    for step in range(2):
        first = NeighborSampler(graph, fanouts=[1, 1], seed=4).sample(hubs, step)
        left = first.input_vertices[first.blocks[1].indices]
        if vary == "vertex":
            left, right = left[::2], left[1::2]
        elif vary == "hop":
            right = first.input_vertices[first.blocks[0].indices][:3000]
        else:
            sampler = NeighborSampler(graph, fanouts=[1], seed=4 + (vary == "seed"))
            other = sampler.sample(hubs, step + 100 * (vary == "step"))
            right = other.input_vertices[other.blocks[0].indices]
        np.add.at(table, (left - 3000, right - 3000), 1)
    assert 1e-4 < stats.chisquare(table.ravel()).pvalue < 1 - 1e-4


@pytest.mark.long
@pytest.mark.parametrize(("num_parts", "with_replacement"), [(2, True), (37, False)])
def test_splitting_the_seeds_makes_no_difference(random_graph, num_parts, with_replacement):
    graph = random_graph(2000, 40_000, num_features=1)
    seeds = np.random.default_rng(0).permutation(2000)[:200]
    sampler = NeighborSampler(graph, fanouts=[7, 3, 20], replace=with_replacement, seed=1)
    whole = sampler.sample(seeds, 2)
    parts = [sampler.sample(part, 2) for part in np.array_split(seeds, num_parts)]
    assert_slices_are_of_the_whole(whole, parts)


@pytest.mark.long
def test_real_graph(test_data):
    (file,) = (test_data / "webgraph").glob("*.npz")
    raw = np.load(file)
    indptr, indices = raw["indptr"], raw["indices"]
    owners = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    graph = from_arrays((indices, owners), np.zeros((len(indptr) - 1, 1), np.float32))
    seeds = np.random.default_rng(1).permutation(graph.num_vertices)[:1000]
    batch, other = (
        NeighborSampler(graph, fanouts=[25, 10], num_threads=n).sample(seeds, 0) for n in (1, 2)
    )
    assert same(batch, other)
    every = np.sort(owners * graph.num_vertices + indices)
    for fanout, block in zip([10, 25], batch.blocks, strict=True):
        vertices, degrees = batch.input_vertices[: block.num_dst], np.diff(block.indptr)
        assert np.array_equal(degrees, np.minimum(np.diff(graph.indptr)[vertices], fanout))
        dst = np.repeat(vertices.astype(np.int64), degrees)
        edges = dst * graph.num_vertices + batch.input_vertices[block.indices]
        assert len(np.unique(edges)) == len(edges)
        assert np.array_equal(every[np.searchsorted(every, edges)], edges)


@pytest.mark.parametrize("config", [NeighborSampling, WeightedSampling])
def test_fanouts_that_are_refused(config):
    for fanouts in ([0], [5, -2], []):
        with pytest.raises(ConfigError, match=r"^sampler\.fanouts="):
            config(fanouts=fanouts)
    NeighborSampling(fanouts=[2**20 + 1])
    for fanout, replaced in ((2**20 + 1, True), (2**63 - 1, False)):
        with pytest.raises(ConfigError, match=f"{fanout} is not a fan-out"):
            config(fanouts=[fanout], replace=replaced)


def test_fanouts_are_a_list_and_a_graph_is_needed(tiny_graph):
    one = {"replace": False, "seed": 0, "step": 0, "num_threads": 1}
    for fanouts in (5, "ab", {2: 3}, np.array([2])):
        with pytest.raises(TypeError, match=r"^fanouts: "):
            NeighborSampler(tiny_graph, fanouts=fanouts)
        with pytest.raises(TypeError, match=r"^fanouts: "):
            ops.NativeSampler(tiny_graph).sample_neighbors(np.array([0]), fanouts, **one)
    with pytest.raises(TypeError, match=r"^graph: str, allowed is a Graph"):
        NeighborSampler("graph", fanouts=[1])
    with pytest.raises(ConfigError, match=r"^sampler=weighted: edges of tiny have no weights"):
        WeightedSampler(tiny_graph, fanouts=[2])


@pytest.mark.parametrize("config", [NeighborSampling, WeightedSampling])
def test_configuration_builds_the_sampler(config):
    sampling = config(fanouts=[3, -1], replace=True)
    assert sampling.num_layers == 2
    sampler = sampling.sampler(star_weighted([1, 2]), seed=8, num_threads=2)
    assert (sampler.fanouts, sampler.replace, sampler.seed) == ([3, -1], True, 8)
    batch = sampler.sample(np.array([0]), 1)
    assert (batch.seed, batch.step) == (8, 1)


def star_weighted(weights, num_hubs=1):
    """The hubs all have an edge of each weight, from a different neighbour."""
    return star(len(weights), num_hubs, edge_weights=np.tile(np.float32(weights), num_hubs))


def drawn(sampler, num_hubs, step):
    """Return the neighbours of each hub, ``[num_hubs, fanout]``, numbered from 0."""
    batch = sampler.sample(np.arange(num_hubs), step)
    found = batch.input_vertices[batch.blocks[0].indices].reshape(num_hubs, -1)
    return np.asarray(found, np.int64) - num_hubs


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("degree", [7, 700])
def test_one_neighbour_is_drawn_by_weight(degree, replace):
    weights, num_hubs = np.resize([0.5, 3.0, 0.0, 1.0, 7.25, 1e-3, 2.0], degree), 2000
    graph = star_weighted(weights, num_hubs)
    sampler = WeightedSampler(graph, fanouts=[1], replace=replace, seed=3)
    counts = sum(
        np.bincount(drawn(sampler, num_hubs, step).ravel(), minlength=degree) for step in range(20)
    )
    possible = weights > 0
    assert counts[~possible].sum() == 0
    expected = weights[possible] / weights.sum() * counts.sum()
    enough = expected > 5
    table = (np.append(x[enough], x[~enough].sum()) for x in (counts[possible], expected))
    assert 1e-4 < stats.chisquare(*table).pvalue < 1 - 1e-4


def sets_in_turn(weights, size):
    """Probability of each set of ``size`` that are drawn one after the other."""
    found: Any = Counter()
    for order in permutations(np.flatnonzero(weights).tolist(), size):
        left, p = float(np.sum(weights)), 1.0
        for each in order:
            p *= weights[each] / left
            left -= weights[each]
        found[frozenset(order)] += p
    return dict(found)


@pytest.mark.parametrize(
    ("weights", "fanout"),
    [
        # Few neighbours have exponential times.
        ([1, 2, 4, 8], 2),
        ([5, 1, 0, 3, 2, 0.5], 3),
        # More than four times as many as are picked are drawn from sums.
        ([1, 0, 2, 0, 0, 30, 0, 4, 0, 0.5, 0, 0, 7], 3),
        ([0] * 14 + [1, 2, 3] + [0] * 20 + [9, 4], 2),
        # The draws of the others are nearly all rejected, and exponential times are used.
        ([1, 0, 0, 2, 0, 1e6, 0, 4, 0, 0.5, 0, 0, 7], 3),
        ([1, 2, 0, 3, 1e9, 0, 1, 2, 3, 0, 0, 4], 2),
    ],
)
def test_sets_of_neighbours_are_drawn_one_after_the_other(weights, fanout):
    num_hubs = 2000
    sampler = WeightedSampler(star_weighted(weights, num_hubs), fanouts=[fanout], seed=6)
    counts: Counter[frozenset[int]] = Counter()
    for step in range(20):
        counts.update(frozenset(each) for each in drawn(sampler, num_hubs, step).tolist())
    expected = sets_in_turn(weights, fanout)
    assert sum(expected.values()) == pytest.approx(1)
    assert set(counts) <= set(expected)
    table = np.array([[counts[each], p * counts.total()] for each, p in expected.items()]).T
    rare = table[1] < 5
    if rare.any():
        table = np.column_stack([table[:, ~rare], table[:, rare].sum(1)])
    assert 1e-4 < stats.chisquare(*table).pvalue < 1 - 1e-4


@pytest.mark.long
@pytest.mark.parametrize("skewed", [False, True])
def test_many_neighbours_are_drawn_as_by_exponential_times(skewed):
    """Of 5,000 neighbours, in classes of weight, as many are drawn as by a slow reference."""
    rng = np.random.default_rng(2)
    degree, fanout, num_hubs = 5000, 40, 300
    classes = rng.integers(0, 6, degree)
    weights = np.float32([0, 1, 2, 5, 20, 3000 if skewed else 50])[classes]
    if skewed:
        weights[classes == 5] = 0
        weights[:3] = 1e6, 3e5, 1e5
    sampler = WeightedSampler(star_weighted(weights, num_hubs), fanouts=[fanout], seed=9)
    found = np.concatenate([drawn(sampler, num_hubs, step) for step in range(4)])
    assert all(len(set(each)) == fanout for each in found.tolist())
    times = rng.exponential(size=(1200, degree)) / np.maximum(weights, 1e-30)
    times[:, weights == 0] = np.inf
    reference = np.argpartition(times, fanout, axis=1)[:, :fanout]
    for place in range(3 if skewed else 0):
        assert (found == place).sum() == pytest.approx((reference == place).sum(), abs=100)
    table = [np.bincount(classes[each].ravel(), minlength=6) for each in (found, reference)]
    assert skewed or (table[0][0], table[1][0]) == (0, 0)
    seen = np.array(table)[:, np.sum(table, axis=0) > 20]
    assert stats.chi2_contingency(seen).pvalue > 1e-4


def test_draws_with_replacement_are_independent():
    weights, num_hubs = np.array([1.0, 2.0, 5.0]), 2000
    sampler = WeightedSampler(star_weighted(weights, num_hubs), fanouts=[4], replace=True, seed=1)
    table = np.zeros((3, 3))
    for step in range(10):
        found = drawn(sampler, num_hubs, step)
        np.add.at(table, (found[:, 0], found[:, 3]), 1)
    p = weights / weights.sum()
    expected = np.outer(p, p) * table.sum()
    assert 1e-4 < stats.chisquare(table.ravel(), expected.ravel()).pvalue < 1 - 1e-4


def test_weights_of_zero_are_never_drawn():
    graph = star_weighted([0, 1, 0, 2, 0, 1e-30, 0])
    for (fanout, count), step in product(((2, 2), (3, 3), (5, 3), (-1, 3)), range(50)):
        found = drawn(WeightedSampler(graph, fanouts=[fanout]), 1, step)[0].tolist()
        assert len(set(found)) == len(found) == count
        assert set(found) <= {1, 3, 5}
    five = drawn(WeightedSampler(graph, fanouts=[5], replace=True), 1, 0)[0].tolist()
    assert len(five) == 5
    assert set(five) <= {1, 3, 5}
    for replaced in (False, True):
        sampler = WeightedSampler(star_weighted([0, 0]), fanouts=[2], replace=replaced)
        assert sampler.sample(np.arange(3), 0).num_edges == 0


def test_blocks_tell_sums_of_weights_and_no_weights():
    batch = WeightedSampler(star_weighted([1, 2, 4], 2), fanouts=[2]).sample(np.arange(2), 0)
    block = batch.blocks[0]
    assert block.edge_weights is None
    assert block.weight_sums[:2].tolist() == [7, 7]
    assert block.weight_sums[2:].tolist() == [0] * (block.num_src - 2)


@pytest.mark.parametrize(
    ("fanouts", "replace"), [([-1], False), ([3, -1], True), ([-1, -1], True), ([4, 2, -1], False)]
)
def test_sampling_without_the_last_hop_agrees_with_the_whole(random_graph, fanouts, replace):
    graph, seeds = random_graph(), np.arange(0, 60, 3)
    config = NeighborSampling(fanouts=fanouts, replace=replace)
    shorter = without_last_hop(config)
    assert shorter.num_layers == len(fanouts)
    whole = config.sampler(graph, seed=5, num_threads=1).sample(seeds, 7)
    left = shorter.sampler(graph, seed=5, num_threads=2).sample(seeds, 7)
    assert (left.seed, left.step, left.num_seeds) == (5, 7, len(seeds))
    # V^1: the destinations of the first layer.
    num_first = whole.blocks[0].num_dst
    assert left.input_vertices.tolist() == whole.input_vertices[:num_first].tolist()
    assert left.input_vertices.dtype == whole.input_vertices.dtype
    first, *others = left.blocks
    assert (first.num_src, first.num_dst, first.num_edges) == (num_first, num_first, 0)
    assert len(others) == len(fanouts) - 1
    assert all(map(same_block, others, whole.blocks[1:]))


@pytest.mark.parametrize("fanouts", [[-1], [2, -1]])
def test_seeds_are_looked_at_and_threads_can_change(tiny_graph, fanouts):
    # Only a hop of all neighbours can be left out.
    assert without_last_hop(NeighborSampling(fanouts=[-1, 5])) is None
    assert without_last_hop(LayerSampling(layer_sizes=[10, 10])) is None
    shorter = without_last_hop(NeighborSampling(fanouts=fanouts))
    sampler = shorter.sampler(tiny_graph, seed=0, num_threads=1)
    for seeds, message in (([5], "seeds: 5 is not a vertex"), ([0, 0], "seeds: 0 appears twice")):
        with pytest.raises(ValueError, match=message):
            sampler.sample(np.array(seeds), 0)
    assert sampler.num_threads == 1
    sampler.num_threads = 2
    assert sampler.num_threads == 2
    assert sampler.sample(np.array([], np.int64), 0).num_vertices == 0


@pytest.mark.parametrize("kind", [NeighborSampling, WeightedSampling, LaborSampling])
def test_the_rule_of_time_follows_from_the_options_and_the_task(kind):
    assert kind(fanouts=[2]).time_rule(has_cutoffs=False) is None
    assert kind(fanouts=[2]).time_rule(has_cutoffs=True) == TimeRule(rule="seed")
    assert kind(fanouts=[2], time="none").time_rule(has_cutoffs=True) is None
    config = kind(fanouts=[2], time="walk", direction="forward", bound="strict", window=9)
    assert config.time_rule(has_cutoffs=True) == TimeRule(
        rule="walk", direction="forward", bound="strict", window=9
    )
    with pytest.raises(ConfigError, match="expected none for a task without cut-offs"):
        config.time_rule(has_cutoffs=False)


@pytest.mark.parametrize("kind", [NeighborSampling, WeightedSampling, LaborSampling])
def test_options_of_rules_need_one(kind):
    assert kind(fanouts=[2], time="walk").time_options == ()
    config = kind(fanouts=[2], window=9, check_times=True)
    assert config.time_options == ("sampler.window=9", "sampler.check_times=true")
    with pytest.raises(ConfigError, match=r"sampler\.bound=strict: expected a rule of time"):
        kind(fanouts=[2], time="none", bound="strict")


def test_configuration_builds_the_timed_sampler():
    graph = star(4)
    times = GraphTimes(unit="s", edges=np.zeros(graph.num_edges, np.int64))
    config = NeighborSampling(fanouts=[-1], time="seed", replace=True)
    rule = config.time_rule(has_cutoffs=True)
    sampler = config.timed_sampler(replace(graph, times=times), rule, seed=2, num_threads=1)
    for cutoff, num_edges in ((-1, 0), (0, 4)):
        batch = sampler.sample_units(np.array([0]), np.array([cutoff]), 1)
        assert batch.num_edges == num_edges
        assert batch.cutoffs.tolist() == [cutoff] * (1 + num_edges)
    with pytest.raises(ConfigError, match="expected a graph with times"):
        config.timed_sampler(graph, rule, seed=2, num_threads=1)


@pytest.mark.parametrize(
    ("config", "options", "message"),
    [
        (NeighborSampling, {"time": "never"}, "allowed are none, seed, destination, walk"),
        (NeighborSampling, {"window": 0}, "window=0: expected a whole number"),
        (NeighborSampling, {"time": "seed", "direction": "forward"}, "expected sampler.time=walk"),
        (NeighborSampling, {"strategy": "last", "replace": True}, "with sampler.replace=true"),
        (WeightedSampling, {"strategy": "last"}, "expected uniform with draws by weight"),
        (LaborSampling, {"strategy": "last"}, "expected uniform with draws by labor"),
    ],
)
def test_wrong_options_of_time_are_refused(config, options, message):
    with pytest.raises(ConfigError, match=message):
        config(fanouts=[2], **options)
