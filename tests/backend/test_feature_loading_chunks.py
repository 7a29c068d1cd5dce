import numpy as np
import pytest
import torch

from gnnscale.backend.feature_loading import ChunkLoader
from gnnscale.features import HostFeatures
from gnnscale.graph import Graph
from gnnscale.nn import GCN, GIN, GraphSAGE
from gnnscale.nn.conv.linear import LinearAggregationLayer

WHOLE = {"chunk_edges": 1 << 20, "chunk_vertices": 1 << 14}


def test_sums_by_hand(tiny_graph: Graph) -> None:
    layer = GIN(hidden=4).layer(2, 3, last=False)
    loader = ChunkLoader(tiny_graph, num_threads=1, uses_degrees=True)
    ((block, rows),) = loader.load(layer, HostFeatures.of(tiny_graph), np.arange(5))
    # 0 <- 1, 2; 1 <- 3; 2 <- 0, 3; 3 <- nobody; 4 <- 4; features are (v, 10 v).
    assert rows[:, 0].tolist() == [0 + 1 + 2, 1 + 3, 2 + 0 + 3, 3, 4 + 4]
    assert rows[:, 1].tolist() == [30, 40, 50, 30, 80]
    assert (block.num_dst, block.num_edges) == (5, 6)


@pytest.mark.parametrize("model", [GCN(hidden=4), GraphSAGE(hidden=4), GIN(hidden=4)])
def test_any_chunks_have_the_same_rows(random_graph, model) -> None:
    graph = random_graph()
    layer, store = model.layer(20, 3, last=False), HostFeatures.of(graph)
    loader = ChunkLoader(graph, num_threads=2, uses_degrees=layer.uses_degrees)
    vertices = np.random.default_rng(0).permutation(300)[:200]
    ((_, together),) = loader.load(layer, store, vertices, **WHOLE)
    chunks = list(loader.load(layer, store, vertices, chunk_edges=100, chunk_vertices=10))
    assert len(chunks) > 10
    assert torch.equal(torch.cat([rows for _, rows in chunks]), together)
    degrees = np.diff(graph.indptr)[vertices]
    assert sum(block.num_edges for block, _ in chunks) == degrees.sum()
    # A vertex may bring more edges than a chunk is to have; then it is the last one.
    assert all(block.num_edges <= 100 + degrees.max() for block, _ in chunks)
    assert all(block.num_dst <= 11 for block, _ in chunks)


@pytest.mark.parametrize("model", [GCN(hidden=4), GraphSAGE(hidden=4), GIN(hidden=4)])
def test_lists_that_are_taken_as_they_are_give_the_same_rows(random_graph, model) -> None:
    graph = random_graph()
    layer, store = model.layer(20, 3, last=False), HostFeatures.of(graph)
    assert isinstance(layer, LinearAggregationLayer)
    loader = ChunkLoader(graph, num_threads=1, uses_degrees=layer.uses_degrees)
    vertices = np.arange(17, 230, dtype=graph.indices.dtype)
    expected = graph.indices[graph.indptr[17] : graph.indptr[230]]
    options = {"dtype": torch.float32, "num_threads": 1}
    rows = []
    for distinct in (True, False):
        sources, block, degrees = loader.neighbours(vertices, distinct=distinct)
        assert (len(np.unique(sources)) == len(sources)) == distinct
        assert block.num_src == len(sources)
        assert sources[:213].tolist() == vertices.tolist()
        assert sources[block.indices].tolist() == expected.tolist()
        rows.append(layer.load(store, sources, block, degrees, **options)[0])
    assert torch.equal(*rows)
    # Vertices that are not consecutive are looked up.
    sources, _, _ = loader.neighbours(vertices[::-1].copy(), distinct=False)
    assert len(np.unique(sources)) == len(sources)
