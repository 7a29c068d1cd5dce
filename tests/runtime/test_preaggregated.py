"""Rows aggregated beforehand change nothing of what is learnt: losses and weights, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import DictConfig, OmegaConf

from gnnscale.options.config import typed
from gnnscale.runtime.checkpoint.file import LAST, load_checkpoint
from gnnscale.runtime.command_options import EvaluateConfig
from gnnscale.runtime.evaluation.evaluate import evaluate
from gnnscale.runtime.settings import TrainConfig
from gnnscale.runtime.telemetry.records import TrainResult
from gnnscale.runtime.train import train

#: What may differ between two runs is fixed: who trains which seeds, on how many threads.
FIXED = ("runtime.prefetch=none", "runtime.drm=false", "runtime.checkpoint_every_s=0")
READY = "features=preaggregated"
EMULATED = (
    "{kind:emulated,macs_per_s:1e10,memory_bandwidth:5e9,memory_bytes:1073741824,"
    "link_bandwidth:1e9,host_bandwidth:1e9}"
)
DEVICES = {
    "cpu_x2": ("device_plan=cpu_x2", "device_plan.split=[24,40]", "num_threads=2"),
    "emulated": (f"device_plan.devices=[{EMULATED}]",),
}
MODELS = ("gcn", "sage", "gin")


@pytest.fixture(autouse=True)
def a_home_of_its_own(
    options: Any, stores: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are made anew in every test, and no machine is measured."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "platform.yaml").symlink_to(stores / "platform.yaml")
    monkeypatch.setenv("GNNSCALE_HOME", str(home))


@pytest.fixture
def run(options: Callable[..., DictConfig], observer: Any, tmp_path: Path) -> Callable[..., Any]:
    """Train in this process, in a folder of ``tmp_path``."""

    def trained(name: str, *overrides: str) -> TrainResult:
        node = options(*FIXED, *overrides)
        plain: Any = OmegaConf.to_container(node, resolve=True)
        (tmp_path / name).mkdir(exist_ok=True)
        OmegaConf.save(plain, tmp_path / name / "config.yaml")
        config = typed(node, TrainConfig)
        return train(config, tmp_path / name, observer, options=plain | {"resume": None})

    return trained


def check_same(left: Path, right: Path, *results: TrainResult) -> None:
    mine, other = (load_checkpoint(folder / LAST) for folder in (left, right))
    assert mine["model"].keys() == other["model"].keys()
    assert all(torch.equal(mine["model"][key], other["model"][key]) for key in mine["model"])
    learnt = [
        [(epoch.train_loss, epoch.valid_metric) for epoch in each.history] for each in results
    ]
    assert learnt[0] == learnt[1]


BFLOAT16 = ("sampler=full", "sampler.fanouts=[-1,-1]", "runtime.compute_dtype=bfloat16")


@pytest.mark.parametrize(
    ("model", "how"),
    [
        *((model, ("sampler.fanouts=[5,-1]",)) for model in MODELS),
        *((model, BFLOAT16) for model in MODELS),
        ("gcn", ("model.num_layers=1", "sampler.fanouts=[-1]")),
        (
            "sage",
            ("model.num_layers=3", "sampler.fanouts=[4,3,-1]", "dataset.feature_dtype=float16"),
        ),
        ("gin", ("sampler.fanouts=[5,-1]", "sampler.replace=true", "runtime.inference=sampled")),
    ],
)
def test_one_process(
    run: Callable[..., TrainResult], tmp_path: Path, model: str, how: tuple[str, ...]
) -> None:
    common = (f"model={model}", "model.hidden=8", "num_threads=1", *how)
    host, ready = run("host", *common), run("ready", *common, READY)
    check_same(tmp_path / "host", tmp_path / "ready", host, ready)
    assert ready.test_metric == host.test_metric
    # The comparison means something: the first layer's edges are sampled in one run alone.
    assert ready.history[0].num_edges < host.history[0].num_edges
    folders = list((tmp_path / "home" / "preaggregated").iterdir())
    assert [sorted(each.name for each in folder.iterdir()) for folder in folders] == [
        ["preaggregated.json", "rows.npy"]
    ]


@pytest.mark.parametrize(("model", "devices"), [("gcn", "cpu_x2"), ("sage", "emulated")])
def test_worker_processes(
    launched: Callable[..., Any], tmp_path: Path, model: str, devices: str
) -> None:
    common = (f"model={model}", "model.hidden=8", "sampler.fanouts=[5,-1]", *DEVICES[devices])
    host = launched(tmp_path / "host", *FIXED, *common)
    ready = launched(tmp_path / "ready", *FIXED, *common, READY)
    assert ready.losses == host.losses
    check_same(tmp_path / "host", tmp_path / "ready", host.result, ready.result)
    assert ready.summary["test_metric"] == host.summary["test_metric"]
    width = 16 if model == "sage" else 8
    for device in ready.of_device(0):
        # A ready row for each vertex of V^1, which are the inputs.
        (inputs, remainder) = divmod(device["traffic"]["rows"]["host_bytes"], 4 * width)
        assert inputs > 0 == remainder
    if devices == "emulated":
        links = [
            [each["traffic"]["rows"]["link_bytes"] for each in run.of_device(0)]
            for run in (host, ready)
        ]
        # What crosses the link is the same either way.
        assert links[0] == links[1]


@pytest.mark.parametrize("first", ["host", "preaggregated"])
def test_a_run_goes_on_under_the_other_setting(
    run: Callable[..., TrainResult], tmp_path: Path, first: str
) -> None:
    (then,) = {"host", "preaggregated"} - {first}
    common = ("model=gcn", "model.hidden=8", "sampler.fanouts=[5,-1]", "num_threads=1")
    whole = run("whole", *common, "epochs=4")
    run("part", *common, "epochs=2", f"features={first}")
    part = run("part", *common, "epochs=4", f"features={then}", f"resume={tmp_path / 'part'}")
    check_same(tmp_path / "whole", tmp_path / "part", whole, part)


def test_a_run_is_evaluated_on_the_graphs_own_features(
    run: Callable[..., TrainResult], tmp_path: Path
) -> None:
    result = run("ready", "sampler.fanouts=[5,-1]", READY)
    for folder in (tmp_path / "home" / "preaggregated").iterdir():
        (folder / "rows.npy").unlink()
    for inference in ("exact", "sampled"):
        found = evaluate(EvaluateConfig(run=tmp_path / "ready", num_threads=1, inference=inference))
        if inference == "exact":
            assert found.test_metric == pytest.approx(result.test_metric)
        assert found.test_metric is not None
