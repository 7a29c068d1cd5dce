from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from gnnscale.graph import Graph
from gnnscale.partition.edge_cut.cost import forecast_metis, forecast_mtkahypar, one_way_share


def test_one_way_edges_are_counted_in_a_sample(
    bridge: Graph, make_graph: Callable[..., Graph]
) -> None:
    assert one_way_share(bridge) == 0
    ring = [(v, (v + 1) % 5000) for v in range(5000)]
    assert one_way_share(make_graph(ring, 5000, [0])) == 1
    half = [*ring, *((v + 1, v) for v in range(2500))]
    assert one_way_share(make_graph(half, 5000, [0])) == pytest.approx(1 / 3, abs=0.05)
    assert one_way_share(make_graph([], 3, [0])) == 0


def test_a_damaged_id_does_no_harm(bridge: Graph) -> None:
    """Whoever partitions the graph says what is wrong."""
    assert one_way_share(replace(bridge, indices=np.full(42, 1 << 40))) == 1


@pytest.mark.parametrize("tool", ["dgl", "metis"])
def test_a_larger_graph_takes_more(tool: str, bridge: Graph, communities: Graph) -> None:
    small, large = forecast_metis(bridge, tool), forecast_metis(communities, tool)
    assert small.memory_bytes < large.memory_bytes
    assert small.seconds < large.seconds


def test_more_threads_take_no_longer(communities: Graph) -> None:
    one, two = (forecast_mtkahypar(communities, threads) for threads in (1, 2))
    assert two.seconds <= one.seconds
    assert one.memory_bytes == pytest.approx(two.memory_bytes, rel=0.05)
