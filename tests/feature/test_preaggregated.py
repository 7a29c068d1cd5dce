from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from gnnscale.feature import (
    Aggregation,
    HostFeatures,
    HostFeaturesConfig,
    PreaggregatedFeatures,
    PreaggregatedFeaturesConfig,
    check_store,
)
from gnnscale.graph import Graph
from gnnscale.sampler import NeighborSampler, NeighborSampling, without_last_hop
from gnnscale.stages import Access, Traffic

READY = np.arange(20, dtype=np.float32).reshape(5, 4)


def test_ready_rows_by_hand(tiny_graph: Graph) -> None:
    host = HostFeatures.of(tiny_graph)
    store = PreaggregatedFeatures(READY, host)
    check_store(store, tiny_graph)
    assert (store.num_rows, store.width, store.row_bytes) == (5, 2, 16)
    shorter = without_last_hop(NeighborSampling(fanouts=[-1, -1]))
    assert shorter is not None
    batch = shorter.sampler(tiny_graph, seed=0, num_threads=1).sample(np.array([3, 0]), 0)
    rows, traffic = store.aggregate(
        batch.input_vertices,
        batch.blocks[0],
        Aggregation(self_term="concat"),
        dtype=torch.float32,
        num_threads=1,
    )
    assert batch.input_vertices.tolist() == [3, 0, 1, 2]
    assert rows.tolist() == READY[[3, 0, 1, 2]].tolist()
    assert traffic == Traffic(rows=Access(host_bytes=4 * 16))
    # Rows as they are come from the graph.
    asked = np.array([3, 0])
    assert torch.equal(
        store.gather(asked, dtype=torch.float32, num_threads=1)[0],
        host.gather(asked, dtype=torch.float32, num_threads=1)[0],
    )


@pytest.mark.parametrize("stored", [torch.float32, torch.float16, torch.uint8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("self_term", ["add", "concat"])
def test_rows_are_those_of_a_block_of_all_neighbours(
    random_graph: Callable[..., Graph], stored: torch.dtype, dtype: torch.dtype, self_term: str
) -> None:
    graph = random_graph(dtype=stored)
    host = HostFeatures.of(graph)

    def aggregated(vertices: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
        batch = NeighborSampler(graph, fanouts=[-1]).sample(vertices, 0)
        scale = (1 / (vertices + 3)).astype(np.float32)
        own = Aggregation(self_term=self_term, dst_scale=scale)  # type: ignore[arg-type]
        return host.aggregate(
            batch.input_vertices, batch.blocks[0], own, dtype=dtype, num_threads=1
        )[0]

    store = PreaggregatedFeatures(aggregated(np.arange(300), torch.float32).numpy(), host)
    batch = NeighborSampler(graph, fanouts=[-1]).sample(np.arange(7, 90, 3), 0)
    found, _ = store.aggregate(
        batch.input_vertices,
        batch.blocks[0],
        Aggregation(self_term=self_term),  # type: ignore[arg-type]
        dtype=dtype,
        num_threads=2,
    )
    assert torch.equal(found, aggregated(np.arange(7, 90, 3), dtype))


def test_what_options_open(tiny_graph: Graph) -> None:
    assert not HostFeaturesConfig().preaggregates
    config = PreaggregatedFeaturesConfig()
    assert config.preaggregates
    # The graph's own: ready rows are an artefact of a run.
    assert isinstance(config.open(tiny_graph), HostFeatures)
