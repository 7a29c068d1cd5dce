"""Processor-accelerator protocol (HyScale-GNN, section III-C) and the devices that implement it.

Names are imported on first use, so that a program that only drives a board does not import torch.
"""

from typing import TYPE_CHECKING

from gnnscale.core.lazy import lazy_names

# For type checkers; at run time ``lazy_names`` resolves the names.
if TYPE_CHECKING:
    from gnnscale.backend.base import *  # noqa: F403
    from gnnscale.backend.host import *  # noqa: F403

__getattr__ = lazy_names(
    __name__,
    {
        "gnnscale.backend.base": (
            "Backend BackendInputs BatchOutcome CacheInputs DeviceBatch DeviceCacheBackend "
            "DeviceError DeviceMemoryError DeviceRates DeviceStepInputs InferenceCapable "
            "PendingOutcome Sample HostSampledBackend DeviceDrivenBackend open_backend"
        ),
        "gnnscale.backend.host": "CpuBackend EmulatedBackend",
    },
)
