import pytest
from one_line import one_line

from gnnscale.backend.base import DeviceMemoryError
from gnnscale.backend.cuda.host_engine import HostEngine
from gnnscale.backend.cuda.placement import place_graph
from gnnscale.core import Access
from gnnscale.planner import Cuda


def placed(graph, *, memory_bytes, kept_bytes=0, **options):
    device = Cuda(host_driven=True, memory_bytes=memory_bytes, **options)
    return place_graph(graph, device, HostEngine(device), kept_bytes=kept_bytes)


@pytest.fixture
def graph(random_graph):
    return random_graph(num_vertices=200, num_edges=1000, num_features=32)


def test_what_fits_lies_on_the_device_topology_first(graph):
    topology, features = graph.topology_bytes, graph.feature_bytes
    assert topology < features
    found = [
        placed(graph, memory_bytes=int(size))
        for size in (2 * (topology + features), 2 * features, topology)
    ]
    assert [each.lists_on_device for each in found] == [True, True, False]
    assert [each.rows_on_device for each in found] == [True, False, False]


def test_what_is_asked_for_is_done_or_refused_with_the_other_way(graph):
    size = graph.feature_bytes + 1000
    assert placed(graph, memory_bytes=size, features="device", topology="host").rows_on_device
    assert not placed(graph, memory_bytes=1 << 30, features="host").rows_on_device
    with one_line("features=device", "MB", "features=host", error=DeviceMemoryError):
        placed(graph, memory_bytes=size, kept_bytes=2000, features="device", topology="host")
    with one_line("topology=device", "topology=host", error=DeviceMemoryError):
        placed(graph, memory_bytes=1000, topology="device")


def test_rows_and_lists_over_the_link_are_counted(graph):
    on_host = placed(graph, memory_bytes=1 << 20, features="host", topology="host")
    # Rows of 128 bytes, which begin anywhere: a request or two each.
    rows = on_host.row_access(10)
    assert rows.host_bytes == rows.link_bytes == 10 * 128
    assert 10 <= rows.link_requests <= 20
    lists = on_host.list_access(7, 128)
    assert lists == Access(host_bytes=28, link_bytes=7 * 128, link_requests=7)
    on_device = placed(graph, memory_bytes=1 << 30)
    assert on_device.row_access(10) == on_device.list_access(7, 128) == Access()
