"""Rows that are read from the disk change nothing that is learnt."""

from pathlib import Path
from typing import Any

import pytest
from devices import accelerator, plan_of
from learnt import same, weights

from gnnscale.core import ConfigError
from gnnscale.feature import DiskFeaturesConfig
from gnnscale.runtime.cache import tier
from gnnscale.runtime.state import device

pytestmark = pytest.mark.integration

COMMON = (
    *("dataset.num_vertices=4000", "dataset.num_edges=20000", "dataset.num_features=12"),
    *("model.dropout=0.5", "sampler.fanouts=[4,3]", "num_threads=2", "batch_size=64"),
    # The last of 8 steps has 8 seeds: none for a device with a small share.
    *("dataset.train_fraction=0.114", "epochs=2", "runtime.eval_every=2"),
)
DISK = ("features=disk", "features.memory_bytes=250_000", "features.window=2")
#: How rows are read, and how mini-batches are prepared.
RUNS = {
    "look_ahead": (*DISK, "runtime.prefetch=none"),
    "one_stage": (*DISK, "runtime.prefetch=one_stage"),
    "two_stage": (*DISK, "runtime.prefetch=two_stage"),
    "static": (*DISK, "features.policy=out_degree", "runtime.prefetch=two_stage"),
    "whole": ("features=disk", "features.memory_bytes=1e8", "runtime.prefetch=two_stage"),
}


@pytest.mark.parametrize("size", [1, pytest.param(2, marks=pytest.mark.long)])
def test_the_disk_changes_nothing_learnt(trained_together: Any, size: int) -> None:
    split = {1: "[64]", 2: "[60,4]"}[size]
    fixed = (*COMMON, plan_of(*["cpu"] * size), f"device_plan.split={split}", "runtime.drm=false")
    moving = (*COMMON, plan_of(*["cpu"] * size), "runtime.drm=true", *RUNS["two_stage"])
    runs = {name: [*fixed, *options] for name, options in RUNS.items()}
    if size > 1:  # each worker has its part of the memory
        for options in runs.values():
            options.append("features.memory_bytes=500_000")
        moving = (*moving, "features.memory_bytes=600_000")
    found = trained_together(size, {"memory": fixed, "moving": moving, **runs})
    expected = found["memory"]["losses"]
    assert len(set(expected)) == len(expected) == 16
    for name in RUNS:
        assert found[name]["losses"] == expected, name
    assert found["moving"]["losses"] == pytest.approx(expected, rel=1e-5)


def test_emulated_devices_get_rows_from_the_disk(trained_together: Any) -> None:
    devices = plan_of(accelerator(host_aggregates=False))
    common = (*COMMON, devices, "runtime.prefetch=two_stage")
    found = trained_together(1, {"memory": common, "disk": (*common, *DISK)})
    assert found["disk"]["losses"] == found["memory"]["losses"]


def test_a_report_tells_what_memory_held(launched: Any, tmp_path: Path) -> None:
    run = launched(tmp_path, *COMMON, "device_plan=cpu", *DISK)
    (device,) = run.summary["devices"]
    tier = device["traffic"]["tier"]
    assert tier["misses"] > 0 < tier["hits"]
    assert device["memory_hit_rate"] == pytest.approx(
        tier["hits"] / (tier["hits"] + tier["misses"]), rel=0.01
    )
    assert tier["link_bytes"] >= 48 * tier["misses"]
    assert tier["link_requests"] > 0
    assert tier["waited_us"] > 0
    assert sum(step["devices"][0]["traffic"]["tier"]["misses"] for step in run.steps) > 0
    assert "rows in host memory" in run.page


@pytest.mark.parametrize("dtype", ["float16", "int8", "int4"])
def test_rows_are_read_as_they_are_stored(run: Any, tmp_path: Path, dtype: str) -> None:
    common = (*COMMON, "device_plan=cpu", f"dataset.feature_dtype={dtype}", "epochs=1")
    memory, disk = (
        run(tmp_path / each[0][-4:], *common, *each) for each in (("features=host",), DISK)
    )
    assert [each.train_loss for each in disk.history] == [
        each.train_loss for each in memory.history
    ]
    (device,) = disk.history[0].devices
    assert device.traffic.tier.misses > 0


def test_links_are_trained_from_the_disk(run: Any, tmp_path: Path) -> None:
    common = (*COMMON, "device_plan=cpu", "task=links", "batch_size=256", "epochs=1")
    memory = run(tmp_path / "memory", *common)
    disk = run(tmp_path / "disk", *common, *DISK, "features.memory_bytes=2e6")
    assert [each.train_loss for each in disk.history] == [
        each.train_loss for each in memory.history
    ]


def test_a_run_goes_on_from_the_disk(run: Any, tmp_path: Path) -> None:
    common = (*COMMON, "device_plan=cpu", "runtime.drm=false")
    run(tmp_path / "whole", *common)
    run(tmp_path / "part", *common, *DISK, "epochs=1")
    run(tmp_path / "part", *common, *DISK, f"resume={tmp_path / 'part'}")
    assert same(weights(tmp_path / "part"), weights(tmp_path / "whole"))
    # Memory may have become larger, or smaller, in between.
    run(tmp_path / "other", *common, "epochs=1")
    run(tmp_path / "other", *common, *DISK, f"resume={tmp_path / 'other'}")
    assert same(weights(tmp_path / "other"), weights(tmp_path / "whole"))


def test_a_run_whose_rows_exceed_memory_reads_the_disk_by_itself(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    common = (*COMMON, "device_plan=cpu", "epochs=1")
    whole = run(tmp_path / "whole", *common)
    monkeypatch.setattr(device, "chosen_tier", lambda config, graph: DiskFeaturesConfig())
    disk = run(tmp_path / "disk", *common)
    # Memory that is too short for that maps the file, as if nothing had been chosen.
    short = ConfigError("features=disk: no memory is left for rows")
    monkeypatch.setattr(tier, "memory_left", lambda *_, **__: (_ for _ in ()).throw(short))
    with caplog.at_level("WARNING"):
        mapped = run(tmp_path / "mapped", *common)
    assert f"{short}; until then each step waits for the rows of the mapped file" in caplog.text
    found = [each.history[0] for each in (whole, disk, mapped)]
    assert len({each.train_loss for each in found}) == 1
    assert [each.devices[0].traffic.tier.misses > 0 for each in found] == [False, True, False]
    with pytest.raises(ConfigError, match="no memory is left"):
        run(tmp_path / "asked", *common, "features=disk")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("features.memory_bytes=1000",), "features.memory_bytes: the rows of a step do not fit"),
        (("features.policy=lru",), "features.policy=lru: allowed are look_ahead, out_degree"),
        (("features.window=0",), "features.window=0"),
        (
            ("partitioner=p3", "device_plan=cpu_x2"),
            "features=disk: does not go with partitioner=p3",
        ),
        (("device_plan=cuda",), "features=disk: cuda:0 reads rows in host memory by itself"),
        (
            (plan_of(accelerator()), "cache_planner=pagraph"),
            "features: DiskFeaturesConfig cannot be given with caches",
        ),
    ],
)
def test_what_does_not_go_with_it_is_refused(
    run: Any, tmp_path: Path, given: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        run(tmp_path, *COMMON, "features=disk", *given)
    assert message in str(refused.value)
