from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sampled import assert_slices_are_of_the_whole, neighbours, picked

from gnnscale import ConfigError, Graph
from gnnscale.data import from_arrays
from gnnscale.graph import EdgeData
from gnnscale.sampling import LaborSampler, LaborSampling, NeighborSampler, without_last_hop

GOLDEN = 0x9E3779B97F4A7C15
LABOR = 0xBE4BA423396CFEB9
WORD = 2**64


def mix(z):
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % WORD
    return z ^ (z >> 31)


def draw(key, index):
    return mix((key + (index + 1) * GOLDEN) % WORD)


def number(seed, step, hop, vertex, copy):
    """Return the random number of copy ``copy`` of a vertex, in Python's own integers."""
    found = draw(draw(draw(mix(seed ^ LABOR), step), hop), vertex)
    return draw(found, copy) if copy else found


def smallest(neighbours, k, of):
    """Return the ``k`` neighbours of the smallest numbers, in the order of their list."""
    numbers, copy = [], 0
    for place, vertex in enumerate(neighbours):
        copy = copy + 1 if place and neighbours[place - 1] == vertex else 0
        numbers.append((of(vertex, copy), place))
    return [neighbours[place] for place in sorted(place for _, place in sorted(numbers)[:k])]


def stars(lists):
    """Return a graph whose first vertices have these lists, of vertices numbered after them."""
    hubs = len(lists)
    count = hubs + 1 + max(max(each) for each in lists)
    indptr = np.zeros(count + 1, np.int64)
    indptr[1:] = np.cumsum([len(each) for each in lists] + [0] * (count - hubs))
    return Graph(
        name="stars",
        features=np.zeros((count, 1), np.float32),
        feature_dtype="float32",
        indptr=indptr,
        indices=np.concatenate(lists).astype(np.int32) + np.int32(hubs),
        labels=np.zeros(count, np.int64),
        num_classes=2,
    )


def kept(graph, hub, fanout, num_steps, size):
    """Return ``[num_steps, size]``, how often each neighbour of ``hub`` is kept in each step."""
    sampler = LaborSampler(graph, fanouts=[fanout], seed=3)
    counts, first = np.zeros((num_steps, size)), graph.num_vertices - size
    for step in range(num_steps):
        batch = sampler.sample(np.array([hub]), step)
        np.add.at(counts[step], batch.input_vertices[batch.blocks[0].indices] - first, 1)
    return counts


@pytest.mark.long
@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.sampled_from([-1, 1, 2, 5, 17, 40]), min_size=1, max_size=3),
    st.booleans(),
    st.data(),
)
def test_the_smallest_numbers_are_kept(random_graph, fanouts, layer_dependency, data):
    """What is sampled is what a slow reference finds, with copies of a neighbour in many lists."""
    num_vertices = data.draw(st.integers(1, 40))
    graph = random_graph(num_vertices, data.draw(st.integers(0, 1500)), num_features=1)
    dtype = data.draw(st.sampled_from([np.int32, np.int64]))
    graph = replace(graph, indices=graph.indices.astype(dtype))
    vertex = st.integers(0, num_vertices - 1)
    seeds = np.array(data.draw(st.lists(vertex, min_size=1, max_size=20, unique=True)))
    seed, step = data.draw(st.integers(0, 2**63 - 1)), data.draw(st.integers(0, 2**40))
    threads = data.draw(st.sampled_from([1, 2, 8]))
    options = {"layer_dependency": layer_dependency, "seed": seed, "num_threads": threads}
    sampler = LaborSampler(graph, fanouts=fanouts, **options)
    batch = sampler.sample(seeds, step)
    assert batch.seeds.tolist() == seeds.tolist()
    for hop, (fanout, block) in enumerate(zip(fanouts, reversed(batch.blocks), strict=True)):
        key = 0 if layer_dependency else hop
        for v, found in picked(batch, block).items():
            every = neighbours(graph, v)
            k = len(every) if fanout < 0 else min(fanout, len(every))
            assert found == smallest(every, k, lambda t, c, h=key: number(seed, step, h, t, c))
    reach = sampler.reach(seeds, step)
    assert reach.input_vertices.tolist() == batch.input_vertices.tolist()
    for indptr, block in zip(reach.indptrs, reversed(batch.blocks), strict=True):
        assert indptr.tolist() == block.indptr.tolist()


