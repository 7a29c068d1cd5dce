import numpy as np
import pytest
import torch
from device_samples import (
    SEED,
    Recording,
    Shape,
    assert_same,
    check,
    fanouts,
    new_sampler,
    seeds_of,
    shapes,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gnnscale import ConfigError
from gnnscale.backend.cuda import sampler_plan as module
from gnnscale.backend.cuda.host_kernels import HostKernels
from gnnscale.backend.cuda.sampler_plan import State
from gnnscale.data import Planetoid
from gnnscale.sampling import LayerSampling, NeighborSampling, WeightedSampling


@pytest.mark.long
@settings(max_examples=15)
@given(
    shape=shapes,
    counts=fanouts,
    replace=st.booleans(),
    num_seeds=st.integers(0, 20),
    num_threads=st.integers(1, 3),
)
@example(
    shape=Shape(num_vertices=60, num_edges=600, hub=3000),
    counts=[32, 300, 5],
    replace=False,
    num_seeds=20,
    num_threads=2,
)
def test_neighbours(shape, counts, replace, num_seeds, num_threads):
    kernels = HostKernels(num_threads=num_threads)
    sampling = NeighborSampling(fanouts=counts, replace=replace)
    check(shape.graph(), sampling, num_seeds=num_seeds, kernels=kernels)


@settings(max_examples=20)
@given(
    num_vertices=st.integers(1, 40),
    degree=st.integers(1, 200),
    fanout=st.integers(1, 200),
    wide=st.booleans(),
    step=st.integers(0, 2**64 - 1),
)
@example(num_vertices=3, degree=33, fanout=32, wide=False, step=2**64 - 1)
def test_fan_outs_close_to_the_degree(num_vertices, degree, fanout, wide, step):
    """Most draws find their place taken, by one that has found its own taken."""
    shape = Shape(num_vertices=num_vertices, num_edges=0, hub=degree, wide=wide, rng=degree)
    graph, sampling = shape.graph(), NeighborSampling(fanouts=[fanout])
    seeds = np.array([0])
    found = new_sampler(graph, sampling, max_seeds=1).sample(torch.from_numpy(seeds), step)
    assert_same(
        found.to_minibatch(), sampling.sampler(graph, seed=SEED, num_threads=1).sample(seeds, step)
    )


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_by_hand(tiny_graph, dtype):
    sampler = new_sampler(tiny_graph, NeighborSampling(fanouts=[-1, -1]), max_seeds=2)
    sample = sampler.sample(torch.tensor([4, 0], dtype=dtype), 0)
    assert sample.sizes().num_vertices == (2, 4, 5)
    assert sample.sizes().num_edges == (3, 6)
    batch = sample.to_minibatch()
    assert batch.input_vertices.tolist() == [4, 0, 1, 2, 3]
    assert batch.blocks[0].indptr.tolist() == [0, 1, 3, 4, 6]
    assert batch.blocks[0].indices.tolist() == [0, 2, 3, 4, 1, 4]
    assert batch.blocks[1].indices.tolist() == [0, 2, 3]


@pytest.mark.parametrize(
    "sampling",
    [
        NeighborSampling(fanouts=[25, -1]),
        NeighborSampling(fanouts=[40, 4], replace=True),
        LayerSampling(layer_sizes=[200, 300]),
    ],
)
def test_a_real_graph(test_data, sampling):
    graph = Planetoid(name="cora", raw=str(test_data / "planetoid"), undirected=True).open()
    check(graph, sampling, num_seeds=64, kernels=HostKernels(num_threads=2))


@pytest.mark.long
@pytest.mark.parametrize(
    "sampling",
    [
        NeighborSampling(fanouts=[25, -1]),
        WeightedSampling(fanouts=[50, 40]),
        LayerSampling(layer_sizes=[900, 2000]),
    ],
)
def test_many_blocks_at_a_time(sampling):
    """Tens of tiles of each scan, handed out among threads of the host."""
    shape = Shape(num_vertices=9000, num_edges=90_000, hub=3000, weighted=True)
    check(shape.graph(), sampling, num_seeds=150, kernels=HostKernels(num_threads=4))


def test_positions_lead_to_the_neighbours():
    graph = Shape(num_vertices=30, num_edges=500, hub=0).graph()
    for sampling in (NeighborSampling(fanouts=[3, -1]), LayerSampling(layer_sizes=[5, 9])):
        sampler = new_sampler(graph, sampling, max_seeds=5, edge_positions=True)
        sample = sampler.sample(torch.arange(5), 1)
        sizes = sample.sizes()
        for hop, num_dst, num_edges in zip(
            sample.hops, sizes.num_vertices, sizes.num_edges, strict=False
        ):
            assert hop.positions is not None
            places = hop.positions[:num_edges].numpy()
            sources = sample.vertices[hop.indices[:num_edges].long()]
            assert graph.indices[places].tolist() == sources.tolist()
            owners = sample.vertices[
                np.repeat(np.arange(num_dst), np.diff(hop.indptr[: num_dst + 1].numpy()))
            ].numpy()
            assert (graph.indptr[owners] <= places).all()
            assert (places < graph.indptr[owners + 1]).all()


def test_stamps_that_run_out_are_forgotten(monkeypatch):
    graph = Shape(num_vertices=50, num_edges=900, hub=0).graph()
    for sampling in (NeighborSampling(fanouts=[4, 4]), LayerSampling(layer_sizes=[9, 30])):
        capacity = new_sampler(graph, sampling, max_seeds=4).capacity
        # There is a base for two samples, so that the third starts over.
        monkeypatch.setattr(module, "_NO_STAMP", 2 * capacity.num_stamps)
        sampler = new_sampler(graph, sampling, max_seeds=4)
        native = sampling.sampler(graph, seed=SEED, num_threads=1)
        bases = []
        for step in range(6):
            seeds = seeds_of(graph, 4, step)
            found = sampler.sample(torch.from_numpy(seeds), step)
            assert_same(found.to_minibatch(), native.sample(seeds, step))
            bases.append(int(found.state[State.BASE]))
        size = capacity.num_stamps
        assert bases == [size, 0, *(2**32 - 1 - size * number for number in range(1, 5))]


@pytest.mark.parametrize(
    "sampling", [NeighborSampling(fanouts=[-1, 40]), LayerSampling(layer_sizes=[9, 30])]
)
def test_room_that_is_just_enough(sampling):
    graph = Shape(num_vertices=50, num_edges=900, hub=0).graph()
    seeds = torch.from_numpy(seeds_of(graph, 20, 0))
    native = sampling.sampler(graph, seed=SEED, num_threads=1).sample(seeds.numpy(), 0)
    listed = np.diff(graph.indptr)[native.input_vertices[: native.blocks[0].num_dst]].sum()
    layerwise = isinstance(sampling, LayerSampling)
    most = int(listed) if layerwise else max(block.num_edges for block in native.blocks)
    sampler = new_sampler(graph, sampling, max_seeds=20, max_edges=most)
    assert_same(sampler.sample(seeds, 0).to_minibatch(), native)
    sampler = new_sampler(graph, sampling, max_seeds=20, max_edges=most - 1)
    with pytest.raises(ValueError, match=f"edges, there is room for {most - 1}"):
        sampler.sample(seeds, 0).sizes()


def test_a_hop_is_four_kernels(tiny_graph):
    kernels, sampling = Recording(), NeighborSampling(fanouts=[25, 10])
    sampler = new_sampler(tiny_graph, sampling, max_seeds=2, kernels=kernels)
    sampler.sample(torch.tensor([0]), 0)
    hop = ["count", "pick", "number", "relabel"]
    named = [f"sample_{name}_int32" for name in ["begin", *hop, *hop]]
    assert kernels.names == ["sample_forget", *named]
    for options in ({"max_seeds": 0}, {"max_seeds": 1, "max_edges": 0}):
        with pytest.raises(ConfigError, match=f"{[*options][-1]}=0: must be at least 1"):
            new_sampler(tiny_graph, sampling, **options)


def test_samples_are_kept_as_long_as_there_are_slots():
    graph = Shape(num_vertices=50, num_edges=900, hub=0).graph()
    sampling = NeighborSampling(fanouts=[4, 4])
    sampler = new_sampler(graph, sampling, max_seeds=4, num_slots=2)
    native = sampling.sampler(graph, seed=SEED, num_threads=1)

    def sample(step):
        return sampler.sample(torch.from_numpy(seeds_of(graph, 4, step)), step, slot=step % 2)

    kept = [sample(0), sample(1)]
    for step, each in enumerate(kept):
        assert_same(each.to_minibatch(), native.sample(seeds_of(graph, 4, step), step))
    assert sample(2).vertices.data_ptr() == kept[0].vertices.data_ptr()
