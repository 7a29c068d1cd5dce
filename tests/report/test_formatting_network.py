from types import SimpleNamespace
from typing import Any

import pytest

from gnnscale.core.stages import Access, Traffic
from gnnscale.report.formatting import network_figures, network_line
from gnnscale.run.records import NetworkStats


def run(*accesses: Access, network: Any = None, disk: Access | None = None) -> Any:
    """A run of one epoch of two steps, in which each device did this; ``disk`` all of them."""
    own = Access() if disk is None else disk
    devices = [SimpleNamespace(traffic=Traffic(tier=each, disk=own)) for each in accesses]
    layout = SimpleNamespace(network=network)
    history = [SimpleNamespace(devices=devices)]
    return SimpleNamespace(layout=layout, history=history, steps_per_epoch=2)


NETWORK = NetworkStats(num_machines=2, row_bytes=100, id_bytes=4)


def test_what_crossed_the_network_beside_what_was_expected() -> None:
    first = Access(hits=50, misses=10, link_bytes=1048, link_requests=2)
    found = run(first, Access(misses=30, link_bytes=3136, link_requests=2), network=NETWORK)
    assert network_figures(found) == {
        **{"machines": 2, "row_bytes": 100, "id_bytes": 4},
        **{"rows": 20.0, "requests": 2.0, "bytes": 2092.0, "expected": 2080.0},
    }
    assert network_line(found) == (
        "network: 0.00 MB a step for rows of other machines, 0.00 MB expected (-0.57%)"
    )


def test_own_rows_of_the_disk_do_not_cross_the_network() -> None:
    both = Access(hits=50, misses=14, link_bytes=1048 + 4096, link_requests=5, waited_us=9)
    disk = Access(misses=4, link_bytes=4096, link_requests=3, waited_us=2)
    found = network_figures(run(both, network=NETWORK, disk=disk))
    assert found is not None
    assert (found["rows"], found["requests"], found["bytes"]) == (5.0, 1.0, 524.0)
    assert found["expected"] == 520.0


@pytest.mark.parametrize("found", [run(Access()), run(network=NETWORK)])
def test_no_figures_without_divided_rows(found: Any) -> None:
    if found.layout.network is not None:
        found.history = []
    assert network_figures(found) is None
    assert network_line(found) is None
