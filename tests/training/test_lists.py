"""Neighbour lists that are read from the disk change nothing that is learnt."""

import pytest
from devices import accelerator, plan_of
from learnt import same, weights
from one_line import one_line

from gnnscale.training.build import topology

pytestmark = pytest.mark.integration

COMMON = (
    *("dataset.num_vertices=4000", "dataset.num_edges=40000", "dataset.num_features=12"),
    # Bits of products follow the number of threads, which a plan takes from what it measures.
    *("model.dropout=0.5", "sampler.fanouts=[4,3]", "num_threads=1", "batch_size=64"),
    *("dataset.train_fraction=0.114", "epochs=2", "runtime.eval_every=2"),
)
SOME = "sampler.memory_bytes=60_000"
RUNS = {
    "nothing": ("sampler.memory_bytes=0", "runtime.prefetch=none"),
    "some": (SOME, "runtime.prefetch=one_stage"),
    "ahead": (SOME, "runtime.prefetch=two_stage"),
    "whole": ("sampler.memory_bytes=1e7", "runtime.prefetch=two_stage"),
    "rows": (SOME, "features=disk", "features.memory_bytes=500_000", "features.window=2"),
}


def test_the_disk_changes_nothing_learnt(trained_together) -> None:
    fixed = (*COMMON, "device_plan=cpu_x2", "device_plan.split=[60,4]", "runtime.drm=false")
    runs = {name: [*fixed, *options] for name, options in RUNS.items()}
    found = trained_together(2, {"memory": fixed, **runs})
    expected = found["memory"]["losses"]
    assert len(set(expected)) == len(expected) == 16
    for name in RUNS:
        assert found[name]["losses"] == expected, name


def test_a_report_tells_what_memory_held(launched, tmp_path) -> None:
    run = launched(tmp_path, *COMMON, "device_plan=cpu", SOME)
    (device,) = run.summary["devices"]
    read = device["traffic"]["neighbors"]
    assert read["misses"] > 0 < read["hits"]
    rate = read["hits"] / (read["hits"] + read["misses"])
    assert device["neighbor_hit_rate"] == pytest.approx(rate, rel=0.01)
    assert read["link_bytes"] >= read["link_requests"] > 0
    assert read["waited_us"] > 0
    counted = [step["devices"][0]["traffic"].get("neighbors", {}) for step in run.steps]
    assert sum(each.get("misses", 0) for each in counted) > 0
    assert "neighbors in host memory" in run.page


@pytest.mark.parametrize(
    "task",
    [
        ("task=links", "batch_size=256"),
        ("sampler=full", "sampler.fanouts=[-1,-1]"),
        ("features=preaggregated", "sampler.fanouts=[3,-1]"),
        ("runtime.inference=sampled",),
        (plan_of(accelerator()), "runtime.prefetch=two_stage"),  # for which the host samples
    ],
)
def test_whatever_samples_uniformly_reads_the_disk(run, tmp_path, task) -> None:
    common = (*COMMON, "device_plan=cpu", "epochs=1", "runtime.eval_every=1", *task)
    memory, disk = (run(tmp_path / str(len(each)), *common, *each) for each in ((), (SOME,)))
    (expected,), (found) = memory.history, disk.history[0]
    assert (found.train_loss, found.valid_metric) == (expected.train_loss, expected.valid_metric)
    assert found.devices[0].traffic.neighbors.misses > 0


def test_a_run_goes_on_from_the_disk(run, tmp_path) -> None:
    common = (*COMMON, "device_plan=cpu", "runtime.drm=false")
    run(tmp_path / "whole", *common)
    run(tmp_path / "part", *common, "epochs=1")
    run(tmp_path / "part", *common, SOME, f"resume={tmp_path / 'part'}")
    assert same(weights(tmp_path / "part"), weights(tmp_path / "whole"))


def test_a_run_whose_topology_exceeds_memory_reads_the_disk_by_itself(
    run, tmp_path, monkeypatch
) -> None:
    common = (*COMMON, "device_plan=cpu", "epochs=1")
    whole = run(tmp_path / "whole", *common)
    monkeypatch.setattr(topology, "exceeds_memory", lambda graph: True)
    disk = run(tmp_path / "disk", *common)
    found = [each.history[0] for each in (whole, disk)]
    assert len({each.train_loss for each in found}) == 1
    asked = [each.devices[0].traffic.neighbors for each in found]
    assert [each.hits + each.misses > 0 for each in asked] == [False, True]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("sampler.memory_bytes=-1",), "sampler.memory_bytes=-1"),
        (
            (SOME, "device_plan=cuda"),
            "such as cpu, got cuda:0, which samples adjacency lists in memory",
        ),
        (
            (SOME, plan_of(accelerator()), "cache_planner=pagraph"),
            "sampler.memory_bytes=60000: expected cache_planner=none",
        ),
    ],
)
def test_what_does_not_go_with_it_is_refused(run, tmp_path, given, message) -> None:
    with one_line(message):
        run(tmp_path, *COMMON, *given)
