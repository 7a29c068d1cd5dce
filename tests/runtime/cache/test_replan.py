from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnscale.cache import CachePlan, CacheTraffic, DeviceCache, LookAhead
from gnnscale.core.stages import Access, Traffic
from gnnscale.runtime.cache.replan import hit_rate_gap
from gnnscale.runtime.cache.task import plan_caches
from gnnscale.runtime.settings import TrainConfig

NONE = np.empty(0, np.int32)


def plan_of(*rows: tuple[int, int], ahead: bool = False) -> CachePlan:
    """Return a plan of devices that are predicted to find and to miss so many rows."""
    policy = LookAhead(window=1, num_rows=1, match=False) if ahead else None
    return CachePlan(
        planner="mine",
        cliques=tuple((each,) for each in range(len(rows))),
        devices=tuple(
            DeviceCache(
                device=each,
                name=f"device {each}",
                budget_bytes=0,
                features=NONE,
                topology=NONE,
                feature_bytes=0,
                topology_bytes=0,
                look_ahead=policy,
            )
            for each in range(len(rows))
        ),
        alphas=(None,) * len(rows),
        predicted=tuple(
            CacheTraffic(
                rows=(*(hits if each == place else 0 for place in range(len(rows))), misses),
                lists=(0,) * (len(rows) + 1),
                transactions=0,
                link_bytes=0,
            )
            for each, (hits, misses) in enumerate(rows)
        ),
    )


def moved(hits: int, misses: int) -> Traffic:
    return Traffic(rows=Access(hits=hits, misses=misses))


def test_the_device_that_is_furthest_off_counts() -> None:
    plan = plan_of((50, 50), (20, 80))
    assert hit_rate_gap(plan, [moved(54, 46), moved(24, 76)]) is None
    assert hit_rate_gap(plan, [moved(56, 44), moved(24, 76)]) == (0.56, 0.5)
    assert hit_rate_gap(plan, [moved(56, 44), moved(10, 90)]) == pytest.approx((0.1, 0.2))


def test_caches_that_are_asked_nothing_or_follow_the_batches_are_left_alone() -> None:
    assert hit_rate_gap(plan_of((50, 50)), [Traffic()]) is None
    assert hit_rate_gap(plan_of((0, 0)), [moved(1, 9)]) is None
    assert hit_rate_gap(plan_of((50, 50), ahead=True), [moved(1, 9)]) is None


DEVICE = (
    "{kind:emulated,macs_per_s:1e10,memory_bandwidth:5e9,memory_bytes:1073741824,"
    "link_bandwidth:1e9,peer_bandwidth:1e10,host_aggregates:false}"
)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("links", ["0 1\n1 0\n", "0 0\n0 0\n"], ids=["clique", "alone"])
def test_a_plan_for_other_fanouts_is_made_anew(
    settings: Callable[..., TrainConfig],
    launched: Any,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    links: str,
) -> None:
    (tmp_path / "links").write_text(links)
    common = (
        *(f"device_plan.devices=[{DEVICE},{DEVICE}]", "device_plan.split=[32,32]"),
        *("dataset.train_fraction=0.6", "runtime.drm=false", "runtime.prefetch=none", "epochs=3"),
    )
    planner = (
        *("cache_planner=legion", "cache_planner.ratio=0.2"),
        f"cache_planner.nvlink={tmp_path / 'links'}",
    )
    # Planned for the seeds and one neighbour of each.
    other = settings(*common, *planner, "sampler.fanouts=[1,1]")
    path = plan_caches(other, other.dataset.open(), None)

    expected = launched(tmp_path / "none", *common)
    with caplog.at_level(logging.INFO):
        found = launched(tmp_path / "given", *common, f"cache_plan={path}")
    assert found.losses == expected.losses
    (line,) = (each for each in caplog.messages if "planned anew" in each)
    assert line.startswith("epoch 1: caches had ")
    assert "planned anew from the batches of 2 epochs to come" in line
    first, second, third = (
        sum((device.traffic for device in epoch.devices), Traffic()).rows.hit_rate
        for epoch in found.result.history
    )
    assert first + 0.03 < second
    # The third epoch is like the second, and no further plan is made.
    assert abs(third - second) < 0.05
