from gnnscale.backend.cuda import probes
from gnnscale.backend.cuda.host_engine import HostEngine
from gnnscale.planner import Cuda

TINY = probes.Effort(
    table_bytes=1 << 14, ids=40, width=8, vertices=300, degree=4, seeds=9, rounds=3
)


def test_the_streams_of_the_host_time_them_too():
    found = probes.measure(HostEngine(Cuda(host_driven=True)), TINY)
    rates = (found.macs_per_s, found.memory_bandwidth, found.copy_bandwidth)
    assert all(each > 0 for each in (*rates, found.sampled_edges_per_s, found.launch_s))