@pytest.mark.parametrize(
    ("degree", "fanout"),
    [
        *((33, 1), (33, 64), (600, 10), (600, 64), (600, 500)),
        pytest.param(70_000, 500, marks=pytest.mark.long),
    ],
)
def test_long_lists(degree, fanout):
    """Lists and fan-outs that are searched in several parts, and with copies among them."""
    rng = np.random.default_rng(degree)
    lists = [np.sort(rng.integers(0, 3 * degree, degree)).tolist() for _ in range(2)]
    lists.append([0] * 40 + list(range(degree)))
    graph = stars(lists)
    batch = LaborSampler(graph, fanouts=[fanout], seed=9).sample(np.arange(3), 5)
    for v, found in picked(batch, batch.blocks[0]).items():
        assert found == smallest(neighbours(graph, v), fanout, lambda t, c: number(9, 5, 0, t, c))


def test_by_hand():
    """Lists that have a neighbour of the smallest number keep it, and agree on all others."""
    graph = stars([[0, 1, 2, 3], [0, 1, 2, 3], [1, 3]])
    order = sorted(range(3, 7), key=lambda t: number(0, 1, 0, t, 0))
    batch = LaborSampler(graph, fanouts=[2]).sample(np.arange(3), 1)
    found = picked(batch, batch.blocks[0])
    assert found[0] == found[1] == sorted(order[:2])
    assert found[2] == [4, 6]


def test_means_are_unbiased_with_copies_of_neighbours():
    """A mean over kept edges has the mean over all as its expectation."""
    values = np.array([1.0, 5.0, -3.0, 8.0])
    neighbours = [0, 0, 0, 1, 2, 2, 3]
    graph = stars([neighbours])
    means = kept(graph, 0, 3, 20_000, 4) @ values / 3
    error = means.std() / np.sqrt(len(means))
    assert abs(means.mean() - values[neighbours].mean()) < 4 * error


@pytest.mark.long
@pytest.mark.parametrize(("layer_dependency", "expected"), [(False, 1 / 4), (True, 1 / 3)])
def test_means_over_two_hops(layer_dependency, expected):
    """Hops with separate numbers are unbiased; hops with the same numbers are not.

    Vertex 0 keeps 1 or 2; vertex 1 keeps 1 or 3, vertex 2 keeps 4 or 5. The mean of what is kept is
    that of vertices 1, 3, 4 and 5, each as often. With the same numbers, vertex 1 is kept twice if
    its number is the smallest of three.
    """
    lists = [[1, 2], [1, 3], [4, 5], [], [], []]
    edges = [(src, dst) for dst, sources in enumerate(lists) for src in sources]
    src, dst = np.array(edges).T
    graph = from_arrays((src, dst), np.zeros((6, 1), np.float32))
    sampler = LaborSampler(graph, fanouts=[1, 1], layer_dependency=layer_dependency, seed=2)
    steps, kept = 3000, 0
    for step in range(steps):
        batch = sampler.sample(np.array([0], np.int32), step)
        ((first,),) = picked(batch, batch.blocks[-1]).values()
        kept += picked(batch, batch.blocks[0])[first] == [1]
    error = np.sqrt(expected * (1 - expected) / steps)
    assert abs(kept / steps - expected) < 4 * error


def variances(sampler, values, seeds, num_steps):
    """Return the variance of the seeds' mean over all hops, and the mean one of a single seed's."""
    found = []
    for step in range(num_steps):
        batch = sampler.sample(seeds, step)
        rows = values[batch.input_vertices]
        for block in batch.blocks:
            rows = np.add.reduceat(rows[block.indices], block.indptr[:-1]) / np.diff(block.indptr)
        found.append(rows)
    return np.mean(found, axis=1).var(), np.var(found, axis=0).mean()


