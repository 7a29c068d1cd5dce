"""How large a GPU's cache is, by what rehearsed steps leave."""

import pytest
from devices import accelerator, plan_of
from one_line import one_line

from gnnscale.training.build.gpu_cache_size import (
    MemoryLeft,
    is_profiled,
    with_cache_budget,
    without_caches,
)

GPU = "{kind:cuda,host_driven:true,memory_bytes:1280000}"
PAGRAPH = "cache_planner=pagraph"


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ((plan_of("cpu", GPU), PAGRAPH), True),
        ((plan_of(GPU),), False),  # no cache
        ((plan_of(GPU), PAGRAPH, "cache_planner.ratio=0.1"), False),
        ((plan_of(GPU), PAGRAPH, "cache_planner.budget_bytes=5"), False),
        ((plan_of(accelerator()), PAGRAPH), False),  # its bytes follow from the workload
        ((plan_of(GPU, accelerator()), PAGRAPH), False),
    ],
)
def test_who_is_rehearsed(settings, overrides, expected) -> None:
    config = settings(*overrides)
    assert is_profiled(config.cache_planner, config.device_plan.parsed()) == expected


def test_a_rehearsal_has_its_data_where_they_lie_beside_a_cache(settings) -> None:
    config = settings(plan_of("cpu", GPU, GPU[:-1] + ",topology:device}"), PAGRAPH)
    processor, first, second = without_caches(config.device_plan).parsed()
    assert processor == config.device_plan.parsed()[0]
    assert (first.features, first.topology) == ("host", "host")
    assert (second.features, second.topology) == ("host", "device")
    assert first.memory_bytes == 1280000


def test_the_budget_is_what_is_left_less_the_reserve(settings) -> None:
    config = settings(plan_of("cpu", GPU, GPU), PAGRAPH, "cache_planner.reserve=0.25")
    left = MemoryLeft(unused_bytes=(None, 1_000_000, 905_000))
    # 905,000 less a quarter of 1,280,000, in steps of 10,000.
    caches = config.cache_planner, config.device_plan.parsed()
    assert with_cache_budget(*caches, left).budget_bytes == 580_000
    with one_line("cuda:2 has no memory left", "reserve=0.25 keeps a part free"):
        with_cache_budget(*caches, MemoryLeft(unused_bytes=(None, 1_000_000, 320_000)))
