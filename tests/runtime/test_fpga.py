"""Runs on FPGA cards in C simulation: they learn what a processor does, and are resumed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from composed import composed
from losses import Losses
from omegaconf import OmegaConf

from gnnscale.core.errors import ConfigError
from gnnscale.model.custom import Custom, ScatterGatherUpdate
from gnnscale.options.config import typed
from gnnscale.runtime.checkpoint.file import LAST, load_checkpoint
from gnnscale.runtime.settings import TrainConfig
from gnnscale.runtime.train import train

pytestmark = pytest.mark.integration

#: Whatever calls ``trained``.
composes = pytest.mark.usefixtures("options")

EXAMPLE = Path(__file__).parents[2] / "examples" / "fpga"

COMMON = [
    *("dataset.num_vertices=600", "dataset.num_edges=3000", "dataset.num_classes=4"),
    *("dataset.num_features=20", "dataset.train_fraction=0.6", "sampler.fanouts=[5,3]"),
    *("batch_size=64", "epochs=3", "num_threads=2", "runtime.eval_every=3"),
]
MODELS = {
    name: [*COMMON, f"model={name}", "model.hidden=24", "model.dropout=0.5"]
    for name in ("sage", "gcn", "gin")
}
ALONE = {
    "fpga_csim": ["device_plan=fpga_csim", "runtime.prefetch=two_stage"],
    "fused": ["device_plan.devices=[{kind:fpga,host_aggregates:true}]", "runtime.prefetch=none"],
}
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


def trained(
    directory: Path, *overrides: str, observer: Any = None, **seams: Any
) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Train in this process; return the losses of all steps, and the weights of the end."""
    node = composed(overrides)
    plain: Any = OmegaConf.to_container(node, resolve=True)
    watched = observer or Losses()
    config = replace(typed(node, TrainConfig), **seams)
    train(config, directory, watched, options=plain | {"resume": None})
    return watched.steps, dict(load_checkpoint(directory / LAST)["model"])


@pytest.mark.parametrize(
    "model", ["sage", *(pytest.param(each, marks=pytest.mark.long) for each in ("gcn", "gin"))]
)
@composes
def test_a_card_learns_what_a_processor_does(tmp_path: Path, model: str) -> None:
    known, _ = trained(tmp_path / "cpu", *MODELS[model], "device_plan=cpu")
    assert len(known) == 3 * 6
    for name, plan in ALONE.items():
        found, _ = trained(tmp_path / name, *MODELS[model], *plan)
        assert found == pytest.approx(known, rel=1e-4), name


@pytest.mark.long
@composes
def test_cards_and_processors_learn_it_together(
    together: Callable[..., None], tmp_path: Path
) -> None:
    plans = {model: TWO if model == "sage" else FEW for model in MODELS}
    runs = {
        f"{model}.{name}": [*MODELS[model], *plan]
        for model, some in plans.items()
        for name, plan in some.items()
    }
    (tmp_path / "runs.json").write_text(json.dumps(runs))
    together("train_together", 2, tmp_path)
    for model, some in plans.items():
        known, _ = trained(tmp_path / model, *MODELS[model], "device_plan=cpu")
        for name in some:
            found = json.loads((tmp_path / f"{model}.{name}.json").read_text())
            assert found["losses"] == pytest.approx(known, rel=1e-4), (model, name)
            weights = load_checkpoint(tmp_path / f"{model}.{name}" / LAST)["model"]
            other = torch.load(tmp_path / f"{model}.{name}.1.pt", weights_only=True)
            assert all(torch.equal(weights[key], other[key]) for key in other), (model, name)


@pytest.mark.long
@composes
def test_a_card_learns_cora_as_a_processor_does(tmp_path: Path, test_data: Path) -> None:
    """With 1,433 features and 7 classes, which are no multiples of sixteen."""
    cora = [
        *("dataset=planetoid", "dataset.name=cora", f"dataset.raw={test_data / 'planetoid'}"),
        *("model=gcn", "model.hidden=16", "model.dropout=0.5", "sampler=full"),
        *("batch_size=64", "epochs=3", "num_threads=2", "runtime.eval_every=3"),
    ]
    known, _ = trained(tmp_path / "cpu", *cora, "device_plan=cpu")
    found, _ = trained(tmp_path / "fpga", *cora, "device_plan=fpga_csim")
    assert found == pytest.approx(known, rel=1e-4)


