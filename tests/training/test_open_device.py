"""The rates of a run's GPUs, which their workers measure and all plan by."""

from collections.abc import Callable
from typing import Any

import pytest
from card_figures import RATES

from gnnscale.distributed.process_group import SINGLE_PROCESS
from gnnscale.graph import Graph
from gnnscale.planner import Cpu, Cuda
from gnnscale.planner.cuda_spec import CardRates
from gnnscale.training import open_device as module


class Card:
    """A backend of a GPU that was measured before."""

    def rates(self) -> CardRates:
        return RATES


@pytest.fixture
def graph(random_graph: Callable[..., Graph]) -> Graph:
    return random_graph(num_features=16)  # rows of 64 bytes


def test_a_gpu_is_planned_by_what_was_measured(graph) -> None:
    backend: Any = Card()
    (found,) = module._with_measured_rates((Cuda(),), backend, graph, SINGLE_PROCESS)
    assert found == RATES.of(Cuda(), row_bytes=64)
    assert isinstance(found, Cuda)
    assert found.link_bandwidth == 1e10


def test_what_is_no_gpu_is_not_measured(graph) -> None:
    nothing: Any = object()
    for device in (Cpu(), Cuda(host_driven=True)):
        assert module._with_measured_rates((device,), nothing, graph, SINGLE_PROCESS) == (device,)


def test_rates_of_other_workers_are_taken(graph, monkeypatch) -> None:
    monkeypatch.setattr(module, "all_gather_object", lambda mine, group: [mine, mine, None])
    backend: Any = Card()
    devices = (Cuda(), Cuda(index=1, macs_per_s=1.0), Cpu())
    found = module._with_measured_rates(devices, backend, graph, SINGLE_PROCESS)
    assert found[0] == RATES.of(Cuda(), row_bytes=64)
    assert found[1] == RATES.of(devices[1], row_bytes=64)
    assert found[2] == Cpu()
