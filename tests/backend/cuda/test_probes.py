from gnnscale.backend.cuda import probes
from gnnscale.backend.cuda.host_engine import HostEngine
from gnnscale.planner import Cuda

TINY = probes.Effort(
    table_bytes=1 << 14, ids=40, width=8, vertices=300, degree=4, seeds=9, rounds=3
)


class Mark:
    """A point in time by hand: each is a second later than half of the marks before it."""

    made = 0

    def __init__(self):
        Mark.made += 1
        self.number = Mark.made

    def wait(self):
        """It is reached."""

    def seconds_since(self, earlier):
        return 0.5 * (self.number - earlier.number)


class Stream:
    """Does work at once."""

    def run(self, work, *, waits=False):
        work()

    def capture(self, work):
        stream = self

        class Again:
            def replay(self):
                stream.run(work)

        return Again()

    mark = staticmethod(Mark)

    def close(self):
        """Nothing is queued."""


def test_rates_are_work_by_the_cards_clock(monkeypatch):
    engine = HostEngine(Cuda(host_driven=True))
    monkeypatch.setattr(engine, "stream", Stream)
    found = probes.measure(engine, TINY)
    # Every probe takes half a second.
    assert found.macs_per_s == 2 * 40 * 8 * 8
    assert found.memory_bandwidth == 2 * (40 + 4) * 8 * 4
    assert found.copy_bandwidth == 2 * (1 << 14)
    assert found.link == tuple((float(width), 2.0 * 40 * width) for width in probes.WIDTHS)
    assert found.launch_s == 0.5
    # All neighbours: nine seeds have four each, and no vertex is expanded twice a hop.
    assert 2 * 36 < found.sampled_edges_per_s <= 2 * (36 + 4 * 45)


def test_the_streams_of_the_host_time_them_too():
    found = probes.measure(HostEngine(Cuda(host_driven=True)), TINY)
    rates = (found.macs_per_s, found.memory_bandwidth, found.copy_bandwidth)
    assert all(each > 0 for each in (*rates, found.sampled_edges_per_s, found.launch_s))
