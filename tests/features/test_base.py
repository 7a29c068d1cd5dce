import numpy as np
import pytest
import torch
from held_rows import HoldEvenVertices, OtherRows

from gnnscale.core.errors import GraphError
from gnnscale.core.stages import Access, Traffic
from gnnscale.features import Aggregation, HostFeatures, HostFeaturesConfig, check_store
from gnnscale.sampling import NeighborSampler


@pytest.mark.parametrize("self_term", ["add", "concat"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_aggregating_gathered_rows_is_aggregating_while_reading(random_graph, self_term, dtype):
    graph = random_graph()
    batch = NeighborSampler(graph, fanouts=[5, 3]).sample(np.arange(0, 60, 2), 0)
    block, generator = batch.blocks[0], np.random.default_rng(0)
    weights = generator.standard_normal(block.num_edges).astype(np.float32)
    scale = generator.standard_normal(block.num_dst).astype(np.float32)
    aggregation = Aggregation(self_term=self_term, weights=weights, dst_scale=scale)
    arguments = (batch.input_vertices, block, aggregation)
    stores = (HostFeatures.of(graph), HoldEvenVertices().open(graph))
    (direct, read), (apart, traffic) = (
        store.aggregate(*arguments, dtype=dtype, num_threads=2) for store in stores
    )
    assert torch.equal(direct, apart)
    assert direct.shape == (block.num_dst, aggregation.width(graph.num_features))
    assert read == Traffic(rows=Access(host_bytes=block.num_src * 80))
    assert traffic.rows.host_bytes == traffic.rows.misses * 80
    assert traffic.rows.hits + traffic.rows.misses == block.num_src
    assert traffic.rows.hits > 0 < traffic.rows.misses


def test_rows_of_another_graph_are_refused(tiny_graph):
    check_store(HostFeaturesConfig().open(tiny_graph), tiny_graph)
    with pytest.raises(GraphError) as error:
        check_store(OtherRows().open(tiny_graph), tiny_graph)
    assert str(error.value) == (
        "tiny: expected a feature store of 5 rows with 2 features, got 6 rows of 2 (HostFeatures)"
    )
    narrow = HostFeatures(np.zeros((5, 1), np.float32), "float32")
    with pytest.raises(GraphError, match="got 5 rows of 1 "):
        check_store(narrow, tiny_graph)
