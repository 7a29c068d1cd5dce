"""Device plans, the performance model, and platforms: how a run's work is divided among devices."""

from typing import TYPE_CHECKING

from gnnscale.core.lazy import lazy_names
from gnnscale.planner.cuda_spec import CPU_HINT, CardRates, Cuda, find_gpu, load_or_measure_rates
from gnnscale.planner.device_plan import (
    BY_DEVICE,
    MAX_THREADS,
    PREFETCH,
    SAMPLED_IN_TURN,
    DevicePlan,
    DevicePlanConfig,
    DeviceShare,
    Threads,
    apportion,
)
from gnnscale.planner.device_spec import Accelerator, Cpu, Device, Emulated, Fpga
from gnnscale.planner.fpga_board import Board, Die, Resources, board
from gnnscale.planner.registry import custom_kinds, register_device

if TYPE_CHECKING:
    from gnnscale.planner.device_spec import *  # noqa: F403

__getattr__ = lazy_names(
    __name__,
    {
        "gnnscale.planner.device_spec": (
            "ROW_WORDS owns_steps process_group_backend shared_collective"
        ),
    },
)
