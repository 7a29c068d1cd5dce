"""HyScale-GNN's performance model: equations, workloads, and predictions for a plan."""

from typing import TYPE_CHECKING

from gnnscale.core.lazy import lazy_names

if TYPE_CHECKING:
    from gnnscale.planner.cost_model.equations import *  # noqa: F403
    from gnnscale.planner.cost_model.stage_work import load_work, propagation_work
    from gnnscale.planner.cost_model.workload import *  # noqa: F403

__getattr__ = lazy_names(
    __name__,
    {
        "gnnscale.planner.cost_model.equations": (
            "BatchSize Prediction pipeline_seconds product_seconds sync_seconds"
        ),
        "gnnscale.planner.cost_model.stage_work": "load_work propagation_work",
        "gnnscale.planner.cost_model.workload": (
            "KnownSlices SourceEffect Workload measure_workload unmeasured_workload"
        ),
    },
)
