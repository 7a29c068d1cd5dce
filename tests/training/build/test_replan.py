import logging

import numpy as np
import pytest
from devices import accelerator, plan_of
from typed_graphs import shop

from gnnscale.cache import CachePlan, CacheTraffic, DeviceCache, LookAhead
from gnnscale.core.stages import Access, Traffic
from gnnscale.run.typed_inputs import read_by_type
from gnnscale.training.build.cache_problem import plan_caches
from gnnscale.training.build.replan import hit_rate_gap

NONE = np.empty(0, np.int32)


def cache_plan(*rows: tuple[int, int], ahead: bool = False) -> CachePlan:
    """Return a plan of devices that are predicted to find and to miss so many rows."""
    policy = LookAhead(window=1, num_rows=1, match=False) if ahead else None
    size = len(rows)
    nothing = {"features": NONE, "topology": NONE, "feature_bytes": 0, "topology_bytes": 0}
    predicted = []
    for device, (hits, misses) in enumerate(rows):
        found = [0] * size
        found[device] = hits
        lists = (0,) * (size + 1)
        traffic = CacheTraffic(rows=(*found, misses), lists=lists, transactions=0, link_bytes=0)
        predicted.append(traffic)
    return CachePlan(
        planner="mine",
        cliques=tuple((each,) for each in range(size)),
        devices=tuple(
            DeviceCache(device=each, name=str(each), budget_bytes=0, **nothing, look_ahead=policy)
            for each in range(size)
        ),
        alphas=(None,) * size,
        predicted=tuple(predicted),
    )


def moved(hits: int, misses: int) -> Traffic:
    return Traffic(rows=Access(hits=hits, misses=misses))


def test_the_device_that_is_furthest_off_counts() -> None:
    plan = cache_plan((50, 50), (20, 80))
    assert hit_rate_gap(plan, [moved(54, 46), moved(24, 76)]) is None
    assert hit_rate_gap(plan, [moved(56, 44), moved(24, 76)]) == (0.56, 0.5)
    assert hit_rate_gap(plan, [moved(56, 44), moved(10, 90)]) == pytest.approx((0.1, 0.2))


def test_caches_that_are_asked_nothing_or_follow_the_batches_are_left_alone() -> None:
    assert hit_rate_gap(cache_plan((50, 50)), [Traffic()]) is None
    assert hit_rate_gap(cache_plan((0, 0)), [moved(1, 9)]) is None
    assert hit_rate_gap(cache_plan((50, 50), ahead=True), [moved(1, 9)]) is None


DEVICE = accelerator(peer_bandwidth=1e10, host_aggregates=False)


#: A graph with types whose rows are as wide as the type has features.
TYPED = ("model=rsage", "model.hidden=8", "dataset=store")


@pytest.mark.timeout(240)
@pytest.mark.parametrize("graph", [(), TYPED], ids=["one type", "types"])
def test_a_plan_for_other_fanouts_is_made_anew(settings, launched, tmp_path, caplog, graph) -> None:
    if graph:
        shop(num_items=400).save(tmp_path / "shop")
        graph = (*graph, f"dataset.store={tmp_path / 'shop'}")
    (tmp_path / "links").write_text("0 1\n1 0\n")
    both = (plan_of(DEVICE, DEVICE), "device_plan.split=[32,32]")
    common = (*graph, *both, "runtime.drm=false", "runtime.prefetch=none")
    nvlink = f"cache_planner.nvlink={tmp_path / 'links'}"
    planner = ("cache_planner=legion", "cache_planner.ratio=0.2", nvlink)
    # Planned for the seeds and one neighbour of each.
    other = settings(*common, *planner, "sampler.fanouts=[1,1]")
    path = plan_caches(other, read_by_type(other.model, other.dataset.open(), seed=None), None)

    expected = launched(tmp_path / "none", *common)
    with caplog.at_level(logging.INFO):
        found = launched(tmp_path / "given", *common, f"cache_plan={path}")
    assert found.losses == expected.losses
    (line,) = (each for each in caplog.messages if "planned again" in each)
    assert line.startswith("epoch 1: the hit rate of caches was ")
    assert "planned again from the batches of the next 2 epochs" in line
    first, second, third = (
        sum((device.traffic for device in epoch.devices), Traffic()).rows.hit_rate
        for epoch in found.result.history
    )
    assert first + (0.01 if graph else 0.03) < second
    # The third epoch is like the second, and no further plan is made.
    assert abs(third - second) < 0.05