def test_reports_say_what_was_simulated(launched: Any, tmp_path: Path) -> None:
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


class StopAt(Losses):
    """Breaks the run off at a step, as a crash would."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.last = step

    def stepped(self, record: Any) -> None:
        super().stepped(record)
        if len(self.steps) == self.last:
            raise KeyboardInterrupt


@pytest.mark.parametrize("step", [2, pytest.param(9, marks=pytest.mark.long)])
@composes
def test_a_resumed_run_ends_as_one_never_stopped(tmp_path: Path, step: int) -> None:
    common = [*MODELS["gin"], "device_plan=fpga_csim", "runtime.checkpoint_every_s=0"]
    losses, weights = trained(tmp_path / "whole", *common)
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "part", *common, observer=StopAt(step))
    resume = f"resume={tmp_path / 'part'}"
    rest, resumed = trained(tmp_path / "part", *common, resume)
    # From whichever step the disk had last, in an epoch or between two.
    assert len(rest) >= len(losses) - step
    assert rest == losses[-len(rest) :]
    assert weights.keys() == resumed.keys()
    assert all(torch.equal(weights[name], resumed[name]) for name in weights)


@pytest.fixture
def max_pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The example of a layer with a header; workers import it by name."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    yield import_module("max_pool")
    del sys.modules["max_pool"]


def own(functions: type[ScatterGatherUpdate]) -> Custom:
    return Custom(functions=functions, hidden=24, dropout=0.5)


@pytest.mark.long
@composes
def test_a_layer_of_ones_own(tmp_path: Path, max_pool: Any) -> None:
    model = own(max_pool.MaxPool)
    common = [*COMMON, "epochs=5"]
    known, _ = trained(tmp_path / "cpu", *common, model=model)
    plan = "device_plan=fpga_csim"
    found, _ = trained(tmp_path / "fpga", *common, plan, model=model)
    assert found == pytest.approx(known, rel=1e-4)
    assert sum(found[-6:]) < 0.9 * sum(found[:6])


@pytest.mark.long
def test_the_example_reaches_the_accuracy_it_shows(
    stores: Path,
    max_pool: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("GNNSCALE_HOME", str(stores))
    assert max_pool.main() > 0.75
    printed = capsys.readouterr().out.splitlines()
    assert "test accuracy" in printed[-1]
    # epoch 1: loss 1.5 on the card, 1.5 on the processor
    words = [line.split() for line in printed if line.startswith("epoch")]
    card, processor = ([float(each[place]) for each in words] for place in (3, 7))
    assert len(card) == 5
    assert card == pytest.approx(processor, rel=1e-4)


@composes
def test_a_header_that_does_not_compile(tmp_path: Path, max_pool: Any) -> None:
    header = tmp_path / "broken.hpp"
    header.write_text(
        '#include "gnnscale_fpga/functions.hpp"\n'
        "struct LayerFunctions : gnnscale::fpga::WeightedSum {\n"
        "  static float scatter(float source, float weight) { return source * wieght; }\n"
        "};\n"
    )
    broken = type("Broken", (max_pool.MaxPool,), {"kernel_header": header})
    with pytest.raises(ConfigError) as caught:
        trained(tmp_path / "run", *COMMON, "device_plan=fpga_csim", model=own(broken))
    assert str(caught.value).startswith(f"{header}:3:")
    assert "wieght" in str(caught.value)
    assert "\n" not in str(caught.value)


@composes
def test_a_layer_without_a_header(tmp_path: Path, max_pool: Any) -> None:
    bare = type("Bare", (max_pool.MaxPool,), {"kernel_header": None})
    with pytest.raises(
        ConfigError, match=r"^Bare\.kernel_header=None: an fpga needs a C\+\+ header"
    ):
        trained(tmp_path / "run", *COMMON, "device_plan=fpga_csim", model=own(bare))
