"""Which device does what: device plans, the performance model, and platforms."""

from gnnscale.plan.device import Cpu, Device, DevicePlanConfig, Emulated
from gnnscale.plan.device_plan import MAX_THREADS, PREFETCH, DevicePlan, DeviceShare, Threads

__all__ = [
    "MAX_THREADS",
    "PREFETCH",
    "Cpu",
    "Device",
    "DevicePlan",
    "DevicePlanConfig",
    "DeviceShare",
    "Emulated",
    "Threads",
]
