from collections.abc import Callable
from typing import Any

import pytest
from round_figures import workload

from gnnscale.graph import Graph
from gnnscale.nn import GCN, GNN, GraphSAGE
from gnnscale.planner.cost_model.equations import BatchSize
from gnnscale.planner.cost_model.workload import SourceEffect, Workload, measure_workload
from gnnscale.sampling import LayerSampling, NeighborSampler, NeighborSampling, ShuffledOrder


def measured(graph: Graph, model: GNN, sampler: Any, num_seeds: int, **options: Any) -> Workload:
    order = ShuffledOrder(graph.train_idx, batch_size=num_seeds, seed=0)
    return measure_workload(graph, model, sampler, order, **({"seed": 0, "cores": 1} | options))


def test_figures_between_those_known() -> None:
    known = workload()
    assert known.size(10) == known.slices.sizes[0]
    assert known.size(100).vertices == pytest.approx((10_000, 1000, 100))
    assert known.size(1).edges == pytest.approx((100, 10))
    assert known.size(2000).vertices == pytest.approx((200_000, 20_000, 2000))
    assert known.size(0).num_edges == 0
    for num_seeds, threads, seconds in (
        *[(10, 1, 1e-3), (1000, 2, 5e-2), (100, 1, 1e-2), (10, 7, 5e-4), (0, 1, 0)],
    ):
        found = workload(sampled=True).slices.sample_seconds(num_seeds, threads)
        assert found == pytest.approx(seconds)
        assert workload().slices.sample_seconds(num_seeds, threads) is None


@pytest.mark.long
def test_measured_on_a_graph(random_graph: Callable[..., Graph]) -> None:
    graph = random_graph(num_vertices=2000, num_edges=20_000)
    model = GCN(hidden=8).build(num_features=graph.num_features, num_classes=5)
    sampler = NeighborSampling(fanouts=[5, 3])
    found = measured(graph, model, sampler, 256, seed=3, cores=2)
    assert found.slices.num_seeds == (4, 16, 64, 256)
    assert found.widths == (20, 8, 5)
    assert found.weight_bytes == 4 * (20 * 8 + 8 + 8 * 5 + 5)
    assert found.num_vertices * found.row_bytes == graph.feature_bytes
    assert found.uses_degrees
    assert found.slices.sample_threads == (1, 2)
    assert all(seconds > 0 for row in found.slices.sample_s for seconds in row)
    batch = NeighborSampler(graph, fanouts=[5, 3], seed=3).sample(graph.train_idx[:256], 9)
    expected = BatchSize.of(batch)
    assert found.size(256).num_edges == pytest.approx(expected.num_edges, rel=0.2)
    assert found.size(256).vertices == pytest.approx(expected.vertices, rel=0.2)


def test_sizes_of_small_graphs(random_graph: Callable[..., Graph]) -> None:
    graph = random_graph()
    model = GraphSAGE(hidden=4).build(num_features=graph.num_features, num_classes=5)
    sampler = LayerSampling(layer_sizes=[50, 50])
    one, two = (measured(graph, model, sampler, 64, cores=cores) for cores in (1, 2))
    assert one.slices.sizes == two.slices.sizes
    graph = random_graph(num_vertices=3, num_edges=6)
    model = GCN(hidden=4).build(num_features=graph.num_features, num_classes=5)
    found = measured(graph, model, NeighborSampling(fanouts=[2, 2]), 64)
    assert found.slices.num_seeds == (1, 3)


def test_rows_of_several_kinds_cost_the_sum_of_their_parts() -> None:
    parts = [SourceEffect(row_misses=0.2, row_s=3e-6), SourceEffect(row_misses=0.05, row_s=8e-6)]
    merged = SourceEffect.of_parts([*parts, SourceEffect()])
    assert merged.row_misses == pytest.approx(0.25)
    assert merged.seconds(1000) == pytest.approx(sum(part.seconds(1000) for part in parts))
    assert SourceEffect.of_parts([SourceEffect()] * 2) == SourceEffect()
    assert SourceEffect.of_parts(parts[:1]) == parts[0]
