from collections.abc import Callable

import numpy as np
import pytest
import torch
from held_rows import HeldRows, HoldEvenVertices, OtherRows
from hypothesis import given
from hypothesis import strategies as st

from gnnscale.core.errors import GraphError
from gnnscale.core.stages import Access, Traffic
from gnnscale.features import Aggregation, HostFeatures, HostFeaturesConfig, check_store
from gnnscale.graph import Graph
from gnnscale.sampling import NeighborSampler

ROWS = np.arange(40, dtype=np.float32).reshape(10, 4)


@given(st.sets(st.integers(0, 9)), st.lists(st.integers(0, 9), max_size=30))
def test_a_store_that_wraps_a_store_has_its_rows(held: set[int], asked: list[int]) -> None:
    inner = HostFeatures(ROWS, "float32")
    store = HeldRows(inner, np.array(sorted(held), np.int64))
    vertices = np.array(asked, np.int64)
    rows, traffic = store.gather(vertices, dtype=torch.float32, num_threads=1)
    assert torch.equal(rows, torch.from_numpy(ROWS[vertices]))
    hits = sum(vertex in held for vertex in asked)
    misses = len(asked) - hits
    assert traffic == Traffic(rows=Access(hits=hits, misses=misses, host_bytes=16 * misses))


@pytest.mark.parametrize("self_term", ["add", "concat"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_aggregating_what_was_gathered_is_aggregating_while_reading(
    random_graph: Callable[..., Graph], self_term: str, dtype: torch.dtype
) -> None:
    graph = random_graph()
    batch = NeighborSampler(graph, fanouts=[5, 3]).sample(np.arange(0, 60, 2), 0)
    block, generator = batch.blocks[0], np.random.default_rng(0)
    aggregation = Aggregation(
        self_term=self_term,
        weights=generator.standard_normal(block.num_edges).astype(np.float32),
        dst_scale=generator.standard_normal(block.num_dst).astype(np.float32),
    )
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


def test_rows_of_another_graph_are_refused(tiny_graph: Graph) -> None:
    check_store(HostFeaturesConfig().open(tiny_graph), tiny_graph)
    with pytest.raises(GraphError) as error:
        check_store(OtherRows().open(tiny_graph), tiny_graph)
    assert str(error.value) == (
        "tiny: expected a feature store of 5 rows with 2 features, got 6 rows of 2 (HostFeatures)"
    )
    narrow = HostFeatures(np.zeros((5, 1), np.float32), "float32")
    with pytest.raises(GraphError, match="got 5 rows of 1 "):
        check_store(narrow, tiny_graph)
