"""Layers from outside the package, trained by worker processes: shared out, managed, resumed."""

import own_layers
import pytest
from devices import accelerator, plan_of

from gnnscale.nn.scatter_gather import Custom, ScatterGatherUpdate

pytestmark = pytest.mark.integration

#: An accelerator that needs 40 ms for a mini-batch of any size: a processor is faster.
SLOW = plan_of("cpu", accelerator(launch_s=4e-2))
#: By the layers that are trained so.
PLANS: dict[type[ScatterGatherUpdate], tuple[str, ...]] = {
    own_layers.MaxPooling: (SLOW, "device_plan.split=[4,60]", "runtime.prefetch=none"),
    own_layers.PairSum: (
        *("device_plan=cpu_x2", "device_plan.split=[7,57]"),
        *("runtime.prefetch=two_stage", "runtime.drm=false"),
    ),
    own_layers.PlainMean: ("device_plan=hybrid_emulated", "runtime.prefetch=two_stage"),
    own_layers.Attention: ("device_plan=cpu_x4", "runtime.prefetch=one_stage"),
}


def model(functions: type[ScatterGatherUpdate]) -> Custom:
    return Custom(functions=functions, hidden=8, dropout=0.5)


@pytest.mark.parametrize("functions", PLANS)
def test_every_plan_learns_like_one_process(launched, tmp_path, functions) -> None:
    known = launched(tmp_path / "one", "num_threads=2", model=model(functions))
    assert known.summary["model"] == functions.__name__
    assert known.summary["predicted"]["devices"][0]["by_rates"]["stage_times_s"]["propagate"] > 0
    run = launched(tmp_path / "plan", "num_threads=2", *PLANS[functions], model=model(functions))
    assert run.losses == pytest.approx(known.losses, rel=1e-5)
    assert run.result.test_metric == pytest.approx(known.result.test_metric, abs=0.02)
    full = {split for split in run.seeds if sum(split) == 64}
    assert (len(full) > 1) >= (SLOW in PLANS[functions])
