"""Runs on FPGA cards in C simulation: they learn what a processor does, and are resumed."""

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from learnt import same, weights
from losses import At
from one_line import one_line

from gnnscale.nn.scatter_gather import Custom, ScatterGatherUpdate

pytestmark = pytest.mark.integration

EXAMPLE = Path(__file__).parents[2] / "examples" / "fpga"

COMMON = ["dataset.num_features=20", "epochs=2", "num_threads=2", "runtime.eval_every=2"]
MODELS = {
    name: [*COMMON, f"model={name}", "model.hidden=24", "model.dropout=0.5"]
    for name in ("sage", "gcn", "gin")
}
ALONE = {
    "fpga_csim": ["device_plan=fpga_csim", "runtime.prefetch=two_stage"],
    "fused": ["device_plan.devices=[{kind:fpga,host_aggregates:true}]", "runtime.prefetch=none"],
}
OF_MODELS = {"sage": ("fpga_csim", "fused"), "gcn": ("fused",), "gin": ("fpga_csim",)}
TWO = {
    "fpga_csim_x2": ["device_plan=fpga_csim_x2", "runtime.prefetch=two_stage"],
    "hybrid_fpga_csim": [
        *("device_plan=hybrid_fpga_csim", "device_plan.split=[4,60]"),
        *("runtime.prefetch=two_stage", "runtime.drm=true"),
    ],
    "one_idle": [
        *("device_plan=hybrid_fpga_csim", "device_plan.split=[64,0]"),
        *("runtime.prefetch=one_stage", "runtime.drm=false"),
    ],
}
#: Of the plans above, that of architectures other than GraphSAGE.
FEW = {"hybrid_fpga_csim": TWO["hybrid_fpga_csim"]}


@pytest.mark.parametrize(
    "model", ["sage", *(pytest.param(each, marks=pytest.mark.long) for each in ("gcn", "gin"))]
)
def test_a_card_learns_what_a_processor_does(losses, tmp_path, model) -> None:
    known = losses(tmp_path / "cpu", *MODELS[model], "device_plan=cpu")
    assert len(known) == 2 * 6
    for name in OF_MODELS[model]:
        found = losses(tmp_path / name, *MODELS[model], *ALONE[name])
        assert found == pytest.approx(known, rel=1e-4), name


@pytest.mark.long
def test_cards_and_processors_together(losses, trained_together, tmp_path) -> None:
    plans = {model: TWO if model == "sage" else FEW for model in MODELS}
    runs = {
        f"{model}.{name}": [*MODELS[model], *plan]
        for model, some in plans.items()
        for name, plan in some.items()
    }
    found = trained_together(2, runs)
    for model in plans:
        known = losses(tmp_path / model, *MODELS[model], "device_plan=cpu")
        for name in (each for each in runs if each.startswith(f"{model}.")):
            assert found[name]["losses"] == pytest.approx(known, rel=1e-4), name
            other = torch.load(tmp_path / f"{name}.1.pt", weights_only=True)
            assert same(weights(tmp_path / name), other), name


def test_reports_say_what_was_simulated(launched, tmp_path) -> None:
    run = launched(tmp_path / "run", *MODELS["sage"], "device_plan=fpga_csim")
    device = run.summary["devices"][0]
    assert (device["name"], device["kind"]) == ("fpga:0", "fpga")
    assert device["figures"] == run.summary["figures"] == "csim"
    assert '<span class="badge">csim</span>' in run.page
    steps = run.of_device(0)
    assert all(step["seeds"] for step in steps)
    # By the clock of the kernels, which is not that of this machine.
    propagated = [step["stage_s"]["propagate"] for step in steps]
    assert device["counters"]["csim_cycles"] / 300e6 == pytest.approx(sum(propagated), rel=0.05)
    assert device["counters"]["csim_simulating_s"] > 0
    moved = [step["traffic"][part]["link_bytes"] for step in steps for part in ("rows", "lists")]
    assert min(moved) > 0


def test_a_resumed_run_ends_the_same(run, losses, tmp_path) -> None:
    whole, part, step = tmp_path / "whole", tmp_path / "part", 9
    common = [*MODELS["gin"], "device_plan=fpga_csim", "runtime.checkpoint_every_s=0"]
    known = losses(whole, *common)
    with pytest.raises(KeyboardInterrupt):
        run(part, *common, watched=At(step))
    rest = losses(part, *common, f"resume={part}")
    # From whichever step the disk had last, in an epoch or between two.
    assert len(rest) >= len(known) - step
    assert rest == known[-len(rest) :]
    assert same(weights(whole), weights(part))


@pytest.fixture
def max_pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The example of a layer with a header; workers import it by name."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    yield import_module("max_pool")
    del sys.modules["max_pool"]


def own(functions: type[ScatterGatherUpdate]) -> Custom:
    return Custom(functions=functions, hidden=24, dropout=0.5)


@pytest.mark.long
def test_the_example_reaches_the_accuracy_it_shows(stores, max_pool, monkeypatch, capsys) -> None:
    monkeypatch.setenv("GNNSCALE_HOME", str(stores))
    assert max_pool.main() > 0.75
    printed = capsys.readouterr().out.splitlines()
    assert "test accuracy" in printed[-1]
    # epoch 1: loss 1.5 on the card, 1.5 on the processor
    words = [line.split() for line in printed if line.startswith("epoch")]
    card, processor = ([float(each[place]) for each in words] for place in (3, 7))
    assert len(card) == 5
    assert card == pytest.approx(processor, rel=1e-4)


def test_a_header_that_does_not_compile_or_is_missing(run, tmp_path, max_pool) -> None:
    header = tmp_path / "broken.hpp"
    header.write_text(
        '#include "gnnscale_fpga/functions.hpp"\n'
        "struct LayerFunctions : gnnscale::fpga::WeightedSum {\n"
        "  static float scatter(float source, float weight) { return source * wieght; }\n"
        "};\n"
    )
    broken = type("Broken", (max_pool.MaxPool,), {"kernel_header": header})
    with one_line("wieght", begins=f"{header}:3:"):
        run(tmp_path / "run", *COMMON, "device_plan=fpga_csim", model=own(broken))
    bare = type("Bare", (max_pool.MaxPool,), {"kernel_header": None})
    with one_line(begins="Bare.kernel_header=None: an fpga needs a C++ hea"):
        run(tmp_path, *COMMON, "device_plan=fpga_csim", model=own(bare))
