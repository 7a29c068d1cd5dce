"""Modules of a user's own, trained by worker processes: shared out, resumed, evaluated."""

from typing import Any

import own_modules
import pytest
import torch
from omegaconf import OmegaConf
from one_line import one_line

from gnnscale.core.errors import ConfigError
from gnnscale.inference.evaluate import evaluate
from gnnscale.nn import CustomModel
from gnnscale.run.commands import EvaluateConfig, ModelCodeOptions
from gnnscale.training.launcher.launch import WorkerError

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

LIBRARIES = {"PyG": "torch_geometric", "DGL": "dgl"}
PLANS = {
    "cpu_x2_uneven": (
        *("device_plan=cpu_x2", "device_plan.split=[7,57]"),
        *("runtime.prefetch=two_stage", "runtime.drm=false"),
    ),
    "hybrid": ("device_plan=hybrid_emulated", "runtime.prefetch=one_stage"),
}


def custom(name: str, *options: str) -> list[str]:
    return ["model=custom", f"model.module=own_modules:{name}", "model.hidden=8", *options]


def skip_without(name: str) -> None:
    for prefix, library in LIBRARIES.items():
        if name.startswith(prefix):
            pytest.importorskip(library)


MODULES = [
    pytest.param(each, marks=[pytest.mark.long] * (each.__name__ in ("PyGLayers", "PyGOneGraph")))
    for each in own_modules.ALL
]


@pytest.fixture(scope="module")
def done() -> dict[str, Any]:
    """Runs of the built-in model, by their options."""
    return {}


@pytest.mark.parametrize("module", MODULES)
def test_modules_learn_like_the_built_in_model(launched, tmp_path, module, done) -> None:
    skip_without(module.__name__)
    # Of one edge_index, a vertex has the neighbours of its first hop: all of them are the same.
    one_graph = module is own_modules.PyGOneGraph
    options = ["sampler.fanouts=[-1,-1]"] if one_graph else []
    if str(options) not in done:
        done[str(options)] = launched(tmp_path / "known", "model.dropout=0", *options)
    known = done[str(options)]
    run = launched(tmp_path / "own", *custom(module.__name__, *options))
    assert run.losses == pytest.approx(known.losses, abs=1e-4)
    metrics = [[epoch.valid_metric for epoch in each.result.history] for each in (run, known)]
    assert metrics[0] == metrics[1]
    assert run.result.test_metric == known.result.test_metric
    assert run.summary["model"] == module.__name__


def predicted(run: Any) -> float:
    """Seconds of propagation that were expected of the first device."""
    device = run.summary["predicted"]["devices"][0]
    return float(device["by_rates"]["stage_times_s"]["propagate"])


def test_every_plan_learns_what_one_process_does(launched, tmp_path) -> None:
    known = launched(tmp_path / "one", "num_threads=2", *custom("OwnBlocks"))
    for name, plan in PLANS.items():
        run = launched(tmp_path / name, "num_threads=2", *plan, *custom("OwnBlocks"))
        assert run.losses == pytest.approx(known.losses, rel=1e-5)
        assert predicted(run) > 0
        assert sum(run.seeds[0]) == 64


@pytest.mark.long
def test_a_resumed_run_ends_as_one_never_stopped(resumed_and_whole) -> None:
    options = [*custom("OwnBlocks", "model.dropout=0.5"), "runtime.deterministic=true"]
    _, whole = resumed_and_whole(*options, "device_plan=hybrid_emulated", "num_threads=2")
    assert predicted(whole) > 0


def test_a_run_is_evaluated_by_the_code_that_is_named_again(launched, options, tmp_path) -> None:
    run = launched(tmp_path, *custom("OwnBlocks"))
    OmegaConf.save(options(*custom("OwnBlocks")), tmp_path / "config.yaml", resolve=True)
    with pytest.raises(ConfigError, match=r"if you trust it, add model.module=own_modules:Own"):
        evaluate(EvaluateConfig(run=tmp_path, num_threads=1))

    def evaluated(name: str) -> Any:
        model = ModelCodeOptions(module=f"own_modules:{name}")
        return evaluate(EvaluateConfig(run=tmp_path, num_threads=1, model=model))

    found = evaluated("OwnBlocks")
    assert found.test_metric == run.result.test_metric
    assert (found.inference, found.model) == ("exact", "OwnBlocks")
    # Code of another name is what is imported, and its weights must fit.
    found = evaluated("WithoutInference")
    assert found.inference == "sampled"
    assert found.test_metric == pytest.approx(run.result.test_metric, abs=0.1)
    pytest.importorskip("torch_geometric")
    with pytest.raises(ConfigError, match="not weights of this model"):
        evaluated("PyGBipartite")


def test_pyg_s_own_model_by_its_name(launched, tmp_path) -> None:
    pytest.importorskip("torch_geometric")
    options = ["model=custom", "model.module=torch_geometric.nn:GraphSAGE", "model.hidden=16"]
    run = launched(tmp_path, *options, "epochs=20", "model.dropout=0.1")
    assert run.losses[-1] < 0.7 * run.losses[0]
    assert run.result.test_metric > 0.5


@pytest.mark.long
def test_a_class_and_a_built_module_from_a_program(launched, tmp_path) -> None:
    torch.manual_seed(0)
    known = launched(tmp_path / "named", *custom("OwnBlocks"))
    made = CustomModel(module=own_modules.OwnBlocks, hidden=8)
    assert made.named == "own_modules:OwnBlocks"
    assert launched(tmp_path / "class", model=made).losses == known.losses
    torch.manual_seed(0)
    built = CustomModel(module=own_modules.OwnBlocks(8, 8, 4, 2))
    assert launched(tmp_path / "built", model=built).losses == known.losses


def test_what_options_refuse(settings) -> None:
    for asked, message in (
        ("partitioner=p3 device_plan=cpu_x2", "cannot be split by columns of the features"),
        ("features=preaggregated sampler.fanouts=[5,-1]", "expected a first layer that"),
        ("runtime.compute_dtype=bfloat16", "expected float32, in which"),
        ("sampler.fanouts=[5,3,2]", "set model.num_layers=3, or sampler.fanouts=[5,3]"),
    ):
        with one_line(message):
            settings(*custom("OwnBlocks"), *asked.split())


def test_what_workers_refuse(launched, tmp_path) -> None:
    for option, message in (
        ("device_plan=fpga_csim", "model=custom: expected a model with fpga kernels"),
        ("model.module=no_such:Module", "no module no_such, neither installed nor in"),
    ):
        with pytest.raises((ConfigError, WorkerError)) as error:
            launched(tmp_path, *custom("OwnBlocks"), option)
        assert message in str(error.value)
        assert str(error.value).isprintable()
