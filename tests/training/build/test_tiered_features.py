"""Which runs read rows from the disk, and how far they look ahead."""

from types import SimpleNamespace
from typing import Any

from gnnscale.distributed.process_group import SINGLE_PROCESS
from gnnscale.features import DegreeFeaturesConfig, DiskFeaturesConfig, HostFeaturesConfig
from gnnscale.training.build import tiered_features as tier
from gnnscale.training.build.tiered_features import chosen_tier


def test_rows_are_read_from_disk(tiny_graph, monkeypatch) -> None:
    host, disk = HostFeaturesConfig(), DiskFeaturesConfig(window=3)
    for features, exceeds, may_choose, expected in (
        (host, False, True, None),
        (host, True, True, DiskFeaturesConfig()),
        (host, True, False, None),
        (DegreeFeaturesConfig(), True, True, None),
        (disk, False, False, disk),
    ):
        monkeypatch.setattr(tier, "read_from_disk", lambda graph, exceeds=exceeds: exceeds)
        assert chosen_tier(features, tiny_graph, may_choose=may_choose) == expected


def test_a_deterministic_run_looks_equally_far_ahead(tiny_graph) -> None:
    unused: Any = dict.fromkeys(("sampling", "workload", "caches", "split"))
    given: Any = {"order": SimpleNamespace(steps_per_epoch=7), "group": SINGLE_PROCESS, "seed": 0}
    given |= {"graph": tiny_graph, "num_threads": 2, "prefetch_depth": 1, **unused}
    for deterministic, window, expected in ((False, None, None), (True, None, 8), (True, 5, 5)):
        horizon = tier.TierInputs(**given, deterministic=deterministic).horizon(window)
        assert (horizon.window, horizon.num_steps, horizon.num_threads) == (expected, 7, 2)
