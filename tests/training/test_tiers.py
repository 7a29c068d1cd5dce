"""Rows that are read from the disk change nothing that is learnt."""

from typing import Any

import pytest
from devices import accelerator, plan_of
from learnt import same, weights
from one_line import one_line

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


def test_the_disk_changes_nothing_learnt(trained_together) -> None:
    both = (*COMMON, "device_plan=cpu_x2")
    fixed = (*both, "device_plan.split=[60,4]", "runtime.drm=false")
    # Each worker has its part of the memory.
    runs = {name: (*fixed, *how, "features.memory_bytes=500_000") for name, how in RUNS.items()}
    runs["whole"] = (*fixed, *RUNS["whole"])
    moving = (*both, *RUNS["two_stage"], "features.memory_bytes=600_000", "runtime.drm=true")
    found = trained_together(2, {"memory": fixed, "moving": moving, **runs})
    expected = found["memory"]["losses"]
    assert len(set(expected)) == len(expected) == 16
    for name in RUNS:
        assert found[name]["losses"] == expected, name
    assert found["moving"]["losses"] == pytest.approx(expected, rel=1e-5)


#: Caches of devices above host memory, and how mini-batches are prepared.
STACKED = {
    "quiver": ("cache_planner.ratio=0.1", "runtime.prefetch=two_stage"),
    "belady_match": ("cache_planner.ratio=0.1", "runtime.prefetch=none"),
    "match": ("runtime.prefetch=one_stage",),
}


def test_caches_of_devices_stack_on_memory_over_the_disk(trained_together, tmp_path) -> None:
    (tmp_path / "links").write_text("0 1\n1 0\n")
    devices = plan_of(*[accelerator(peer_bandwidth=1e10, host_aggregates=False)] * 2)
    common = (*COMMON, devices, f"cache_planner.nvlink={tmp_path / 'links'}")
    fixed = (*common, "device_plan.split=[60,4]", "runtime.drm=false")
    disk = (*DISK, "features.memory_bytes=700_000")
    runs = {"memory": fixed, "disk": (*fixed, *disk)}
    for name, options in STACKED.items():
        given = (f"cache_planner={name}", *options, f"cache_planner.store={tmp_path / name}")
        runs[name] = (*fixed, *given)
        runs[f"{name} on disk"] = (*fixed, *given, *disk)
    given = ("cache_planner=belady", "cache_planner.ratio=0.2", "runtime.prefetch=two_stage")
    plans = f"cache_planner.store={tmp_path / 'moving'}"
    moving = (*common, *given, plans, "runtime.drm=true", *disk)
    found = trained_together(2, {**runs, "moving": moving})
    expected = found["memory"]["losses"]
    assert len(set(expected)) == len(expected) == 16
    for name in runs:
        assert found[name]["losses"] == expected, name
    assert found["moving"]["losses"] == pytest.approx(expected, rel=1e-5)
    for name in STACKED:
        # A device finds what it finds above host memory that has all rows.
        assert found[f"{name} on disk"]["found"] == found[name]["found"], name
    assert any(peers for step in found["quiver on disk"]["found"] for _, peers, _ in step)


def test_a_report_tells_what_each_tier_held(launched, tmp_path) -> None:
    both = plan_of("cpu", accelerator(host_aggregates=False))
    common = (*COMMON, both, "device_plan.split=[8,56]", "runtime.drm=false", *DISK)
    common = (*common, "features.memory_bytes=400_000")
    alone = launched(tmp_path / "alone", *common)
    caches = ("cache_planner=belady", "cache_planner.ratio=0.2")
    stacked = launched(tmp_path / "stacked", *common, *caches)
    assert stacked.losses == alone.losses
    cpu, device = stacked.summary["devices"]
    check_tiers(alone)
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


def test_a_cache_that_is_planned_again_is_filled_from_the_disk(
    settings, run, tmp_path, caplog
) -> None:
    devices = plan_of(accelerator(host_aggregates=False))
    common = (*COMMON, devices, "device_plan.split=[64]", "runtime.drm=false")
    planner = ("cache_planner=legion", "cache_planner.ratio=0.2")
    # Planned for the seeds and one neighbour of each.
    other = settings(*common, *planner, "sampler.fanouts=[1,1]")
    path = plan_caches(other, other.dataset.open(), None)
    run(tmp_path / "none", *common)
    with caplog.at_level("INFO"):
        run(tmp_path / "given", *common, *DISK, f"cache_plan={path}")
    assert any("; planned again from" in each for each in caplog.messages)
    assert same(weights(tmp_path / "given"), weights(tmp_path / "none"))


def check_tiers(run: Any) -> None:
    """What is told of the second device's rows in memory and on the disk."""
    device = run.summary["devices"][1]
    tier = device["traffic"]["tier"]
    assert tier["misses"] > 0 < tier["hits"]
    assert device["memory_hit_rate"] == pytest.approx(
        tier["hits"] / (tier["hits"] + tier["misses"]), rel=0.01
    )
    assert tier["link_requests"] > 0
    # Which of two workers is told of a read depends on which takes its step first.
    tiers = [each["traffic"]["tier"] for each in run.summary["devices"]]
    read, missing = (sum(each[name] for each in tiers) for name in ("link_bytes", "misses"))
    assert read >= 48 * missing
    assert tier["waited_us"] > 0
    steps = [step["traffic"] for step in run.of_device(1) if step["seeds"]]
    assert sum(each.get("tier", {}).get("misses", 0) for each in steps) > 0
    assert "rows in host memory" in run.page


@pytest.mark.parametrize(
    "how",
    [
        ("dataset.feature_dtype=int4", "features.memory_bytes=250_000"),
        # Bits follow the number of threads, which a plan takes from what it measures.
        ("task=links", "batch_size=256", "num_threads=1", "features.memory_bytes=2e6"),
    ],
)
def test_rows_are_read_as_they_are_stored_and_for_links(run, tmp_path, how) -> None:
    *how, memory = how
    common = (*COMMON, "device_plan=cpu", "epochs=1", *how)
    whole = run(tmp_path / "memory", *common)
    disk = run(tmp_path / "disk", *common, *DISK, memory)
    assert disk.history[0].train_loss == whole.history[0].train_loss
    (device,) = disk.history[0].devices
    assert device.traffic.tier.misses > 0


def test_a_run_goes_on_from_the_disk(run, tmp_path) -> None:
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
    run, tmp_path, monkeypatch, caplog
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
        (
            (
                plan_of(accelerator(host_aggregates=False)),
                "cache_planner=match",
                "features.memory_bytes=1000",
            ),
            "features.memory_bytes: the rows of a step do not fit",  # that the device lacks
        ),
    ],
)
def test_what_does_not_go_with_it_is_refused(run, tmp_path, given, message) -> None:
    with one_line(message):
        run(tmp_path, *COMMON, "features=disk", *given)
