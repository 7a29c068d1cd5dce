from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnscale.graph import Graph
from gnnscale.model import GAT, GCN, GIN, GraphSAGE, ModelConfig
from gnnscale.plan.perf.equations import BatchSize
from gnnscale.plan.perf.host_work import load_work, propagation_work
from gnnscale.plan.perf.workload import (
    LayerShape,
    Workload,
    layer_shapes,
    measure_workload,
)
from gnnscale.sampler import LayerSampling, NeighborSampler, NeighborSampling

SIZE = BatchSize(vertices=(100.0, 10.0, 2.0), edges=(120.0, 12.0))


@pytest.mark.parametrize(
    ("model", "products"),
    [
        (GraphSAGE, (((40, 8),), ((16, 3),))),
        (GCN, (((20, 8),), ((8, 3),))),
        (GIN, (((20, 8), (8, 8)), ((8, 8), (8, 3)))),
        (GAT, (((20, 8),), ((8, 24),))),
    ],
)
def test_shapes_of_layers(
    model: type[ModelConfig], products: tuple[tuple[tuple[int, int], ...], ...]
) -> None:
    shapes = layer_shapes(model(hidden=8).build(num_features=20, num_classes=3))
    assert tuple(shape.products for shape in shapes) == products
    assert [(shape.width_in, shape.width_out) for shape in shapes] == [(20, 8), (8, 3)]
    assert [shape.attention for shape in shapes] == ([8, 8] if model is GAT else [0, 0])


def test_loading_without_aggregation_reads_each_vertex_once(
    workload: Callable[..., Workload],
) -> None:
    work = load_work(workload(), SIZE, cache=0)
    assert (work.rows, work.missed_rows) == (100, 100)
    assert (work.cached_bytes, work.memory_bytes) == (0, 100 * 144)
    assert work.lookups == 0


def test_rows_that_are_not_aligned_touch_a_line_more(workload: Callable[..., Workload]) -> None:
    aligned = LayerShape(width_in=32, width_out=8, products=((32, 8),))
    assert load_work(workload(layers=(aligned,)), SIZE, cache=0).memory_bytes == 100 * 128
    askew = LayerShape(width_in=33, width_out=8, products=((33, 8),))
    assert load_work(workload(layers=(askew,)), SIZE, cache=0).memory_bytes == 100 * (132 + 64)


def test_fused_loading_reads_a_row_for_each_edge(workload: Callable[..., Workload]) -> None:
    work = load_work(workload(fused=True, uses_degrees=True), SIZE, cache=0)
    assert (work.rows, work.missed_rows) == (130, 100)
    assert (work.cached_bytes, work.memory_bytes) == (30 * 144, 100 * 144)
    assert work.lookups == 220


def test_features_in_the_cache_do_not_come_from_memory(workload: Callable[..., Workload]) -> None:
    small = workload(num_vertices=100)
    assert load_work(small, SIZE, cache=8 * 100 * 80).memory_bytes == 0
    assert load_work(small, SIZE, cache=4 * 100 * 80).memory_bytes == 50 * 144


def test_work_of_propagation(workload: Callable[..., Workload]) -> None:
    work = propagation_work(workload(), SIZE)
    # Two products in the first layer, whose input needs no gradient, three in the second.
    assert work.macs == 2 * 10 * 20 * 8 + 3 * 2 * 8 * 4
    assert work.aggregate_bytes == (130 * 20 + 2 * 14 * 8) * 4
    assert work.stream_bytes == (2 * 10 * 28 + 3 * 2 * 12) * 4
    assert (work.attention, work.num_layers) == (0, 2)
    fused = propagation_work(workload(fused=True), SIZE)
    assert fused.aggregate_bytes == 2 * 14 * 8 * 4
    assert fused.macs == work.macs


def test_attention_projects_sources_and_is_never_aggregated_on_load(
    workload: Callable[..., Workload],
) -> None:
    layer = LayerShape(width_in=20, width_out=8, products=((20, 8),), attention=2)
    attends = workload(fused=True, layers=(layer,))
    assert not attends.aggregates_on_load
    work = propagation_work(attends, BatchSize(vertices=(100.0, 10.0), edges=(120.0,)))
    assert work.macs == 2 * 100 * 20 * 8
    assert work.attention == 230 * 2
    assert work.aggregate_bytes == 0


def test_sizes_between_those_known(workload: Callable[..., Workload]) -> None:
    known = workload()
    assert known.size(10) == known.sizes[0]
    assert known.size(100).vertices == pytest.approx((10_000, 1000, 100))
    assert known.size(1).edges == pytest.approx((100, 10))
    assert known.size(2000).vertices == pytest.approx((200_000, 20_000, 2000))
    assert known.size(0).num_edges == 0


def test_seconds_between_those_measured(workload: Callable[..., Workload]) -> None:
    timed = workload(sampled=True)
    assert timed.sample_seconds(10, 1) == pytest.approx(1e-3)
    assert timed.sample_seconds(1000, 2) == pytest.approx(5e-2)
    assert timed.sample_seconds(100, 1) == pytest.approx(1e-2)
    assert timed.sample_seconds(10, 7) == pytest.approx(5e-4)
    assert timed.sample_seconds(0, 1) == 0
    assert workload().sample_seconds(10, 1) is None


@settings(max_examples=50)
@given(
    first=st.floats(1, 1e6),
    growth=st.lists(st.floats(1, 4), min_size=3, max_size=3),
    seeds=st.integers(0, 5000),
)
def test_larger_slices_are_larger(first: float, growth: list[float], seeds: int) -> None:
    values = first * np.cumprod([1.0, *growth])
    known = Workload(
        num_seeds=(16, 64, 256, 1024),
        sizes=tuple(BatchSize(vertices=(v, v), edges=(v,)) for v in values.tolist()),
        sample_threads=(),
        sample_s=(),
        layers=(),
        num_weights=0,
        num_vertices=1,
        fused=True,
    )
    small, large = known.size(seeds), known.size(seeds + 1)
    assert large.num_edges >= small.num_edges * (1 - 1e-9)
    assert small.num_edges >= 0


def test_measured_on_a_graph(random_graph: Callable[..., Graph]) -> None:
    graph = random_graph(num_vertices=2000, num_edges=20_000)
    model = GCN(hidden=8).build(num_features=graph.num_features, num_classes=5)
    sampler = NeighborSampling(fanouts=[5, 3])
    found = measure_workload(graph, model, sampler, batch_size=256, seed=3, fused=True, cores=2)
    assert found.num_seeds == (4, 16, 64, 256)
    assert found.widths == (20, 8, 5)
    assert found.weight_bytes == 4 * (20 * 8 + 8 + 8 * 5 + 5)
    assert found.feature_matrix_bytes == graph.feature_bytes
    assert found.uses_degrees
    assert found.sample_threads == (1, 2)
    assert all(seconds > 0 for row in found.sample_s for seconds in row)
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
        measure_workload(graph, model, sampler, batch_size=64, seed=0, fused=True, cores=cores)
        for cores in (1, 2)
    ]
    assert found[0].sizes == found[1].sizes


def test_a_batch_larger_than_the_training_set(random_graph: Callable[..., Graph]) -> None:
    graph = random_graph(num_vertices=3, num_edges=6)
    model = GCN(hidden=4).build(num_features=graph.num_features, num_classes=5)
    found = measure_workload(
        graph, model, NeighborSampling(fanouts=[2, 2]), batch_size=64, seed=0, fused=True, cores=1
    )
    assert found.num_seeds == (1, 3)
    assert torch.get_num_threads() >= 1