@pytest.mark.long
@pytest.mark.parametrize(
    ("num_vertices", "degree", "batch_size", "expected", "of_one"),
    [
        (2_000, 25, 1_024, 17, 1),  # the three of docs/choosing-options.md
        (10_000, 25, 1_024, 6.7, 1),
        (10_000, 10, 1_024, 2.6, 1),
        (100, 50, 100, 23, 1.7),
    ],
)
def test_the_variance_of_a_mean_over_a_mini_batch(
    num_vertices, degree, batch_size, expected, of_one
):
    """Vertices that share neighbours keep the same ones, and so do the neighbours of a vertex."""
    rng = np.random.default_rng(0)
    dst = np.repeat(np.arange(num_vertices), degree)
    edges = (rng.integers(0, num_vertices, len(dst)), dst)
    values = rng.standard_normal(num_vertices)
    graph = from_arrays(edges, np.zeros((num_vertices, 1), np.float32))
    seeds = rng.choice(num_vertices, batch_size, replace=False)
    steps = 150
    samplers = (kind(graph, fanouts=[5, 5], seed=1) for kind in (LaborSampler, NeighborSampler))
    labor, uniform = (variances(each, values, seeds, steps) for each in samplers)
    # The logarithm of a ratio of two such variances has the standard error 2 / sqrt(steps).
    assert abs(np.log(labor[0] / uniform[0] / expected)) < 3 * 2 / np.sqrt(steps)
    assert labor[1] / uniform[1] == pytest.approx(of_one, rel=0.1)


@pytest.mark.long
@pytest.mark.parametrize(("num_parts", "layer_dependency"), [(2, True), (37, False)])
def test_splitting_the_seeds_makes_no_difference(random_graph, num_parts, layer_dependency):
    graph = random_graph(2000, 40_000, num_features=1)
    seeds = np.random.default_rng(0).permutation(2000)[:200]
    options = {"fanouts": [7, 3, 20], "layer_dependency": layer_dependency, "seed": 1}
    whole = LaborSampler(graph, **options).sample(seeds, 2)
    sampler = LaborSampler(graph, **options, num_threads=3)
    parts = [sampler.sample(part, 2) for part in np.array_split(seeds, num_parts)]
    assert_slices_are_of_the_whole(whole, parts)


@pytest.mark.parametrize("threads", [1, 8])
def test_weights_of_kept_edges(random_graph, threads):
    graph = random_graph(300, 6000, num_features=1)
    weights = np.random.default_rng(1).random(graph.num_edges).astype(np.float32)
    graph = replace(graph, edges=EdgeData(weights=weights))
    batch = LaborSampler(graph, fanouts=[4, -1], num_threads=threads).sample(np.arange(40), 0)
    ids = batch.input_vertices
    for block in batch.blocks:
        dst = np.repeat(ids[: block.num_dst], np.diff(block.indptr))
        assert block.importance is None
        assert block.edge_weights is not None
        assert block.weight_sums is not None
        for v, u, weight in zip(dst, ids[block.indices], block.edge_weights, strict=True):
            first, last = graph.indptr[v], graph.indptr[v + 1]
            edges = zip(graph.indices[first:last], weights[first:last], strict=True)
            assert (u, weight) in edges


@pytest.mark.parametrize("fanouts", [[0], [5, -2], [], [2**63 - 1]])
def test_fanouts_that_are_refused(fanouts):
    with pytest.raises(ConfigError, match=r"^sampler\.fanouts="):
        LaborSampling(fanouts=fanouts)


def test_configuration_builds_the_sampler(tiny_graph):
    sampling = LaborSampling(fanouts=[3, -1], layer_dependency=True)
    assert sampling.num_layers == 2
    sampler = sampling.sampler(tiny_graph, seed=8, num_threads=2)
    assert (sampler.fanouts, sampler.layer_dependency, sampler.seed) == ([3, -1], True, 8)
    batch = sampler.sample(np.array([0]), 1)
    assert (batch.seed, batch.step) == (8, 1)


def test_the_last_hop_may_be_left_out(random_graph):
    graph = random_graph(200, 3000, num_features=1)
    sampling, seeds = LaborSampling(fanouts=[4, 3, -1]), np.arange(9)
    shorter = without_last_hop(sampling)
    assert shorter.num_layers == 3
    outer = shorter.sampler(graph, seed=5, num_threads=1).sample(seeds, 2)
    whole = sampling.sampler(graph, seed=5, num_threads=1).sample(seeds, 2)
    assert outer.blocks[0].num_edges == 0
    for mine, its in zip(outer.blocks[1:], whole.blocks[1:], strict=True):
        assert mine.indices.tolist() == its.indices.tolist()
    assert without_last_hop(LaborSampling(fanouts=[-1, 3])) is None
