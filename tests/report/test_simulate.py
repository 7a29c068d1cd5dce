from __future__ import annotations

from typing import Any

from gnnscale.plan.simulator import Scaling, Simulated
from gnnscale.report.simulate import describe


def test_figures_are_called_simulated_and_absent_stages_are_null(hybrid_run: Any) -> None:
    result = Simulated(
        num_accelerators=1,
        plan=hybrid_run.started.plan,
        predicted=hybrid_run.started.predicted,
        epoch_s=2.0,
        mteps=3.0,
        bottleneck="propagate",
    )
    scaling = Scaling(graph="cora", model="GCN", platform="a machine", results=(result,))
    described = describe(scaling)
    assert described["figures"] == "simulated"
    processor, accelerator = described["results"][0]["devices"]
    assert (processor["name"], accelerator["name"]) == ("cpu:0", "emulated:1")
    assert processor["stage_times_s"]["transfer"] is None
    assert accelerator["stage_times_s"]["transfer"] == 0.0021
    assert accelerator["stage_times_s"]["exchange"] is None
