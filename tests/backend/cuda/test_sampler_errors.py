from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnscale import Graph, GraphError
from gnnscale.backend.cuda.capacity import DeviceGraph, Sampling
from gnnscale.backend.cuda.host_kernels import HostKernels
from gnnscale.backend.cuda.sampler import CudaSampler
from gnnscale.graph import EdgeData
from gnnscale.sampling import LayerSampling, NeighborSampling, WeightedSampling

HOST = torch.device("cpu")
SAMPLINGS: list[Sampling] = [
    NeighborSampling(fanouts=[3, 2]),
    NeighborSampling(fanouts=[-1, -1]),
    NeighborSampling(fanouts=[40, 33]),
    NeighborSampling(fanouts=[3], replace=True),
    WeightedSampling(fanouts=[3, -1]),
    WeightedSampling(fanouts=[3], replace=True),
    LayerSampling(layer_sizes=[5, 10]),
]


def random_graph(rng, *, num_vertices=40):
    degrees = rng.integers(0, 12, num_vertices)
    degrees[0] = 50
    indptr = np.concatenate([[0], np.cumsum(degrees)])
    return Graph(
        name="random",
        indptr=indptr,
        indices=rng.integers(0, num_vertices, indptr[-1], dtype=np.int32),
        features=np.zeros((num_vertices, 1), np.float32),
        feature_dtype="float32",
        labels=np.zeros(num_vertices, np.int64),
        num_classes=1,
        edges=EdgeData(weights=rng.random(indptr[-1], dtype=np.float32) + 0.5),
    )


def new_sampler(graph, sampling, **options):
    return CudaSampler(
        DeviceGraph.copy_of(graph, HOST),
        HostKernels(num_threads=2),
        sampling,
        seed=5,
        max_seeds=8,
        device=HOST,
        **options,
    )


def outcome(run):
    try:
        run()
    except ValueError as error:
        return type(error).__name__, str(error)
    return "", ""


def assert_same_outcome(graph, sampling, seeds):
    """Sample with both, without what only the host adds."""
    native = sampling.sampler(replace(graph), seed=5, num_threads=1)
    vars(native._graph)["weight_sums"] = None
    expected = outcome(lambda: native.sample(seeds, 3))
    sampler = new_sampler(graph, sampling)
    assert outcome(lambda: sampler.sample(torch.from_numpy(seeds), 3).sizes()) == expected
    return expected


@pytest.mark.long
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_seeds_that_are_refused(sampling):
    graph = random_graph(np.random.default_rng(0))
    for seeds, message in (
        ([3, 5, 3, 99], "seeds: 3 appears twice in a batch"),
        ([3, 2**40, 3], "seeds: 1099511627776 is not a vertex, the graph has 40"),
        ([3, -1, 40], "seeds: -1 is not a vertex, the graph has 40"),
        ([7, 40], "seeds: 40 is not a vertex, the graph has 40"),
    ):
        assert assert_same_outcome(graph, sampling, np.array(seeds)) == ("ValueError", message)


@pytest.mark.long
@pytest.mark.parametrize("sampling", SAMPLINGS)
@settings(max_examples=6)
@given(
    num_damaged=st.integers(1, 40),
    value=st.sampled_from([-1, -(2**31), 40, 2**31 - 1]),
    rng=st.integers(0, 1000),
)
def test_neighbours_that_are_no_vertices(sampling, num_damaged, value, rng):
    draw = np.random.default_rng(rng)
    graph = random_graph(draw)
    graph.indices[draw.integers(0, graph.num_edges, num_damaged)] = value
    graph.indices[draw.integers(0, graph.num_edges)] = 41
    assert_same_outcome(graph, sampling, draw.permutation(40)[:8])


@pytest.mark.long
@pytest.mark.parametrize("sampling", SAMPLINGS)
@settings(max_examples=6)
@given(num_damaged=st.integers(1, 10), rng=st.integers(0, 1000))
def test_lists_that_are_not_within_the_edges(sampling, num_damaged, rng):
    draw = np.random.default_rng(rng)
    graph = random_graph(draw)
    values = draw.choice([-1, graph.num_edges + 1, 2**62, -(2**62)], num_damaged)
    graph.indptr[draw.integers(1, 40, num_damaged)] = values
    assert_same_outcome(graph, sampling, draw.permutation(40)[:8])


def test_lists_that_overlap():
    """Each is within the edges, but there is only room for as many as the graph has."""
    graph = random_graph(np.random.default_rng(1))
    graph.indptr[1:40:2] = 0
    sampler = new_sampler(graph, NeighborSampling(fanouts=[-1]))
    with pytest.raises(GraphError, match=r"random: damaged, indptr: [0-9]+ edges lead to a hop's"):
        sampler.sample(torch.arange(1, 15, 2), 0).sizes()


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_a_batch_after_a_damaged_one_and_edges_without_room(sampling):
    graph = random_graph(np.random.default_rng(3))
    sampler = new_sampler(graph, sampling)
    with pytest.raises(ValueError, match="appears twice"):
        sampler.sample(torch.tensor([0, 0]), 1).sizes()
    found = sampler.sample(torch.tensor([0, 4]), 1).to_minibatch()
    expected = sampling.sampler(graph, seed=5, num_threads=1).sample(np.array([0, 4]), 1)
    assert found.input_vertices.tolist() == expected.input_vertices.tolist()
    assert found.blocks[0].indices.tolist() == expected.blocks[0].indices.tolist()
    sample = new_sampler(graph, sampling, max_edges=2).sample(torch.tensor([0, 1]), 0)
    with pytest.raises(ValueError, match=r"max_edges: hop 1 has [0-9]+ edges, there is room for 2"):
        sample.sizes()


def test_what_a_sampler_was_not_made_for():
    sampler = new_sampler(random_graph(np.random.default_rng(4)), SAMPLINGS[0])
    with pytest.raises(ValueError, match="seeds: expected at most 8, got 9"):
        sampler.sample(torch.arange(9), 0)
    with pytest.raises(ValueError, match="without: expected None with leaves_out=False"):
        sampler.sample(torch.arange(2), 0, without=(torch.arange(2), torch.arange(2)))
