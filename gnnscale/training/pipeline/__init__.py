"""Pipeline of stages that run ahead of the trainer, and the training step after them."""

from typing import TYPE_CHECKING

from gnnscale.core.lazy import lazy_names

if TYPE_CHECKING:
    from gnnscale.training.pipeline.device_step import DeviceDrivenStep, max_late
    from gnnscale.training.pipeline.slices import BatchSlice, Schedule
    from gnnscale.training.pipeline.stages import Stages, build_pipeline, runs_ahead
    from gnnscale.training.pipeline.step import TrainStep, WorkerStep

__getattr__ = lazy_names(
    __name__,
    {
        "gnnscale.training.pipeline.device_step": "DeviceDrivenStep max_late",
        "gnnscale.training.pipeline.slices": "BatchSlice Schedule",
        "gnnscale.training.pipeline.stages": "Stages build_pipeline runs_ahead",
        "gnnscale.training.pipeline.step": "TrainStep WorkerStep",
    },
)
