"""Link prediction by the runtime: the same losses on any devices, resumed, and evaluated."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from gnnscale.core.errors import ConfigError
from gnnscale.runtime.checkpoint.file import LAST, load_checkpoint
from gnnscale.runtime.command_options import EvaluateConfig
from gnnscale.runtime.evaluation.evaluate import evaluate
from gnnscale.runtime.settings import TrainConfig

LINKS = (
    *("task=links", "batch_size=256", "epochs=3", "runtime.prefetch=none"),
    *("task.num_candidates=20", "model.hidden=16"),
)
EMULATED = (
    "{kind:emulated,macs_per_s:1e10,memory_bandwidth:5e9,memory_bytes:1073741824,"
    "link_bandwidth:1e9,host_bandwidth:1e9}"
)


@pytest.mark.parametrize(
    "devices",
    [
        ("device_plan=cpu_x2", "num_threads=2"),
        ("device_plan=cpu_x2", "device_plan.split=[100,156]", "num_threads=2", "task.decoder=mlp"),
        (f"device_plan.devices=[{{kind:cpu}},{EMULATED}]", "num_threads=2"),
    ],
)
def test_the_same_losses_on_any_devices(
    launched: Callable[..., Any], tmp_path: Path, devices: tuple[str, ...]
) -> None:
    decoder = tuple(each for each in devices if each.startswith("task."))
    one = launched(tmp_path / "one", *LINKS, *decoder)
    many = launched(tmp_path / "many", *LINKS, *devices)
    assert many.losses == pytest.approx(one.losses, rel=1e-4)
    assert many.result.metric == "mrr"
    assert many.result.test_metric == pytest.approx(one.result.test_metric, abs=1e-3)
    assert one.result.history[-1].train_loss < one.result.history[0].train_loss


def test_resumed_and_evaluated(launched: Callable[..., Any], tmp_path: Path) -> None:
    common = (*LINKS, "runtime.deterministic=true", "runtime.checkpoint_every_s=0")
    whole = launched(tmp_path / "whole", *common, "epochs=4")
    launched(tmp_path / "part", *common)
    part = launched(tmp_path / "part", *common, "epochs=4", f"resume={tmp_path / 'part'}")
    mine, other = (load_checkpoint(tmp_path / name / LAST)["model"] for name in ("whole", "part"))
    assert all(torch.equal(mine[name], other[name]) for name in mine)
    assert part.result.test_metric == whole.result.test_metric
    measured = evaluate(EvaluateConfig(run=tmp_path / "whole", num_threads=1))
    assert measured.test_metric == whole.result.test_metric
    assert measured.metric == "mrr"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("partitioner=hash", "device_plan=cpu_x2"), "partitioner=none"),
        (("cache_planner=pagraph", "device_plan=emulated_x4"), "cache_planner=none"),
        (("device_plan=fpga_csim",), "computes the loss of vertices' labels by itself"),
    ],
)
def test_what_does_not_go_together(
    settings: Callable[..., TrainConfig], given: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        settings("task=links", *given)
