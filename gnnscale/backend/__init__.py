"""The processor-accelerator protocol (HyScale-GNN, section III-C) and its devices."""

from gnnscale.backend.base import (
    Backend,
    BatchOutcome,
    CacheHolder,
    DeviceBatch,
    DeviceError,
    DeviceMemoryError,
    HostCache,
    HostParts,
    Inferring,
    OwnSteps,
    PendingOutcome,
    Rated,
    Sample,
    SampleTaker,
    StepOwner,
    open_backend,
)
from gnnscale.backend.cpu import CpuBackend
from gnnscale.backend.emulated import EmulatedBackend
