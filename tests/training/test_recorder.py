"""What a worker counts of its GPU."""

import time

import pytest

from gnnscale.core.gpu import GpuUse
from gnnscale.distributed.process_group import SINGLE_PROCESS
from gnnscale.training.recorder import WorkerStats


class Meter:
    """Counts calls: each takes one joule more than the one before."""

    def __init__(self) -> None:
        self.calls = 0

    def take(self) -> GpuUse:
        self.calls += 1
        return GpuUse(energy_j=float(self.calls))


@pytest.mark.parametrize("counted", [True, False])
def test_energy_is_that_of_training(counted) -> None:
    figures = WorkerStats(SINGLE_PROCESS, time.perf_counter(), Meter() if counted else None)  # type: ignore[arg-type]
    for epoch in range(2):
        figures.begin_epoch()  # what came between two epochs is no training
        figures.end_epoch(due=True)
        (mine,) = figures.by_worker
        known = {"energy_j": 2.0 + 2 * epoch, "received_bytes": None, "sent_bytes": None}
        assert mine["gpu"] == (known if counted else None)
