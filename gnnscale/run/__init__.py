"""Options, tasks, checkpoints, records and observers of a training run."""

from typing import TYPE_CHECKING

from gnnscale.core.lazy import lazy_names

if TYPE_CHECKING:
    from gnnscale.run.artifacts import RunArtifact, open_partition
    from gnnscale.run.callbacks import ObserverError, Observers, open_observers
    from gnnscale.run.commands import EvaluateConfig, PlanCacheConfig, SavedRunOptions
    from gnnscale.run.config import parse_run_options, run_option_names
    from gnnscale.run.inputs import *  # noqa: F403
    from gnnscale.run.records import EpochRecord, Observer, TrainResult, best_epoch
    from gnnscale.run.runtime_config import INFERENCE, RuntimeConfig

__getattr__ = lazy_names(
    __name__,
    {
        "gnnscale.run.artifacts": "RunArtifact open_partition",
        "gnnscale.run.callbacks": "ObserverError Observers open_observers",
        "gnnscale.run.commands": "EvaluateConfig PlanCacheConfig SavedRunOptions",
        "gnnscale.run.config": "parse_run_options run_option_names",
        "gnnscale.run.inputs": (
            "EvaluationOptions ReportOptions check_feature_dtype check_features checked_order "
            "describe_use graph_read with_features"
        ),
        "gnnscale.run.records": "EpochRecord Observer TrainResult best_epoch",
        "gnnscale.run.runtime_config": "INFERENCE RuntimeConfig",
    },
)
