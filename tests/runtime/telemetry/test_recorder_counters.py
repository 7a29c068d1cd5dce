from __future__ import annotations

from gnnscale.runtime.telemetry.recorder import EpochCounters


def test_losses_are_weighted_by_seeds() -> None:
    counters = EpochCounters()
    counters.count(num_seeds=3, num_edges=10, num_vertices=7, loss=1.0)
    counters.count(num_seeds=1, num_edges=2, num_vertices=3, loss=5.0)
    assert (counters.num_batches, counters.num_edges, counters.num_vertices) == (2, 12, 10)
    assert counters.loss / counters.num_seeds == 2.0
