"""Samples of kernels on the host: those of the native sampler, array by array."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gnnscale import ConfigError, Graph
from gnnscale.backend.cuda import sampler as module
from gnnscale.backend.cuda.device_sample import DeviceSample
from gnnscale.backend.cuda.host import HostKernels
from gnnscale.backend.cuda.sampler import CudaSampler
from gnnscale.backend.cuda.sampler_plan import DeviceGraph, Sampling
from gnnscale.dataset import Planetoid
from gnnscale.graph import EdgeData
from gnnscale.sampler import Block, LayerSampling, MiniBatch, NeighborSampling, WeightedSampling
from gnnscale.sampler.links import without_edges

HOST = torch.device("cpu")
SEED = 2**63 + 11


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Of a random graph."""

    num_vertices: int
    num_edges: int
    hub: int  #: edges of vertex 0, besides
    wide: bool = False
    weighted: bool = False
    rng: int = 0

    def graph(self) -> Graph:
        """Draw lists with repeated neighbours and loops, and weights of which some are 0."""
        rng = np.random.default_rng(self.rng)
        num_edges = self.num_edges + self.hub
        dst = (rng.random(num_edges) ** 2 * self.num_vertices).astype(np.int64)
        dst[self.num_edges :] = 0
        src = (rng.random(num_edges) ** 3 * self.num_vertices).astype(np.int64)
        order = np.lexsort((src, dst))
        indptr = np.zeros(self.num_vertices + 1, np.int64)
        np.cumsum(np.bincount(dst, minlength=self.num_vertices), out=indptr[1:])
        weights = rng.choice([0, 1e-30, 0.5, 1, 3.25], num_edges).astype(np.float32)
        weights *= rng.random(num_edges, dtype=np.float32)
        return Graph(
            name="random",
            indptr=indptr,
            indices=src[order].astype(np.int64 if self.wide else np.int32),
            features=np.zeros((self.num_vertices, 1), np.float32),
            feature_dtype="float32",
            labels=np.zeros(self.num_vertices, np.int64),
            num_classes=1,
            edges=EdgeData(weights=weights if self.weighted else None),
        )


shapes = st.builds(
    Shape,
    num_vertices=st.integers(1, 60),
    num_edges=st.integers(0, 600),
    hub=st.sampled_from([0, 0, 90, 3000]),
    wide=st.booleans(),
    weighted=st.booleans(),
    rng=st.integers(0, 1000),
)
fanouts = st.lists(
    st.sampled_from([-1, 1, 2, 5, 8, 9, 16, 17, 31, 32, 33, 40, 300]), min_size=1, max_size=3
)


def new_sampler(
    graph: Graph, sampling: Sampling, *, max_seeds: int, kernels: Any = None, **options: Any
) -> CudaSampler:
    return CudaSampler(
        DeviceGraph.copy_of(graph, HOST),
        kernels or HostKernels(),
        sampling,
        seed=SEED,
        max_seeds=max_seeds,
        device=HOST,
        **options,
    )


def seeds_of(graph: Graph, count: int, step: int) -> np.ndarray:
    return np.random.default_rng(step).permutation(graph.num_vertices)[:count]


def assert_same(found: MiniBatch, expected: MiniBatch) -> None:
    assert (found.seed, found.step, found.num_seeds) == (
        expected.seed,
        expected.step,
        expected.num_seeds,
    )
    assert_equal(found.input_vertices, expected.input_vertices)
    for one, other in zip(found.blocks, expected.blocks, strict=True):
        for field in fields(Block):
            assert_equal(getattr(one, field.name), getattr(other, field.name))


