"""Caches change where rows are read, and nothing that is learnt; exact hits are counted."""

import json
from pathlib import Path

import pytest
from devices import accelerator, plan_of
from learnt import same, weights
from typed_graphs import shop

from gnnscale.core.stages import Access, Traffic

pytestmark = pytest.mark.integration

COMMON = (
    *("dataset.num_vertices=800", "dataset.num_edges=5000", "dataset.num_features=12"),
    *("model.dropout=0.5", "sampler.fanouts=[4,3]", "num_threads=2"),
    # The last of 8 steps has 8 seeds: none for a device with a small share.
    *("dataset.train_fraction=0.57", "epochs=2", "runtime.eval_every=2"),
)
#: Devices 0 and 1 read each other's caches, and so do 2 and 3.
LINKS = "0 1 0 0\n1 0 0 0\n0 0 0 1\n0 0 1 0\n"
FIXED = "runtime.drm=false"
#: The caches of each run, and how its batches are prepared.
PLANNERS = {
    "quiver": ("cache_planner.ratio=0.1", "runtime.prefetch=two_stage"),
    "legion": ("cache_planner.ratio=0.15", "runtime.prefetch=none"),
    "oracle_static": ("cache_planner.ratio=0.3", "runtime.prefetch=two_stage"),
    "belady": ("cache_planner.ratio=0.2", "runtime.prefetch=two_stage"),
    "belady_match": ("cache_planner.ratio=0.1", "cache_planner.window=3", "runtime.prefetch=none"),
    "match": ("runtime.prefetch=one_stage",),
}
SHARED = {"quiver", "legion"}
#: Planners whose predictions are of the run's own batches.
EXACT = {"oracle_static", "belady", "belady_match", "match"}
#: What four workers run: two run everything.
OF_MANY = ("none", "quiver", "legion")
SPLITS = {2: "[40,24]", 4: "[20,14,1,29]"}


def devices(size: int, *, aggregate: bool = False, **figures: object) -> str:
    figures = {"peer_bandwidth": 1e10, "host_aggregates": aggregate, **figures}
    return plan_of(*[accelerator(**figures)] * size)


def runs_of(size: int, folder: Path) -> dict[str, list[str]]:
    """Return the options of each run by its name."""
    split = f"device_plan.split={SPLITS[size]}"
    fixed = [*COMMON, devices(size), split, FIXED]
    runs = {name: [*fixed, f"cache_planner={name}", *options] for name, options in PLANNERS.items()}
    for name in SHARED:
        runs[name].append(f"cache_planner.nvlink={folder / 'links.txt'}")
    # Work may move between devices, and batches are prepared ahead.
    moving = [*COMMON, devices(size), "runtime.prefetch=two_stage", "runtime.drm=true"]
    for name in ("legion", "belady"):
        runs[f"moving_{name}"] = [*moving, f"cache_planner={name}", "cache_planner.ratio=0.2"]
    # The host may aggregate, and does where that moves less.
    runs["aggregated"] = [
        *(*COMMON, devices(size, aggregate=True), split, FIXED, "cache_planner=gnnlab"),
        *("cache_planner.ratio=0.5", "runtime.prefetch=none"),
    ]
    for name in runs:
        runs[name].append(_store(folder, name))
    runs["none"] = [*fixed, "runtime.prefetch=none"]
    return {name: runs[name] for name in (runs if size == 2 else OF_MANY)}


def _store(folder: Path, name: str) -> str:
    return f"cache_planner.store={folder / 'plans' / name}"


@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.long)])
def test_caches_change_nothing_learnt(trained_together, tmp_path, size) -> None:
    (tmp_path / "links.txt").write_text(LINKS)
    runs = runs_of(size, tmp_path)
    found = trained_together(size, runs)

    if size == 4:
        assert [step[2] for step in found["none"]["splits"]] == [*[1] * 7, 0] * 2
    expected = found["none"]["losses"]
    assert len(set(expected)) == len(expected) == 16
    for name in runs.keys() & PLANNERS.keys():
        # The devices take the rows as they are in either run: not a bit may differ.
        assert found[name]["losses"] == expected, name
    for name in runs.keys() & {"moving_legion", "moving_belady", "aggregated"}:
        assert found[name]["losses"] == pytest.approx(expected, rel=1e-5), name

    for name in runs:
        hits, peers, misses = _found(found[name]["found"])
        if name == "none":
            assert (hits, peers, misses) == (0, 0, 0)
            continue
        assert hits > 0 < misses, name
        assert (peers > 0) == (name in SHARED), name
    for name in runs.keys() & EXACT:
        _check_prediction(tmp_path / "plans" / name, found[name]["found"])


def _found(steps: list[list[list[int]]]) -> tuple[int, int, int]:
    """Add up hits, peer hits and misses of all devices over steps."""
    devices = [each for step in steps for each in step]
    hits, peers, misses = (sum(column) for column in zip(*devices, strict=True))
    return hits, peers, misses


