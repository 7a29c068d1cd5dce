from __future__ import annotations

from gnnscale.graph import Graph
from gnnscale.partition import NoPartitioner, Parts


def test_every_part_has_everything(tiny_graph: Graph) -> None:
    parts = NoPartitioner().assign(tiny_graph, num_parts=3, num_hops=2, num_threads=1)
    assert parts == Parts(num_parts=3, owner=None)
    forecast = NoPartitioner().forecast(tiny_graph, num_parts=3, num_hops=2, num_threads=1)
    assert (forecast.memory_bytes, forecast.seconds) == (0, 0)
