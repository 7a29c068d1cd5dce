"""Which runs read rows from the disk, and how far they look ahead."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from devices import accelerator, plan_of

from gnnscale.features import DiskFeaturesConfig
from gnnscale.features.tiered.sizing import Horizon
from gnnscale.graph import Graph
from gnnscale.training.build import tiered_features as tier
from gnnscale.training.build.tiered_features import chosen_tier

REPEATS = "runtime.deterministic=true"


def test_memory_decides_unless_the_run_is_to_repeat(
    settings: Any, tiny_graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert chosen_tier(settings(), tiny_graph) is None
    monkeypatch.setattr(tier, "read_from_disk", lambda graph: True)
    assert chosen_tier(settings(), tiny_graph) == DiskFeaturesConfig()
    cached = settings(plan_of(accelerator()), "cache_planner=pagraph")
    assert chosen_tier(cached, tiny_graph) == DiskFeaturesConfig()
    assert chosen_tier(settings("device_plan=cuda"), tiny_graph) is None
    assert chosen_tier(settings("features=degrees"), tiny_graph) is None
    assert chosen_tier(settings(REPEATS), tiny_graph) is None
    asked = settings(REPEATS, "features=disk", "features.window=3")
    assert chosen_tier(asked, tiny_graph) == DiskFeaturesConfig(window=3)


@pytest.mark.parametrize(
    ("given", "window", "expected"),
    [((), None, None), ((), 5, 5), ((REPEATS,), None, 8), ((REPEATS,), 5, 5)],
)
def test_a_run_that_is_to_repeat_looks_as_far_ahead_every_time(
    settings: Any, given: tuple[str, ...], window: int | None, expected: int | None
) -> None:
    order: Any = SimpleNamespace(steps_per_epoch=7)
    priority = np.zeros(3, np.int32)
    found = tier.horizon_of(settings(*given, "num_threads=2"), window, order, priority)
    assert found == Horizon(window=expected, priority=priority, num_steps=7, num_threads=2)
