"""Link prediction by the runtime: the same losses on any devices, resumed, and evaluated."""

from pathlib import Path
from typing import Any

import pytest
from devices import accelerator, plan_of
from learnt import same, weights

from gnnscale.core.errors import ConfigError
from gnnscale.runtime.command_options import EvaluateConfig
from gnnscale.runtime.evaluation.evaluate import evaluate

pytestmark = pytest.mark.integration

LINKS = (
    *("task=links", "batch_size=256", "epochs=3", "runtime.prefetch=none"),
    *("task.num_candidates=20", "model.hidden=16"),
)


@pytest.mark.parametrize(
    ("devices", "decoder"),
    [
        (("device_plan=cpu_x2",), ()),
        (("device_plan=cpu_x2", "device_plan.split=[100,156]"), ("task.decoder=mlp",)),
        ((plan_of("cpu", accelerator(host_bandwidth=1e9)),), ()),
        (("device_plan=cpu_x2",), ("model=sgc",)),
    ],
)
def test_the_same_losses_on_any_devices(launched, tmp_path, devices, decoder) -> None:
    one = launched(tmp_path / "one", *LINKS, *decoder)
    many = launched(tmp_path / "many", *LINKS, *decoder, *devices, "num_threads=2")
    assert many.losses == pytest.approx(one.losses, rel=1e-4)
    assert many.result.metric == "mrr"
    assert many.result.test_metric == pytest.approx(one.result.test_metric, abs=1e-3)
    assert one.result.history[-1].train_loss < one.result.history[0].train_loss


def test_resumed_and_evaluated(launched: Any, tmp_path: Path) -> None:
    common = (*LINKS, "runtime.deterministic=true", "runtime.checkpoint_every_s=0")
    whole = launched(tmp_path / "whole", *common, "epochs=4")
    launched(tmp_path / "part", *common)
    part = launched(tmp_path / "part", *common, "epochs=4", f"resume={tmp_path / 'part'}")
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "part"))
    assert part.result.test_metric == whole.result.test_metric
    measured = evaluate(EvaluateConfig(run=tmp_path / "whole", num_threads=1))
    assert (measured.metric, measured.test_metric) == ("mrr", whole.result.test_metric)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("partitioner=hash device_plan=cpu_x2", "partitioner=none"),
        ("cache_planner=pagraph device_plan=emulated_x4", "cache_planner=none"),
        ("device_plan=fpga_csim", "does not train on edges"),
    ],
)
def test_what_does_not_go_together(settings: Any, given: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings("task=links", *given.split())
