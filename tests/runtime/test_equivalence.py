"""How the work is shared out does not change what is learnt: losses step by step, and weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra import compose
from omegaconf import DictConfig

from gnnscale.config import typed
from gnnscale.runtime.checkpoint.file import LAST, load_checkpoint
from gnnscale.runtime.settings import TrainConfig
from gnnscale.runtime.train import train

pytestmark = pytest.mark.timeout(240)

COMMON = ["model.dropout=0", "epochs=3", "runtime.eval_every=3", "num_threads=2"]
#: The default graph's kind, and Cora as in its experiment.
PLANTED = [
    *("dataset.num_vertices=1600", "dataset.num_edges=10000", "dataset.num_features=16"),
    *("model.hidden=16", "sampler.fanouts=[10,5]", "batch_size=64"),
]
CORA = [
    *("dataset=planetoid", "dataset.name=cora", "sampler=full", "model=gcn", "model.hidden=16"),
    "batch_size=64",
]
#: An accelerator that needs 5 ms for a mini-batch of any size: a processor is faster.
SLOW = (
    "device_plan.devices=[cpu,{kind:emulated,macs_per_s:1e10,memory_bandwidth:5e9,"
    "memory_bytes:1073741824,link_bandwidth:1e9,launch_s:5e-3}]"
)
TWO = {
    "cpu_x2": ["device_plan=cpu_x2"],
    "cpu_x2_uneven": [
        *("device_plan=cpu_x2", "device_plan.split=[7,57]"),
        *("runtime.prefetch=two_stage", "runtime.drm=false"),
    ],
    "cpu_x2_one_idle": [
        *("device_plan=cpu_x2", "device_plan.split=[0,64]"),
        *("runtime.prefetch=one_stage", "runtime.drm=false"),
    ],
    "cpu_x2_gathered": ["device_plan=cpu_x2", "runtime.fused=false", "runtime.prefetch=none"],
    "hybrid": ["device_plan=hybrid_emulated", "runtime.prefetch=two_stage"],
    "hybrid_static": [
        *("device_plan=hybrid_emulated", "device_plan.split=[40,24]"),
        *("runtime.prefetch=none", "runtime.drm=false"),
    ],
    "hybrid_one_idle": [
        *("device_plan=hybrid_emulated", "device_plan.split=[64,0]"),
        *("runtime.prefetch=two_stage", "runtime.drm=false", "runtime.fused=false"),
    ],
    "hybrid_rebalanced": [SLOW, "device_plan.split=[4,60]", "runtime.prefetch=none"],
}
FOUR = {
    "cpu_x4": ["device_plan=cpu_x4"],
    "emulated_x4": ["device_plan=emulated_x4", "runtime.prefetch=two_stage"],
    "emulated_x4_uneven": [
        *("device_plan=emulated_x4", "device_plan.split=[1,0,60,3]", "runtime.fused=false"),
        *("runtime.prefetch=one_stage", "runtime.drm=false"),
    ],
}


def graphs(data: Path) -> dict[str, list[str]]:
    return {
        "planted_sage": [*COMMON, *PLANTED],
        "planted_gcn": [*COMMON, *PLANTED, "model=gcn", "model.hidden=16"],
        "cora_gcn": [*COMMON, *CORA, f"dataset.raw={data / 'planetoid'}"],
    }


class Losses:
    def __init__(self) -> None:
        self.steps: list[float] = []

    def started(self, run: Any) -> None: ...

    def stepped(self, record: Any) -> None:
        self.steps.append(record.step_loss)

    def traced(self, spans: Any) -> None: ...

    def trained(self) -> None: ...

    def finished_epoch(self, record: Any) -> None: ...


@pytest.mark.parametrize(("size", "variants"), [(2, TWO), (4, FOUR)])
def test_every_plan_learns_what_one_process_does(
    options: Callable[..., DictConfig],
    together: Callable[..., None],
    test_data: Path,
    tmp_path: Path,
    size: int,
    variants: dict[str, list[str]],
) -> None:
    bases = graphs(test_data)
    if size == 4:
        bases.pop("planted_gcn")
    runs = {
        f"{graph}.{variant}": [*base, *overrides]
        for graph, base in bases.items()
        for variant, overrides in variants.items()
    }
    (tmp_path / "runs.json").write_text(json.dumps(runs))
    together("train_together.py", size, tmp_path)

    moved = set()
    for graph, base in bases.items():
        expected = Losses()
        train(typed(compose("train", base), TrainConfig), tmp_path / graph, expected, options={})
        assert expected.steps
        for variant in variants:
            name = f"{graph}.{variant}"
            found = json.loads((tmp_path / f"{name}.json").read_text())
            assert found["losses"] == pytest.approx(expected.steps, rel=1e-5), name
            full = [tuple(split) for split in found["splits"] if sum(split) == 64]
            if len(set(full)) > 1:
                moved.add(variant)
            weights = load_checkpoint(tmp_path / name / LAST)["model"]
            for rank in range(1, size):
                other = torch.load(tmp_path / f"{name}.{rank}.pt", weights_only=True)
                assert weights.keys() == other.keys()
                assert all(torch.equal(weights[key], other[key]) for key in weights), (name, rank)
    # The comparison means something: work was moved, and only where it was allowed to.
    if size == 2:
        assert "hybrid_rebalanced" in moved
    assert not {variant for variant in moved if "runtime.drm=false" in variants[variant]}
