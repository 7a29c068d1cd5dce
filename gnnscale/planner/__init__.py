"""Device plans, the performance model, and platforms: how a run's work is divided among devices."""

from gnnscale.planner.cuda_spec import Cuda
from gnnscale.planner.device_plan import (
    BY_DEVICE,
    MAX_THREADS,
    PREFETCH,
    DevicePlan,
    DevicePlanConfig,
    DeviceShare,
    Threads,
)
from gnnscale.planner.device_spec import Accelerator, Cpu, Device, Emulated, Fpga
from gnnscale.planner.registry import register_device
