"""Layers from outside the package, trained by worker processes: shared out, managed, resumed."""

import re
from pathlib import Path
from typing import Any

import own_layers
import pytest
from devices import accelerator, plan_of

from gnnscale.nn.scatter_gather import Custom, ScatterGatherUpdate
from gnnscale.training.launcher.launch import WorkerError

pytestmark = pytest.mark.integration

#: An accelerator that needs 40 ms for a mini-batch of any size: a processor is faster.
SLOW = plan_of("cpu", accelerator(launch_s=4e-2))
PLANS = {
    "cpu_x2_uneven": (
        *("device_plan=cpu_x2", "device_plan.split=[7,57]"),
        *("runtime.prefetch=two_stage", "runtime.drm=false"),
    ),
    "cpu_x4": ("device_plan=cpu_x4", "runtime.prefetch=one_stage"),
    "hybrid": ("device_plan=hybrid_emulated", "runtime.prefetch=two_stage"),
    "hybrid_rebalanced": (SLOW, "device_plan.split=[4,60]", "runtime.prefetch=none"),
}


def model(functions: type[ScatterGatherUpdate]) -> Custom:
    return Custom(functions=functions, hidden=8, dropout=0.5)


FUNCTIONS = [
    *own_layers.ALL[:1],
    *(pytest.param(each, marks=pytest.mark.long) for each in own_layers.ALL[1:]),
]


@pytest.mark.parametrize("functions", FUNCTIONS)
def test_every_plan_learns_like_one_process(launched: Any, tmp_path: Path, functions: Any) -> None:
    known = launched(tmp_path / "one", "num_threads=2", model=model(functions))
    assert known.summary["model"] == functions.__name__
    assert known.summary["predicted"]["devices"][0]["by_rates"]["stage_times_s"]["propagate"] > 0
    # Each plan with one of the layers at least.
    few = ["hybrid"] if functions is own_layers.PlainMean else list(PLANS)[:: len(PLANS) - 1]
    for name in PLANS if functions is own_layers.MaxPooling else few:
        run = launched(tmp_path / name, "num_threads=2", *PLANS[name], model=model(functions))
        assert run.losses == pytest.approx(known.losses, rel=1e-5), name
        assert run.result.test_metric == pytest.approx(known.result.test_metric, abs=0.02)
        full = {split for split in run.seeds if sum(split) == 64}
        assert (len(full) > 1) >= (name == "hybrid_rebalanced"), name


def test_a_resumed_run_ends_as_one_never_stopped(resumed_and_whole: Any) -> None:
    split = ("device_plan=cpu_x2", "device_plan.split=[40,24]", "runtime.drm=false")
    resumed_and_whole(*split, "num_threads=2", model=model(own_layers.MaxPooling))


def test_a_function_that_fails_is_named_in_one_line(launched: Any, tmp_path: Path) -> None:
    with pytest.raises(WorkerError) as caught:
        launched(tmp_path / "run", "device_plan=cpu_x2", model=model(own_layers.Broken))
    message = str(caught.value)  # torch 2.15 names the operation as well
    assert re.search("RuntimeError: (addmm: )?mat1 and mat2 shapes cannot be multiplied", message)
    assert "\n" not in message
    log = next((tmp_path / "run").glob("worker-cpu-*.log"))
    assert "own_layers.py" in log.read_text()
