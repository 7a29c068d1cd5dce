import numpy as np
import pytest

from gnnscale.sampling import LayerSampler, NeighborSampler
from gnnscale.training.p3.split_run import pack, unpack


@pytest.mark.parametrize("id_type", [np.int32, np.int64])
@pytest.mark.parametrize("num_seeds", [0, 1, 20])
@pytest.mark.parametrize("weighted", [False, True])
def test_what_is_unpacked_is_what_was_packed(random_graph, id_type, num_seeds, weighted) -> None:
    graph = random_graph()
    object.__setattr__(graph, "indices", graph.indices.astype(id_type))
    layers, neighbors = {"layer_sizes": [30, 40]}, {"fanouts": [3, 2]}
    sampler = LayerSampler(graph, **layers) if weighted else NeighborSampler(graph, **neighbors)
    batch = sampler.sample(np.arange(num_seeds, dtype=id_type), 0)
    found = unpack(pack(batch), np.dtype(id_type))
    block = batch.blocks[0]
    assert found.vertices.dtype == id_type
    assert found.vertices.tolist() == batch.input_vertices.tolist()
    assert found.block.indptr.tolist() == block.indptr.tolist()
    assert found.block.indices.tolist() == block.indices.tolist()
    assert found.block.num_src == block.num_src
    assert (found.block.importance is None) == (block.importance is None)
    if block.importance is not None:
        assert found.block.importance is not None
        assert found.block.importance.tolist() == block.importance.tolist()


def test_the_size_is_that_of_vertices_counts_and_edges(tiny_graph) -> None:
    batch = NeighborSampler(tiny_graph, fanouts=[-1]).sample(np.array([0, 2]), 0)
    # 0 <- 1, 2 and 2 <- 0, 3: four vertices, two destinations, four edges, and a header of six.
    assert pack(batch).tolist() == [2, 4, 4, 0, 0, 0, *(0, 2, 1, 3), *(2, 2), *(2, 1, 0, 3)]


@pytest.mark.long
@pytest.mark.timeout(120)
def test_a_split_model_learns_what_the_whole_one_does(together) -> None:
    together("check_split", 3)