def assert_equal(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    if isinstance(found, np.ndarray):
        assert found.dtype == expected.dtype
        assert found.tolist() == expected.tolist()
    else:
        assert found == expected


def check(graph: Graph, sampling: Sampling, *, num_seeds: int, kernels: Any = None) -> None:
    """Compare a few steps with the native sampler."""
    sampler = new_sampler(graph, sampling, max_seeds=max(num_seeds, 1), kernels=kernels)
    native = sampling.sampler(graph, seed=SEED, num_threads=1)
    for step in (0, 7, 2**40):
        seeds = seeds_of(graph, num_seeds, step)
        found = sampler.sample(torch.from_numpy(seeds), step)
        expected = native.sample(seeds, step)
        assert_same(found.to_minibatch(weight_sums=graph.weight_sums), expected)


@settings(max_examples=60)
@given(
    shape=shapes,
    counts=fanouts,
    replace=st.booleans(),
    num_seeds=st.integers(0, 20),
    num_multiprocessors=st.integers(1, 3),
    num_threads=st.integers(1, 3),
)
@example(
    shape=Shape(num_vertices=60, num_edges=600, hub=3000),
    counts=[32, 300, 5],
    replace=False,
    num_seeds=20,
    num_multiprocessors=1,
    num_threads=2,
)
def test_neighbours(
    shape: Shape,
    counts: list[int],
    replace: bool,
    num_seeds: int,
    num_multiprocessors: int,
    num_threads: int,
) -> None:
    kernels = HostKernels(num_multiprocessors=num_multiprocessors, num_threads=num_threads)
    sampling = NeighborSampling(fanouts=counts, replace=replace)
    check(shape.graph(), sampling, num_seeds=num_seeds, kernels=kernels)


@settings(max_examples=30)
@given(
    num_vertices=st.integers(1, 40),
    degree=st.integers(1, 200),
    fanout=st.integers(1, 200),
    wide=st.booleans(),
    step=st.integers(0, 2**64 - 1),
)
@example(num_vertices=3, degree=33, fanout=32, wide=False, step=2**64 - 1)
def test_fan_outs_close_to_the_degree(
    num_vertices: int, degree: int, fanout: int, wide: bool, step: int
) -> None:
    """Most draws find their place taken, by one that has found its own taken."""
    shape = Shape(num_vertices=num_vertices, num_edges=0, hub=degree, wide=wide, rng=degree)
    graph, sampling = shape.graph(), NeighborSampling(fanouts=[fanout])
    seeds = np.array([0])
    found = new_sampler(graph, sampling, max_seeds=1).sample(torch.from_numpy(seeds), step)
    assert_same(
        found.to_minibatch(), sampling.sampler(graph, seed=SEED, num_threads=1).sample(seeds, step)
    )


@settings(max_examples=30)
@given(
    shape=shapes, counts=fanouts, replace=st.booleans(), num_seeds=st.integers(0, 10)
)
@example(
    shape=Shape(num_vertices=60, num_edges=600, hub=3000), counts=[40, 5], replace=False, num_seeds=9
)
def test_neighbours_by_weight(
    shape: Shape, counts: list[int], replace: bool, num_seeds: int
) -> None:
    graph = Shape(**{**vars(shape), "weighted": True}).graph()
    check(graph, WeightedSampling(fanouts=counts, replace=replace), num_seeds=num_seeds)


def test_equal_times_are_picked_in_order() -> None:
    """An infinite weight makes a time of 0, whatever is drawn."""
    graph = Shape(num_vertices=9, num_edges=0, hub=70, weighted=True).graph()
    assert graph.edges.weights is not None
    graph.edges.weights[5:60] = np.inf
    vars(graph)["weight_sums"] = None  # which would be refused
    check(graph, WeightedSampling(fanouts=[11]), num_seeds=9)


@settings(max_examples=15)
@given(
    shape=shapes,
    sizes=st.lists(st.integers(1, 70), min_size=1, max_size=3),
    num_seeds=st.integers(0, 10),
)
@example(
    shape=Shape(num_vertices=60, num_edges=600, hub=0, weighted=True), sizes=[7, 30], num_seeds=9
)
def test_layers(shape: Shape, sizes: list[int], num_seeds: int) -> None:
    check(shape.graph(), LayerSampling(layer_sizes=sizes), num_seeds=num_seeds)


@settings(max_examples=15)
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
def test_without_edges(shape: Shape, sampling: Sampling, excluded: list[int]) -> None:
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


def test_by_hand(tiny_graph: Graph) -> None:
    sampler = new_sampler(tiny_graph, NeighborSampling(fanouts=[-1, -1]), max_seeds=2)
    sample = sampler.sample(torch.tensor([4, 0]), 0)
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
        NeighborSampling(fanouts=[25, 10]),
        NeighborSampling(fanouts=[-1, -1]),
        NeighborSampling(fanouts=[40, 4], replace=True),
        LayerSampling(layer_sizes=[200, 300]),
    ],
)
def test_a_real_graph(test_data: Path, sampling: Sampling) -> None:
    graph = Planetoid(name="cora", raw=str(test_data / "planetoid"), undirected=True).open()
    check(graph, sampling, num_seeds=64, kernels=HostKernels(num_threads=2))


