"""Which runs read rows from the disk, and how far they look ahead."""

from types import SimpleNamespace
from typing import Any

import pytest

from gnnscale.distributed.process_group import SINGLE_PROCESS
from gnnscale.features import DegreeFeaturesConfig, DiskFeaturesConfig, HostFeaturesConfig
from gnnscale.graph import Graph
from gnnscale.training.build import tiered_features as tier
from gnnscale.training.build.tiered_features import chosen_tier


@pytest.mark.parametrize(
    ("features", "exceeds", "may_choose", "expected"),
    [
        (HostFeaturesConfig(), False, True, None),
        (HostFeaturesConfig(), True, True, DiskFeaturesConfig()),
        (HostFeaturesConfig(), True, False, None),
        (DegreeFeaturesConfig(), True, True, None),
        (DiskFeaturesConfig(window=3), False, False, DiskFeaturesConfig(window=3)),
    ],
)
def test_rows_are_read_from_disk(
    tiny_graph: Graph,
    monkeypatch: pytest.MonkeyPatch,
    features: Any,
    exceeds: bool,
    may_choose: bool,
    expected: DiskFeaturesConfig | None,
) -> None:
    monkeypatch.setattr(tier, "read_from_disk", lambda graph: exceeds)
    assert chosen_tier(features, tiny_graph, may_choose=may_choose) == expected


@pytest.mark.parametrize(
    ("deterministic", "window", "expected"),
    [(False, None, None), (False, 5, 5), (True, None, 8), (True, 5, 5)],
)
def test_a_deterministic_run_looks_equally_far_ahead(
    tiny_graph: Graph, deterministic: bool, window: int | None, expected: int | None
) -> None:
    unused: Any = None
    inputs = tier.TierInputs(
        graph=tiny_graph,
        sampling=unused,
        order=SimpleNamespace(steps_per_epoch=7),  # type: ignore[arg-type]
        workload=unused,
        group=SINGLE_PROCESS,
        caches=None,
        split=None,
        seed=0,
        num_threads=2,
        prefetch_depth=1,
        deterministic=deterministic,
    )
    horizon = inputs.horizon(window)
    assert (horizon.window, horizon.num_steps, horizon.num_threads) == (expected, 7, 2)
