from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gnnscale.cache import CachePlannerConfig, LookAheadCache
from gnnscale.config import ConfigError
from gnnscale.graph import Graph
from gnnscale.model.cost import LayerCost
from gnnscale.plan import Emulated
from gnnscale.plan.perf.equations import BYTES_PER_PARAMETER, BatchSize
from gnnscale.plan.perf.work import batch_bytes
from gnnscale.plan.perf.workload import Workload, unmeasured_workload
from gnnscale.runtime.caching.budget import cache_budget
from gnnscale.runtime.settings import TrainConfig

DEVICE = Emulated(macs_per_s=1e10, memory_bandwidth=5e9, memory_bytes=1_000_000, link_bandwidth=1e9)
FIRST = BatchSize(vertices=(100, 40, 10), edges=(150, 30))


@pytest.fixture
def graph(random_graph: Callable[..., Graph]) -> Graph:
    """300 rows of 80 bytes."""
    return random_graph()


@pytest.fixture
def workload(graph: Graph, settings: Callable[..., TrainConfig]) -> Workload:
    model = settings().model.build(num_features=20, num_classes=5)
    return replace(unmeasured_workload(graph, model), host_aggregates=False)


def budget(graph: Graph, workload: Workload, device: Emulated = DEVICE, **options: Any) -> int:
    planner: CachePlannerConfig = LookAheadCache(
        name="belady", **{each: options.pop(each) for each in [*options] if each in _PLANNER}
    )
    options = {"first": FIRST, "in_flight": 2, **options}
    return cache_budget(planner, graph, device, workload=workload, **options)


_PLANNER = ("budget_bytes", "ratio", "reserve")


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"budget_bytes": 1234}, 1234),
        ({"budget_bytes": 0}, 0),
        # More than the device has: whoever opens the cache finds that out.
        ({"budget_bytes": 1 << 40}, 1 << 40),
        ({"ratio": 0.1}, 30 * 80),
        ({"ratio": 0.01}, 3 * 80),
        ({"ratio": 0.0}, 0),
        ({"ratio": 1.0}, 300 * 80),
        ({"ratio": 7.5}, 300 * 80),
    ],
)
def test_what_is_asked_for_is_taken(
    graph: Graph, workload: Workload, asked: dict[str, Any], expected: int
) -> None:
    assert budget(graph, workload, **asked) == expected


def test_otherwise_it_is_what_the_device_has_left(graph: Graph, workload: Workload) -> None:
    model = BYTES_PER_PARAMETER * workload.num_weights
    batch = batch_bytes(workload, FIRST)
    assert budget(graph, workload) == int(900_000 - model - 2 * batch)
    assert budget(graph, workload, in_flight=5) == int(900_000 - model - 5 * batch)
    assert budget(graph, workload, reserve=0.5) == int(500_000 - model - 2 * batch)
    assert budget(graph, workload, first=None) == int(900_000 - model)
    larger = replace(DEVICE, memory_bytes=2_000_000)
    assert budget(graph, workload, larger) == budget(graph, workload) + 900_000


def test_a_batch_takes_rows_lists_and_activations(workload: Workload) -> None:
    assert all(isinstance(layer, LayerCost) for layer in workload.layers)
    # The rows alone: 100 of 80 bytes.
    assert batch_bytes(workload, FIRST) > 100 * 80 + 4 * 180


def test_a_device_that_has_nothing_left(graph: Graph, workload: Workload) -> None:
    with pytest.raises(ConfigError) as error:
        budget(graph, workload, replace(DEVICE, name="small", memory_bytes=20_000), in_flight=3)
    line = str(error.value)
    assert line.startswith("cache_planner=belady: small has no memory left for a cache: of 0.0 MB")
    assert "the model and a mini-batch take " in line
    assert line.endswith("cache_planner.budget_bytes allow one")
    # Named, it is the user's affair.
    tiny = replace(DEVICE, memory_bytes=20_000)
    assert budget(graph, workload, tiny, budget_bytes=10_000) == 10_000


def test_fewer_are_in_flight_where_so_many_leave_nothing(graph: Graph, workload: Workload) -> None:
    batch = batch_bytes(workload, FIRST)
    model = BYTES_PER_PARAMETER * workload.num_weights
    device = replace(DEVICE, memory_bytes=model + int(2.5 * batch))
    left = int(device.memory_bytes - model - 2 * batch)
    assert budget(graph, workload, device, reserve=0.0, in_flight=9) == left


def test_rows_that_match_need_memory_too(graph: Graph, workload: Workload) -> None:
    """100 rows of a mini-batch stay until the next one is loaded, whatever the budget says."""
    plain = budget(graph, workload)
    matching = LookAheadCache(name="belady_match", match=True)
    found = cache_budget(matching, graph, DEVICE, workload=workload, first=FIRST, in_flight=2)
    assert plain - found == 100 * 80
    named = replace(matching, budget_bytes=1234)
    assert cache_budget(named, graph, DEVICE, workload=workload, first=FIRST, in_flight=2) == 1234
