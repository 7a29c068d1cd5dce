"""Which device does what: device plans, the performance model, and platforms."""

from gnnscale.plan.cuda import Cuda
from gnnscale.plan.device import Accelerator, Cpu, Device, Emulated, Fpga
from gnnscale.plan.device_plan import (
    BY_DEVICE,
    MAX_THREADS,
    PREFETCH,
    DevicePlan,
    DevicePlanConfig,
    DeviceShare,
    Threads,
)
from gnnscale.plan.registry import register_device
