"""What a worker counts of its GPU, and of other programs."""

import time

import pytest

from gnnscale.core.gpu import GpuUse
from gnnscale.distributed.process_group import SINGLE_PROCESS
from gnnscale.training import recorder
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


@pytest.mark.parametrize(
    ("seconds", "others_s", "load"), [(1.0, 1.0, None), (10.0, 5.0, 0.25), (10.0, 40.0, 1.0)]
)
def test_the_load_of_others_is_what_is_not_ones_own(monkeypatch, seconds, others_s, load) -> None:
    """Of 2 cores; this process takes 3 seconds itself."""
    clock, busy, own = iter([0.0, seconds, seconds]), iter([7.0, 10.0 + others_s]), iter([1.0, 4.0])
    monkeypatch.setattr(recorder.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(recorder.time, "process_time", lambda: next(own))
    monkeypatch.setattr(recorder, "busy_seconds", lambda: next(busy))
    monkeypatch.setattr(recorder, "usable_cores", lambda: 2)
    monkeypatch.setattr(WorkerStats, "_pss_bytes", lambda _: None)
    figures = WorkerStats(SINGLE_PROCESS, 0.0, None)
    figures.end_epoch(due=True)
    assert figures.other_load == load
    assert "cpu_s" not in figures.by_worker[0]
