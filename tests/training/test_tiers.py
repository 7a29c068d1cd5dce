"""Rows that are read from the disk change nothing that is learnt."""

from pathlib import Path
from typing import Any

import pytest
from devices import accelerator, plan_of
from learnt import same, weights

from gnnscale.core import ConfigError
from gnnscale.features import DiskFeaturesConfig
from gnnscale.training import open_device
from gnnscale.training.build import tiered_features as tier
from gnnscale.training.build.cache_problem import plan_caches

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


#: Caches of devices above host memory, and how mini-batches are prepared.
STACKED = {
    "pagraph": ("cache_planner.ratio=0.2", "runtime.prefetch=two_stage"),
    "quiver": ("cache_planner.ratio=0.1", "runtime.prefetch=two_stage"),
    "belady": ("cache_planner.ratio=0.2", "runtime.prefetch=two_stage"),
    "belady_match": ("cache_planner.ratio=0.1", "runtime.prefetch=none"),
    "match": ("runtime.prefetch=one_stage",),
}


@pytest.mark.parametrize("size", [1, pytest.param(2, marks=pytest.mark.long)])
def test_caches_of_devices_stack_on_memory_over_the_disk(
    trained_together: Any, tmp_path: Path, size: int
) -> None:
    (tmp_path / "links").write_text("0 1\n1 0\n")
    split = {1: "[64]", 2: "[60,4]"}[size]
    devices = plan_of(*[accelerator(peer_bandwidth=1e10, host_aggregates=False)] * size)
    common = (*COMMON, devices, f"cache_planner.nvlink={tmp_path / 'links'}")
    fixed = (*common, f"device_plan.split={split}", "runtime.drm=false")
    disk = (*DISK, f"features.memory_bytes={350_000 * size}")
    runs = {"memory": fixed, "disk": (*fixed, *disk)}
    for name, options in STACKED.items():
        given = (f"cache_planner={name}", *options, f"cache_planner.store={tmp_path / name}")
        runs[name] = (*fixed, *given)
        runs[f"{name} on disk"] = (*fixed, *given, *disk)
    given = ("cache_planner=belady", "cache_planner.ratio=0.2", "runtime.prefetch=two_stage")
    plans = f"cache_planner.store={tmp_path / 'moving'}"
    moving = (*common, *given, plans, "runtime.drm=true", *disk)
    found = trained_together(size, {**runs, "moving": moving})
    expected = found["memory"]["losses"]
    assert len(set(expected)) == len(expected) == 16
    for name in runs:
        assert found[name]["losses"] == expected, name
    assert found["moving"]["losses"] == pytest.approx(expected, rel=1e-5)
    for name in STACKED:
        # A device finds what it finds above host memory that has all rows.
        assert found[f"{name} on disk"]["found"] == found[name]["found"], name
    if size > 1:
        assert any(peers for step in found["quiver on disk"]["found"] for _, peers, _ in step)


def test_a_report_tells_what_each_tier_held(launched: Any, tmp_path: Path) -> None:
    both = plan_of("cpu", accelerator(host_aggregates=False))
    common = (*COMMON, both, "device_plan.split=[8,56]", "runtime.drm=false", *DISK)
    common = (*common, "features.memory_bytes=400_000")
    alone = launched(tmp_path / "alone", *common)
    caches = ("cache_planner=belady", "cache_planner.ratio=0.2")
    stacked = launched(tmp_path / "stacked", *common, *caches)
    assert stacked.losses == alone.losses
    cpu, device = stacked.summary["devices"]
    without = alone.summary["devices"][1]
    assert cpu["feature_hit_rate"] is None
    rows, tier = (device["traffic"][each] for each in ("rows", "tier"))
    assert device["feature_hit_rate"] == pytest.approx(
        rows["hits"] / (rows["hits"] + rows["misses"]), rel=0.01
    )
    assert tier["hits"] + tier["misses"] == pytest.approx(rows["misses"], abs=1)
    # Host memory holds rows for both, and is asked for fewer.
    before = without["traffic"]["tier"]
    assert tier["hits"] + tier["misses"] < before["hits"] + before["misses"]
    assert tier["misses"] > 0


@pytest.mark.timeout(240)
def test_a_cache_that_is_planned_again_is_filled_from_the_disk(
    settings: Any, launched: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    devices = plan_of(accelerator(host_aggregates=False))
    common = (*COMMON, devices, "device_plan.split=[64]", "runtime.drm=false")
    planner = ("cache_planner=legion", "cache_planner.ratio=0.2")
    # Planned for the seeds and one neighbour of each.
    other = settings(*common, *planner, "sampler.fanouts=[1,1]")
    path = plan_caches(other, other.dataset.open(), None)
    expected = launched(tmp_path / "none", *common)
    with caplog.at_level("INFO"):
        found = launched(tmp_path / "given", *common, *DISK, f"cache_plan={path}")
    assert any("; planned again from" in each for each in caplog.messages)
    assert found.losses == expected.losses


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
    # Bits follow the number of threads, which a plan takes from what it measures.
    common = (*COMMON, "device_plan=cpu", "task=links", "batch_size=256")
    common = (*common, "epochs=1", "num_threads=1")
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
    monkeypatch.setattr(
        open_device, "chosen_tier", lambda features, graph, may_choose: DiskFeaturesConfig()
    )
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
            "features=disk: expected partitioner=none, got partitioner=p3",
        ),
        (("device_plan=cuda",), "got cuda:0, which reads rows in host memory"),
    ],
)
def test_what_does_not_go_with_it_is_refused(
    run: Any, tmp_path: Path, given: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        run(tmp_path, *COMMON, "features=disk", *given)
    assert message in str(refused.value)


def test_rows_that_a_device_lacks_have_to_fit(run: Any, tmp_path: Path) -> None:
    devices = plan_of(accelerator(host_aggregates=False))
    cached = ("cache_planner=match", f"cache_planner.store={tmp_path / 'plans'}")
    with pytest.raises(ConfigError, match=r"^features\.memory_bytes: the rows of a step do not"):
        run(tmp_path, *COMMON, devices, *cached, "features=disk", "features.memory_bytes=1000")
