import numpy as np
import pytest
import torch
from device_samples import SEED, Shape, assert_same, check, fanouts, new_sampler, seeds_of, shapes
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gnnscale import ConfigError
from gnnscale.sampling import LayerSampling, NeighborSampling, WeightedSampling
from gnnscale.sampling.edge_removal import without_edges


@pytest.mark.long
@settings(max_examples=15)
@given(shape=shapes, counts=fanouts, replace=st.booleans(), num_seeds=st.integers(0, 10))
@example(
    shape=Shape(num_vertices=60, num_edges=600, hub=3000),
    counts=[40, 5],
    replace=False,
    num_seeds=9,
)
def test_neighbours_by_weight(shape, counts, replace, num_seeds):
    graph = Shape(**{**vars(shape), "weighted": True}).graph()
    check(graph, WeightedSampling(fanouts=counts, replace=replace), num_seeds=num_seeds)


@pytest.mark.parametrize(("hub", "replace"), [(90, False), (3000, False), (3000, True)])
def test_draws_that_are_rejected_too_often(hub, replace):
    """One edge has nearly all the weight, so that most of the others have exponential times."""
    graph = Shape(num_vertices=9, num_edges=40, hub=hub, weighted=True).graph()
    assert graph.edges.weights is not None
    graph.edges.weights[17] = 1e30
    check(graph, WeightedSampling(fanouts=[11, 20], replace=replace), num_seeds=9)


def test_equal_times_are_picked_in_order(tiny_graph):
    """An infinite weight makes a time of 0, whatever is drawn."""
    graph = Shape(num_vertices=9, num_edges=0, hub=70, weighted=True).graph()
    graph.edges.weights[5:60] = np.inf
    vars(graph)["weight_sums"] = None  # which would be refused
    check(graph, WeightedSampling(fanouts=[11]), num_seeds=9)
    with pytest.raises(ConfigError, match=r"sampler=weighted: edges of .* have no weights"):
        new_sampler(tiny_graph, WeightedSampling(fanouts=[2]), max_seeds=1)


@pytest.mark.long
@settings(max_examples=10)
@given(
    shape=shapes,
    sizes=st.lists(st.integers(1, 70), min_size=1, max_size=3),
    num_seeds=st.integers(0, 10),
)
@example(
    shape=Shape(num_vertices=60, num_edges=600, hub=0, weighted=True), sizes=[7, 30], num_seeds=9
)
def test_layers(shape, sizes, num_seeds):
    check(shape.graph(), LayerSampling(layer_sizes=sizes), num_seeds=num_seeds)


@pytest.mark.long
@settings(max_examples=10)
@given(
    shape=shapes,
    sampling=st.one_of(
        st.builds(NeighborSampling, fanouts=fanouts, replace=st.booleans()),
        st.builds(LayerSampling, layer_sizes=st.just([9, 30])),
    ),
    excluded=st.lists(st.integers(0, 599), max_size=40),
)
@example(
    shape=Shape(num_vertices=20, num_edges=600, hub=0, weighted=True),
    sampling=NeighborSampling(fanouts=[-1, 5]),
    excluded=list(range(100)),
)
def test_without_edges(shape, sampling, excluded):
    graph = shape.graph()
    places = [place for place in excluded if place < graph.num_edges]
    owners = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    sources, destinations = graph.indices[places], owners[places]
    sampler = new_sampler(graph, sampling, max_seeds=9, leaves_out=True)
    native = sampling.sampler(graph, seed=SEED, num_threads=1)
    seeds = seeds_of(graph, 9, 1)
    for ends in ((sources, destinations), (sources[:0], destinations[:0])):
        found = sampler.sample(
            torch.from_numpy(seeds),
            4,
            without=(torch.from_numpy(ends[0]), torch.from_numpy(ends[1])),
        )
        expected = without_edges(native.sample(seeds, 4), *ends)
        assert_same(found.to_minibatch(weight_sums=graph.weight_sums), expected)
    whole = sampler.sample(torch.from_numpy(seeds), 4)
    assert_same(whole.to_minibatch(weight_sums=graph.weight_sums), native.sample(seeds, 4))
