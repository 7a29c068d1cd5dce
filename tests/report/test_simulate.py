from dataclasses import replace
from typing import Any

from gnnscale.planner.device_spec import Efficiency
from gnnscale.planner.simulator import ScalingCurve, SimulatedRun
from gnnscale.planner.simulator.hyscale import SimulatedPlan
from gnnscale.report.simulate import describe, rates, trainers


def test_figures_are_called_simulated_and_absent_stages_are_null(hybrid_run: Any) -> None:
    layout = hybrid_run.started.layout
    predicted = layout.predicted.by_rates
    result = SimulatedRun(
        num_accelerators=1,
        step_s=predicted.step_s,
        epoch_s=2.0,
        mteps=3.0,
        nvtps=4e6,
        bandwidth_efficiency=5e3,
        energy_j=None,
        bottleneck="propagate",
        planned=SimulatedPlan(plan=layout.plan, predicted=predicted),
    )
    parts = Efficiency(processor=0.4, memory=0.5, accelerator=0.75, link=1.0)
    names = {"graph": "cora", "model": "GCN", "platform": "a machine", "system": "hyscale"}
    scaling = ScalingCurve(efficiency=parts, hybrid=True, results=(result,), **names)
    described = describe(scaling)
    assert described["figures"] == "simulated"
    assert described["hybrid"] is True
    assert described["efficiency"] == vars(parts)
    assert rates(scaling) == (
        "rates, of peak: processor 40 %, host memory 50 %, accelerators 75 %, links 100 %"
    )
    stated = replace(scaling, efficiency=None)
    assert rates(stated) == "rates: those that the platform states"
    measured = replace(stated, hybrid=False, measured=True)
    assert describe(measured)["efficiency"] is None
    assert rates(measured) == "rates: those of the platform as measured"
    assert trainers(measured) == "trainers: the accelerators; the processor if there are none"
    processor, accelerator = described["results"][0]["devices"]
    assert (processor["name"], accelerator["name"]) == ("cpu:0", "emulated:1")
    assert processor["stage_times_s"]["transfer"] is None
    assert accelerator["stage_times_s"]["transfer"] == 0.0021
    assert accelerator["stage_times_s"]["exchange"] is None
    assert (described["results"][0]["nvtps"], described["results"][0]["energy_j"]) == (4e6, None)
    unplanned = replace(scaling, results=(replace(result, planned=None),))
    assert describe(unplanned)["results"][0]["devices"] is None
