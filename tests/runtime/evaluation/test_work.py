from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gnnscale.graph import Graph
from gnnscale.model import GIN, GraphSAGE
from gnnscale.model.projection import ProjectedLayer
from gnnscale.runtime.evaluation.work import LayerSize, Limits, find_work


def test_sizes_count_vertices_and_their_in_edges(random_graph: Callable[..., Graph]) -> None:
    graph = random_graph(50, 400)
    assert LayerSize.of(graph, range(50)) == LayerSize(num_vertices=50, num_edges=400)
    some = np.array([3, 7])
    num_edges = int(np.diff(graph.indptr)[some].sum())
    assert LayerSize.of(graph, some) == LayerSize(num_vertices=2, num_edges=num_edges)


def test_rows_are_projected_where_they_get_narrower(random_graph: Callable[..., Graph]) -> None:
    graph = random_graph(50, 400, num_features=8)
    everything = range(50)
    model = GraphSAGE(hidden=64, num_layers=2).build(num_features=8, num_classes=5)
    work = find_work(model, graph, everything, Limits(), num_threads=1)
    # 5 outputs fill 16 columns, once to be aggregated and once for the vertex itself.
    assert isinstance(work.layers[1], ProjectedLayer)
    assert work.widths == [(16, 2)]
    assert work.plan.memory_bytes == 50 * 2 * 16 * 4
    narrow = GraphSAGE(hidden=32, num_layers=2).build(num_features=8, num_classes=5)
    assert find_work(narrow, graph, everything, Limits(), num_threads=1).widths == [(32, 1)]
    product_first = GIN(hidden=64, num_layers=2).build(num_features=8, num_classes=5)
    assert find_work(product_first, graph, everything, Limits(), num_threads=1).widths == [(64, 1)]


def test_few_vertices_need_few_rows_and_no_projection(random_graph: Callable[..., Graph]) -> None:
    graph = random_graph(500, 3000, num_features=8)
    model = GraphSAGE(hidden=64, num_layers=2).build(num_features=8, num_classes=5)
    wanted = np.array([4, 2])
    work = find_work(model, graph, wanted, Limits(whole_vertices=100), num_threads=1)
    lists = [graph.indices[graph.indptr[v] : graph.indptr[v + 1]] for v in wanted]
    assert sorted(work.needed[0]) == sorted({*wanted, *np.concatenate(lists)})
    assert work.wanted is wanted
    assert work.layers[1] is model.layer(1)
    assert [each.num_vertices for each in work.sizes] == [len(work.needed[0]), 2]
