"""The processor-accelerator protocol (HyScale-GNN, section III-C) and its devices.

A name is imported when it is first used: a program that only drives a board needs no torch.
"""

from typing import TYPE_CHECKING

from gnnscale.core.lazy import lazy_names

# Type checkers see all of each module; what a program finds is below.
if TYPE_CHECKING:
    from gnnscale.backend.base import *  # noqa: F403
    from gnnscale.backend.cpu import *  # noqa: F403
    from gnnscale.backend.emulated import *  # noqa: F403

__getattr__ = lazy_names(
    __name__,
    {
        "gnnscale.backend.base": (
            "Backend BackendInputs BatchOutcome CacheInputs DeviceBatch DeviceCacheBackend "
            "DeviceError DeviceMemoryError DeviceRates DeviceStepInputs InferenceCapable "
            "PendingOutcome Sample SampleTaker StepOwner open_backend"
        ),
        "gnnscale.backend.cpu": "CpuBackend",
        "gnnscale.backend.emulated": "EmulatedBackend",
    },
)
