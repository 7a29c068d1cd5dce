"""Modules of a user's own over graphs with types: shared out, resumed, evaluated, predicted."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typed_modules
from devices import accelerator, plan_of
from one_line import one_line

import gnnscale
from gnnscale.inference.evaluate import evaluate
from gnnscale.nn import CustomModel
from gnnscale.run.commands import EvaluateConfig, ModelCodeOptions
from gnnscale.run.config import check_types

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

OPTIONS = (
    *("dataset=typed_partition", "dataset.num_vertices=1500", "dataset.num_classes=4"),
    *("dataset.signal=1", "dataset.within=0.8", "sampler.fanouts=[5,3]", "batch_size=64"),
    *("num_threads=2", "optimizer.lr=0.01", "model=custom", "model.hidden=16"),
)
PLANS = {
    "split": ("device_plan=cpu_x2", "device_plan.split=[7,57]", "runtime.drm=false"),
    "small": (plan_of("cpu", accelerator(memory_bytes=400_000)),),
}


def custom(name: str, *more: str) -> list[str]:
    return [*OPTIONS, f"model.module=typed_modules:{name}", *more]


@pytest.mark.parametrize("module", ["sage", "DGLConvs"])
def test_modules_learn_from_types(launched, tmp_path: Path, module: str) -> None:
    pytest.importorskip("dgl" if module == "DGLConvs" else "torch_geometric")
    run = launched(tmp_path / "run", *custom(module, "epochs=6"))
    assert run.losses[-1] < 0.7 * run.losses[0]
    assert run.result.test_metric > 0.6
    if module != "sage":
        return
    code = ModelCodeOptions(module="typed_modules:sage")
    measured = evaluate(EvaluateConfig(run=tmp_path / "run", num_threads=1, model=code))
    assert (measured.inference, measured.test_metric) == ("sampled", run.result.test_metric)
    trained = gnnscale.load(tmp_path / "run", module=typed_modules.sage)
    labels = trained.graph.labels[trained.graph.test_idx]
    assert (trained.predict("test") == labels).mean() == run.result.test_metric
    assert trained.predict(("item", [4, 2])).shape == (2,)


def test_every_plan_learns_what_one_process_does(launched, tmp_path: Path) -> None:
    pytest.importorskip("torch_geometric")
    options = custom("Convs", "epochs=2", "dataset.num_vertices=500")
    one = launched(tmp_path / "one", *options)
    for name, plan in PLANS.items():
        many = launched(tmp_path / name, *options, *plan)
        assert many.losses == pytest.approx(one.losses, rel=1e-4)


@pytest.mark.long
def test_a_resumed_run_ends_as_one_never_stopped(resumed_and_whole) -> None:
    pytest.importorskip("torch_geometric")
    options = ["model.dropout=0.5", "device_plan=cpu_x2", "dataset.num_vertices=500"]
    resumed_and_whole(*custom("Convs", *options), "runtime.deterministic=true")


LONG = pytest.mark.long


@pytest.mark.parametrize(
    "rows", [None, *(pytest.param(rows, marks=LONG) for rows in ("degrees", "constant"))]
)
def test_a_built_module_of_a_program(tmp_path: Path, monkeypatch, stores: Path, rows: Any) -> None:
    pytest.importorskip("torch_geometric")
    monkeypatch.setenv("GNNSCALE_HOME", str(stores))
    data = typed_modules.purchases()
    del data["item"].x
    data["item"].num_nodes = 40
    for number, part in enumerate(("train_mask", "val_mask", "test_mask")):
        data["user"][part] = torch.arange(60) % 3 == number
    module = typed_modules.sage(data.metadata(), 8, 3, 2)
    options = {"epochs": 2, "batch_size": 10, "fanouts": [5, 3], "num_threads": 1}
    further = {} if rows is None else {"without_features": rows}
    run = gnnscale.train(data, module, directory=tmp_path / "run", **options, **further)
    losses = [epoch.train_loss for epoch in run.history]
    assert losses[1] < losses[0] < 2
    again = gnnscale.load(tmp_path / "run", module=module)
    np.testing.assert_array_equal(again.predict(), run.predict())


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        (["features=degrees"], ("features=host or disk", "model.without_features")),
        (["device_plan=fpga_csim"], ("fpga:0",)),
    ],
)
def test_what_typed_graphs_refuse(settings, choices, words) -> None:
    config = settings(*custom("Convs", *choices))
    check_types(config, "shop", ())
    with one_line("model=custom, on a graph with types", *words):
        check_types(config, "shop", ["user", "item"])


def test_links_are_refused(settings) -> None:
    with one_line("task=links: expected model=", "got Convs"):
        settings(*custom("Convs", "task=links"))
    assert CustomModel(module=typed_modules.Convs).row_width is None