def _check_prediction(plan: Path, steps: list[list[list[int]]]) -> None:
    """Hold what was predicted of each device against what it found."""
    predicted = json.loads((plan / "cache_plan.json").read_text())["predicted"]
    assert predicted["exact"] is True
    counted = steps[: len(steps) * predicted["num_epochs"] // 2]
    for device, told in enumerate(predicted["devices"]):
        hits, peers, misses = _found([[step[device]] for step in counted])
        assert peers == 0
        rows = [0] * (len(steps[0]) + 1)
        rows[device], rows[-1] = hits, misses
        assert told["rows"] == rows, plan.name
    hits, _, misses = _found(counted)
    assert predicted["feature_hit_rate"] == pytest.approx(hits / (hits + misses), abs=1e-12)


#: Planners of the runs with types whose devices read rows and lists in host memory.
LISTED = {"oracle_static", "belady_match"}


def test_caches_change_nothing_learnt_of_types(trained_together, tmp_path) -> None:
    """Rows of a type are as wide as the type has features, and users' rows are learned."""
    (tmp_path / "links.txt").write_text("0 1\n1 0\n")
    shop().save(tmp_path / "shop")
    common = [
        "dataset=store",
        f"dataset.store={tmp_path / 'shop'}",
        "model=rsage",
        "model.hidden=8",
    ]
    common += ["sampler.fanouts=[4,3]", "batch_size=64", "epochs=2", "device_plan.split=[40,24]"]
    reading = {"sampled_edges_per_s": 1e12, "reads_host_memory": True, "link_request_bytes": 16}
    plans = {
        "quiver": (devices(2), "cache_planner.ratio=0.2", "runtime.prefetch=two_stage"),
        "legion": (devices(2, **reading), "cache_planner.ratio=0.4", "cache_planner.alpha=0.3"),
        "oracle_static": (devices(2, **reading), "cache_planner.ratio=0.3"),
        "belady": (devices(2), "cache_planner.ratio=0.2", "runtime.prefetch=two_stage"),
        "belady_match": (devices(2, **reading), "cache_planner.ratio=0.1"),
        "match": (devices(2), "cache_planner.predicted_epochs=null"),
    }
    links = f"cache_planner.nvlink={tmp_path / 'links.txt'}"
    runs = {"none": [*common, FIXED, devices(2)]}
    for name, options in plans.items():
        chosen = (f"cache_planner={name}", links, _store(tmp_path, name))
        runs[name] = [*common, FIXED, *options, *chosen]
    found = trained_together(2, runs)

    assert len(set(found["none"]["losses"])) == len(found["none"]["losses"])
    for name in plans:
        assert found[name]["losses"] == found["none"]["losses"], name
        hits, peers, misses = _found(found[name]["found"])
        assert min(hits, misses) > 0, name
        assert (peers > 0) == (name not in EXACT or name == "oracle_static"), name
    for name in plans.keys() & EXACT:
        told = json.loads((tmp_path / "plans" / name / "cache_plan.json").read_text())["predicted"]
        assert told["exact"] is True
        epochs = found[name]["epochs"][: told["num_epochs"]]
        for device, predicted in enumerate(told["devices"]):
            counted = [Traffic.from_counts(epoch[4][device][1]) for epoch in epochs]
            rows = sum((each.rows for each in counted), Access())
            lists = sum((each.lists for each in counted), Access())
            by_source = [0, 0, rows.misses]
            by_source[device], by_source[1 - device] = rows.hits, rows.peer_hits
            assert predicted["rows"] == by_source, name
            assert predicted["link_bytes"] == rows.host_bytes == rows.link_bytes
            if name in LISTED:  # nothing is cached of lists: each read is a request
                assert lists.link_requests == lists.host_bytes // 4 > 0
                assert predicted["transactions"] == rows.link_requests + lists.link_requests
            if name == "oracle_static":
                assert predicted["lists"][-1] == lists.link_requests
    lists = [
        Traffic.from_counts(part[1]).lists
        for epoch in found["legion"]["epochs"]
        for part in epoch[4]
    ]
    assert min(sum(each.hits for each in lists), sum(each.peer_hits for each in lists)) > 0


#: Caches that a run may go on with, whatever it began with.
OTHERS = {
    "none": (),
    "legion": ("cache_planner=legion", "cache_planner.ratio=0.2"),
    "belady": ("cache_planner=belady", "cache_planner.ratio=0.2"),
}


def test_runs_go_on_with_the_same_caches_or_others(run, tmp_path) -> None:
    common = (*COMMON, devices(1), FIXED, "runtime.prefetch=two_stage")
    run(tmp_path / "whole", *common)
    whole = weights(tmp_path / "whole")
    for before, after in (("none", "legion"), ("belady", "belady"), ("legion", "belady")):
        part = tmp_path / f"{before}-{after}"
        run(part, *common, "epochs=1", *OTHERS[before])
        assert not same(whole, weights(part))
        run(part, *common, f"resume={part}", *OTHERS[after])
        assert same(whole, weights(part)), part.name
    shop(60, 40).save(tmp_path / "shop")
    typed = ("dataset=store", f"dataset.store={tmp_path / 'shop'}", "model=rsage", "batch_size=9")
    part, common_typed = tmp_path / "typed", (*typed, *common[-3:], "sampler.fanouts=[4,3]")
    run(tmp_path / "whole_typed", *common_typed, "epochs=2")
    run(part, *common_typed, "epochs=1", *OTHERS["belady"])
    run(part, *common_typed, "epochs=2", f"resume={part}", *OTHERS["belady"])
    assert same(weights(tmp_path / "whole_typed"), weights(part))
    # A plan that is given may be another as well.
    part = tmp_path / "given"
    run(part, *common, "epochs=1", *OTHERS["legion"], _store(tmp_path, "given"))
    run(part, *common, f"resume={part}", f"cache_plan={tmp_path / 'plans' / 'given'}")
    assert same(whole, weights(part))
