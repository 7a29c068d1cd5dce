from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnscale.graph import Graph
from gnnscale.model import GCN, GraphSAGE
from gnnscale.plan.perf.equations import BatchSize
from gnnscale.plan.perf.workload import (
    KnownSlices,
    Workload,
    measure_workload,
)
from gnnscale.sampler import LayerSampling, NeighborSampler, NeighborSampling, ShuffledOrder


def shuffled(graph: Graph, batch_size: int, *, seed: int = 0) -> ShuffledOrder:
    return ShuffledOrder(graph.train_idx, batch_size=batch_size, seed=seed)


def test_sizes_between_those_known(workload: Callable[..., Workload]) -> None:
    known = workload()
    assert known.size(10) == known.slices.sizes[0]
    assert known.size(100).vertices == pytest.approx((10_000, 1000, 100))
    assert known.size(1).edges == pytest.approx((100, 10))
    assert known.size(2000).vertices == pytest.approx((200_000, 20_000, 2000))
    assert known.size(0).num_edges == 0


def test_seconds_between_those_measured(workload: Callable[..., Workload]) -> None:
    timed = workload(sampled=True)
    assert timed.slices.sample_seconds(10, 1) == pytest.approx(1e-3)
    assert timed.slices.sample_seconds(1000, 2) == pytest.approx(5e-2)
    assert timed.slices.sample_seconds(100, 1) == pytest.approx(1e-2)
    assert timed.slices.sample_seconds(10, 7) == pytest.approx(5e-4)
    assert timed.slices.sample_seconds(0, 1) == 0
    assert workload().slices.sample_seconds(10, 1) is None


@settings(max_examples=50)
@given(
    first=st.floats(1, 1e6),
    growth=st.lists(st.floats(1, 4), min_size=3, max_size=3),
    seeds=st.integers(0, 5000),
)
def test_larger_slices_are_larger(first: float, growth: list[float], seeds: int) -> None:
    values = first * np.cumprod([1.0, *growth])
    known = KnownSlices(
        num_seeds=(16, 64, 256, 1024),
        sizes=tuple(BatchSize(vertices=(v, v), edges=(v,)) for v in values.tolist()),
    )
    small, large = known.size(seeds), known.size(seeds + 1)
    assert large.num_edges >= small.num_edges * (1 - 1e-9)
    assert small.num_edges >= 0


def test_measured_on_a_graph(random_graph: Callable[..., Graph]) -> None:
    graph = random_graph(num_vertices=2000, num_edges=20_000)
    model = GCN(hidden=8).build(num_features=graph.num_features, num_classes=5)
    sampler = NeighborSampling(fanouts=[5, 3])
    found = measure_workload(graph, model, sampler, shuffled(graph, 256, seed=3), seed=3, cores=2)
    assert found.slices.num_seeds == (4, 16, 64, 256)
    assert found.widths == (20, 8, 5)
    assert found.weight_bytes == 4 * (20 * 8 + 8 + 8 * 5 + 5)
    assert found.feature_matrix_bytes == graph.feature_bytes
    assert found.uses_degrees
    assert found.slices.sample_threads == (1, 2)
    assert all(seconds > 0 for row in found.slices.sample_s for seconds in row)
    expected = BatchSize.of(
        NeighborSampler(graph, fanouts=[5, 3], seed=3).sample(graph.train_idx[:256], 9)
    )
    assert found.size(256).num_edges == pytest.approx(expected.num_edges, rel=0.2)
    assert found.size(256).vertices == pytest.approx(expected.vertices, rel=0.2)


def test_sizes_depend_on_the_seed_alone(random_graph: Callable[..., Graph]) -> None:
    graph = random_graph()
    model = GraphSAGE(hidden=4).build(num_features=graph.num_features, num_classes=5)
    sampler = LayerSampling(layer_sizes=[50, 50])
    found = [
        measure_workload(graph, model, sampler, shuffled(graph, 64), seed=0, cores=cores)
        for cores in (1, 2)
    ]
    assert found[0].slices.sizes == found[1].slices.sizes


def test_a_batch_larger_than_the_training_set(random_graph: Callable[..., Graph]) -> None:
    graph = random_graph(num_vertices=3, num_edges=6)
    model = GCN(hidden=4).build(num_features=graph.num_features, num_classes=5)
    found = measure_workload(
        graph, model, NeighborSampling(fanouts=[2, 2]), shuffled(graph, 64), seed=0, cores=1
    )
    assert found.slices.num_seeds == (1, 3)
    assert torch.get_num_threads() >= 1
