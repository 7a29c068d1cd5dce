"""Rows aggregated beforehand change nothing of what is learnt: losses and weights, bit for bit."""

from pathlib import Path

import pytest
from devices import accelerator, plan_of
from learnt import same, weights
from omegaconf import OmegaConf

from gnnscale.inference.evaluate import evaluate
from gnnscale.run.commands import EvaluateConfig
from gnnscale.run.records import TrainResult

#: What may differ between two runs is fixed: who trains which seeds, on how many threads.
FIXED = ("runtime.prefetch=none", "runtime.drm=false", "runtime.checkpoint_every_s=0")
READY = "features=preaggregated"
DEVICES = {
    "cpu_x2": ("device_plan=cpu_x2", "device_plan.split=[24,40]", "num_threads=2"),
    "emulated": (plan_of(accelerator(host_bandwidth=1e9)),),
}


@pytest.fixture(autouse=True)
def a_home_of_its_own(options, stores, tmp_path, monkeypatch) -> None:
    """Rows are made anew in every test, and no machine is measured."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "platform.yaml").symlink_to(stores / "platform.yaml")
    monkeypatch.setenv("GNNSCALE_HOME", str(home))


def check_same(left: Path, right: Path, *results: TrainResult) -> None:
    assert same(weights(left), weights(right))
    mine, other = (
        [(epoch.train_loss, epoch.valid_metric) for epoch in each.history] for each in results
    )
    assert mine == other


BFLOAT16 = ("sampler=full", "sampler.fanouts=[-1,-1]", "runtime.compute_dtype=bfloat16")


@pytest.mark.long
@pytest.mark.parametrize(
    ("model", "how"),
    [
        ("sage", BFLOAT16),
        ("gcn", ("model.num_layers=1", "sampler.fanouts=[-1]")),
        (
            "sage",
            ("model.num_layers=3", "sampler.fanouts=[4,3,-1]", "dataset.feature_dtype=float16"),
        ),
        ("gin", ("sampler.fanouts=[5,-1]", "sampler.replace=true", "runtime.inference=sampled")),
    ],
)
def test_one_process(run, tmp_path, model, how) -> None:
    common = (*FIXED, f"model={model}", *how)
    host, ready = run(tmp_path / "host", *common), run(tmp_path / "ready", *common, READY)
    check_same(tmp_path / "host", tmp_path / "ready", host, ready)
    assert ready.test_metric == host.test_metric
    # The comparison means something: the first layer's edges are sampled in one run alone.
    assert ready.history[0].num_edges < host.history[0].num_edges
    folders = list((tmp_path / "home" / "preaggregated").iterdir())
    assert [sorted(each.name for each in folder.iterdir()) for folder in folders] == [
        ["preaggregated.json", "rows.npy"]
    ]


@pytest.mark.long
@pytest.mark.parametrize(("model", "devices"), [("gcn", "cpu_x2"), ("sage", "emulated")])
def test_worker_processes(launched, tmp_path, model, devices) -> None:
    common = (*FIXED, f"model={model}", "sampler.fanouts=[5,-1]", *DEVICES[devices])
    host = launched(tmp_path / "host", *common)
    ready = launched(tmp_path / "ready", *common, READY)
    assert ready.losses == host.losses
    check_same(tmp_path / "host", tmp_path / "ready", host.result, ready.result)
    assert ready.summary["test_metric"] == host.summary["test_metric"]
    width = 16 if model == "sage" else 8
    for device in ready.of_device(0):
        # A ready row for each vertex of V^1, which are the inputs.
        (inputs, remainder) = divmod(device["traffic"]["rows"]["host_bytes"], 4 * width)
        assert inputs > 0 == remainder
    if devices == "emulated":
        # What crosses the link is the same either way.
        for mine, other in zip(host.of_device(0), ready.of_device(0), strict=True):
            assert mine["traffic"]["rows"]["link_bytes"] == other["traffic"]["rows"]["link_bytes"]


@pytest.mark.long
def test_a_run_goes_on_under_the_other_setting(run, tmp_path) -> None:
    common = (*FIXED, "model=gcn", "sampler.fanouts=[5,-1]")
    known = run(tmp_path / "whole", *common, "epochs=4")
    for first, then in (("host", "preaggregated"), ("preaggregated", "host")):
        part = tmp_path / first
        run(part, *common, "epochs=2", f"features={first}")
        found = run(part, *common, "epochs=4", f"features={then}", f"resume={part}")
        check_same(tmp_path / "whole", part, known, found)


@pytest.mark.long
def test_a_run_is_evaluated_on_the_graphs_features(run, options, tmp_path) -> None:
    how = (*FIXED, "sampler.fanouts=[5,-1]", READY)
    result = run(tmp_path / "ready", *how)
    OmegaConf.save(options(*how), tmp_path / "ready" / "config.yaml", resolve=True)
    for folder in (tmp_path / "home" / "preaggregated").iterdir():
        (folder / "rows.npy").unlink()
    for inference in ("exact", "sampled"):
        found = evaluate(EvaluateConfig(run=tmp_path / "ready", num_threads=1, inference=inference))
        if inference == "exact":
            assert found.test_metric == pytest.approx(result.test_metric)
        assert found.test_metric is not None
