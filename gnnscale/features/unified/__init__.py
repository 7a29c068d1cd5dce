"""Unified memory: host memory that processes and their GPUs access (PyTorch-Direct, section 4)."""

from gnnscale.features.unified.segment import CudaSide, GpuSide, SharedSegment
from gnnscale.features.unified.tensor import (
    Output,
    Placement,
    UnifiedDevice,
    UnifiedTensor,
    is_unified,
    mem_advise,
    place,
    set_propagated_to_cuda,
    unified_device,
)