def test_positions_lead_to_the_neighbours() -> None:
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


def test_stamps_that_run_out_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Shape(num_vertices=50, num_edges=900, hub=0).graph()
    for sampling in (NeighborSampling(fanouts=[4, 4]), LayerSampling(layer_sizes=[9, 30])):
        room = new_sampler(graph, sampling, max_seeds=4).room
        # There is a base for two samples, so that the third and the fifth begin anew.
        monkeypatch.setattr(module, "_NO_STAMP", 2 * room.num_stamps)
        kernels = Recording()
        sampler = new_sampler(graph, sampling, max_seeds=4, kernels=kernels)
        native = sampling.sampler(graph, seed=SEED, num_threads=1)
        for step in range(6):
            seeds = seeds_of(graph, 4, step)
            found = sampler.sample(torch.from_numpy(seeds), step)
            assert_same(found.to_minibatch(), native.sample(seeds, step))
        assert kernels.names.count("sample_forget") == 4


class Recording:
    """Kernels on the host, and the names of those that were launched."""

    def __init__(self) -> None:
        self._kernels = HostKernels()
        self.num_multiprocessors = self._kernels.num_multiprocessors
        self.names: list[str] = []

    def launch(self, name: str, *arguments: Any, **options: Any) -> None:
        self.names.append(name)
        self._kernels.launch(name, *arguments, **options)


def test_a_hop_is_four_kernels(tiny_graph: Graph) -> None:
    kernels = Recording()
    sampler = new_sampler(
        tiny_graph, NeighborSampling(fanouts=[25, 10]), max_seeds=2, kernels=kernels
    )
    sampler.sample(torch.tensor([0]), 0)
    hop = ["count", "pick", "number", "relabel"]
    assert kernels.names == [f"sample_{name}_int32" for name in ["begin", *hop, *hop]]


def test_samples_are_kept_as_long_as_there_are_slots() -> None:
    graph = Shape(num_vertices=50, num_edges=900, hub=0).graph()
    sampling = NeighborSampling(fanouts=[4, 4])
    sampler = new_sampler(graph, sampling, max_seeds=4, num_slots=2)
    native = sampling.sampler(graph, seed=SEED, num_threads=1)

    def sample(step: int) -> DeviceSample:
        return sampler.sample(torch.from_numpy(seeds_of(graph, 4, step)), step)

    kept = [sample(0), sample(1)]
    for step, each in enumerate(kept):
        assert_same(each.to_minibatch(), native.sample(seeds_of(graph, 4, step), step))
    assert sample(2).vertices.data_ptr() == kept[0].vertices.data_ptr()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_seeds": 0}, "max_seeds=0: must be at least 1"),
        ({"max_seeds": 1, "max_edges": 0}, "max_edges=0: must be at least 1"),
    ],
)
def test_room_that_is_none(tiny_graph: Graph, options: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        new_sampler(tiny_graph, NeighborSampling(fanouts=[2]), **options)


def test_weights_that_are_missing(tiny_graph: Graph) -> None:
    with pytest.raises(ConfigError, match=r"sampler=weighted: edges of .* have no weights"):
        new_sampler(tiny_graph, WeightedSampling(fanouts=[2]), max_seeds=1)
