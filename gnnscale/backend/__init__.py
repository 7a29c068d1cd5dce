"""The processor-accelerator protocol (HyScale-GNN, section III-C) and the devices behind it."""

from gnnscale.backend.base import Backend, DeviceBatch, DeviceMemoryError
from gnnscale.backend.cpu import CpuBackend
from gnnscale.backend.emulated import EmulatedBackend
from gnnscale.backend.open import open_backend

__all__ = [
    "Backend",
    "CpuBackend",
    "DeviceBatch",
    "DeviceMemoryError",
    "EmulatedBackend",
    "open_backend",
]
